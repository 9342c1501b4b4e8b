//! The runtime of tokio, in which all that waits runs.

use std::fs::File;
use std::io;

use tokio::runtime::{Builder, Runtime};

use crate::exit::Stop;

/// The number of file descriptors that the runtime and the signal handlers need.
const DESCRIPTORS: usize = 12;

/// The runtime. One thread is enough for one rendezvous.
pub(crate) fn runtime() -> Result<Runtime, Stop> {
    // The runtime panics if it gets no file descriptors, so this tries first.
    let few = (0..DESCRIPTORS).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<File>>>();
    drop(few.map_err(|error| Stop::System("open a few files at once (see ulimit -n)", error))?);
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Stop::System("start the runtime", error))
}
