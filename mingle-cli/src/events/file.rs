//! The file of `--events`: any file that can be appended to, except stdout.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::libc::O_NONBLOCK;

use crate::stdout::Stdout;

/// Opens the file, or creates it.
pub(super) fn open(path: &Path) -> Result<File, String> {
    // Non-blocking: a pipe without a reader is an error, and a full pipe does not block this node.
    let opened = OpenOptions::new().append(true).create(true).custom_flags(O_NONBLOCK).open(path);
    let file = opened.map_err(|error| {
        format!("cannot be opened for appending: {error}; give a file in a folder that exists, or a pipe that has a reader")
    })?;
    if file.metadata().is_ok_and(|file| Stdout::is(&file)) {
        return Err(
            "is stdout, where the result goes that a shell may evaluate; give another file".to_owned()
        );
    }
    Ok(file)
}
