//! The output of workers, with the rank of each in front of its lines: `[3] step 10`.
//!
//! A thread reads each pipe and writes whole lines, so that lines of several workers do not mix. A slow
//! reader slows the workers, as it would without a relay, and does not delay answers to other nodes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::exit::Stop;
use crate::stderr;
use crate::stdout::Stdout;

/// A longer line is cut.
const LONGEST: usize = 64 << 10;
/// How often to try again to write to a terminal that is full.
const AGAIN: Duration = Duration::from_millis(5);

/// The relays of all workers.
#[derive(Debug, Clone)]
pub(super) struct Relay {
    stdout: Arc<Mutex<File>>,
    /// The number of open pipes.
    open: Arc<AtomicUsize>,
    /// The number of pipes whose lines are being written.
    busy: Arc<AtomicUsize>,
    /// Whether lines could not be written although somebody reads them, as on a full disk.
    pub(super) lost: Arc<AtomicBool>,
}

impl Relay {
    pub(super) fn new() -> Result<Self, Stop> {
        let stdout = Arc::new(Mutex::new(Stdout::stream()?));
        Ok(Self { stdout, open: Arc::default(), busy: Arc::default(), lost: Arc::default() })
    }

    /// Relays what the worker of this rank writes.
    pub(super) fn attach(&self, rank: u64, worker: &mut Child) -> io::Result<()> {
        if let Some(from) = worker.stdout.take() {
            let stdout = Arc::clone(&self.stdout);
            self.start(rank, from, move |lines| {
                write_all(&mut *stdout.lock().unwrap_or_else(PoisonError::into_inner), lines)
            })?;
        }
        if let Some(from) = worker.stderr.take() {
            self.start(rank, from, |lines| write_all(&mut io::stderr().lock(), lines))?;
        }
        Ok(())
    }

    /// Whether all that has been read is written, and all pipes are closed, unless it is too late for that.
    pub(super) fn has_written(&self, is_late: bool) -> bool {
        let is_busy = self.busy.load(Ordering::Acquire) > 0;
        self.open.load(Ordering::Acquire) == 0 || (is_late && !is_busy)
    }

    fn start(
        &self,
        rank: u64,
        mut from: impl Read + Send + 'static,
        mut write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let Self { open, busy, lost, .. } = self.clone();
        open.fetch_add(1, Ordering::AcqRel);
        let relay = move || {
            let mut lines = MarkedLines::new(rank);
            let mut chunk = [0; 8192];
            loop {
                let read = match from.read(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read.unwrap_or(0),
                };
                busy.fetch_add(1, Ordering::AcqRel);
                let whole = if read == 0 { lines.end() } else { lines.add(&chunk[..read]) };
                let written = write(&whole);
                if let Err(error) = &written
                    && error.kind() != io::ErrorKind::BrokenPipe
                {
                    lost.store(true, Ordering::Release);
                    stderr::insist(format_args!("cannot write the output of rank {rank}: {error}"));
                }
                // Only now: whoever sees that nothing is being written also sees what was lost.
                busy.fetch_sub(1, Ordering::AcqRel);
                // If nobody reads any more, the worker gets SIGPIPE, as without a relay.
                if read == 0 || written.is_err() {
                    break;
                }
            }
            drop(from);
            open.fetch_sub(1, Ordering::AcqRel);
        };
        thread::Builder::new().spawn(relay).map(drop)
    }
}

/// Writes everything. A worker that makes its stdin non-blocking may do so to a terminal that is this
/// process's stdout as well.
#[expect(clippy::disallowed_methods, reason = "a thread that has nothing else to wait for")]
fn write_all(to: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(AGAIN),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Splits output into lines, and puts the rank before each.
struct MarkedLines {
    mark: String,
    rest: Vec<u8>,
}

impl MarkedLines {
    fn new(rank: u64) -> Self {
        Self { mark: format!("[{rank}] "), rest: Vec::new() }
    }

    /// All lines that are complete now. A progress bar ends its lines with a carriage return alone.
    fn add(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(bytes.len() + self.mark.len());
        for &byte in bytes {
            let has_end = self.rest.last() == Some(&b'\r');
            if byte != b'\n' && (has_end || self.rest.len() >= LONGEST) {
                self.rest.extend((!has_end).then_some(b'\n'));
                self.flush(&mut whole);
            }
            self.rest.push(byte);
            if byte == b'\n' {
                self.flush(&mut whole);
            }
        }
        whole
    }

    /// The rest, at the end.
    fn end(&mut self) -> Vec<u8> {
        if self.rest.is_empty() { Vec::new() } else { self.add(b"\n") }
    }

    fn flush(&mut self, whole: &mut Vec<u8>) {
        whole.extend_from_slice(self.mark.as_bytes());
        whole.append(&mut self.rest);
    }
}

#[cfg(test)]
mod tests {
    use nix::fcntl::OFlag;
    use nix::unistd::pipe2;

    use super::*;

    #[test]
    fn everything_is_written_although_the_other_end_is_slow_and_writing_does_not_block() {
        let (from, to) = pipe2(OFlag::O_NONBLOCK).unwrap();
        let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let wanted = bytes.clone();
        let writer = thread::spawn(move || write_all(&mut File::from(to), &bytes));
        let (mut from, mut read, mut chunk) = (File::from(from), Vec::new(), [0; 8192]);
        while read.len() < wanted.len() {
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => read.extend_from_slice(&chunk[..length]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        writer.join().unwrap().unwrap();
        assert!(read == wanted);
    }

    #[test]
    fn each_line_gets_the_mark_wherever_it_is_cut_into_reads() {
        let text = b"one\ntwo\r\n\n 10%\r 20%\rlast";
        let wanted = "[3] one\n[3] two\r\n[3] \n[3]  10%\r[3]  20%\r[3] last\n";
        for size in 1..=text.len() {
            let mut lines = MarkedLines::new(3);
            let mut all: Vec<u8> = text.chunks(size).flat_map(|chunk| lines.add(chunk)).collect();
            all.extend(lines.end());
            assert_eq!(String::from_utf8(all).unwrap(), wanted, "{size}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let mut lines = MarkedLines::new(0);
        let all = lines.add(&vec![b'x'; LONGEST + 1]);
        assert_eq!(all.len(), "[0] \n".len() + LONGEST);
        assert_eq!(lines.end(), b"[0] x\n");
        assert!(lines.end().is_empty());
        // One that is just as long is whole.
        let all = lines.add(&[&vec![b'x'; LONGEST][..], b"\n"].concat());
        assert_eq!(all.len(), "[0] \n".len() + LONGEST);
    }
}
