//! TCP connections, as the kernels at both ends know them: delayed, refused, filtered, cut off, reset.
//!
//! What is written at one end arrives at the other in order, and a lost segment holds up all that follows.
//! `sessions` has what the processes at the ends write and read. The dialer is at the end 0, the acceptor at
//! the end 1.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mingle_core::proto::{ConnId, DialId, Ending, Frame, NodeId, Time};
use rand::RngExt;

use super::Network;
use super::power::{IDLE, KEEPALIVE};
use super::queue::Happening;

/// The length of a segment, as the driver sets it.
const SEGMENT: usize = 1180;
/// The kernel repeats a lost segment after this time, and then each time after twice as long.
const AGAIN: Duration = Duration::from_millis(200);
/// How many SYNs of a dial are sent at most: after 15 s it is given up already.
const SYNS: u32 = 4;

/// What one process writes to the other.
#[derive(Debug)]
pub enum Segment {
    /// The dialer's hello.
    Hello,
    /// The acceptor's.
    Answer,
    /// The acknowledgement of nothing, which the dialer writes first.
    First,
    Frame(Frame),
    /// The end of the connection.
    End(Ending),
}

pub(super) struct Connection {
    pub(super) dial: DialId,
    pub(super) to: SocketAddr,
    /// The process that is dialled.
    pub(super) peer: NodeId,
    /// The numbers of both ends' sessions.
    pub(super) numbers: [u64; 2],
    /// One until the host that is dialled has answered.
    pub(super) ends: Vec<End>,
    syns: u32,
}

pub(super) struct End {
    pub(super) host: usize,
    /// The process, and the life of its host.
    pub(super) id: NodeId,
    life: u32,
    pub(super) stage: Stage,
    /// Its address, once the connection is open.
    address: Option<IpAddr>,
    /// What is under way to it, and when that arrives.
    inbound: VecDeque<(Time, Segment)>,
    /// When the last of it arrives.
    arrived: Time,
    /// After which time the other kernel repeats what a cut has swallowed.
    again: Duration,
    /// Nothing more arrives at it.
    is_severed: bool,
    /// Its host has lost power.
    is_dead: bool,
    /// The kernel takes the connection to the other process for open.
    counts: bool,
}

/// The stage of a connection at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The hellos have not been exchanged.
    Opening,
    Open,
    /// The process has closed it, and reads on to no purpose, as an acceptor does.
    Left,
    /// The kernel knows no such connection.
    Gone,
}

impl End {
    fn new(host: usize, id: NodeId, life: u32, address: Option<IpAddr>) -> Self {
        Self {
            host,
            id,
            life,
            stage: Stage::Opening,
            address,
            inbound: VecDeque::new(),
            arrived: Time::ZERO,
            again: AGAIN,
            is_severed: false,
            is_dead: false,
            counts: false,
        }
    }

    pub(super) fn is_there(&self) -> bool {
        matches!(self.stage, Stage::Opening | Stage::Open)
    }
}

impl Network {
    /// At `at`, a middlebox resets the connections that a host has dialled, towards that host alone.
    pub fn break_at(&mut self, host: usize, at: Time) {
        self.at(at, Happening::Break(host));
    }

    /// Opens a connection. Returns its number.
    pub(super) fn connect(
        &mut self,
        host: usize,
        to: SocketAddr,
        (peer, dial, number): (NodeId, DialId, u64),
    ) -> u64 {
        self.next_connection += 1;
        let conn = self.next_connection;
        let slot = &mut self.hosts[host];
        let dialer = End::new(host, slot.config.id, slot.life, None);
        slot.connections.insert(conn);
        let connection = Connection { dial, to, peer, numbers: [number, 0], ends: vec![dialer], syns: 0 };
        self.connections.insert(conn, connection);
        self.syn(conn);
        conn
    }

    /// Sends a SYN. Where it or the answer is lost, the kernel tries again after 1, 3 and 7 s.
    pub(super) fn syn(&mut self, conn: u64) {
        let connection = self.connections.get_mut(&conn).unwrap();
        if !connection.ends[0].is_there() {
            return;
        }
        connection.syns += 1;
        let (from, to) = (connection.ends[0].host, connection.to);
        let target = self.find(from, to).filter(|&target| !self.drops_syn(from, target));
        let near = target.is_some_and(|target| self.are_near(from, target));
        let lost = !near && (self.chance(self.weather.loss) || self.chance(self.weather.loss));
        match target.filter(|_| !lost) {
            Some(target) => {
                let at = self.now + self.one_way(near) + self.one_way(near);
                self.at(at, Happening::SynAnswered { conn, target });
            }
            None => self.syn_again(conn),
        }
    }

