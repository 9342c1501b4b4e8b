//! The programs in `examples/`, run as their readers would.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// Cargo builds the examples before it runs all tests. No variable says where they are.
fn example(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is not there: run `cargo build --example {name}` first", program.display());
    program
}

/// Runs an example as a world of four nodes on loopback, and checks that all end well.
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
    // The leader counts to four; the others may learn of the commit before they learn a number.
    let counted = |output: &Output| text(&output.stderr).contains("4 of 4 nodes here");
    assert!(outputs.iter().any(counted), "{outputs:?}");
    let mut printed: Vec<String> = outputs.iter().map(|output| text(&output.stdout)).collect();
    printed.sort_unstable();
    // Any free port may be the master's, and all nodes print the same one.
    let (_, master) = printed[0].trim_end().rsplit_once(' ').unwrap();
    let expected: Vec<String> =
        (0..4).map(|rank| format!("rank {rank} of 4: all nodes have connected to {master}\n")).collect();
    assert_eq!(printed, expected);
    assert!(master.starts_with("127.0.0.1:29"), "{master}");
}

#[test]
fn every_worker_gets_its_global_rank() {
    let outputs = four_times("workers", &["2", "sh", "-c", "echo $RANK of $WORLD_SIZE, here $LOCAL_RANK"]);
    let printed: Vec<String> = outputs.iter().map(|output| text(&output.stdout)).collect();
    let mut lines: Vec<&str> = printed.iter().flat_map(|printed| printed.lines()).collect();
    lines.sort_unstable();
    let expected: Vec<String> = (0..8).map(|rank| format!("{rank} of 8, here {}", rank % 2)).collect();
    assert_eq!(lines, expected);
    for output in &outputs {
        let stderr = text(&output.stderr);
        assert_eq!(stderr.matches(": 2 workers, launcher ").count(), 4, "{stderr}");
    }
}

#[test]
fn one_node_hosts_the_store_of_torchruns_rendezvous() {
    let outputs = four_times("c10d", &["sh", "-c", "echo $PET_RDZV_CONF $PET_RDZV_ENDPOINT $PET_LOCAL_ADDR"]);
    let printed: Vec<String> = outputs.iter().map(|output| text(&output.stdout)).collect();
    assert_eq!(
        printed.iter().filter(|printed| printed.starts_with("is_host=1 127.0.0.1:")).count(),
        1,
        "{printed:?}"
    );
    assert_eq!(
        printed.iter().filter(|printed| printed.starts_with("is_host=0 127.0.0.1:")).count(),
        3,
        "{printed:?}"
    );
    assert!(printed.iter().all(|printed| printed.trim_end().ends_with(" 127.0.0.1")), "{printed:?}");
}

#[test]
fn a_launcher_starts_all_commands_again_when_one_fails() {
    let folder = env::temp_dir().join(format!("mingle-restarts-{}", std::process::id()));
    // The first command that makes the folder fails, once.
    let script =
        format!("mkdir {} 2>/dev/null && exit 7; echo $RANK of $WORLD_SIZE; sleep 1", folder.display());
    let outputs = four_times("restarts", &["sh", "-c", &script]);
    std::fs::remove_dir(&folder).unwrap();
    for output in &outputs {
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(stdout.ends_with(" of 4\n"), "{stdout}{stderr}");
        assert_eq!(stderr.matches("world of 4 formed: rank").count(), 2, "{stderr}");
    }
    let told = outputs
        .iter()
        .filter(|output| text(&output.stderr).contains("exit code 7; all commands restart, 1 of 3"));
    assert_eq!(told.count(), 3);
}
