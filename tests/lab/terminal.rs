//! An interactive shell on a terminal of its own, with job control, as a user has it.

use std::fs::File;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::pty::openpty;

use super::proc::Stream;
use super::{Lab, MINGLE};

/// How long the shell or a command may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal with bash, killed on drop.
pub struct Terminal {
    shell: Child,
    keys: File,
    screen: Arc<Stream>,
    /// How much of the screen has been read.
    read: usize,
}

impl Terminal {
    /// Starts bash on a node of the lab. `$mingle` is the program under test.
    pub fn start(lab: &Lab, node: usize) -> Self {
        let pty = openpty(None, None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        // setsid makes its stdin the controlling terminal.
        let mut command: Command = lab.command(node, "setsid");
        command.args(["-c", "-w", "bash", "--norc", "--noprofile", "-i"]);
        command.env("mingle", MINGLE).env("PS1", "").env("TERM", "dumb");
        let shell = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop(command);
        drop(pty.slave);
        let keys = File::from(pty.master);
        let screen = Stream::collect(keys.try_clone().unwrap());
        let mut terminal = Self { shell, keys, screen, read: 0 };
        // What is typed does not appear on the screen.
        terminal.line("stty -echo; echo rea''dy");
        terminal.expect("ready");
        terminal
    }

    /// Presses keys; `\x03` is Ctrl-C, `\x1a` is Ctrl-Z.
    pub fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Presses keys again and again until the text appears: after `fg` the shell takes a moment to hand over
    /// the terminal.
    pub fn keys_until(&mut self, keys: &str, text: &str) {
        let until = Instant::now() + PATIENCE;
        let read = self.read;
        while Instant::now() < until {
            self.keys(keys);
            let soon = Instant::now() + Duration::from_millis(200);
            if self.screen.wait_until(soon, |all| all[read..].contains(text)) {
                break;
            }
        }
        self.expect(text);
    }

    /// Types a line.
    pub fn line(&mut self, line: &str) {
        self.keys(&format!("{line}\n"));
    }

    /// Waits until the text appears after what was expected before.
    pub fn expect(&mut self, text: &str) {
        let read = self.read;
        let found = self.screen.wait_until(Instant::now() + PATIENCE, |all| all[read..].contains(text));
        let screen = self.screen.text();
        assert!(found, "no {text:?} after byte {read} of\n{screen}");
        self.read += screen[read..].find(text).unwrap() + text.len();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