    fn drops_syn(&self, from: usize, target: usize) -> bool {
        let slot = &self.hosts[target];
        slot.filtered
            || !slot.powered
            || slot.translated.is_some()
            || self.no_syn.get(&(from, target)).is_some_and(|&until| self.now < until)
            || self.cut.contains_key(&(from, target))
            || self.cut.contains_key(&(target, from))
    }

    fn syn_again(&mut self, conn: u64) {
        let syns = self.connections[&conn].syns;
        if syns < SYNS {
            let again = self.now + Duration::from_secs(1 << (syns - 1));
            self.at(again, Happening::Syn { conn });
        }
    }

    /// The host that was dialled has answered a SYN. Returns whether it accepts the connection; none if
    /// nothing comes of it.
    pub(super) fn is_accepted(&mut self, conn: u64, target: usize) -> Option<bool> {
        let dialer = &self.connections[&conn].ends[0];
        if !dialer.is_there() {
            return None;
        }
        let (host, to) = (dialer.host, self.connections[&conn].to);
        if !self.hosts[target].powered {
            self.syn_again(conn);
            return None;
        }
        if !self.hosts[target].accepting {
            return Some(false);
        }
        let slot = &mut self.hosts[target];
        let acceptor = End::new(target, slot.config.id, slot.life, Some(to.ip()));
        slot.connections.insert(conn);
        let own = self.hosts[host].config.node.endpoints[0];
        let translated = self.hosts[host].translated.is_some();
        let local = self.source(host, to).filter(|_| !translated).unwrap_or(own).ip();
        let connection = self.connections.get_mut(&conn).unwrap();
        connection.ends[0].address = Some(local);
        connection.ends.push(acceptor);
        Some(true)
    }

    /// At which end of a connection the process of a host is.
    pub(super) fn end_of(&self, host: usize, ConnId(conn): ConnId) -> Option<usize> {
        let life = self.hosts[host].life;
        let ends = &self.connections.get(&conn)?.ends;
        ends.iter().position(|end| (end.host, end.life) == (host, life))
    }

    pub(super) fn end(&mut self, conn: u64, end: usize) -> &mut End {
        &mut self.connections.get_mut(&conn).unwrap().ends[end]
    }

    /// The other end, once there is one.
    fn other(&mut self, conn: u64, end: usize) -> Option<&mut End> {
        self.connections.get_mut(&conn).unwrap().ends.get_mut(1 - end)
    }

    /// The address of a connection at a host's end.
    pub(super) fn address_at(&self, conn: u64, host: usize) -> Option<IpAddr> {
        let end = self.end_of(host, ConnId(conn))?;
        self.connections[&conn].ends[end].address
    }

    /// Sends so many bytes from one end to the other.
    pub(super) fn send(&mut self, conn: u64, from: usize, segment: Segment, length: usize) {
        let ends = &self.connections[&conn].ends;
        let [dialer, acceptor] = &ends[..] else { return };
        let near = self.are_near(dialer.host, acceptor.host);
        let arrives = self.stream(length, near);
        if arrives > self.now + KEEPALIVE {
            // What is not acknowledged for so long ends the connection (TCP_USER_TIMEOUT).
            self.at(self.now + KEEPALIVE, Happening::GiveUp { conn, end: from });
        }
        let to = self.end(conn, 1 - from);
        let at = to.arrived.max(arrives);
        to.arrived = at;
        to.inbound.push_back((at, segment));
        self.at(at, Happening::Arrive { conn, end: 1 - from });
    }

    /// What is due at this end arrives. What is cut off is repeated, ever later.
    pub(super) fn arrive(&mut self, conn: u64, end: usize) {
        loop {
            let ends = &self.connections[&conn].ends;
            let (at, from) = (&ends[end], ends[1 - end].host);
            if at.inbound.front().is_none_or(|(arrives, _)| *arrives > self.now) {
                return;
            }
            let host = &self.hosts[at.host];
            let is_swallowed = at.is_severed
                || self.cut.contains_key(&(from, at.host))
                || !host.powered
                || at.is_dead && host.silent;
            let now = self.now;
            let at = self.end(conn, end);
            if is_swallowed {
                let again = now + at.again;
                at.again *= 2;
                if let Some((arrives, _)) = at.inbound.front_mut() {
                    *arrives = again;
                }
                return self.at(again, Happening::Arrive { conn, end });
            }
            at.again = AGAIN;
            if let Some((_, segment)) = at.inbound.pop_front() {
                self.reaches_kernel(conn, end, segment);
            }
        }
    }

