//! The file of `--events`: any that can be appended to, but never what the result is printed to.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc::O_NONBLOCK;

use crate::stdout::Stdout;

/// Opens the file, which need not be there yet.
pub(super) fn open(path: &Path) -> Result<File, String> {
    // A pipe without a reader is an error then, and a full one does not stop this node.
    let opened = OpenOptions::new().append(true).create(true).custom_flags(O_NONBLOCK).open(path);
    let file = opened.map_err(|error| {
        format!("cannot be opened to append to: {error}; give a file in a folder that is there, or a pipe that is read")
    })?;
    if is_stdout(&file) {
        return Err("is stdout, which has the result that a shell may evaluate; give another file".to_owned());
    }
    Ok(file)
}

fn is_stdout(file: &File) -> bool {
    // Without a stdout nothing is printed to it.
    let Ok(stdout) = Stdout::stream() else { return false };
    let (Ok(one), Ok(other)) = (file.metadata(), stdout.metadata()) else { return false };
    // Of terminals and /dev/null any number may be the same.
    let holds = one.is_file() || one.file_type().is_fifo();
    holds && (one.dev(), one.ino()) == (other.dev(), other.ino())
}
