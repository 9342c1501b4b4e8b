//! A world that stays, for a caller in the same process: the caller runs what the world is for, and this
//! thread answers the other nodes, however long the caller does not.
//!
//! ```text
//! caller                          this thread
//! Next, or the first call    ->   looks for the others              -> Told::Formed
//!                                 hears what the world does         -> Told::Changed
//! Next     start again       ->   ends this world for all, unless it is over already; then as above
//! Finish   all is done       ->   waits until all nodes have said so -> Told::Changed, and the end
//! Fail     it has failed     ->   ends this world for all, and takes part in no other
//! Leave, or a closed socket  ->   the same, and the others go on with another node
//! ```
//!
//! A word is one packet. While this node looks for others, every word makes it leave at once: the caller says
//! none then but Leave.

use std::fmt;
use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use mingle_core::env::{Format, Variables};
use mingle_core::proto::{Over, Peer};
use mingle_core::{Assignment, Change, End, Metadata, Rank, RendezvousBuilder, RunningWorld};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::RunArgs;
use crate::caller::{self, Told};
use crate::config::{Restarts, Settings, Split, flag_or_variable};
use crate::events::Journal;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::formation::Formation;
use crate::growth::Growth;
use crate::nccl_conf::environment_or_files;
use crate::output::Holder;
use crate::prepare::prepare;
use crate::run::{Meeting, unless_over};
use crate::runtime::runtime;
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
    let allows_split = flag_or_variable(args.allow_split, "allow-split")?;
    if allows_split { Split::Allowed } else { Split::Attended }.check(config.world)?;
    restarts.check_growth(&config)?;
    (config.keeps_listener, config.stays) = (keeps_listener, true);
    Journal::during(config.beginning(), started, |journal| {
        let found = prepare(&config)?;
        let runtime = runtime()?;
        let done = runtime.block_on(all_worlds(&config, &found, restarts, started, journal));
        // Looking up the name of a seed may take many seconds more, and its answer is not needed.
        runtime.shutdown_background();
        done.inspect_err(|stop| join::explain(stop, &config))
    })
}

async fn all_worlds(
    config: &Settings,
    found: &Found,
    restarts: Restarts,
    mut started: Instant,
    journal: &mut Journal,
) -> Result<(), Stop> {
    let mut signals = Signals::new(&[])?;
    let mut words = Words::new()?;
    let mut meeting = Meeting::new((config, found), restarts, 0);
    let mut assignment = meeting.join(&mut signals, journal).await?;
    let generation = assignment.running.as_ref().map_or(0, RunningWorld::generation);
    let mut growth = Growth::new(generation, now());
    loop {
        let missing = || Stop::System("stay with the world", io::Error::other("it has no roster"));
        let mut running = assignment.running.take().ok_or_else(missing)?;
        let generation = running.generation();
        if restarts.grows {
            running.set_growth(growth.wait(now()));
        }
        let early =
            tell_formed(config, found, &mut assignment, &mut running, started, (journal, &mut signals))
                .await?;
        match attend(&mut running, (generation, early, config.quiet), &mut words, journal).await? {
            WorldEnd::Gone => return Ok(()),
            WorldEnd::Again { holds_port, end } => {
                let grace = if holds_port { Duration::ZERO } else { RendezvousBuilder::PORT_GRACE };
                running.set_port_grace(grace);
                if end == End::Grows {
                    growth.grows(now());
                }
            }
        }
        started = now();
        journal.restart(running.generation(), started);
        // The word that was read has made the earlier ones ready.
        signals = Signals::new(&[])?;
        assignment = meeting.again(running, Metadata::default(), &mut signals, journal).await?;
    }
}

/// Tells the caller what it has in this world, and returns what the world has done meanwhile.
async fn tell_formed(
    config: &Settings,
    found: &Found,
    assignment: &mut Assignment,
    running: &mut RunningWorld,
    started: Instant,
    (journal, signals): (&mut Journal, &mut Signals),
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
        let mut document = formation.document(&variables)?;
        document["generation"] = generation.into();
        formation.report(&variables, started.elapsed());
        caller::tell(|| Told::Formed(document, listener));
    }
    Ok(early)
}

