//! A folder that all nodes share, in which each leaves a file with its addresses.
//!
//! ```text
//! mingle-<tag of the job>-<ID of the node>
//!     mingle 1
//!     10.0.0.5:29503
//!     [fd00::5]:29503
//! ```
//!
//! A file's age is the difference between its time and that of this node's own file, both from the file
//! server: hosts' clocks differ. Each node writes its file again every few seconds. A file that is 60 s older
//! than this node's own belongs to a node that was killed, and any node removes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::model::{JobTag, NodeId};
use crate::net::clock::clock;
use crate::net::error::Error;
use crate::proto::Warning;

const HEAD: &str = "mingle 1";
/// A node writes its own file again at the first look this long after the last time.
const HEARTBEAT: Duration = Duration::from_secs(4);
/// The same while the node's world runs, and nothing else is done in the folder. Four of these fit into
/// [`STALE`].
pub(super) const KEEP: Duration = Duration::from_secs(15);
/// A file that is this much older than this node's own is removed.
const STALE: Duration = Duration::from_secs(60);
/// The most bytes that are read from a file.
const LONGEST: u64 = 4096;
/// The most addresses that are taken from a file.
const ADDRESSES: usize = 64;
/// The most directory entries that are considered.
const FILES: usize = 100_000;
/// The pause between two looks: at least [`LOOK`], and [`LOOK_EACH`] for each file, so that a thousand nodes
/// look every eleven seconds each.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_EACH: Duration = Duration::from_millis(10);
const LOOK_MOST: Duration = Duration::from_secs(15);
/// How long a file server may take to store this node's file at the start, and to remove it at the end.
const STORE: Duration = Duration::from_secs(2);
const REMOVE: Duration = Duration::from_millis(200);

/// Runs work that may hang, such as reading a folder whose server is gone, on a detached thread. A runtime's
/// blocking threads would not do: the runtime waits for them when it ends.
fn detached<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (sender, receiver) = oneshot::channel();
    // If no thread can start, dropping the sender ends the wait.
    let _ = thread::Builder::new().name("mingle-seed-dir".to_owned()).spawn(|| drop(sender.send(work())));
    receiver
}

/// This node's file, which is removed on drop.
#[derive(Debug)]
pub(crate) struct OwnFile(PathBuf);

impl Drop for OwnFile {
    fn drop(&mut self) {
        let (done, removed) = mpsc::channel();
        let path = std::mem::take(&mut self.0);
        drop(detached(move || done.send(fs::remove_file(path))));
        let _ = removed.recv_timeout(REMOVE);
    }
}

/// The shared folder, and what this node knows of it.
#[derive(Debug)]
pub(crate) struct SeedDir {
    folder: PathBuf,
    prefix: String,
    own: String,
    text: String,
    /// When this node's file was written last; none before the first time.
    written: Option<Instant>,
    /// Whether the caller has been warned.
    has_warned: bool,
    /// The addresses of each file, by name and inode: only new files are read.
    known: BTreeMap<(String, u64), Vec<SocketAddr>>,
}

impl SeedDir {
    /// Does not touch the folder: [`SeedDir::open`] or the first look writes this node's file.
    pub(crate) fn new(folder: &Path, tag: JobTag, id: NodeId, endpoints: &[SocketAddr]) -> Self {
        let prefix = format!("mingle-{:032x}-", u128::from_be_bytes(tag.0));
        let own = format!("{prefix}{:032x}", u128::from_be_bytes(id.0));
        let mut text = format!("{HEAD}\n");
        for endpoint in endpoints {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{endpoint}");
        }
        let (folder, known) = (folder.to_owned(), BTreeMap::new());
        Self { folder, prefix, own, text, written: None, has_warned: false, known }
    }

    /// The guard that removes this node's file on drop.
    pub(crate) fn own_file(&self) -> OwnFile {
        OwnFile(self.folder.join(&self.own))
    }

