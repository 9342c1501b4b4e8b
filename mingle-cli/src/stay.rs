//! A world that stays, for a caller in the same process: the caller runs what the world is for, and this
//! thread answers the other nodes, however long the caller does not.
//!
//! ```text
//! caller                          this thread
//! next, or the first call    ->   looks for the others              -> formed
//!                                 hears what the world does         -> event
//! next     start again       ->   ends this world for all, unless it is over already; then as above
//! finish   all is done       ->   waits until all nodes have said so -> event, and the end
//! fail     it has failed     ->   ends this world for all, and takes part in no other
//! leave, or a closed socket  ->   the same, and the others go on with another node
//! ```
//!
//! A word is one packet; see [`join`](crate::embed::join). While this node looks for others, every word makes
//! it leave at once: the caller says none then but `leave`.

use std::future::ready;
use std::io;
use std::pin::pin;

use mingle_core::env::{Format, Variables};
use mingle_core::{Assignment, Change, End, Happening, Session};
use tokio::net::UnixStream;

use crate::caller;
use crate::config::Settings;
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::formation::Formation;
use crate::join;
use crate::output::Holder;
use crate::prepare::prepare;
use crate::signals::Signals;

/// Looks for the others, and where the node stays, goes on until the caller leaves or all have finished.
pub(crate) fn all_worlds(config: &mut Settings, journal: &mut Journal) -> Result<(), Stop> {
    let found = prepare(config)?;
    let mut session = config.session();
    join::block_on(config, async {
        let mut words = Words::new()?;
        loop {
            // The word that was read has made the earlier ones ready.
            let mut signals = Signals::new(&[])?;
            let mut assignment = join::meet(&mut session, config, journal, &mut signals).await?;
            let told = tell_formed(config, &found, (&mut assignment, &mut session), &mut signals, journal);
            let early = told.await?;
            if !config.rendezvous.stays || !attend(config, (&mut session, early), &mut words, journal).await?
            {
                return Ok(());
            }
        }
    })
}

/// Tells the caller what it has in this world, and returns what the world has done meanwhile.
async fn tell_formed(
    config: &Settings,
    found: &Found,
    (assignment, session): (&mut Assignment, &mut Session),
    signals: &mut Signals,
    journal: &mut Journal,
) -> Result<Vec<Happening>, Stop> {
    let listener = assignment.listener.take();
    let formation = Formation::new(config, found, assignment, journal.timings());
    let generation = session.generation();
    let written = async {
        let variables: Variables = formation.variables(Format::JSON)?;
        formation.write_outputs(Holder::own()).await?;
        Ok(variables)
    };
    let (variables, early) = join::unless_ended(pin!(join::unless_over(written, session)), signals).await?;
    if let Some(variables) = variables {
        formation.tell(&variables, generation, listener)?;
    }
    Ok(early)
}

/// Stays with the world until the caller starts again, and returns whether it does.
async fn attend(
    config: &Settings,
    (session, early): (&mut Session, Vec<Happening>),
    words: &mut Words,
    journal: &mut Journal,
) -> Result<bool, Stop> {
    let mut early = early.into_iter();
    loop {
        let happening = tokio::select! {
            biased;
            Some(happening) = ready(early.next()) => happening,
            happening = session.next() => happening?,
            (word, code) = words.next() => {
                match word.as_str() {
                    "finish" => {
                        session.succeed();
                        continue;
                    }
                    "next" | "next with the port held" => {
                        session.fail(End::Exited(code));
                        session.stopped_with_port(word != "next");
                        return Ok(true);
                    }
                    "fail" => session.give_up(End::Exited(code)).await,
                    _ => session.leave(if code == 0 { End::Left } else { End::Exited(code) }).await,
                }
                return Ok(false);
            }
        };
        join::tell(session, &happening, config, journal);
        if matches!(happening, Happening::Running(Change::Finished)) {
            return Ok(false);
        }
    }
}

/// The words of the caller while a world runs.
struct Words(UnixStream);

impl Words {
    fn new() -> Result<Self, Stop> {
        let missing = || Err(Stop::System("hear the caller", io::Error::other("there is no caller")));
        caller::ends().unwrap_or_else(missing).map(Self)
    }

    /// A word, and its code. Cancel-safe. A socket that the caller has closed says `leave`, again and again.
    async fn next(&mut self) -> (String, u8) {
        loop {
            let left = ("leave".to_owned(), 0);
            if self.0.readable().await.is_err() {
                return left;
            }
            // The socket keeps packets apart.
            let mut packet = [0; 32];
            match self.0.try_read(&mut packet) {
                Ok(0) => return left,
                Ok(length) => {
                    return (String::from_utf8_lossy(&packet[1..length]).into_owned(), packet[0]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return left,
            }
        }
    }
}
