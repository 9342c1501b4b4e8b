//! The rendezvous itself: runs it, shows its events, and ends it early on a signal.

use std::pin::pin;

use mingle_core::{Assignment, Error, Event};
use nix::sys::signal::Signal;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::config::Settings;
use crate::doctor;
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::progress::ProgressView;
use crate::runtime::runtime;
use crate::signals::{self, ENDING, Signals};

/// Waits for the world, and then runs `then` with it. However this ends, all sockets are closed, which
/// notifies the other nodes at once. A signal that arrives meanwhile ends this process.
pub(crate) fn join_and_then<T>(
    config: &Settings,
    found: &Found,
    journal: &mut Journal,
    then: impl AsyncFnOnce(Assignment, &mut Journal) -> Result<T, Stop>,
) -> Result<T, Stop> {
    block_on(config, async {
        let mut signals = Signals::new(&ENDING)?;
        let (sender, mut events) = unbounded_channel();
        let rendezvous = found.describe(config.rendezvous());
        let joining = Box::pin(rendezvous.events(move |event| drop(sender.send(event))).join());
        let assignment =
            watch(joining, &mut events, &mut ProgressView::new(config, journal), &mut signals).await?;
        let done = unless_ended(pin!(then(assignment, journal)), &mut signals).await?;
        match signals.arrived().await.and_then(ending) {
            Some(signal) => Err(Stop::Signal(signal)),
            None => Ok(done),
        }
    })
}

/// Does this work, and prints what the doctor finds on this host where a rendezvous in it has timed out.
pub(crate) fn block_on<T>(config: &Settings, work: impl Future<Output = Result<T, Stop>>) -> Result<T, Stop> {
    let runtime = runtime()?;
    let done = runtime.block_on(work);
    // Looking up the name of a seed may take many seconds more, and its answer is not needed.
    runtime.shutdown_background();
    if let Err(stop) = &done
        && !config.quiet
    {
        doctor::after(stop, config);
    }
    done
}

/// Does this work, unless a signal ends this process before.
pub(crate) async fn unless_ended<T>(
    mut work: impl Future<Output = Result<T, Stop>> + Unpin,
    signals: &mut Signals,
) -> Result<T, Stop> {
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            signal = signals.next() => if let Some(signal) = ending(signal) {
                return Err(Stop::Signal(signal));
            },
        }
    }
}

/// The signal, if it ends a rendezvous. Ctrl-Z stops this process until it is continued.
fn ending(signal: Signal) -> Option<Signal> {
    match signal {
        Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT => Some(signal),
        Signal::SIGTSTP => {
            signals::stop(|| {});
            None
        }
        _ => None,
    }
}

/// Waits for the end of `joining`, and shows its events until then.
pub(crate) async fn watch(
    mut joining: impl Future<Output = Result<Assignment, Error>> + Unpin,
    events: &mut UnboundedReceiver<Event>,
    progress: &mut ProgressView<'_>,
    signals: &mut Signals,
) -> Result<Assignment, Stop> {
    loop {
        tokio::select! {
            // The outcome first: once agreed with the other nodes it holds, even if a signal has arrived too.
            biased;
            joined = &mut joining => {
                rest(events, progress);
                if let Ok(assignment) = &joined {
                    progress.formed(assignment);
                }
                return joined.map_err(Stop::Rendezvous);
            }
            signal = signals.next() => if let Some(signal) = ending(signal) {
                return Err(Stop::Signal(signal));
            },
            Some(event) = events.recv() => progress.show(&event),
            () = progress.tick() => {}
        }
    }
}

/// Shows the events that came before the end.
fn rest(events: &mut UnboundedReceiver<Event>, progress: &mut ProgressView<'_>) {
    while let Ok(event) = events.try_recv() {
        progress.show(&event);
    }
}