    /// Writes this node's file.
    ///
    /// # Errors
    /// [`Error::Socket`] if the folder cannot be written to, or does not answer within 2 s.
    pub(crate) async fn open(mut self) -> Result<(Self, OwnFile), Error> {
        let failed = Error::socket(format!("cannot write to the seed folder {}", self.folder.display()));
        let opening = detached(move || {
            // Dropping the guard removes the file if the caller has given up.
            let own = self.own_file();
            self.write().map(|()| (self, own))
        });
        let silent = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
        let opened = timeout(STORE, opening).await.map_err(|_| silent());
        let opened = opened.and_then(|answer| answer.unwrap_or_else(|_| Err(silent())));
        opened.map_err(failed)
    }

    /// Writes this node's file; the first time as a new one, since the node may have had other addresses,
    /// and readers know its file by the inode. After that these are the same bytes again, which gives the
    /// file the server's current time and changes nothing for readers.
    fn write(&mut self) -> io::Result<()> {
        // Not through a link that has replaced the file, and not into a pipe, whose opening would block.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let open = |_| File::options().write(true).custom_flags(flags).open(self.folder.join(&self.own));
        match self.written.map_or(Err(io::ErrorKind::NotFound.into()), open) {
            Ok(mut own) => own.write_all(self.text.as_bytes()).and_then(|()| own.sync_all()),
            // It is written for the first time, or another node has removed it, since this process was
            // stopped for long; or it is a link or a pipe. Replace it.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    || matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) =>
            {
                self.create()
            }
            Err(error) => Err(error),
        }?;
        self.written = Some(clock());
        Ok(())
    }

    /// Writes a draft and renames it: no node reads half a file.
    fn create(&self) -> io::Result<()> {
        let draft = self.folder.join(format!(".{}", self.own));
        // An existing draft is a leftover, and may be a link.
        let _ = fs::remove_file(&draft);
        let mut file = File::options().write(true).create_new(true).open(&draft)?;
        file.write_all(self.text.as_bytes())?;
        // A server that is full may say so only now.
        file.sync_all()?;
        fs::rename(&draft, self.folder.join(&self.own)).inspect_err(|_| drop(fs::remove_file(&draft)))
    }

    /// Renews this node's file, and reads the others if `reads` is set, however long that takes. Returns the
    /// folder for the next look, and a warning for the caller.
    pub(crate) fn look(mut self, reads: bool) -> oneshot::Receiver<(Self, Option<Warning>)> {
        detached(move || {
            let warning = self.renew();
            if reads {
                self.read();
            }
            (self, warning)
        })
    }

    /// The addresses in the other nodes' files, as of the last look.
    pub(crate) fn others(&self) -> Vec<SocketAddr> {
        self.known.values().flatten().copied().collect()
    }

    /// How long to wait before the next look.
    pub(crate) fn pause(&self) -> Duration {
        let files = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        LOOK_EACH.saturating_mul(files).saturating_add(LOOK).min(LOOK_MOST)
    }

    /// Writes this node's file if it is time to. Returns a warning the first time that this fails; the next
    /// call tries again.
    fn renew(&mut self) -> Option<Warning> {
        if self.written.is_some_and(|written| clock() < written + HEARTBEAT) {
            return None;
        }
        let error = self.write().err()?;
        let folder = self.folder.clone();
        tracing::debug!(folder = %folder.display(), %error, "writing to the seed folder");
        let is_new = !std::mem::replace(&mut self.has_warned, true);
        is_new.then(|| Warning::SeedDirUnwritable { folder, error: error.to_string() })
    }

