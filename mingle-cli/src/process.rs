//! The facts about a process in proc(5).

use std::fmt::Display;
use std::fs;

/// A part of /proc/PID/stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) group: i32,
    terminal: i32,
    foreground: i32,
    /// When it started, in clock ticks since the boot. execve(2) does not change it.
    pub(crate) start: u64,
}

impl Stat {
    /// Of this process ID, or of `self`. None where there is no such process, or no /proc.
    pub(crate) fn of(process: impl Display) -> Option<Self> {
        // A name holds any bytes. The kernel cuts it after 15, even in the middle of a character.
        let bytes = fs::read(format!("/proc/{process}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may hold anything. After it come the 3rd field and so on.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        Some(Self {
            // After the state and the parent.
            group: fields.nth(2)?.parse().ok()?,
            // After the session.
            terminal: fields.nth(1)?.parse().ok()?,
            foreground: fields.next()?.parse().ok()?,
            start: fields.nth(13)?.parse().ok()?,
        })
    }

    /// Whether it has a controlling terminal, from which a shell may control it as a job.
    pub(crate) fn has_terminal(self) -> bool {
        self.terminal != 0
    }

    /// Whether Ctrl-C on its terminal reaches it.
    pub(crate) fn is_in_foreground(self) -> bool {
        self.has_terminal() && self.foreground == self.group
    }
}

/// The IDs of all processes.
pub(crate) fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use nix::sys::prctl;
    use nix::unistd::gettid;

    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_is_skipped() {
        let text = "42 (a) Z 1 (b) S 7 8 9 34816 8 4194304 1 2 3 4 5 6 7 8 20 0 1 0 777 1 2 3";
        let wanted = Stat { group: 8, terminal: 34816, foreground: 8, start: 777 };
        assert_eq!(Stat::parse(text), Some(wanted));
        assert!(wanted.is_in_foreground() && !Stat { foreground: 7, ..wanted }.is_in_foreground());
        let elsewhere = Stat { terminal: 0, foreground: -1, ..wanted };
        assert!(!elsewhere.has_terminal() && !elsewhere.is_in_foreground());
    }

    #[test]
    fn a_name_that_is_no_utf_8_hides_no_process() {
        let named = || {
            prctl::set_name(c"half a letter \xd0").unwrap();
            Stat::of(gettid().as_raw())
        };
        assert!(std::thread::spawn(named).join().unwrap().is_some());
    }
}
