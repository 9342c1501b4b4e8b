//! A folder that all nodes share, in which each leaves a file with its addresses.
//!
//! ```text
//! mingle-<tag of the job>-<ID of the node>
//!     mingle 1
//!     10.0.0.5:29503
//!     [fd00::5]:29503
//! ```
//!
//! A file is as old as the file server says, compared with this node's own file: hosts' clocks differ. Each
//! node writes its own again every few seconds; one that has not been written for long is of a node that
//! was killed, and is removed by whoever sees it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use nix::libc;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::Error;
use crate::model::{JobTag, NodeId};
use crate::proto::Warning;

const HEAD: &str = "mingle 1";
/// How often a node writes its own file again, at least.
const HEARTBEAT: Duration = Duration::from_secs(4);
/// A file that is so much older than one's own is a dead node's.
const STALE: Duration = Duration::from_secs(60);
/// Most bytes of a file that are read.
const LONGEST: u64 = 4096;
/// Most addresses that a file gives.
const ADDRESSES: usize = 64;
/// Most files that are looked at.
const FILES: usize = 100_000;
/// Between two looks, and for each file more: a thousand nodes look every ten seconds.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_EACH: Duration = Duration::from_millis(10);
const LOOK_MOST: Duration = Duration::from_secs(15);
/// How long a file server may take to store a node's file before the node gives up, and to remove it before the
/// node ends all the same.
const ANSWER: Duration = Duration::from_secs(2);
const ANSWER_AT_THE_END: Duration = Duration::from_millis(200);

/// Does what may never end, such as to look at a folder whose server is gone, on a thread that nobody waits for: a
/// runtime waits for its own before it ends.
fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (tell, told) = oneshot::channel();
    // Without a thread there is no answer either.
    let _ = thread::Builder::new().name("mingle-seed-dir".to_owned()).spawn(|| drop(tell.send(work())));
    told
}

/// This node's file, which is removed on drop.
#[derive(Debug)]
pub(super) struct OwnFile(PathBuf);

impl Drop for OwnFile {
    fn drop(&mut self) {
        let (done, removed) = mpsc::channel();
        let path = std::mem::take(&mut self.0);
        drop(aside(move || done.send(fs::remove_file(path))));
        let _ = removed.recv_timeout(ANSWER_AT_THE_END);
    }
}

/// What a look has found.
#[derive(Debug)]
pub(super) struct Look {
    /// To look again.
    pub(super) folder: SeedDir,
    /// The addresses of all others.
    pub(super) others: Vec<SocketAddr>,
    /// How long to wait before the next.
    pub(super) pause: Duration,
    /// What people should know.
    pub(super) warning: Option<Warning>,
}

/// The folder as this node sees it.
#[derive(Debug)]
pub(super) struct SeedDir {
    folder: PathBuf,
    prefix: String,
    own: String,
    text: String,
    /// How long ago this node's file was written; never so far, where none.
    untouched: Option<Duration>,
    /// What went wrong has been told.
    told: bool,
    /// What each file held, by name and inode: only new files are read.
    known: BTreeMap<(String, u64), Vec<SocketAddr>>,
}

impl SeedDir {
    /// Touches nothing yet: the first look writes this node's file, or [`SeedDir::open`].
    pub(super) fn new(folder: &Path, tag: JobTag, id: NodeId, endpoints: &[SocketAddr]) -> Self {
        let prefix = format!("mingle-{:032x}-", u128::from_be_bytes(tag.0));
        let own = format!("{prefix}{:032x}", u128::from_be_bytes(id.0));
        let mut text = format!("{HEAD}\n");
        for endpoint in endpoints {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{endpoint}");
        }
        let (folder, known) = (folder.to_owned(), BTreeMap::new());
        Self { folder, prefix, own, text, untouched: None, told: false, known }
    }

    /// Removes this node's file on drop.
    pub(super) fn own_file(&self) -> OwnFile {
        OwnFile(self.folder.join(&self.own))
    }

    /// Writes this node's file.
    pub(super) async fn open(mut self) -> Result<(Self, OwnFile), Error> {
        let what = format!("cannot write to the seed folder {}", self.folder.display());
        let opening = aside(move || {
            // If nobody waits any more it goes again.
            let own = self.own_file();
            self.write().map(|()| (self, own))
        });
        let silent = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
        let opened = timeout(ANSWER, opening).await.map_err(|_| silent());
        let opened = opened.and_then(|told| told.unwrap_or_else(|_| Err(silent())));
        opened.map_err(|source| Error::Socket { what, source })
    }

    /// Makes this node's file, or else keeps it young.
    fn write(&mut self) -> io::Result<()> {
        if self.untouched.is_some() { self.touch() } else { self.create() }?;
        self.untouched = Some(Duration::ZERO);
        Ok(())
    }

    /// All at once: nobody reads half of it.
    fn create(&self) -> io::Result<()> {
        let draft = self.folder.join(format!(".{}", self.own));
        // Whatever is there is no file of a node that lives, and perhaps a link.
        let _ = fs::remove_file(&draft);
        let file = File::options().write(true).create_new(true).open(&draft);
        file?.write_all(self.text.as_bytes())?;
        fs::rename(&draft, self.folder.join(&self.own)).inspect_err(|_| drop(fs::remove_file(&draft)))
    }