/// Stays with the world until it is over, all know that, and the caller has said what follows.
async fn attend(
    running: &mut RunningWorld,
    (generation, early, quiet): (u32, Vec<Change>, bool),
    words: &mut Words,
    journal: &mut Journal,
) -> Result<WorldEnd, Stop> {
    let mut attended = EndedWorld { is_notified: false, end: None, after: None, generation, quiet };
    for change in early {
        attended.change(change, journal);
    }
    let mut waiting = 0;
    let mut count = interval(COUNT);
    count.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            change = running.next() => {
                if change == Change::Finished {
                    journal.change(&change);
                    attended.tell("finished", json!({}));
                    return Ok(WorldEnd::Gone);
                }
                attended.change(change, journal);
            }
            word = words.next(), if !matches!(attended.after, Some(WorldEnd::Gone)) => attended.hear(word, running),
            _ = count.tick() => {
                let newcomers = running.newcomers();
                if std::mem::replace(&mut waiting, newcomers) != newcomers {
                    attended.tell("waiting", json!({ "nodes": newcomers }));
                }
            }
        }
        if attended.is_notified
            && let Some(after) = attended.after.take()
        {
            return Ok(after);
        }
    }
}

/// A world that has formed.
struct EndedWorld {
    /// It is over, and all nodes that can be notified of the end have been.
    is_notified: bool,
    end: Option<End>,
    /// The wish of the caller for the time after it.
    after: Option<WorldEnd>,
    /// Which formation of the job this world is.
    generation: u32,
    quiet: bool,
}

impl EndedWorld {
    fn change(&mut self, change: Change, journal: &mut Journal) {
        journal.change(&change);
        match change {
            Change::Notified => self.is_notified = true,
            Change::Over(over) => {
                self.say(format_args!("{over}; this world is over"));
                self.end = Some(over.end);
                self.tell("over", end(&over));
            }
            Change::Cause(over) => {
                self.say(format_args!("the first cause: {over}"));
                self.tell("cause", end(&over));
            }
            Change::Suspected(rank, peer) => {
                self.say(format_args!("warning: rank {rank}, {peer}, does not answer"));
                self.tell("suspected", node(Some(rank), Some(&peer)));
            }
            Change::Back(rank, peer) => {
                self.say(format_args!("warning: rank {rank}, {peer}, answers again"));
                self.tell("back", node(Some(rank), Some(&peer)));
            }
            Change::MaySplit { waiting } => self.say(format_args!(
                "warning: {waiting} nodes wait for a seat, enough for a second world: if the network splits, both may go \
                 on; start fewer spares"
            )),
            Change::CutOff => {
                self.say(format_args!("warning: most other nodes do not answer; this node may be cut off"));
                self.tell("cut_off", json!({}));
            }
            _ => {}
        }
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        if !self.quiet {
            stderr::say(what);
        }
    }

    /// The caller may have asked for the next world already, so it is told which one this is.
    fn tell(&self, change: &str, mut facts: Value) {
        (facts["change"], facts["generation"]) = (change.into(), self.generation.into());
        caller::tell(|| Told::Changed(facts));
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
                // No later formation would tell those that do not hear it now.
                running.set_last(true);
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

/// How a world has ended, in fields: of `mingle run` the message for people says it.
fn end(over: &Over) -> Value {
    let mut facts = node(over.rank, over.peer.as_ref());
    facts["text"] = over.to_string().into();
    (facts["end"], facts["code"]) = match over.end {
        End::Exited(code) => ("exited".into(), code.into()),
        End::Killed(signal) => ("killed".into(), signal.into()),
        End::Gone => ("gone".into(), Value::Null),
        End::Left => ("left".into(), Value::Null),
        End::Grows => ("grows".into(), Value::Null),
        _ => ("unknown".into(), Value::Null),
    };
    facts
}

fn node(rank: Option<Rank>, peer: Option<&Peer>) -> Value {
    json!({ "rank": rank.map(Rank::get), "host": peer.map(|peer| peer.host.as_str()) })
}

#[expect(clippy::disallowed_methods, reason = "the start of the time that the final message reports")]
fn now() -> Instant {
    Instant::now()
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
