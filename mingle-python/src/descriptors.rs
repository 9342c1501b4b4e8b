//! A table of file descriptors for a thread alone, so that no child of this process inherits what it opens.
//!
//! A child that `fork` makes, as PyTorch's `DataLoader` does, would hold the sockets of a rendezvous open.
//! Other nodes would then take the node for alive after its process was killed, and its ports would stay
//! taken.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::sync::LazyLock;

use nix::libc;
use tokio::runtime::Builder;

/// Gives this thread a table of its own, without the descriptors of the process but standard input, output
/// and error, `keep`, and those of [`OF_TOKIO`]. The kernel has this since Linux 5.9.
pub(crate) fn separate(keep: RawFd) -> io::Result<()> {
    let mut kept = OF_TOKIO.clone();
    kept.insert(keep);
    let mut flags = libc::CLOSE_RANGE_UNSHARE.cast_signed();
    // From the end: the first call copies the table up to there alone.
    let mut end = RawFd::MAX;
    for fd in kept.into_iter().rev().chain([2]) {
        if fd < end {
            close(fd + 1, end, flags)?;
            flags = 0;
        }
        end = fd - 1;
    }
    Ok(())
}

/// tokio keeps two descriptors for the whole process, and each of its runtimes copies one: they are opened
/// here, in the table of the process. If another thread opens one in the same moment, that is kept as well,
/// which does no harm.
pub(crate) static OF_TOKIO: LazyLock<BTreeSet<RawFd>> = LazyLock::new(|| {
    let before = open();
    // An error comes again where the runtime is needed.
    drop(Builder::new_current_thread().enable_all().build());
    open().difference(&before).copied().filter(|fd| *fd > 2).collect()
});

/// The descriptors that are open. One of them was that of the folder.
fn open() -> BTreeSet<RawFd> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn close(first: RawFd, last: RawFd, flags: libc::c_int) -> io::Result<()> {
    let [first, last] = [first, last].map(RawFd::cast_unsigned);
    #[expect(unsafe_code, reason = "no crate has a safe function for this call")]
    // SAFETY: the call takes numbers alone. It closes descriptors in the table of this thread, which has just
    // begun and owns none but those that are kept.
    let done = unsafe { libc::close_range(first, last, flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
