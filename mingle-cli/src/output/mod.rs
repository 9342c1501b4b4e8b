//! `--output FORMAT=FILE`: results beside the one on stdout.
//!
//! A reader sees the old file or the new one, and never half of it: the file is written under another name in
//! the same folder, and renamed. Where that is not possible, because the file is a mount point, as /etc/hosts
//! is in a container, or because its folder takes no new files, it is written in place.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use mingle_core::env::Format;

/// How many names are tried for the new file. Runs that were killed may have left some of them.
const NAMES: u32 = 100;

/// A file for a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) path: PathBuf,
}

impl Output {
    /// `FORMAT=FILE`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let pair = text.split_once('=').filter(|(_, file)| !file.is_empty());
        let (format, file) = pair.ok_or("write FORMAT=FILE, such as hostfile=/tmp/hostfile")?;
        let format = format.parse().map_err(|error| format!("{format:?}: {error}"))?;
        Ok(Self { format, path: PathBuf::from(file) })
    }

    /// Writes the text of the result. In a file such as /etc/hosts it replaces only the block between the
    /// first and the last line of the text.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        let exists = fs::metadata(&self.path);
        if exists.as_ref().is_ok_and(|metadata| !metadata.is_file()) {
            // A pipe or a device takes the text as it is; opening a folder is an error.
            return OpenOptions::new().write(true).open(&self.path)?.write_all(text.as_bytes());
        }
        if self.format == Format::HOSTS && exists.is_ok() {
            let whole = with_block(&fs::read(&self.path)?, text)?;
            return replace(&self.path, &whole);
        }
        replace(&self.path, text.as_bytes())
    }
}

/// The bytes of a file in which `block` replaces an earlier block, or is appended. Every other line stays as
/// it was, and so does the missing line break at the end of the file, if it is missing.
fn with_block(file: &[u8], block: &str) -> io::Result<Vec<u8>> {
    let (first, last) = (block.lines().next().unwrap_or_default(), block.lines().last().unwrap_or_default());
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    let is = |line: &[u8], marker: &str| line.trim_ascii_end() == marker.as_bytes();
    let Some(begin) = lines.iter().position(|line| is(line, first)) else {
        let has_end = file.is_empty() || file.ends_with(b"\n");
        let whole = if has_end {
            [file, block.as_bytes()].concat()
        } else {
            [file, b"\n", block.trim_end().as_bytes()].concat()
        };
        return Ok(whole);
    };
    let Some(length) = lines[begin..].iter().position(|line| is(line, last)) else {
        let what =
            format!("line {} is {first:?}, and no line {last:?} follows; remove that block", begin + 1);
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    };
    let end = begin + length;
    let block = if lines[end].ends_with(b"\n") { block } else { block.trim_end() };
    // A file that was concatenated from others may hold further blocks.
    let mut rest = lines[end + 1..].to_vec();
    while let Some(begin) = rest.iter().position(|line| is(line, first))
        && let Some(length) = rest[begin..].iter().position(|line| is(line, last))
    {
        rest.drain(begin..=begin + length);
    }
    let rest = rest.concat();
    Ok([&lines[..begin].concat()[..], block.as_bytes(), &rest].concat())
}

/// Replaces the file, or writes it in place where that fails.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A symbolic link stays; the file behind it changes.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&path).ok();
    match renamed(&path, bytes, old.as_ref()) {
        Err(error) if old.is_some() && is_refused(&error) => {
            let mut file = OpenOptions::new().write(true).truncate(true).open(&path)?;
            file.write_all(bytes)?;
            file.sync_all()
        }
        result => result,
    }
}

/// Whether the error means that the folder takes no new file, or that the file is a mount point; a full disk
/// is another error.
fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ResourceBusy
            | ErrorKind::CrossesDevices
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
    )
}

fn renamed(path: &Path, bytes: &[u8], old: Option<&fs::Metadata>) -> io::Result<()> {
    let (mut file, new) = create_beside(path)?;
    let written = (|| {
        if let Some(old) = old {
            file.set_permissions(Permissions::clone(&old.permissions()))?;
            let is_ours = file.metadata().is_ok_and(|new| (new.uid(), new.gid()) == (old.uid(), old.gid()));
            if !is_ours {
                chown(&new, Some(old.uid()), Some(old.gid()))?;
            }
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// A new file in the same folder, under a name that no other process uses.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?.to_string_lossy();
    for number in 0..NAMES {
        let new = path.with_file_name(format!(".{name}.mingle-{}-{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&new) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            result => return Ok((result?, new)),
        }
    }
    Err(io::Error::new(
        ErrorKind::AlreadyExists,
        format!("too many files '.{name}.mingle-*' beside it; remove them"),
    ))
}

#[cfg(test)]
mod tests;
