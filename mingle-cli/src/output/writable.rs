//! Whether this user can write a file or folder, as far as that can be known before the world has formed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use nix::unistd::{AccessFlags, eaccess};

use super::file::behind_links;

/// Checks that a file can be written, by replacing it or in place.
pub(crate) fn file(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let path = behind_links(path);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // A file that is replaced need not be writable itself, and a device is written in place.
    match folder(parent.unwrap_or(Path::new("."))) {
        Err(_) if path.exists() => Ok(eaccess(&path, AccessFlags::W_OK)?),
        new => new,
    }
}

/// Checks that a folder exists and takes new files.
pub(crate) fn folder(path: &Path) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("the folder {}: {error}", path.display()));
    let metadata = fs::metadata(path).map_err(named)?;
    if !metadata.is_dir() {
        return Err(named(ErrorKind::NotADirectory.into()));
    }
    eaccess(path, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| named(error.into()))
}
