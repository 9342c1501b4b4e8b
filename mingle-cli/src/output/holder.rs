//! The process with which a job ends. A line of the job's block in /etc/hosts names it, so that a later job
//! can tell that the block is stale.
//!
//! ```text
//! mingle run      this process: it becomes the command, or stays as its parent
//! eval            the parent, usually the shell that evaluates the result and goes on with the job
//! ```

use std::fmt;
use std::fs;

use nix::unistd::{getpid, getppid};

use crate::process::{self, Stat};

const BEFORE: &str = "# mingle holder ";
/// Programs that start another one, wait for it and end: the shell is above them.
const WRAPPERS: [&str; 5] = ["doas", "runuser", "su", "sudo", "timeout"];

/// A process. The ID of the boot tells it from those before the last boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pid: i32,
    start: u64,
    /// The PID namespace in which the ID is valid.
    namespace: String,
    boot: String,
}

impl Holder {
    /// This process; none without /proc.
    pub(crate) fn own() -> Option<Self> {
        Self::of(getpid().as_raw())
    }

    /// The parent. None if it is in another PID namespace, as the parent of a container's first process is.
    pub(crate) fn parent() -> Option<Self> {
        let mut pid = getppid().as_raw();
        // Names need not be UTF-8.
        let is_wrapper = |name: Vec<u8>| WRAPPERS.iter().any(|other| other.as_bytes() == name.trim_ascii());
        while is_wrapper(fs::read(format!("/proc/{pid}/comm")).ok()?) {
            pid = Stat::of(pid)?.parent;
        }
        Self::of(pid)
    }

    fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, start: Stat::of(pid)?.start, namespace: namespace()?, boot: boot()? })
    }

    /// The holder in a line of the file, if it is one.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(line).ok()?.strip_prefix(BEFORE)?.split_whitespace();
        let pid = words.next()?.parse().ok().filter(|pid| *pid > 0)?;
        let start = words.next()?.parse().ok()?;
        let (namespace, boot) = (words.next()?.to_owned(), words.next()?.to_owned());
        words.next().is_none().then_some(Self { pid, start, namespace, boot })
    }

    /// Whether it has certainly ended. A process of another PID namespace counts as alive until the next
    /// boot.
    pub(super) fn is_over(&self) -> bool {
        let Some(boot) = boot() else { return false };
        boot != self.boot
            || namespace().is_some_and(|namespace| namespace == self.namespace)
                && process::has_ended(self.pid, self.start)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEFORE}{} {} {} {}", self.pid, self.start, self.namespace, self.boot)
    }
}

/// Such as `pid:[4026531836]`.
fn namespace() -> Option<String> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_string().ok()?;
    Some(link).filter(|link| !link.contains(char::is_whitespace))
}

fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_comes_back_from_its_line_and_is_over_with_its_process_or_its_boot() {
        let own = Holder::own().unwrap();
        assert_eq!(Holder::parse(format!("{own}\n").as_bytes()), Some(own.clone()));
        assert!(!own.is_over());
        let over = Holder { start: own.start + 1, ..own.clone() };
        assert!(over.is_over(), "the ID is another process's now");
        let elsewhere = Holder { namespace: "pid:[1]".to_owned(), ..over.clone() };
        assert!(!elsewhere.is_over(), "the ID does not count here");
        assert!(Holder { boot: "earlier".to_owned(), ..own.clone() }.is_over());
        for line in ["# mingle holder", "# mingle holder 1 2 3", "# mingle holder -1 2 a b", "10.0.0.1 a"] {
            assert_eq!(Holder::parse(line.as_bytes()), None, "{line}");
        }
    }
}
