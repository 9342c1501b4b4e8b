//! `mingle install`: the program copies itself, for images that have no program to copy it with.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use nix::unistd::{AccessFlags, eaccess};

use crate::exit::Stop;
use crate::{output, stderr};

/// This process's own program. It is read by this name, so that it may have been moved or removed.
const SELF: &str = "/proc/self/exe";

const NOEXEC: &str = "it is on a file system that is mounted noexec; name another folder";

/// Copies this program into a folder, for an init container that brings mingle into the job's image.
///
/// The copy is DIR/mingle, with mode 0755. It replaces an older one as a whole, so that other processes never
/// find a part of it. The folder must exist. The copy of a static program, such as that of the mingle image,
/// runs in every image of the same architecture; that of another program needs its C library there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct InstallArgs {
    /// The folder, such as a volume that both containers mount
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

/// Copies the program.
pub(crate) fn run(args: &InstallArgs) -> Result<(), Stop> {
    let folder = &args.folder;
    match fs::metadata(folder) {
        Ok(metadata) if !metadata.is_dir() => return Err(failed(folder, "it is no folder; name a folder")),
        Err(error) => return Err(failed(folder, &reason(&error))),
        Ok(_) => {}
    }
    let program = fs::read(SELF).map_err(|error| Stop::System("read this program in /proc", error))?;
    let path = folder.join("mingle");
    if path.is_dir() {
        return Err(failed(folder, "it has a folder named mingle; remove that, or name another folder"));
    }
    let place = |new: &Path| {
        // Whatever the umask is: the job may run as another user.
        fs::set_permissions(new, Permissions::from_mode(0o755))?;
        if eaccess(new, AccessFlags::X_OK).is_err() {
            return Err(io::Error::other(NOEXEC));
        }
        fs::rename(new, &path)
    };
    output::beside(&path, &program, None, place).map_err(|error| failed(folder, &reason(&error)))?;
    stderr::say(format_args!("installed {}", path.display()));
    Ok(())
}

fn failed(folder: &Path, reason: &str) -> Stop {
    Stop::Install(format!("cannot install mingle in {}: {reason}", folder.display()))
}

/// What is wrong with the folder, and what helps.
fn reason(error: &io::Error) -> String {
    let known = match error.kind() {
        ErrorKind::NotFound => "there is no such folder; create it, or mount a volume there",
        ErrorKind::NotADirectory => "a part of this path is no folder",
        ErrorKind::ReadOnlyFilesystem => {
            "its file system is read-only; mount a volume there that can be written, such as an emptyDir"
        }
        ErrorKind::PermissionDenied => {
            "this user must not write there; for a volume of Kubernetes, set fsGroup, or use an emptyDir"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "its file system is full; make room, or raise the volume's sizeLimit"
        }
        _ => return error.to_string(),
    };
    known.to_owned()
}