    fn reaches_kernel(&mut self, conn: u64, end: usize, segment: Segment) {
        match (self.end(conn, end).stage, &segment) {
            (Stage::Gone, Segment::End(_)) | (Stage::Left, _) => return,
            (Stage::Gone, _) => return self.reset(conn, end),
            (_, Segment::End(_)) => self.kernel_sees_end(conn, end),
            _ => {}
        }
        self.happen(Happening::Read { conn, end, segment });
    }

    /// The process at this end closes the connection, or has ended in good order. The other end reads first
    /// what was written before.
    pub(super) fn close(&mut self, conn: u64, end: usize) {
        if self.leave(conn, end, if end == 1 { Stage::Left } else { Stage::Gone }) {
            self.send(conn, end, Segment::End(Ending::Closed), 0);
        }
    }

    /// A process is gone without having closed its connection. The kernel closes what it has dialled, and
    /// resets what it has accepted, so that nothing holds the port (SO_LINGER of 0 s).
    pub(super) fn abandon(&mut self, conn: u64, end: usize) {
        if end == 0 {
            self.close(conn, end);
        } else if self.leave(conn, end, Stage::Gone) {
            self.reset(conn, end);
        }
    }

    /// The end of a connection at one end. Returns whether it was there.
    pub(super) fn leave(&mut self, conn: u64, end: usize, stage: Stage) -> bool {
        let at = self.end(conn, end);
        let was_there = at.is_there();
        at.stage = stage;
        let host = at.host;
        if self.connections[&conn].ends.iter().all(|end| end.host != host || !end.is_there()) {
            self.hosts[host].connections.remove(&conn);
        }
        self.kernel_sees_end(conn, end);
        was_there
    }

    /// The kernel at this end resets a connection. What is under way to the other end is lost. A reset that
    /// is lost comes again: the other kernel's next probe draws it.
    fn reset(&mut self, conn: u64, end: usize) {
        let lost = self.chance(self.weather.loss);
        let probed = if lost { self.rng.random_range(Duration::ZERO..IDLE) } else { Duration::ZERO };
        let at = self.now + self.delay() + probed;
        let Some(other) = self.other(conn, end).filter(|other| other.is_there()) else { return };
        other.inbound.clear();
        other.inbound.push_back((at, Segment::End(Ending::Broken)));
        other.arrived = at;
        self.at(at, Happening::Arrive { conn, end: 1 - end });
    }

    /// The kernel at this end gives a connection up. What it has written and the other has not read is lost.
    /// The other kernel learns of it by its next probe.
    pub(super) fn give_up(&mut self, conn: u64, end: usize) {
        if !self.end(conn, end).is_there() {
            return;
        }
        self.end(conn, end).inbound.clear();
        if let Some(other) = self.other(conn, end) {
            other.inbound.clear();
            if other.is_there() {
                let probed = self.now + self.rng.random_range(Duration::ZERO..IDLE);
                self.at(probed, Happening::GiveUp { conn, end: 1 - end });
            }
        }
        self.kernel_sees_end(conn, end);
        self.happen(Happening::Read { conn, end, segment: Segment::End(Ending::Broken) });
    }

    pub(super) fn break_dialled(&mut self, host: usize) {
        for conn in self.hosts[host].connections.iter().copied().collect::<Vec<_>>() {
            if self.end_of(host, ConnId(conn)) == Some(0) && self.end(conn, 0).stage == Stage::Open {
                self.give_up(conn, 0);
            }
        }
    }

    /// This end's address has vanished: nothing passes any more, and both kernels find that out.
    pub(super) fn sever(&mut self, conn: u64) {
        for end in 0..self.connections[&conn].ends.len() {
            self.end(conn, end).is_severed = true;
            let at = self.gives_up_at();
            self.at(at, Happening::GiveUp { conn, end });
        }
    }

