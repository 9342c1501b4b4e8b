//! Regular files: replaced as a whole, or written in place where that is not possible.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use mingle_core::tools;
use nix::unistd::{AccessFlags, eaccess};

/// The most symbolic links that are followed, as in the kernel.
const LINKS: u32 = 40;

/// Checks that a file can be written, by replacing it or in place.
pub(super) fn check(path: &Path) -> io::Result<()> {
    if path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(ErrorKind::IsADirectory.into());
    }
    let path = behind_links(path);
    let folder = Path::new(".").join(path.parent().unwrap_or(Path::new("")));
    // With a slash at its end a path is that of a folder alone.
    match eaccess(&folder.join(""), AccessFlags::W_OK | AccessFlags::X_OK) {
        // A file that is replaced need not be writable itself, and a device is written in place.
        Err(_) if path.exists() => Ok(eaccess(&path, AccessFlags::W_OK)?),
        Err(error) => Err(io::Error::other(format!("the folder {}: {}", folder.display(), error.desc()))),
        Ok(()) => Ok(()),
    }
}

/// Replaces the file, or writes it in place where the folder refuses that.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = behind_links(path);
    let old = fs::metadata(&path).ok();
    let renamed = beside(&path, bytes, old.as_ref(), |new| fs::rename(new, &path));
    match renamed {
        Err(error) if old.is_some() && is_refused(&error) => in_place(&path, bytes),
        result => result,
    }
}

/// The file to which symbolic links lead, whether or not it exists: the links stay.
fn behind_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(next) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(next);
    }
    path
}

/// Whether the error means that the folder takes no new file, or that the file is a mount point; a full disk
/// is another error.
pub(super) fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ResourceBusy
            | ErrorKind::CrossesDevices
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
    )
}

/// Writes a new file in the folder of `path`, which `place` then puts there. No other file has its name,
/// which is random: a run that was killed may have left its own, and processes of two containers may have
/// the same ID.
pub(crate) fn beside(
    path: &Path,
    bytes: &[u8],
    old: Option<&fs::Metadata>,
    place: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?.display();
    let random = u64::from_be_bytes(tools::random().map_err(io::Error::other)?);
    let new = path.with_file_name(format!(".{name}.mingle-{random:016x}"));
    let file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    // Closed at its end: no process may have a program open for writing when another one executes it.
    let write = |mut file: File| {
        if let Some(old) = old {
            file.set_permissions(Permissions::clone(&old.permissions()))?;
            let is_ours = file.metadata().is_ok_and(|new| (new.uid(), new.gid()) == (old.uid(), old.gid()));
            if !is_ours {
                chown(&new, Some(old.uid()), Some(old.gid()))?;
            }
        }
        file.write_all(bytes)?;
        file.sync_all()
    };
    let placed = write(file).and_then(|()| place(&new));
    if placed.is_err() {
        let _ = fs::remove_file(&new);
    }
    placed
}

/// Writes the file itself. Where that fails, as on a full disk, the old text stays.
fn in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let old = fs::read(path)?;
    let file = OpenOptions::new().write(true).open(path)?;
    let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let kept = bytes.len().min(old.len());
    let written = (|| {
        // The part that needs new space is written first, so a full disk loses nothing.
        file.write_all_at(&bytes[kept..], length(&old))?;
        file.sync_all()?;
        file.write_all_at(&bytes[..kept], 0)?;
        file.set_len(length(bytes))?;
        file.sync_all()
    })();
    if written.is_err() {
        let _ = file.set_len(length(&old));
        let _ = file.write_all_at(&old, 0);
    }
    written
}
