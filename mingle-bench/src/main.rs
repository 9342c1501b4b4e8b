//! `mingle-bench [--short] [PART...]` measures, prints and writes docs/performance.md. `mingle-bench --check`
//! compares counts with their limits.

use std::fs;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode};

use mingle_bench::parts::{ALL, Effort};
use mingle_bench::{budget, programs};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, getgid, getuid};

const USAGE: &str = "\
mingle-bench [PART...]           measure all parts or these, and write docs/performance.md
mingle-bench --short [PART...]   measure less, to see that it works; write nothing
mingle-bench --check             compare counts with their limits
parts:";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--check"] => {
            if let Err(error) = prepare(&["ip", "strace", "valgrind"], false) {
                return fail(&error);
            }
            if budget::check(io::stdout()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        ["--short", parts @ ..] => measure(parts, Effort::Short),
        parts => measure(parts, Effort::Full),
    }
}

fn measure(names: &[&str], effort: Effort) -> ExitCode {
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|part| part.name != **name)) {
        let parts: Vec<_> = ALL.iter().map(|part| part.name).collect();
        say(&format!("there is no part {unknown}\n{USAGE} {}", parts.join(" ")));
        return ExitCode::from(2);
    }
    let tools: &[&str] = if wanted("loss") { &["ip", "nft"] } else { &["ip"] };
    let alternatives = effort == Effort::Full && (wanted("together") || wanted("last"));
    if let Err(error) = prepare(tools, alternatives) {
        return fail(&error);
    }
    for part in ALL.iter().filter(|part| wanted(part.name)) {
        let table = (part.measure)(effort);
        say(&table.render());
        if effort == Effort::Full
            && let Err(error) = table.save()
        {
            return fail(&error.to_string());
        }
    }
    ExitCode::SUCCESS
}

/// Checks the tools, builds the programs, and moves this process to an empty network namespace. An error says
/// what is missing, before anything is measured.
fn prepare(tools: &[&str], alternatives: bool) -> Result<(), String> {
    programs::require(tools)?;
    programs::build(alternatives)?;
    leave_network().map_err(|error| {
        format!("cannot make a network namespace, as root or in a user namespace: {error}")
    })?;
    let status = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err("'ip link set lo up' fails in the new network namespace".to_owned()),
    }
}

/// Moves this process to a network namespace of its own, as root or in a user namespace.
fn leave_network() -> io::Result<()> {
    let (user, group) = (getuid(), getgid());
    if user == Uid::from_raw(0) && unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

fn say(text: &str) {
    // A reader that has closed the pipe wants no more.
    let _ = writeln!(io::stdout(), "{text}");
}

fn fail(error: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "mingle-bench: {error}");
    ExitCode::FAILURE
}
