//! A session: how two processes talk, before a world has formed and while it lives, over one TCP connection
//! or several. `wire/forming.rs` and `wire/world.rs` have what they say.
//!
//! TCP delivers what it was given, and cannot take it back: a lost segment holds up all that follows for 0.2
//! s and more, and a process that is stopped for an hour finds an hour of old news. So a frame here is a
//! *state*, and not a message. Of each kind one frame waits; a newer frame takes its place, at the end of the
//! queue. A frame waits until the other *process* has said that it read it, whatever the kernels have
//! acknowledged.
//!
//! * A connection carries one batch: what waits is written on it, in order, when the other process has read
//!   all that the connection carries. So the other kernel holds a batch at most, and its window never closes.
//! * If a batch is not acknowledged within the session's patience, another connection is opened, and all that
//!   waits is written there. A fresh connection passes a lossy network sooner than a lost segment is
//!   repeated.
//! * Every frame has a number. A reader ignores a number that it has passed, so it sees frames in the order
//!   of their numbers, and each at most once, however many connections carry them.
//! * Without a connection a session dials, although nothing waits: the end of a connection is a question, and
//!   only the next connection answers it.
//!
//! What is promised: a frame is read, or replaced by a later frame of its kind; and a reader that has read a
//! frame has read what was said before it, except what was replaced by something after it. `exhaustive`
//! visits every order of events of a small session.
//!
//! ```text
//! link     a session and what its connections say of the other process: whether it is there, silent or dead
//! links    the links of one process to all others
//! ```

#[cfg(test)]
mod exhaustive;
mod link;
mod links;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::{ConnId, DialId, Time};
use crate::wire::{Body, Frame, kind_of};
pub use link::{Ending, Ends, Failed, Way};
pub(crate) use link::{PATIENCE, PeerLink, Presence};
pub use links::Order;
pub(crate) use links::{Linked, PeerLinks};

/// A process to which no connection is open for so long, or that owes an acknowledgement for so long, is lost
/// to what cannot wait for it.
pub(crate) const LOST: Duration = Duration::from_secs(3);

/// The most connections of a session that are open. Where a further one opens, the end that closes what is
/// superfluous closes the most silent one.
const MOST: usize = 4;
/// The most that the other end holds, which leaves that to it: each would close those that the other keeps.
const MOST_LEFT: usize = 8;
/// The most that are being opened: where packets vanish at most of a process's addresses, others get their
/// turn.
const MOST_DIALS: usize = 12;
/// From so many dials without an answer on, the time between two doubles.
const HASTY: u32 = 6;
/// A connection that has been silent for so long closes where the session has a better connection.
const SILENT: Duration = Duration::from_secs(2);
/// The longest interval between two dials.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);

/// One end of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionEnd {
    /// This end closes superfluous connections, which has the lower ID: the two open connections alike, and
    /// order them differently, so that each could close the connection that the other keeps.
    closes: bool,
    patience: Duration,
    /// The frames that the other process has not acknowledged, by number, at most one of a kind.
    waiting: Vec<Waiting>,
    /// The number of the last frame that was put into `waiting`.
    last: u64,
    /// The number of the last frame that was written on a connection.
    written: u64,
    /// Since when something may be written: all that is said until the driver asks is one batch.
    unwritten: Option<Time>,
    /// The number of the last frame that the other process has read, as far as it has said so.
    acknowledged: u64,
    /// The number of the last frame that this process has read.
    read: u64,
    /// In the order in which they opened.
    connections: Vec<Connection>,
    /// The dials under way, and where each goes, if that is known.
    dials: BTreeMap<DialId, Option<SocketAddr>>,
    /// The last dial, and when it began.
    last_dial: Option<(DialId, Time)>,
    /// The next dial waits for no former one, of which none could reach the other process.
    dials_at_once: bool,
    /// A dial is due although a connection is open: only there is the other process known to be itself.
    dials_beside: bool,
    /// The dials since the other process was heard last.
    attempts: u32,
    outputs: VecDeque<SessionOutput>,
}

/// What a session asks of [`PeerLinks`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionOutput {
    /// Open a connection to the other process, and exchange hellos; then call [`SessionEnd::opened`] or
    /// [`SessionEnd::dial_failed`].
    Dial(DialId),
    /// Write this frame. Frames of one connection are written in the order in which they were given.
    Write(ConnId, Frame),
    /// Close this connection. The session has forgotten it.
    Close(ConnId),
}

/// The other end has acknowledged a frame that was never sent, or has sent a frame that says nothing: it is
/// not the process that it says it is, or its program has an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Impossible;

#[derive(Debug, Clone)]
struct Waiting {
    number: u64,
    /// Since when a frame of this kind has waited.
    since: Time,
    body: Body,
}

