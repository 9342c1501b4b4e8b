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

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use mingle_core::env::{Format, Variables};
use mingle_core::{Assignment, Change, End, Metadata, RendezvousBuilder, RunningWorld, World};
use tokio::net::UnixStream;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::RunArgs;
use crate::caller;
use crate::config::{Restarts, Settings};
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::formation::Formation;
use crate::nccl_conf::environment_or_files;
use crate::output::Holder;
use crate::prepare::prepare;
use crate::run::{Meeting, others, unless_over};
use crate::signals::Signals;
use crate::{join, stderr};

/// How often to count the newcomers that wait.
const COUNT: Duration = Duration::from_millis(500);

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

/// How a world has ended for this node.
enum WorldEnd {
    /// The caller starts again. It may still hold the socket of the port.
    Again { holds_port: bool, end: End },
    /// This node takes part in no other.
    Gone,
}

/// Looks for the others, and stays until the caller leaves or all have finished.
pub(crate) fn stay(args: RunArgs, keeps_listener: bool, started: Instant) -> Result<(), Stop> {
    let restarts = Restarts { most: u32::MAX, ..Restarts::new(&args)? };
    let mut config = Settings::scheduled(args.join, environment_or_files)?;
    restarts.check(&config)?;
    (config.keeps_listener, config.stays) = (keeps_listener, true);
    Journal::during(&config, started, |journal| {
        let found = prepare(&config)?;
        join::block_on(&config, all_worlds(&config, &found, restarts, journal))
    })
}

async fn all_worlds(
    config: &Settings,
    found: &Found,
    restarts: Restarts,
    journal: &mut Journal,
) -> Result<(), Stop> {
    let mut signals = Signals::new(&[])?;
    let mut words = Words::new()?;
    let mut meeting = Meeting::new((config, found), restarts, 0);
    let (mut assignment, mut running) = meeting.join(&mut signals, journal).await?;
    loop {
        let early =
            tell_formed(config, found, (&mut assignment, &mut running), &mut signals, journal).await?;
        let world = WorldThatStays::new(config, restarts, assignment.formed.world);
        let end = match attend(world, (&mut running, early), &mut words, journal).await? {
            WorldEnd::Gone => return Ok(()),
            WorldEnd::Again { holds_port, end } => {
                let grace = if holds_port { Duration::ZERO } else { RendezvousBuilder::PORT_GRACE };
                running.set_port_grace(grace);
                end
            }
        };
        // The word that was read has made the earlier ones ready.
        signals = Signals::new(&[])?;
        (assignment, running) =
            meeting.again((running, end), Metadata::default(), &mut signals, journal).await?;
    }
}

/// Tells the caller what it has in this world, and returns what the world has done meanwhile.
async fn tell_formed(
    config: &Settings,
    found: &Found,
    (assignment, running): (&mut Assignment, &mut RunningWorld),
    signals: &mut Signals,
    journal: &mut Journal,
) -> Result<Vec<Change>, Stop> {
    let listener = assignment.listener.take();
    let formation = Formation::new(config, found, assignment, journal.timings());
    let generation = running.generation();
    let written = async {
        let variables: Variables = formation.variables(Format::JSON)?;
        formation.write_outputs(Holder::own()).await?;
        Ok(variables)
    };
    let (variables, early) = join::unless_ended(pin!(unless_over(written, running)), signals).await?;
    if let Some(variables) = variables {
        formation.tell(&variables, generation, listener)?;
    }
    Ok(early)
}

/// Stays with the world until it is over, all know that, and the caller has said what follows.
async fn attend(
    mut world: WorldThatStays<'_>,
    (running, early): (&mut RunningWorld, Vec<Change>),
    words: &mut Words,
    journal: &mut Journal,
) -> Result<WorldEnd, Stop> {
    for change in early {
        world.change(change, journal);
    }
    let mut waiting = 0;
    let mut count = interval(COUNT);
    count.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            change = running.next() => world.change(change, journal),
            word = words.next(), if !matches!(world.after, Some(WorldEnd::Gone)) => world.hear(word, running),
            _ = count.tick() => {
                let newcomers = running.newcomers();
                if std::mem::replace(&mut waiting, newcomers) != newcomers {
                    journal.waiting(newcomers);
                }
            }
        }
        if world.is_notified
            && let Some(after) = world.after.take()
        {
            if matches!(after, WorldEnd::Gone) {
                running.leave().await;
            }
            return Ok(after);
        }
    }
}

/// A world that has formed.
struct WorldThatStays<'a> {
    config: &'a Settings,
    restarts: Restarts,
    /// How many nodes are in it.
    size: World,
    /// It is over, and all nodes that can be notified of the end have been.
    is_notified: bool,
    end: Option<End>,
    /// The wish of the caller for the time after it.
    after: Option<WorldEnd>,
}

impl<'a> WorldThatStays<'a> {
    fn new(config: &'a Settings, restarts: Restarts, size: World) -> Self {
        Self { config, restarts, size, is_notified: false, end: None, after: None }
    }

    fn change(&mut self, change: Change, journal: &mut Journal) {
        journal.change(&change);
        others::warn(&change, self.size, self.restarts, self.config);
        match change {
            Change::Notified => self.is_notified = true,
            Change::Finished => (self.is_notified, self.after) = (true, Some(WorldEnd::Gone)),
            Change::Over(over) => {
                if !self.config.quiet {
                    stderr::say(format_args!("{over}; this world is over"));
                }
                self.end = Some(over.end);
            }
            Change::Cause(over) => others::say_cause(&over, "", self.config),
            _ => {}
        }
    }

    fn hear(&mut self, word: Word, running: &mut RunningWorld) {
        match word {
            Word::Finish => running.succeed(),
            Word::Next { code, holds_port } => {
                let end = *self.end.get_or_insert(End::Exited(code));
                self.after = Some(WorldEnd::Again { holds_port, end });
                running.fail(End::Exited(code));
            }
            Word::Fail(code) => {
                self.after = Some(WorldEnd::Gone);
                running.release_newcomers();
                running.fail(End::Exited(code));
            }
            Word::Leave(code) => {
                self.after = Some(WorldEnd::Gone);
                running.fail(if code == 0 { End::Left } else { End::Exited(code) });
            }
        }
    }
}

/// The words of the caller while a world runs.
struct Words(UnixStream);

impl Words {
    fn new() -> Result<Self, Stop> {
        let missing = || Err(io::Error::other("there is no caller"));
        let socket = caller::ends().unwrap_or_else(missing).and_then(UnixStream::from_std);
        socket.map(Self).map_err(|error| Stop::System("hear the caller", error))
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
