//! The session of a node with its job: runs it, shows what happens, and ends it early on a signal.

use mingle_core::{Assignment, End, Event, Happening, Session};

use crate::config::Settings;
use crate::doctor;
use crate::events::Journal;
use crate::exit::Stop;
use crate::progress::ProgressView;
use crate::runtime::runtime;
use crate::signals::{ENDING, Signals};
use crate::{advice, stderr};

/// Waits for the world, and then runs `then` with it. However this ends, all sockets are closed, which
/// notifies the other nodes at once. A signal that arrives meanwhile ends this process.
pub(crate) fn join_and_then<T>(
    config: &Settings,
    journal: &mut Journal,
    then: impl FnOnce(Assignment, &mut Journal) -> Result<T, Stop>,
) -> Result<T, Stop> {
    block_on(config, async {
        let mut signals = Signals::new(&ENDING)?;
        let mut session = config.session();
        let assignment = meet(&mut session, config, journal, &mut signals).await?;
        let done = then(assignment, journal)?;
        signals.arrived().await.map_or(Ok(done), |signal| Err(Stop::Signal(signal)))
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

/// Waits until the next world has formed, and shows what happens until then.
pub(crate) async fn meet(
    session: &mut Session,
    config: &Settings,
    journal: &mut Journal,
    signals: &mut Signals,
) -> Result<Assignment, Stop> {
    let mut progress = ProgressView::new(config, journal);
    loop {
        let happening = tokio::select! {
            // The outcome first: once agreed with the other nodes it holds, even if a signal has arrived too.
            biased;
            happening = session.next() => happening?,
            signal = signals.ending() => {
                session.leave(End::Left).await;
                return Err(Stop::Signal(signal));
            }
        };
        match happening {
            Happening::Meeting(event) => progress.show(&event),
            Happening::Restarting(generation) => progress.restart(generation),
            Happening::Formed(assignment) => {
                progress.journal.formed(&assignment);
                return Ok(*assignment);
            }
            other => tell(session, &other, progress.journal),
        }
    }
}

/// Tells programs and people what has happened.
pub(crate) fn tell(session: &Session, happening: &Happening, journal: &mut Journal) {
    match happening {
        Happening::Meeting(event) => journal.event(event),
        Happening::Running(change) => journal.change(change),
        _ => {}
    }
    let sentence = match happening {
        Happening::Meeting(Event::Warning(warning)) => Some(format!("warning: {}", advice::warning(warning))),
        _ => session.sentence(happening),
    };
    if let Some(sentence) = sentence {
        stderr::say(format_args!("{sentence}"));
    }
}