    /// The server's own time is the file's afterwards. The bytes stay the same, so nobody sees a change.
    fn touch(&self) -> io::Result<()> {
        // Not through a link that somebody has put in its place.
        let own =
            File::options().write(true).custom_flags(libc::O_NOFOLLOW).open(self.folder.join(&self.own));
        match own {
            Ok(mut own) => own.write_all(self.text.as_bytes()),
            // Removed, as that of a dead node: this process was stopped for long. A link is replaced.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ELOOP) =>
            {
                self.create()
            }
            Err(error) => Err(error),
        }
    }

    /// Looks at the folder, however long that takes.
    pub(super) fn look(mut self) -> oneshot::Receiver<Look> {
        aside(move || {
            let mut warning = None;
            // What fails is tried again by the next look.
            if self.untouched.is_none_or(|ago| ago >= HEARTBEAT)
                && let Err(error) = self.write()
            {
                let folder = self.folder.display();
                tracing::debug!(%folder, %error, "writing to the seed folder");
                let is_new = !std::mem::replace(&mut self.told, true);
                let (folder, error) = (self.folder.clone(), error.to_string());
                warning = is_new.then_some(Warning::SeedDirUnwritable { folder, error });
            }
            let (others, pause) = self.read();
            Look { folder: self, others, pause, warning }
        })
    }

    /// The addresses of all others, and when to look again.
    fn read(&mut self) -> (Vec<SocketAddr>, Duration) {
        let now = fs::metadata(self.folder.join(&self.own)).and_then(|own| own.modified());
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) => {
                tracing::debug!(folder = %self.folder.display(), %error, "reading the seed folder");
                self.untouched = self.untouched.map(|ago| ago + LOOK);
                return (self.known.values().flatten().copied().collect(), LOOK);
            }
        };
        let mut seen = BTreeMap::new();
        for entry in entries.flatten().take(FILES) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_draft = name.strip_prefix('.').is_some_and(|name| name.starts_with(&self.prefix));
            if !(is_draft || name.starts_with(&self.prefix)) || name == self.own {
                continue;
            }
            // Not through a link, and no pipe, whose opening would not end.
            let Ok(metadata) = entry.metadata() else { continue };
            if !metadata.is_file() {
                continue;
            }
            if is_stale(&metadata, now.as_ref().ok()) {
                tracing::debug!(name, "removing the file of a node that is gone");
                let _ = fs::remove_file(entry.path());
                continue;
            }
            if is_draft {
                continue;
            }
            let key = (name, metadata.ino());
            // One that held nothing may not have been readable.
            let known = self.known.remove(&key).filter(|endpoints| !endpoints.is_empty());
            let endpoints = known.unwrap_or_else(|| endpoints(&entry.path()));
            seen.insert(key, endpoints);
        }
        self.known = seen;
        let pause = LOOK_EACH.saturating_mul(u32::try_from(self.known.len()).unwrap_or(u32::MAX));
        let pause = pause.saturating_add(LOOK).min(LOOK_MOST);
        self.untouched = self.untouched.map(|ago| ago + pause);
        (self.known.values().flatten().copied().collect(), pause)
    }
}

fn is_stale(metadata: &fs::Metadata, now: Option<&SystemTime>) -> bool {
    let (Some(now), Ok(modified)) = (now, metadata.modified()) else { return false };
    now.duration_since(modified).is_ok_and(|age| age > STALE)
}

/// The addresses in a file; none where it is no file of ours, or half of one.
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
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
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
        dir.read().0.iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn nodes_find_each_others_files_and_not_their_own_and_leave_none_behind() {
        let folder = Folder::new("all");
        let ((mut a, own_a), (mut b, own_b)) = (folder.open(1), folder.open(2));
        assert_eq!(found(&mut a), ["10.0.0.2:29500"]);
        assert_eq!(found(&mut b), ["10.0.0.1:29500"]);
        drop(own_b);
        assert_eq!(found(&mut a), [""; 0]);
        drop(own_a);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }

    #[test]
    fn the_file_of_a_node_that_was_killed_is_removed_and_that_of_another_job_is_not() {
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
    fn a_link_in_the_place_of_a_nodes_file_is_replaced_and_not_written_through() {
        let folder = Folder::new("link");
        let (a, _own) = folder.open(1);
        let precious = folder.0.join("precious");
        fs::write(&precious, "precious").unwrap();
        fs::remove_file(folder.0.join(&a.own)).unwrap();
        symlink(&precious, folder.0.join(&a.own)).unwrap();
        symlink(&precious, folder.0.join(format!(".{}", a.own))).unwrap();
        a.touch().unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(fs::symlink_metadata(folder.0.join(&a.own)).unwrap().is_file());
    }

    #[test]
    fn the_draft_of_a_node_that_was_killed_while_it_wrote_is_removed() {
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
    fn hostile_files_yield_nothing_and_stop_nothing() {
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
    async fn a_folder_that_cannot_be_written_to_is_an_error_at_once_and_later_a_warning() {
        let gone = std::env::temp_dir().join("mingle-seeds-that-do-not-exist");
        let dir = || SeedDir::new(&gone, JobTag([7; 16]), NodeId([1; 16]), &[]);
        let error = dir().open().await.unwrap_err().to_string();
        assert!(error.contains("mingle-seeds-that-do-not-exist"), "{error}");
        let look = dir().look().await.unwrap();
        assert!(look.warning.unwrap().to_string().contains("cannot write to the seed folder"));
        assert_eq!(look.folder.look().await.unwrap().warning, None, "it has been said");
    }
}
