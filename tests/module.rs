//! The Python module, as a wheel would install it, in the Python of Debian, or the one that
//! `MINGLE_TEST_PYTHON` names.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests panic, run programs, and show their results"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder `python` of the project.
fn python_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../python").canonicalize().unwrap()
}

/// A folder with the packages of the wheel: the files of this project, and the library that cargo has built.
fn packages(name: &str) -> PathBuf {
    // `cargo test` leaves the library beside the tests, and nothing in the folder above.
    let built = std::env::current_exe().unwrap().with_file_name("lib_mingle.so");
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("packages-{}", std::process::id())).join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(folder.join("mingle")).unwrap();
    let source = python_folder().join("src");
    for package in ["mingle_torch", "mingle_torchrun"] {
        symlink(source.join(package), folder.join(package)).unwrap();
    }
    for entry in fs::read_dir(source.join("mingle")).unwrap() {
        let entry = entry.unwrap();
        symlink(entry.path(), folder.join("mingle").join(entry.file_name())).unwrap();
    }
    symlink(built, folder.join("mingle/_mingle.abi3.so")).unwrap();
    folder
}

/// Runs tests, which are arguments of Python's unittest. The results are in the output, and in the exit code.
fn run(packages: &Path, tests: &[&str]) -> Result<Output, String> {
    let python = std::env::var("MINGLE_TEST_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_owned());
    let missing = |error| format!("{python}: {error}");
    Command::new(&python).arg("--version").output().map_err(missing)?;
    // Background jobs of a shell ignore SIGINT, and processes of the tests would inherit that.
    let mut command = Command::new("env");
    command
        .arg("--default-signal=INT,QUIT")
        .arg(&python)
        .args(["-m", "unittest", "--verbose"])
        .args(tests)
        .current_dir(python_folder());
    command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("MINGLE_") && !name.starts_with("MINGLE_TEST_") {
            command.env_remove(name);
        }
    }
    command.output().map_err(missing)
}

/// Prints a line for each test, `skipped` with the reason included, which is a failure in the gate.
fn pass(name: &str, all: &[&[&str]]) {
    let is_required = std::env::var_os("MINGLE_REQUIRE_NETNS").is_some_and(|value| value == "1");
    let packages = packages(name);
    for tests in all {
        let Output { status, stdout, stderr } = match run(&packages, tests) {
            Ok(output) => output,
            Err(reason) if is_required => panic!("must not be skipped here: {reason}"),
            Err(reason) => return eprintln!("skipped: {reason}"),
        };
        let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{tests:?}: {status}\n{said}");
        let is_skipped = ["has no torch", "makes no network namespaces"].iter().any(|why| said.contains(why));
        assert!(!is_required || !is_skipped, "must not be skipped here: {said}");
        eprintln!("{said}");
    }
}

#[test]
fn the_module_keeps_its_promises_in_python() {
    pass("module", &[&["tests/test_module.py"], &["tests/test_torch.py"], &["tests/test_jax.py"]]);
}

#[test]
fn a_training_goes_on_in_the_processes_that_live() {
    pass("group", &[&["tests/test_group.py"]]);
}

#[test]
fn torchruns_agents_meet_with_mingle() {
    let killed = ["-k", "a_killed_agent_is_replaced", "tests/test_torchrun.py"];
    pass("torchrun", &[&["tests/test_plugin.py"], &killed]);
}

#[test]
#[ignore = "starting torch again and again takes minutes; CONTRIBUTING.md has the command and the figures"]
fn torchruns_agents_keep_every_promise() {
    pass("agents", &[&["tests/test_torchrun.py"]]);
}