    /// When a kernel gives up a connection on which nothing arrives from now on. It has heard the other one
    /// by a probe of a short while ago.
    fn gives_up_at(&mut self) -> Time {
        (self.now + KEEPALIVE).saturating_sub(self.rng.random_range(Duration::ZERO..IDLE))
    }

    /// A cut begins: connections between the two hosts break if it lasts, also those that the process at one
    /// end has closed, while the other kernel does not know it: its probes get no answer.
    pub(super) fn starve_connections(&mut self, from: usize, to: usize) {
        let are_between = |ends: &[End]| [from, to].iter().all(|host| ends.iter().any(|e| e.host == *host));
        let known = self.hosts[from].connections.union(&self.hosts[to].connections).copied();
        let between: Vec<u64> = known.filter(|conn| are_between(&self.connections[conn].ends)).collect();
        for conn in between {
            for end in 0..self.connections[&conn].ends.len() {
                let (at, since) = (self.gives_up_at(), self.now);
                self.at(at, Happening::Starved { conn, end, since });
            }
        }
    }

    pub(super) fn starved(&mut self, conn: u64, end: usize, since: Time) {
        let [a, b] = &self.connections[&conn].ends[..] else { return };
        let pairs = [(a.host, b.host), (b.host, a.host)];
        if pairs.iter().any(|pair| self.cut.get(pair).is_some_and(|&start| start <= since)) {
            self.give_up(conn, end);
        }
    }

    /// This end of a connection has lost power, with all that it has not sent. Returns whether there is
    /// another end that does not know it.
    pub(super) fn lose_end(&mut self, conn: u64, end: usize) -> bool {
        self.leave(conn, end, Stage::Gone);
        self.end(conn, end).is_dead = true;
        let Some(other) = self.other(conn, end) else { return false };
        other.inbound.clear();
        other.is_there()
    }

    /// The host at the other end of a connection, which has lost power, while this end does not know it.
    pub(super) fn dead_host(&self, conn: u64, end: usize) -> Option<usize> {
        let ends = &self.connections[&conn].ends;
        let other = ends.get(1 - end).filter(|other| other.is_dead && ends[end].is_there());
        other.map(|other| other.host)
    }

    /// Whether a host that is left holds a connection to one that has lost power.
    pub(super) fn has_ghost(&self, host: usize) -> bool {
        self.connections.values().any(|connection| {
            let [a, b] = &connection.ends[..] else { return false };
            [(a, b), (b, a)].iter().any(|(dead, left)| dead.is_dead && dead.host == host && left.is_there())
        })
    }

    /// The kernel at this end takes a connection to the other process for open from now on.
    pub(super) fn kernel_sees_process(&mut self, conn: u64, end: usize) {
        if !std::mem::replace(&mut self.end(conn, end).counts, true) {
            *self.open_between(conn, end) += 1;
        }
    }

    /// The kernel at this end has seen the end of a connection, whether its process has read that or not.
    fn kernel_sees_end(&mut self, conn: u64, end: usize) {
        if std::mem::replace(&mut self.end(conn, end).counts, false) {
            *self.open_between(conn, end) -= 1;
        }
    }

    fn open_between(&mut self, conn: u64, end: usize) -> &mut u32 {
        let ends = &self.connections[&conn].ends;
        self.promises.open.entry((ends[1 - end].id, ends[end].host)).or_default()
    }

    /// When the last of so many bytes arrives that are sent now: in segments, each by itself. Where three
    /// segments or more follow a lost segment, the kernel repeats it after a round trip (RFC 5681, 3.2).
    fn stream(&mut self, length: usize, near: bool) -> Time {
        let mut last = self.now;
        for following in (0..length.div_ceil(SEGMENT).max(1)).rev() {
            let is_soon = following >= 3 && self.chance(self.weather.loss);
            let again = if is_soon { self.delay() + self.delay() } else { Time::ZERO };
            let arrives = if following < 3 || is_soon { self.segment(near) } else { self.now + self.delay() };
            last = last.max(arrives + again);
        }
        last
    }

    /// When a segment that is sent now arrives, which the kernel repeats where it is lost.
    fn segment(&mut self, near: bool) -> Time {
        let mut at = self.now + self.one_way(near);
        let mut wait = AGAIN;
        while !near && self.chance(self.weather.loss) && wait < Duration::from_secs(10) {
            at += wait;
            wait *= 2;
        }
        at
    }
}
