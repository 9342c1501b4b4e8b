//! A shared folder, as the only way for nodes to find each other.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::form_with;
use crate::lab::preload::Preload;
use crate::lab::proc::GUARD;
use crate::lab::world::line_with;
use crate::lab::{Lab, Options, Policy, limit};

/// A folder of this test's own, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("networks-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn argument(&self) -> String {
        format!("--seed-dir {}", self.0.display())
    }

    /// The files that nodes have left there, half-written ones too.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter(|name| name.contains("mingle-")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn without_multicast() -> Option<Lab> {
    let lab = Options::nodes(4).with_filters().start()?;
    lab.set(&Policy { no_multicast: true, ..Policy::default() });
    Some(lab)
}

#[test]
fn without_multicast_a_shared_folder_forms_a_world_and_is_empty_afterwards() {
    let Some(lab) = without_multicast() else { return };
    let folder = Folder::new("all");
    form_with(&lab, "folder", &folder.argument()).expect(&lab, &[0, 1, 2, 3]);
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn a_node_that_fails_or_is_terminated_removes_its_file() {
    let Some(lab) = without_multicast() else { return };
    let folder = Folder::new("left");
    // The folder holds so many other files that a node is still reading it when SIGTERM arrives.
    for i in 0..20_000 {
        File::create(folder.0.join(format!("other-{i}"))).unwrap();
    }
    let late = lab.spawn(0, &line_with("late", 4, &format!("--timeout 1s {}", folder.argument())));
    for _ in 0..4 {
        let left = lab.spawn(1, &line_with("left", 4, &folder.argument()));
        left.expect_stderr("looking for");
        assert!(!folder.names().is_empty(), "there is a file meanwhile");
        left.signal("TERM");
        left.finish().failed(143, &[]);
    }
    late.finish().failed(3, &["nobody else was heard"]);
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn the_file_of_a_killed_node_is_removed_when_it_is_older_than_a_minute() {
    let Some(lab) = without_multicast() else { return };
    let folder = Folder::new("stale");
    let mut left = Vec::new();
    for _ in 0..2 {
        let victim = lab.spawn(3, &line_with("stale", 4, &folder.argument()));
        victim.expect_stderr("looking for");
        victim.signal("KILL");
        assert_eq!(victim.finish().stdout, GUARD);
        left.extend(folder.names().into_iter().filter(|name| !left.contains(name)).collect::<Vec<_>>());
    }
    let [old, young] = &left[..] else { panic!("{left:?}") };
    let now = SystemTime::now();
    for (name, age) in [(old, 90), (young, 20)] {
        let file = File::options().write(true).open(folder.0.join(name)).unwrap();
        file.set_modified(now - Duration::from_secs(age)).unwrap();
    }
    form_with(&lab, "stale", &folder.argument()).expect(&lab, &[0, 1, 2, 3]);
    assert_eq!(folder.names(), [young.as_str()]);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_an_error_at_once() {
    let Some(lab) = without_multicast() else { return };
    // Root can write everywhere except on a read-only mount.
    lab.at(0, "mkdir /run/read-only; mount -t tmpfs -o ro tmpfs /run/read-only");
    for path in ["/run/read-only", "/run/not-there", "/dev/null"] {
        let proc = lab.spawn(0, &line_with("folder", 4, &format!("--seed-dir {path}")));
        let outcome = proc.finish_within(limit(Duration::from_secs(2)));
        outcome.failed(5, &[&format!("seed folder {path}")]);
    }
}

#[test]
fn a_folder_that_does_not_answer_is_an_error_at_the_start_and_does_not_delay_the_end() {
    let Some(lab) = without_multicast() else { return };
    let Some(preload) = Preload::build() else { return };
    let folder = Folder::new("silent");
    let start = |silent, timeout| {
        let line = line_with("silent", 4, &format!("--timeout {timeout} {}", folder.argument()));
        let begun = Instant::now();
        let outcome = preload.spawn(&lab, 0, &format!("LAB_SILENT={silent}"), &line).finish();
        (outcome, begun.elapsed())
    };
    // The draft of its file is the first file that a node touches.
    let (outcome, took) = start("/.mingle-", "30s");
    outcome.failed(5, &[&format!("seed folder {}: it does not answer", folder.0.display())]);
    assert!(took < Duration::from_secs(4), "{took:?}");
    let (outcome, took) = start("/mingle-", "1s");
    outcome.failed(3, &["nobody else was heard"]);
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(folder.names().len(), 1, "its file could not be removed");
}
