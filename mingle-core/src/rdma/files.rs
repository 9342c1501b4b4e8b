//! Where the probe reads: the system's own files, a snapshot of another machine's, or a test's.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The longest file that holds one value; sysfs has none above a page.
const LONGEST: usize = 4096;

/// The few ways in which the probe looks at files. All paths are below the root of sysfs.
pub(crate) trait Files {
    /// The whole text of a file with one value, without white space at its ends.
    fn read(&self, path: &str) -> io::Result<String>;

    /// The names in a folder, in no order. Those that are not UTF-8 are left out: the kernel makes none.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// Whether there is a folder.
    fn exists(&self, path: &str) -> bool;

    /// Where a link leads, as a path below the root.
    fn resolve(&self, path: &str) -> io::Result<String>;

    /// Whether a file of `/dev/infiniband` can be opened.
    fn open_device(&self, name: &str) -> io::Result<()>;

    /// The names in `/dev/infiniband`.
    fn devices(&self) -> io::Result<Vec<String>>;
}

/// Files on a disk: a machine's own, or a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    sys: PathBuf,
    dev: PathBuf,
    is_snapshot: bool,
}

impl Disk {
    /// This machine's own.
    pub(crate) fn live() -> Self {
        Self { sys: PathBuf::from("/sys"), dev: PathBuf::from("/dev/infiniband"), is_snapshot: false }
    }

    /// A folder that a snapshot was saved to.
    pub(crate) fn snapshot(folder: &Path) -> Self {
        Self { sys: folder.to_owned(), dev: folder.join("dev_infiniband"), is_snapshot: true }
    }
}

impl Disk {
    /// A snapshot may come from anybody: no file of it leads out of it, and none is a pipe, whose opening would
    /// not end.
    fn check(&self, path: &Path) -> io::Result<()> {
        let real = path.canonicalize()?;
        let inside = real.starts_with(self.sys.canonicalize()?) && real.is_file();
        if inside { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// The whole text of a file of a snapshot, of at most a megabyte.
    pub(super) fn text(&self, path: &str) -> io::Result<String> {
        let path = self.sys.join(path);
        self.check(&path)?;
        let mut text = String::new();
        File::open(path)?.take(1 << 20).read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Files for Disk {
    fn read(&self, path: &str) -> io::Result<String> {
        let path = self.sys.join(path);
        if self.is_snapshot {
            self.check(&path)?;
        }
        let mut bytes = [0; LONGEST];
        // One read: sysfs makes the whole value at once, and a second could belong to another value.
        let length = File::open(path)?.read(&mut bytes)?;
        if length == LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let text = str::from_utf8(&bytes[..length]).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(text.trim().to_owned())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        names(&self.sys.join(path))
    }

    fn exists(&self, path: &str) -> bool {
        self.sys.join(path).is_dir()
    }

    fn resolve(&self, path: &str) -> io::Result<String> {
        let (root, target) = (self.sys.canonicalize()?, self.sys.join(path).canonicalize()?);
        let below = target.strip_prefix(root).ok().and_then(Path::to_str);
        below.map(str::to_owned).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn open_device(&self, name: &str) -> io::Result<()> {
        // A container may show a device and refuse to open it: the rules of cgroups are asked only then.
        File::options().read(true).write(!self.is_snapshot).open(self.dev.join(name)).map(drop)
    }

    fn devices(&self) -> io::Result<Vec<String>> {
        match names(&self.dev) {
            // A container without the devices. A snapshot says so by a folder that is empty.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_snapshot => Ok(Vec::new()),
            listed => listed,
        }
    }
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?;
    // A folder that vanishes while it is read has no more names.
    Ok(entries.map_while(Result::ok).filter_map(|entry| entry.file_name().into_string().ok()).collect())
}
