//! A world that stays, for a caller in the same process: the caller runs what the world is for, and this
//! thread answers the other nodes, however long the caller does not.
//!
//! ```text
//! caller                          this thread
//! Next, or the first call    ->   looks for the others              -> Told::Formed
//!                                 hears what the world does         -> Told::Event
//! Next     start again       ->   ends this world for all, unless it is over already; then as above
//! Finish   all is done       ->   waits until all nodes have said so -> Told::Event, and the end
//! Fail     it has failed     ->   ends this world for all, and takes part in no other
//! Leave, or a closed socket  ->   the same, and the others go on with another node
//! ```
//!
//! A word is one packet. While this node looks for others, every word makes it leave at once: the caller says
//! none then but Leave.

use std::future::ready;
use std::io;
use std::pin::pin;

use mingle_core::env::{Format, Variables};
use mingle_core::{Assignment, Change, End, Happening, Session};
use tokio::net::UnixStream;

use crate::caller;
use crate::config::{Restarts, Settings};
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::formation::Formation;
use crate::join;
use crate::output::Holder;
use crate::prepare::prepare;
use crate::signals::Signals;

/// A word of a caller about its part in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It wants to start again. A world that is not over yet ends with this exit code.
    Next {
        /// The exit code, 1 to 255.
        code: u8,
        /// Whether it still holds the socket of the port, so that another port is taken at once.
        holds_port: bool,
    },
    /// It has ended well.
    Finish,
    /// It has failed with this exit code, and does not start again.
    Fail(u8),
    /// It leaves, with this exit code of its process: 0 if somebody has asked it to.
    Leave(u8),
}

impl Word {
    /// The word in a packet.
    pub fn bytes(self) -> [u8; 2] {
        match self {
            Self::Next { code, holds_port: false } => [b'n', code],
            Self::Next { code, holds_port: true } => [b'p', code],
            Self::Finish => *b"d ",
            Self::Fail(code) => [b'f', code],
            Self::Leave(code) => [b'l', code],
        }
    }

    fn read(packet: &[u8]) -> Self {
        match *packet {
            [b'n', code] => Self::Next { code, holds_port: false },
            [b'p', code] => Self::Next { code, holds_port: true },
            [b'd', _] => Self::Finish,
            [b'f', code] => Self::Fail(code),
            [b'l', code] => Self::Leave(code),
            _ => Self::Leave(0),
        }
    }
}

/// Looks for the others, and with restarts stays until the caller leaves or all have finished.
pub(crate) fn all_worlds(
    config: &Settings,
    restarts: Option<Restarts>,
    journal: &mut Journal,
) -> Result<(), Stop> {
    let found = prepare(config)?;
    let builder = restarts.map_or_else(|| config.rendezvous(), |restarts| restarts.rendezvous(config));
    let mut session = found.describe(builder).session();
    join::block_on(config, async {
        let mut words = Words::new()?;
        loop {
            // The word that was read has made the earlier ones ready.
            let mut signals = Signals::new(&[])?;
            let mut assignment = join::meet(&mut session, config, journal, &mut signals).await?;
            let told = tell_formed(config, &found, (&mut assignment, &mut session), &mut signals, journal);
            let early = told.await?;
            if restarts.is_none() || !attend(config, (&mut session, early), &mut words, journal).await? {
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
            word = words.next() => {
                match word {
                    Word::Finish => session.succeed(),
                    Word::Next { code, holds_port } => {
                        session.fail(End::Exited(code));
                        session.stopped_with_port(holds_port);
                        return Ok(true);
                    }
                    Word::Fail(code) => session.give_up(End::Exited(code)).await,
                    Word::Leave(0) => session.leave(End::Left).await,
                    Word::Leave(code) => session.leave(End::Exited(code)).await,
                }
                if word != Word::Finish {
                    return Ok(false);
                }
                continue;
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

    /// Cancel-safe. A socket that the caller has closed says `Leave`, again and again.
    async fn next(&mut self) -> Word {
        loop {
            if self.0.readable().await.is_err() {
                return Word::Leave(0);
            }
            // The socket keeps packets apart, and one byte more than a word shows a longer packet.
            let mut packet = [0; 3];
            match self.0.try_read(&mut packet) {
                Ok(length) => return Word::read(&packet[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Word::Leave(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_survives_its_packet_and_everything_else_leaves() {
        let next = |holds_port| Word::Next { code: 75, holds_port };
        for word in [next(false), next(true), Word::Finish, Word::Fail(1), Word::Leave(3)] {
            assert_eq!(Word::read(&word.bytes()), word);
        }
        for packet in [&b""[..], b"n", b"x1", b"n11"] {
            assert_eq!(Word::read(packet), Word::Leave(0), "{packet:?}");
        }
    }
}