    /// Reads the other nodes' files.
    fn read(&mut self) {
        let now = fs::metadata(self.folder.join(&self.own)).and_then(|own| own.modified()).ok();
        let failed = |error: &io::Error| tracing::debug!(%error, "reading the seed folder");
        let Ok(entries) = fs::read_dir(&self.folder).inspect_err(failed) else { return };
        let mut seen = BTreeMap::new();
        for entry in entries.flatten().take(FILES) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let draft = name.strip_prefix('.');
            if !draft.unwrap_or(&name).starts_with(&self.prefix) || name == self.own {
                continue;
            }
            // Not a link, and not a pipe, whose opening would block.
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file);
            let Some(metadata) = metadata else { continue };
            let age = now.and_then(|now| now.duration_since(metadata.modified().ok()?).ok());
            if age.is_some_and(|age| age > STALE) {
                tracing::debug!(name, "removing the file of a node that is gone");
                let _ = fs::remove_file(entry.path());
                continue;
            }
            if draft.is_some() {
                continue;
            }
            let key = (name, metadata.ino());
            // A file without an address may have been unreadable: read it again.
            let known = self.known.remove(&key).filter(|endpoints| !endpoints.is_empty());
            let endpoints = known.unwrap_or_else(|| endpoints(&entry.path()));
            seen.insert(key, endpoints);
        }
        self.known = seen;
    }
}

