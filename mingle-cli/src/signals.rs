//! Signals that this process handles, instead of being killed by them.

use std::fs;
use std::sync::OnceLock;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::caller;
use crate::exit::Stop;

/// The signals that ask for an end: of a rendezvous, and of a command.
pub(crate) const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Receives the signals that arrive after it was made. Make and use it within a runtime. Within another
/// program, which has handlers of its own, it takes none, and receives SIGINT once that program asks for the
/// end.
pub(crate) struct Signals(Vec<(Signal, Stream)>, Option<UnixStream>);

impl Signals {
    /// Handles these signals, except those that this process was started to ignore, as by nohup(1): they stay
    /// ignored, and a command inherits that. But while SIGCHLD is ignored, nobody learns how a child has
    /// ended.
    pub(crate) fn new(wanted: &[Signal]) -> Result<Self, Stop> {
        // Handlers hide which signals were ignored, so that is read before the first handler.
        static IGNORED: OnceLock<u64> = OnceLock::new();
        if let Some(ends) = caller::ends() {
            return Ok(Self(Vec::new(), Some(ends?)));
        }
        let ignored = IGNORED.get_or_init(ignored);
        let is_ignored = |signal: &Signal| ignored & (1 << (*signal as i32 - 1)) != 0;
        let taken = wanted.iter().filter(|signal| **signal == Signal::SIGCHLD || !is_ignored(signal));
        let stream = |taken: &Signal| match signal(SignalKind::from_raw(*taken as i32)) {
            Ok(stream) => Ok((*taken, stream)),
            Err(error) => Err(Stop::System("handle signals", error)),
        };
        Ok(Self(taken.map(stream).collect::<Result<_, _>>()?, None))
    }

    pub(crate) async fn next(&mut self) -> Signal {
        if let Some(ends) = &self.1 {
            let _ = ends.readable().await;
            return Signal::SIGINT;
        }
        std::future::poll_fn(|context| {
            let mut streams = self.0.iter_mut();
            let come =
                streams.find_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal));
            come.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The next signal that asks for an end.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDING.contains(&signal) {
                return signal;
            }
        }
    }

    /// A signal that asks for an end and has arrived already.
    pub(crate) async fn arrived(&mut self) -> Option<Signal> {
        // The runtime polls the operating system only while no task runs.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        tokio::select! {
            biased;
            signal = self.ending() => Some(signal),
            () = std::future::ready(()) => None,
        }
    }
}

/// The ignored signals, a bit for each, as in proc(5).
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
