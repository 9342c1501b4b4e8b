//! The files of this host.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The most bytes of a file that are read.
const LONGEST: u64 = 1 << 16;

/// This host itself.
pub(crate) const HERE: Host = Host(None);

/// This host, or a saved one in its place.
#[derive(Debug, Default)]
pub(crate) struct Host(pub(crate) Option<PathBuf>);

impl Host {
    /// A file of this host, or the one in its place below a saved one.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        let Some(root) = &self.0 else { return path.into() };
        let saved = path.strip_prefix("/sys/").or_else(|| path.strip_prefix("/proc/")).unwrap_or(path);
        root.join(saved.replace("driver/nvidia/gpus", "nvidia_gpus").trim_start_matches('/'))
    }

    /// The text of a file, which may hold any bytes, if it has one.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let bytes = beginning(self.path(path), LONGEST).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The names in a folder; none where it does not exist.
    pub(crate) fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

/// At most this many bytes of a file.
pub(crate) fn beginning(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
