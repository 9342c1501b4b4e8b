//! `mingle install`: the program copies itself, for images that have no program to copy it with.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use nix::unistd::{AccessFlags, eaccess};

use crate::exit::Stop;
use crate::{output, stderr};

/// This process's own program. It is read by this name, so that it may have been moved or removed.
const SELF: &str = "/proc/self/exe";

/// What the folder must be.
const NEEDED: &str = "name a folder that exists, in which this user may write (in Kubernetes an emptyDir, or a volume \
                      with fsGroup), which has room, is not mounted noexec, and has no folder named mingle";

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
    let program = fs::read(SELF).map_err(|error| Stop::System("read this program in /proc", error))?;
    let path = args.folder.join("mingle");
    let place = |new: &Path| {
        // Whatever the umask is: the job may run as another user.
        fs::set_permissions(new, Permissions::from_mode(0o755))?;
        if eaccess(new, AccessFlags::X_OK).is_err() {
            return Err(io::Error::other("its file system is mounted noexec"));
        }
        fs::rename(new, &path)
    };
    output::beside(&path, &program, None, place).map_err(|error| {
        let folder = args.folder.display();
        Stop::Other("system", format!("cannot install mingle in {folder}: {error}; {NEEDED}"))
    })?;
    stderr::say(format_args!("installed {}", path.display()));
    Ok(())
}
