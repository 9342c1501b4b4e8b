//! The rendezvous itself: runs it, shows its events, and ends it early on a signal.

use std::fs::File;
use std::io;
use std::pin::pin;

use mingle_core::rdma::Summary;
use mingle_core::{Assignment, Event};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::config::Config;
use crate::exit::{Signal, Stop};
use crate::progress::Progress;

/// What runtime and signals need.
const DESCRIPTORS: usize = 12;

/// Waits for the world. On every way out all sockets are closed, which tells the other nodes at once.
pub(crate) fn join(config: &Config, fabric: Summary) -> Result<Assignment, Stop> {
    // The runtime panics where it gets no descriptors for its own use.
    let few = (0..DESCRIPTORS).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<File>>>();
    drop(few.map_err(|error| Stop::System("open a few files at once (see ulimit -n)", error))?);
    // One thread is enough for one rendezvous, and starts at once.
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Stop::System("start the runtime", error))?;
    let ended = runtime.block_on(watch(config, fabric));
    // A look-up of a seed's name may take many seconds more, and nobody waits for its answer.
    runtime.shutdown_background();
    ended
}

async fn watch(config: &Config, fabric: Summary) -> Result<Assignment, Stop> {
    let handle = |kind| signal(kind).map_err(|error| Stop::System("handle signals", error));
    let (mut interrupt, mut terminate) = (handle(SignalKind::interrupt())?, handle(SignalKind::terminate())?);
    let (sender, mut events) = unbounded_channel();
    let mut progress = Progress::new(config);
    let mut joining = pin!(config.rendezvous().fabric(fabric).events(sender).join());
    loop {
        tokio::select! {
            // The outcome first: what has been agreed on with the others holds, even where a signal is
            // there as well.
            biased;
            joined = &mut joining => {
                rest(&mut events, &mut progress);
                return joined.map_err(Stop::Rendezvous);
            }
            _ = interrupt.recv() => return Err(Stop::Signal(Signal::Interrupt)),
            _ = terminate.recv() => return Err(Stop::Signal(Signal::Terminate)),
            Some(event) = events.recv() => progress.show(&event),
            () = progress.tick() => {}
        }
    }
}

/// What was said before the end and not yet shown.
fn rest(events: &mut UnboundedReceiver<Event>, progress: &mut Progress) {
    while let Ok(event) = events.try_recv() {
        progress.show(&event);
    }
}
