//! Where the probe reads: the files of this machine, a snapshot of another machine, or a test's files.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The longest file with one value, in bytes: sysfs has none above a page.
const LONGEST: usize = 4096;

/// The folder of a snapshot that stands for `/dev/infiniband`.
pub(crate) const DEVICE_FILES: &str = "dev_infiniband";

/// How the probe reads files. All paths are relative to the root of sysfs, and [`DEVICE_FILES`] is there.
pub(crate) trait Files {
    /// The whole text of a file with one value, without white space at either end.
    fn read(&self, path: &str) -> io::Result<String>;

    /// The names in a folder, in no order. Skips names that are not UTF-8; the kernel makes none.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// Whether a folder can be listed.
    fn exists(&self, path: &str) -> bool {
        self.list(path).is_ok()
    }

    /// The target of a link, as a path relative to the root.
    fn resolve(&self, path: &str) -> io::Result<String>;

    /// Opens a file of `/dev/infiniband`, to see whether that is possible.
    fn open_device(&self, name: &str) -> io::Result<()>;
}

/// Files on a disk: those of this machine, or a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    sys: PathBuf,
    dev: PathBuf,
    is_snapshot: bool,
}

impl Disk {
    /// The files of this machine.
    pub(crate) fn live() -> Self {
        Self { sys: PathBuf::from("/sys"), dev: PathBuf::from("/dev/infiniband"), is_snapshot: false }
    }

    /// The files of a snapshot. The folder must not change meanwhile: an attacker who replaces a file by a
    /// link or a pipe, between the check and the opening, can make the program read any file, or block.
    pub(crate) fn snapshot(folder: &Path) -> Self {
        // If the folder cannot be resolved, nothing below it can be: the first read returns the error.
        let sys = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        Self { dev: sys.join(DEVICE_FILES), sys, is_snapshot: true }
    }

