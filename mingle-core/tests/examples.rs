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

#[test]
fn four_launchers_meet_at_the_barrier() {
    let job = format!("launcher test {}", std::process::id());
    let launchers: Vec<Child> = (0..4)
        .map(|_| {
            let mut command = Command::new(example("launcher"));
            command.args([&job, "4", "lo"]).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let outputs: Vec<Output> = launchers.into_iter().map(|child| child.wait_with_output().unwrap()).collect();

    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for output in &outputs {
        assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    }
    // The one that gathers counts up to all; the others may hear of the end before they hear a number.
    let counted = |output: &Output| text(&output.stderr).contains("4 of 4 nodes here");
    assert!(outputs.iter().any(counted), "{outputs:?}");
    let mut said: Vec<String> = outputs.iter().map(|output| text(&output.stdout)).collect();
    said.sort_unstable();
    // The port is whichever was free, and the same for all.
    let (_, master) = said[0].trim_end().rsplit_once(' ').unwrap();
    let expected: Vec<String> =
        (0..4).map(|rank| format!("rank {rank} of 4: all have come to {master}\n")).collect();
    assert_eq!(said, expected);
    assert!(master.starts_with("127.0.0.1:29"), "{master}");
}
