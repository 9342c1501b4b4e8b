//! `--output FORMAT=FILE`: results beside the one on stdout.
//!
//! A reader sees the old file or the new one, and never half of it: the file is written under another name in
//! the same folder, and renamed. Where that is not possible, because the file is a mount point, as /etc/hosts
//! is in a container, or because its folder takes no new files, it is written in place.
//!
//! ```text
//! file        regular files: writing them, and whether that can be, before this node waits for others
//! hosts       the blocks of /etc/hosts
//! ```

mod file;
mod hosts;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use mingle_core::env::{Format, Template};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::O_NONBLOCK;

use crate::config::values;
use crate::stdout::Stdout;
pub(crate) use file::beside;

/// How often to try again while another process has the lock.
const AGAIN: Duration = Duration::from_millis(20);
/// How often at most: for a second a file, since this node answers no other node meanwhile.
const TRIES: usize = 50;

/// A file for a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputFile {
    pub(crate) format: Format,
    /// The text of the format `template`.
    pub(crate) template: Option<Template>,
    pub(crate) path: PathBuf,
}

impl OutputFile {
    /// `FORMAT=FILE`, or `template=TEMPLATE=FILE`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let first = if text.starts_with(values::TEMPLATE) { values::TEMPLATE.len() } else { 0 };
        let pair = text[first..].find('=').map(|at| (&text[..first + at], &text[first + at + 1..]));
        let (format, file) = pair
            .filter(|(_, file)| !file.is_empty())
            .ok_or("write FORMAT=FILE, such as hostfile=/tmp/hostfile, or template=TEMPLATE=FILE")?;
        let (format, template) = values::format(format).map_err(|error| format!("{format:?}: {error}"))?;
        Ok(Self { format, template, path: PathBuf::from(file) })
    }

    /// Checks what can be known before the world has formed.
    pub(crate) fn check(&self) -> io::Result<()> {
        // A shell would evaluate this text too, and a file would be replaced before it gets the result.
        if fs::metadata(&self.path).is_ok_and(|file| Stdout::is(&file)) {
            return Err(io::Error::other("it is stdout, where the result goes; give another file"));
        }
        // Without a reader it would keep this node from ever writing it.
        if fs::metadata(&self.path).is_ok_and(|file| file.file_type().is_fifo()) {
            return Err(io::Error::other("it is a pipe, which may have no reader; give a file"));
        }
        file::check(&self.path)
    }

    /// Writes the text of the result. In a file such as /etc/hosts it replaces only the block between the
    /// first and the last line of the text.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        match fs::metadata(&self.path) {
            // A device takes the text as it is; opening a folder is an error. A pipe that was made since the
            // check must not block this node.
            Ok(metadata) if !metadata.is_file() => {
                let opened = OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&self.path);
                opened?.write_all(text.as_bytes())
            }
            _ if self.format == Format::HOSTS => write_block(&self.path, text, TRIES),
            _ => file::replace(&self.path, text.as_bytes()),
        }
    }
}

/// Changes one block of a file that other jobs change as well, under a lock that all of them take. A job
/// holds it for milliseconds. Any user who can read the file can hold it for ever, so in the end the block is
/// written without it.
#[expect(clippy::disallowed_methods, reason = "between two tries")]
fn write_block(path: &Path, block: &str, mut tries: usize) -> io::Result<()> {
    loop {
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        // A file that this user may only read can be locked and replaced as well.
        let file = opened.or_else(|error| File::open(path).map_err(|_| error))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        let is_locked = match &lock {
            Ok(file) => is_at(file, path)?,
            Err((_, Errno::EWOULDBLOCK)) => false,
            Err((_, error)) => {
                // A file system without locks.
                tracing::debug!(%error, path = %path.display(), "no lock");
                true
            }
        };
        if is_locked || tries == 0 {
            return file::replace(path, &hosts::updated(&fs::read(path)?, block)?);
        }
        drop(lock);
        tries -= 1;
        thread::sleep(AGAIN);
    }
}

/// Whether the file has not been replaced since it was opened.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (opened, now) = (file.metadata()?, fs::metadata(path)?);
    Ok((opened.dev(), opened.ino()) == (now.dev(), now.ino()))
}

#[cfg(test)]
mod tests;
