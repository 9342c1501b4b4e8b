//! The programs in `examples/`, run as a reader of them would.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// Cargo builds the examples before it runs all tests; it tells nobody where they are.
fn example(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is not there: run `cargo build --example {name}` first", program.display());
    program
}

/// Starts an example four times as a world on loopback, and waits until all have ended well.
fn four_times(name: &str, arguments: &[&str]) -> Vec<Output> {
    let job = format!("example {name} {}", std::process::id());
    let start = |_| {
        let mut command = Command::new(example(name));
        command.args([&job, "4"]).args(arguments).env("MINGLE_INTERFACE", "lo");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<Child> = (0..4).map(start).collect();
    let outputs: Vec<Output> = started.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    for output in &outputs {
        assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    }
    outputs
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn four_programs_meet_at_the_barrier() {
    let outputs = four_times("barrier", &["lo"]);
    // The one that gathers counts up to all; the others may hear of the end before they hear a number.
    let counted = |output: &Output| text(&output.stderr).contains("4 of 4 nodes here");
    assert!(outputs.iter().any(counted), "{outputs:?}");
    let mut said: Vec<String> = outputs.iter().map(|output| text(&output.stdout)).collect();
    said.sort_unstable();
    // The port is whichever was free, and the same for all.
    let (_, master) = said[0].trim_end().rsplit_once(' ').unwrap();
    let expected: Vec<String> =
        (0..4).map(|rank| format!("rank {rank} of 4: all nodes have connected to {master}\n")).collect();
    assert_eq!(said, expected);
    assert!(master.starts_with("127.0.0.1:29"), "{master}");
}

#[test]
fn every_worker_has_its_place_among_all_of_the_world() {
    let outputs = four_times("workers", &["2", "sh", "-c", "echo $RANK of $WORLD_SIZE, here $LOCAL_RANK"]);
    let said: Vec<String> = outputs.iter().map(|output| text(&output.stdout)).collect();
    let mut lines: Vec<&str> = said.iter().flat_map(|said| said.lines()).collect();
    lines.sort_unstable();
    let expected: Vec<String> = (0..8).map(|rank| format!("{rank} of 8, here {}", rank % 2)).collect();
    assert_eq!(lines, expected);
    for output in &outputs {
        let told = text(&output.stderr);
        assert_eq!(told.matches(": 2 workers, launcher ").count(), 4, "{told}");
    }
}

#[test]
fn torchruns_rendezvous_is_told_who_holds_the_store_and_where() {
    let outputs = four_times("c10d", &["sh", "-c", "echo $PET_RDZV_CONF $PET_RDZV_ENDPOINT $PET_LOCAL_ADDR"]);
    let said: Vec<String> = outputs.iter().map(|output| text(&output.stdout)).collect();
    assert_eq!(said.iter().filter(|said| said.starts_with("is_host=1 127.0.0.1:")).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|said| said.starts_with("is_host=0 127.0.0.1:")).count(), 3, "{said:?}");
    assert!(said.iter().all(|said| said.trim_end().ends_with(" 127.0.0.1")), "{said:?}");
}