    /// The real path of a file or folder. A snapshot may come from a stranger, so no link in it may lead out
    /// of it.
    fn real(&self, path: PathBuf) -> io::Result<PathBuf> {
        if !self.is_snapshot {
            return Ok(path);
        }
        let real = path.canonicalize()?;
        if real.starts_with(&self.sys) { Ok(real) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Opens a file for reading. In a snapshot it must be a regular file: opening a pipe would block. (The
    /// flags that check this in one step, O_NOFOLLOW and O_NONBLOCK, would need another crate in builds
    /// without sockets.)
    fn open(&self, path: PathBuf) -> io::Result<File> {
        let path = self.real(path)?;
        if self.is_snapshot && !path.symlink_metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        File::open(path)
    }

    /// The text of a file of a snapshot: its first megabyte at most.
    pub(super) fn text(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        self.open(self.sys.join(path))?.take(1 << 20).read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Files for Disk {
    fn read(&self, path: &str) -> io::Result<String> {
        let mut bytes = [0; LONGEST];
        // Read once: sysfs returns the whole value, and a second read could return a part of another value.
        let length = self.open(self.sys.join(path))?.read(&mut bytes)?;
        if length == LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let text = str::from_utf8(&bytes[..length]).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(text.trim().to_owned())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let is_of_devices = path == DEVICE_FILES;
        let folder = if is_of_devices { self.dev.clone() } else { self.sys.join(path) };
        match self.real(folder).and_then(|folder| names(&folder)) {
            // A container without the devices. In a snapshot of such a container the folder is empty.
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_of_devices && !self.is_snapshot => {
                Ok(Vec::new())
            }
            listed => listed,
        }
    }

    fn resolve(&self, path: &str) -> io::Result<String> {
        let target = self.sys.join(path).canonicalize()?;
        let below = target.strip_prefix(&self.sys).ok().and_then(Path::to_str);
        below.map(str::to_owned).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn open_device(&self, name: &str) -> io::Result<()> {
        let path = self.dev.join(name);
        if self.is_snapshot {
            return self.open(path).map(drop);
        }
        // A container may show a device and refuse to open it: the kernel checks the cgroup's rules on open.
        File::options().read(true).write(true).open(path).map(drop)
    }
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?;
    // If the folder vanishes while it is read, it has no more names.
    Ok(entries.map_while(Result::ok).filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    /// A snapshot from a stranger, and beside it a folder that it must not reach.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = Self(std::env::temp_dir().join(format!("mingle-{name}-{}", std::process::id())));
            for part in ["saved/class", "saved/devices/nic", "saved/dev_infiniband", "saved-too/nic"] {
                fs::create_dir_all(folder.0.join(part)).unwrap();
            }
            fs::write(folder.0.join("saved/devices/nic/state"), "4: ACTIVE\n").unwrap();
            fs::write(folder.0.join("saved-too/nic/state"), "secret\n").unwrap();
            folder
        }

        /// A link in the snapshot.
        fn link(&self, path: &str, target: impl AsRef<Path>) {
            symlink(target, self.0.join("saved").join(path)).unwrap();
        }

        fn disk(&self) -> Disk {
            Disk::snapshot(&self.0.join("saved"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn links_within_a_snapshot_are_followed_wherever_it_is() {
        let folder = Folder::new("links-within");
        folder.link("class/nic", "../devices/nic");
        folder.link("class/state", "nic/state");
        symlink("saved", folder.0.join("elsewhere")).unwrap();
        for disk in [folder.disk(), Disk::snapshot(&folder.0.join("elsewhere"))] {
            for path in ["class/nic/state", "class/state", "devices/nic/state"] {
                assert_eq!(disk.read(path).unwrap(), "4: ACTIVE", "{path}");
            }
            assert_eq!(disk.list("class/nic").unwrap(), ["state"]);
            assert_eq!(disk.resolve("class/nic").unwrap(), "devices/nic");
            assert!(disk.exists("class/nic") && !disk.exists("class/state"));
        }
    }

    #[test]
    fn no_link_leads_out_of_a_snapshot() {
        let folder = Folder::new("links-out");
        let outside = folder.0.join("saved-too");
        folder.link("class/relative", "../../saved-too/nic");
        folder.link("class/absolute", outside.join("nic"));
        folder.link("class/twice", "relative");
        folder.link("devices/nic/file", outside.join("nic/state"));
        folder.link("dev_infiniband/uverbs0", outside.join("nic/state"));
        let disk = folder.disk();
        for path in ["class/relative", "class/absolute", "class/twice"] {
            assert!(disk.read(&format!("{path}/state")).is_err(), "{path}");
            assert!(disk.list(path).is_err(), "{path}");
            assert!(disk.resolve(path).is_err(), "{path}");
            assert!(!disk.exists(path), "{path}");
        }
        assert!(disk.read("devices/nic/file").is_err() && disk.text("devices/nic/file").is_err());
        assert!(disk.open_device("uverbs0").is_err());
        fs::remove_dir_all(folder.0.join("saved/dev_infiniband")).unwrap();
        folder.link("dev_infiniband", outside.join("nic"));
        assert!(folder.disk().list(DEVICE_FILES).is_err() && folder.disk().open_device("state").is_err());
    }

    #[test]
    fn a_pipe_in_a_snapshot_is_not_read() {
        let folder = Folder::new("pipe");
        let path = folder.0.join("saved/dev_infiniband/uverbs0");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        // With a writer, opening the pipe would not block.
        let mut pipe = File::options().read(true).write(true).open(path).unwrap();
        pipe.write_all(b"text").unwrap();
        assert!(folder.disk().open_device("uverbs0").is_err());
        assert!(folder.disk().read("dev_infiniband/uverbs0").is_err());
    }

    #[test]
    fn a_machine_without_the_folder_of_devices_has_none_and_a_snapshot_without_it_is_an_error() {
        let folder = Folder::new("no-devices");
        let of = |dev: &str| Disk { sys: folder.0.clone(), dev: folder.0.join(dev), is_snapshot: false };
        assert_eq!(of("missing").list(DEVICE_FILES).unwrap(), Vec::<String>::new());
        assert!(of("saved/devices/nic/state").list(DEVICE_FILES).is_err(), "it is no folder");
        fs::remove_dir_all(folder.0.join("saved/dev_infiniband")).unwrap();
        assert!(folder.disk().list(DEVICE_FILES).is_err());
    }
}
