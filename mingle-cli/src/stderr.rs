//! Stderr, which is for people: one line for each message. Within another program that program gets the
//! lines.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::io::{self, IsTerminal, Write as _};
use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use tracing::Level;

use crate::caller;

/// How long a line waits for a stderr that is full, in milliseconds. Then it is lost: a terminal that is
/// stopped must not keep a node from stopping its command, nor from answering the others.
const PATIENCE: u16 = 100;
/// How long an error waits, which often ends the run.
const PATIENCE_OF_ERRORS: u16 = 2000;

thread_local! {
    /// Whether the run of this thread has --quiet.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Writes `mingle: ` and the message, unless --quiet is given.
pub(crate) fn say(message: fmt::Arguments<'_>) {
    if !IS_QUIET.get() {
        write(message, PATIENCE);
    }
}

/// Writes `mingle: ` and the message, which is an error, also with --quiet.
pub(crate) fn insist(message: fmt::Arguments<'_>) {
    write(message, PATIENCE_OF_ERRORS);
}

/// A stderr that is closed, or full for so long, is ignored.
fn write(message: fmt::Arguments<'_>, patience: u16) {
    let text = message.to_string();
    let text = printable(&text);
    if caller::tell("line", || text.clone().into(), None) {
        return;
    }
    let stderr = io::stderr();
    let mut watched = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    let ready = loop {
        match poll(&mut watched, patience) {
            Err(Errno::EINTR) => {}
            ready => break ready,
        }
    };
    if ready != Ok(0) {
        // One write for each line, so that lines of several processes do not mix.
        let _ = stderr.lock().write_all(format!("mingle: {text}\n").as_bytes());
    }
}

/// Says each of these as a warning.
pub(crate) fn warn(warnings: impl IntoIterator<Item = impl fmt::Display>) {
    for warning in warnings {
        say(format_args!("warning: {warning}"));
    }
}

/// The text without control characters, which could move the cursor or rename the window, and without marks
/// that change the direction of the text. Arguments and names of interfaces can hold them. Text from the
/// network cannot, but is not trusted here.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let turns = |c| matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let is_bad = |c: char| c.is_control() && c != '\n' || turns(c);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let show = |c: char| if is_bad(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(show).collect())
}

/// Whether a line on stderr can be redrawn in place.
pub(crate) fn is_live() -> bool {
    !caller::is_there() && redraws(&io::stderr())
}

/// Whether lines that are written there can be redrawn in place.
pub(crate) fn redraws(out: &impl IsTerminal) -> bool {
    out.is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Begins a run: from now on errors alone are said with `--quiet`, and with `--verbose` the log starts. Other
/// runs save the time that this takes.
pub(crate) fn begin(quiet: bool, verbose: u8) {
    IS_QUIET.set(quiet);
    let level = match verbose {
        0 => return,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
    // A second rendezvous in one process finds the log started.
    let _ = log.with_ansi(is_live()).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_reaches_the_terminal() {
        assert_eq!(printable("node-b joined\nand more"), "node-b joined\nand more");
        assert_eq!(printable("\u{1b}]0;x\u{7}\r\u{9b}é"), "\\u{1b}]0;x\\u{7}\\r\\u{9b}é");
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
    }
}
