//! Whether this user can write a file or folder, as far as that can be known before the world has formed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use nix::unistd::{AccessFlags, eaccess};

use super::file::behind_links;

/// Checks that a file can be written, by replacing it or in place.
pub(crate) fn file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(metadata) => {
            let in_place = allowed(path, AccessFlags::W_OK);
            // A file that is replaced need not be writable itself.
            if in_place.is_err() && metadata.is_file() && folder(parent(&behind_links(path))).is_ok() {
                return Ok(());
            }
            in_place
        }
        Err(error) if error.kind() == ErrorKind::NotFound => folder(parent(&behind_links(path))),
        Err(error) => Err(error),
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
    allowed(path, AccessFlags::W_OK | AccessFlags::X_OK).map_err(named)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn allowed(path: &Path, how: AccessFlags) -> io::Result<()> {
    eaccess(path, how).map_err(io::Error::from)
}
