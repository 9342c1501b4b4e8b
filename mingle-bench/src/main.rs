//! `mingle-bench [--short] [PART...]` measures, prints and writes docs/performance.md; `mingle-bench --check` counts what
//! must not become more.

use std::fs;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode};

use mingle_bench::parts::{ALL, Effort, loopback, words};
use mingle_bench::{budget, plot, programs};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, getgid, getuid};

const USAGE: &str = "\
mingle-bench [--short] [PART...]   measure all parts or these; in full, write docs/performance.md and its plot
mingle-bench --check               count what must not become more
parts:";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        // What this program starts of itself.
        ["--share", job, ranks, nodes @ ..] => share(job, nodes, !ranks.is_empty()),
        ["--words", times] => {
            words::repeat(times.parse().unwrap_or(1));
            ExitCode::SUCCESS
        }
        ["--check"] => {
            prepare(false);
            if budget::check(io::stdout()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        ["--short", parts @ ..] => measure(parts, Effort::Short),
        parts => measure(parts, Effort::Full),
    }
}

fn share(job: &str, nodes: &[&str], ranks: bool) -> ExitCode {
    let numbers: Vec<u32> = nodes.iter().filter_map(|text| text.parse().ok()).collect();
    let Ok(nodes) = numbers.try_into() else { return ExitCode::from(2) };
    match loopback::take_part(job, nodes, ranks) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

fn measure(names: &[&str], effort: Effort) -> ExitCode {
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|part| part.name != **name)) {
        let parts: Vec<_> = ALL.iter().map(|part| part.name).collect();
        say(&format!("there is no part {unknown}\n{USAGE} {}", parts.join(" ")));
        return ExitCode::from(2);
    }
    prepare(effort == Effort::Full && (wanted("together") || wanted("last")));
    for part in ALL.iter().filter(|part| wanted(part.name)) {
        let table = (part.measure)(effort);
        say(&table.render());
        if effort == Effort::Full {
            let saved = table.save().map_err(Into::into);
            let plotted = if part.name == "loopback" { plot::save(&table) } else { Ok(()) };
            if let Err(error) = saved.and(plotted) {
                say(&error.to_string());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Builds what is measured, and then leaves the host's network for an empty one.
fn prepare(alternatives: bool) {
    programs::build(alternatives);
    let (user, group) = (getuid(), getgid());
    if user == Uid::from_raw(0) && unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return up();
    }
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).expect("a network namespace");
    fs::write("/proc/self/setgroups", "deny").expect("groups are given up");
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).expect("root of a user namespace");
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).expect("root of a user namespace");
    up();
}

fn up() {
    let status = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(status.is_ok_and(|status| status.success()), "the loopback interface must go up");
}

fn say(text: &str) {
    // Whoever reads it no longer has seen enough.
    let _ = writeln!(io::stdout(), "{text}");
}