#[derive(Debug, Clone)]
struct Connection {
    conn: ConnId,
    /// Where it goes, if this process has dialled it at an address.
    to: Option<SocketAddr>,
    /// The number of the last frame that was written on it, until the other process has read that here. A
    /// connection that stalls carries nothing more, whatever others carry.
    carries: Option<u64>,
    /// When something was written on it last; at first, when it opened.
    written: Time,
    /// When something was read on it; at first, when it opened, since a hello was read then.
    heard: Time,
    /// The other end has it open as well: it has written more than a hello.
    is_open_there: bool,
    /// The number of the last frame that was read on it.
    read: u64,
    /// Nothing was written on it since.
    owes: bool,
}

impl SessionEnd {
    /// A session with a process to which no connection is open yet. `patience` is how long the other process
    /// may take to acknowledge a batch before another connection is tried.
    pub(crate) fn new(closes: bool, patience: Duration) -> Self {
        Self { closes, patience, dials_at_once: true, ..Self::default() }
    }

    /// From now on the other process may take so long to acknowledge a batch.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The other process has begun anew: it has read nothing, and what its old connections bring is nobody's.
    pub(crate) fn begin_anew(&mut self) {
        let old = std::mem::take(&mut self.connections).into_iter();
        self.outputs.extend(old.map(|connection| SessionOutput::Close(connection.conn)));
        self.waiting.clear();
        (self.last, self.written, self.acknowledged, self.read, self.attempts) = (0, 0, 0, 0, 0);
    }

    /// Says a state, instead of what was said of its kind before and has not been read.
    pub(crate) fn say(&mut self, now: Time, body: Body) {
        self.last += 1;
        let former = self.waiting.iter().position(|frame| kind_of(&frame.body) == kind_of(&body));
        let since = former.map_or(now, |former| self.waiting.remove(former).since);
        self.waiting.push(Waiting { number: self.last, since, body });
        self.unwritten = Some(now);
    }

    /// A connection is open and both hellos have been read, whoever dialled it: this process by this dial, or
    /// else the other process.
    pub(crate) fn opened(&mut self, now: Time, dial: Option<DialId>, conn: ConnId) {
        self.connections.push(Connection {
            conn,
            to: dial.and_then(|dial| self.dials.remove(&dial)).flatten(),
            carries: None,
            written: now,
            heard: now,
            // An acceptor has read the dialer's first acknowledgement.
            is_open_there: dial.is_none(),
            read: 0,
            owes: false,
        });
        if self.connections.len() > if self.closes { MOST } else { MOST_LEFT } {
            self.close_the_most_silent();
        }
        self.unwritten = Some(now);
    }

    /// A dial was refused, or got no answer to its hello in time.
    pub(crate) fn dial_failed(&mut self, now: Time, dial: DialId) {
        self.dials.remove(&dial);
        self.advance(now);
    }

    /// A connection has ended, as this end's kernel sees it.
    pub(crate) fn closed(&mut self, now: Time, conn: ConnId) {
        self.connections.retain(|connection| connection.conn != conn);
        self.advance(now);
    }

    /// A frame was read. Returns it if its connection is open, and this process has not read it, or a later
    /// frame, before.
    ///
    /// # Errors
    /// [`Impossible`]; nothing has changed then, and the connection is to be closed.
    pub(crate) fn receive(
        &mut self,
        now: Time,
        conn: ConnId,
        frame: Frame,
    ) -> Result<Option<Frame>, Impossible> {
        let connection = self.connections.iter_mut().find(|connection| connection.conn == conn);
        let Some(connection) = connection else { return Ok(None) };
        if frame.read > self.last {
            return Err(Impossible);
        }
        self.attempts = 0;
        self.waiting.retain(|waiting| waiting.number > frame.read);
        if frame.read > self.acknowledged {
            self.acknowledged = frame.read;
            // A process that answers owes the rest only from now on: what replaced a frame has its age.
            self.waiting.iter_mut().for_each(|waiting| waiting.since = waiting.since.max(now));
        }
        connection.heard = now;
        connection.is_open_there = true;
        connection.carries = connection.carries.filter(|&carries| carries > frame.read);
        connection.read = connection.read.max(frame.number);
        connection.owes |= !frame.is_acknowledgement();
        let is_new = frame.number > self.read;
        self.read = self.read.max(frame.number);
        self.unwritten = Some(now);
        Ok(Some(frame).filter(|_| is_new))
    }