/// The addresses in a file; none if it is not a seed file, or incomplete.
fn endpoints(path: &Path) -> Vec<SocketAddr> {
    let mut text = String::new();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(path);
    let read = file.and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    let mut lines = text.lines();
    if read.is_err() || lines.next() != Some(HEAD) || !text.ends_with('\n') {
        return Vec::new();
    }
    lines.filter_map(|line| line.parse().ok()).take(ADDRESSES).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;
    use crate::net::discovery::sources::follow_folder;

    /// An empty folder that the nodes of a job share, removed on drop.
    pub(crate) struct Folder(pub(crate) PathBuf);

    impl Folder {
        pub(crate) fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("mingle-seeds-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn open(&self, n: u8) -> (SeedDir, OwnFile) {
            let endpoint = SocketAddr::from(([10, 0, 0, n], 29500));
            let mut dir = SeedDir::new(&self.0, JobTag([7; 16]), NodeId([n; 16]), &[endpoint]);
            dir.write().unwrap();
            let own = dir.own_file();
            (dir, own)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn found(dir: &mut SeedDir) -> Vec<String> {
        dir.read();
        dir.others().iter().map(SocketAddr::to_string).collect()
    }

    #[tokio::test]
    async fn while_a_world_runs_a_node_renews_its_file_and_leaves_the_others_alone() {
        assert!(KEEP >= HEARTBEAT && KEEP * 4 <= STALE);
        let folder = Folder::new("kept");
        let ((a, _own), (b, _other)) = (folder.open(1), folder.open(2));
        let modified = |name: &str| fs::metadata(folder.0.join(name)).unwrap().modified().unwrap();
        let long_ago = modified(&a.own) - STALE * 2;
        for name in [&a.own, &b.own] {
            File::options().write(true).open(folder.0.join(name)).unwrap().set_modified(long_ago).unwrap();
        }
        let name = a.own.clone();
        let (sender, _receiver) = tokio::sync::mpsc::unbounded_channel();
        let dir = SeedDir { written: clock().checked_sub(HEARTBEAT), ..a };
        let keeping = tokio::spawn(follow_folder(Some(dir), false, sender));
        while modified(&name) == long_ago {
            tokio::task::yield_now().await;
        }
        assert_eq!(modified(&b.own), long_ago);
        keeping.abort();
    }

    #[test]
    fn the_stale_file_of_a_killed_node_is_removed_but_not_another_jobs() {
        let folder = Folder::new("stale");
        let (mut a, _own) = folder.open(1);
        let (dead, own) = folder.open(2);
        let stale = folder.0.join(&dead.own);
        std::mem::forget(own);
        let other = folder.0.join("mingle-00000000000000000000000000000000-01");
        fs::write(&other, "mingle 1\n10.9.9.9:1\n").unwrap();
        let long_ago = fs::metadata(folder.0.join(&a.own)).unwrap().modified().unwrap() - STALE * 2;
        for path in [&stale, &other] {
            File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        }
        assert_eq!(found(&mut a), [""; 0]);
        assert!(!stale.exists() && other.exists());
    }

    #[test]
    fn a_node_whose_file_was_removed_writes_it_again() {
        let folder = Folder::new("again");
        let (mut a, _own) = folder.open(1);
        fs::remove_file(folder.0.join(&a.own)).unwrap();
        a.write().unwrap();
        assert!(folder.0.join(&a.own).exists());
    }

    #[test]
    fn others_read_the_file_of_a_node_again_whose_addresses_have_changed() {
        let folder = Folder::new("changed");
        let ((mut a, _own), (_, _other)) = (folder.open(1), folder.open(2));
        assert_eq!(found(&mut a), ["10.0.0.2:29500"]);
        let now = SocketAddr::from(([10, 0, 0, 3], 1));
        SeedDir::new(&folder.0, JobTag([7; 16]), NodeId([2; 16]), &[now]).write().unwrap();
        assert_eq!(found(&mut a), ["10.0.0.3:1"]);
    }

    #[test]
    fn a_link_or_a_pipe_in_place_of_a_nodes_file_is_replaced_and_not_followed() {
        let folder = Folder::new("link");
        let (mut a, _own) = folder.open(1);
        let precious = folder.0.join("precious");
        fs::write(&precious, "precious").unwrap();
        fs::remove_file(folder.0.join(&a.own)).unwrap();
        symlink(&precious, folder.0.join(&a.own)).unwrap();
        symlink(&precious, folder.0.join(format!(".{}", a.own))).unwrap();
        let own = folder.0.join(&a.own);
        a.write().unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(fs::symlink_metadata(&own).unwrap().is_file());
        fs::remove_file(&own).unwrap();
        assert!(Command::new("mkfifo").arg(&own).status().unwrap().success());
        a.write().unwrap();
        assert!(fs::symlink_metadata(&own).unwrap().is_file());
    }

    #[test]
    fn the_stale_draft_of_a_killed_node_is_removed() {
        let folder = Folder::new("draft");
        let (mut a, _own) = folder.open(1);
        let draft = folder.0.join(format!(".{}dead", a.prefix));
        fs::write(&draft, "mingle 1\n10.0.0.9:1\n").unwrap();
        assert_eq!(found(&mut a), [""; 0]);
        let long_ago = fs::metadata(folder.0.join(&a.own)).unwrap().modified().unwrap() - STALE * 2;
        File::options().write(true).open(&draft).unwrap().set_modified(long_ago).unwrap();
        a.read();
        assert!(!draft.exists());
    }

    #[test]
    fn hostile_files_yield_no_address_and_do_not_stop_the_look() {
        let folder = Folder::new("hostile");
        let (mut a, _own) = folder.open(1);
        let put = |name: &str, bytes: &[u8]| {
            fs::write(folder.0.join(format!("{}{name}", a.prefix)), bytes).unwrap();
        };
        put("half", b"mingle 1\n10.0.0.3:29");
        put("other", b"something else\n10.0.0.3:29500\n");
        put("binary", &[0xff; 10_000]);
        put("partly", b"mingle 1\nnonsense\n10.0.0.4:29500\n$(reboot)\n");
        symlink("/dev/zero", folder.0.join(format!("{}link", a.prefix))).unwrap();
        fs::create_dir(folder.0.join(format!("{}folder", a.prefix))).unwrap();
        assert_eq!(found(&mut a), ["10.0.0.4:29500"]);
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_to_is_an_error_at_the_start_and_later_one_warning() {
        let gone = std::env::temp_dir().join("mingle-seeds-that-do-not-exist");
        let dir = || SeedDir::new(&gone, JobTag([7; 16]), NodeId([1; 16]), &[]);
        let error = dir().open().await.unwrap_err().to_string();
        assert!(error.contains("mingle-seeds-that-do-not-exist"), "{error}");
        let (folder, warning) = dir().look(true).await.unwrap();
        assert!(warning.unwrap().to_string().contains("cannot write to the seed folder"));
        assert_eq!(folder.look(true).await.unwrap().1, None, "it has warned already");
    }
}
