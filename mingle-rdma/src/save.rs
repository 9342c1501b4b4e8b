//! Saves a machine as a folder, in the form that `snapshot` reads. The probe runs and every answer is written
//! down, so the folder holds what was read and nothing else of the host.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::Files;
use super::machine::Machine;
use super::read;
use super::snapshot::{ADDRESSES, ROUTES, texts};

/// Writes all that the probe reads to `folder`.
pub(crate) fn save(files: &impl Files, surroundings: Machine, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    if fs::read_dir(folder)?.next().is_some() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty"));
    }
    let recorder = Recorder { files, folder, failed: RefCell::new(Ok(())) };
    read::machine(&recorder, surroundings.clone());
    recorder.failed.into_inner()?;
    let (addresses, routes) = texts(&surroundings);
    fs::write(folder.join(ADDRESSES), addresses)?;
    fs::write(folder.join(ROUTES), routes)
}

/// Passes every answer on and writes it down.
struct Recorder<'a, F> {
    files: &'a F,
    folder: &'a Path,
    /// The first error in writing.
    failed: RefCell<io::Result<()>>,
}

impl<F: Files> Recorder<'_, F> {
    fn note(&self, write: impl FnOnce() -> io::Result<()>) {
        let mut failed = self.failed.borrow_mut();
        if failed.is_ok() {
            *failed = write();
        }
    }

    fn file(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.folder.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)
    }
}

impl<F: Files> Files for Recorder<'_, F> {
    fn read(&self, path: &str) -> io::Result<String> {
        let text = self.files.read(path)?;
        // Most slots of a GID table are empty: they would be most of the files.
        if !read::gid(&text).is_some_and(|gid| gid.is_unspecified()) {
            self.note(|| self.file(path, &format!("{text}\n")));
        }
        Ok(text)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let names = self.files.list(path)?;
        self.note(|| fs::create_dir_all(self.folder.join(path)));
        Ok(names)
    }

    fn resolve(&self, path: &str) -> io::Result<String> {
        let target = self.files.resolve(path)?;
        self.note(|| {
            let link = self.folder.join(path);
            let up: PathBuf =
                Path::new(path).parent().into_iter().flat_map(Path::iter).map(|_| "..").collect();
            fs::create_dir_all(self.folder.join(&target))?;
            link.parent().map_or(Ok(()), fs::create_dir_all)?;
            std::os::unix::fs::symlink(up.join(&target), link)
        });
        Ok(target)
    }

    fn open_device(&self, name: &str) -> io::Result<()> {
        self.files.open_device(name)?;
        self.note(|| self.file(&format!("dev_infiniband/{name}"), ""));
        Ok(())
    }
}