    /// Whether this connection is open, and this process has not closed it.
    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.connections.iter().any(|connection| connection.conn == conn)
    }

    /// Whether the other process has read all that was said.
    pub(crate) fn is_read(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether what was said last of this kind was written on a connection, and so may have been read.
    pub(crate) fn has_written(&self, kind: u8) -> bool {
        let waiting = self.waiting.iter().find(|frame| kind_of(&frame.body) == kind);
        waiting.is_none_or(|frame| frame.number <= self.written)
    }

    /// This process ends, and repeats no acknowledgement: each connection carries one of all that was read.
    pub(crate) fn conclude(&mut self) {
        for connection in &mut self.connections {
            (connection.read, connection.owes) = (self.read, true);
        }
    }

    /// This process was stopped for so long, and has not read what the other one has sent meanwhile.
    pub(crate) fn forgive(&mut self, stopped: Duration) {
        for frame in &mut self.waiting {
            frame.since += stopped;
        }
    }

    /// When [`SessionEnd::advance`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let silent = self.superfluous().map(|connection| connection.heard + SILENT).min();
        self.next_dial().into_iter().chain(silent).min()
    }

    /// The next thing to do. An acknowledgement is due once all that has arrived was given to
    /// [`SessionEnd::receive`], so the driver reads first and then asks.
    pub(crate) fn poll_output(&mut self) -> Option<SessionOutput> {
        if let Some(now) = self.unwritten {
            self.advance(now);
        }
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let owing = self.connections.iter_mut().find(|connection| connection.owes)?;
        owing.owes = false;
        Some(SessionOutput::Write(owing.conn, Frame::acknowledgement(owing.read)))
    }

    /// What was said in this turn is not written any more: this process leaves the other one.
    pub(crate) fn drop_unwritten(&mut self) {
        self.unwritten = None;
    }

    /// Does what is due: writes what was said, dials, and closes what is superfluous.
    pub(crate) fn advance(&mut self, now: Time) {
        if self.unwritten.take().is_some() {
            self.write(now);
        }
        if self.next_dial().is_some_and(|due| due <= now) {
            let dial = DialId(self.last_dial.map_or(0, |(DialId(last), _)| last + 1));
            self.last_dial = Some((dial, now));
            (self.dials_at_once, self.dials_beside) = (false, false);
            self.attempts += 1;
            self.dials.insert(dial, None);
            self.outputs.push_back(SessionOutput::Dial(dial));
        }
        let silent = self.superfluous().filter(|connection| connection.heard + SILENT <= now);
        for conn in silent.map(|connection| connection.conn).collect::<Vec<_>>() {
            self.close(conn);
        }
    }

    /// Writes what waits on each connection whose batch has been read.
    fn write(&mut self, now: Time) {
        let Some(newest) = self.waiting.last().map(|frame| frame.number) else { return };
        for connection in self.connections.iter_mut().filter(|connection| connection.carries.is_none()) {
            for Waiting { number, body, .. } in self.waiting.iter().cloned() {
                let frame = Frame { number, read: connection.read, body };
                self.outputs.push_back(SessionOutput::Write(connection.conn, frame));
            }
            self.written = newest;
            connection.carries = Some(newest);
            connection.written = now;
            connection.owes = false;
        }
    }

    /// When the next connection is to be dialled.
    fn next_dial(&self) -> Option<Time> {
        if self.dials.len() >= MOST_DIALS {
            return None;
        }
        let begun = self.last_dial.map(|(_, at)| at);
        // Where something waits, every connection carries a batch. The youngest has the best chance.
        let written = self.connections.iter().map(|connection| connection.written).max();
        match (written, begun) {
            _ if self.dials_beside => Some(Time::ZERO),
            (Some(_), _) if self.waiting.is_empty() => None,
            (None, _) if self.dials_at_once => Some(Time::ZERO),
            (written, begun) => written.max(begun).map(|last| last + self.interval()),
        }
    }

    /// The time between two dials: the patience; half of it where a second one was needed, since a network
    /// that has lost one connection is as likely to lose the next; and after a few dials without an answer
    /// ever longer, so that many sessions whose network is down do not keep it down.
    fn interval(&self) -> Duration {
        // In a large world and to a stranger the patience is longer, so that nobody is flooded.
        if self.patience <= PATIENCE && (2..HASTY).contains(&self.attempts) {
            return self.patience / 2;
        }
        let doublings = self.attempts.saturating_sub(HASTY);
        self.patience.saturating_mul(1 << doublings.min(16)).min(LONGEST_INTERVAL.max(self.patience))
    }

    /// The connections that this end closes when they are silent: all but that on which something was read
    /// last.
    fn superfluous(&self) -> impl Iterator<Item = &Connection> {
        let best = self.best();
        self.connections.iter().filter(move |connection| self.closes && Some(connection.conn) != best)
    }

    /// The connection on which something was read last, of those that are open at the other end for certain:
    /// if both ends kept different ones, none would be left. Otherwise the oldest.
    fn best(&self) -> Option<ConnId> {
        let open = self.connections.iter().filter(|connection| connection.is_open_there);
        let heard = open.max_by_key(|connection| connection.heard);
        heard.or(self.connections.first()).map(|best| best.conn)
    }

    fn close_the_most_silent(&mut self) {
        let best = self.best();
        let silent = self.connections.iter().min_by_key(|c| (Some(c.conn) == best, c.heard)).map(|c| c.conn);
        if let Some(conn) = silent {
            self.close(conn);
        }
    }

    fn close(&mut self, conn: ConnId) {
        self.connections.retain(|connection| connection.conn != conn);
        self.outputs.push_back(SessionOutput::Close(conn));
    }
}
