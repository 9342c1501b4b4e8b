//! The sessions of one process: a link to each other process, and which link a connection belongs to.

use std::collections::btree_map::{self, BTreeMap};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::link::{Ending, Failed, PeerLink, Way};
use super::{Impossible, SessionOutput};
use crate::model::NodeId;
use crate::proto::{ConnId, DialId, Time};
use crate::wire::{Body, Frame};

/// Of how many processes that were forgotten the numbers are remembered: then all begin at a higher one.
const FORGOTTEN: usize = 1024;

/// What a session asks of its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Open a connection of the session with this process, and exchange hellos, which name both processes
    /// and the numbers of their sessions. Report what comes of it.
    Dial {
        /// The address to connect to.
        to: SocketAddr,
        /// The process that is meant.
        peer: NodeId,
        /// The number of the dial, in the session with this process.
        dial: DialId,
        /// The number of this process's session.
        number: u64,
    },
    /// Write this frame. Frames of one connection are written in the order in which they were given.
    Write(ConnId, Frame),
    /// Close this connection, once what was given before is written.
    Close(ConnId),
}

/// The links of one process, and what it knows of each other process.
#[derive(Debug, Clone, Default)]
pub(crate) struct PeerLinks<P> {
    me: NodeId,
    /// The number of the session with a process that was never forgotten.
    number: u64,
    /// The numbers of the sessions with processes that were forgotten, so that no two links to one process
    /// have the same. Others' coming and going changes no number, which may be in a hello on its way.
    forgotten: BTreeMap<NodeId, u64>,
    peers: BTreeMap<NodeId, Linked<P>>,
    connections: BTreeMap<ConnId, NodeId>,
    /// When each link has something to do.
    due: BTreeSet<(Time, NodeId)>,
    /// The links that may have something to do now.
    touched: BTreeSet<NodeId>,
    orders: VecDeque<Order>,
}

/// Another process.
#[derive(Debug, Clone)]
pub(crate) struct Linked<P> {
    pub(crate) link: PeerLink,
    /// When `due` has it.
    due: Option<Time>,
    pub(crate) known: P,
}

impl<P: Default> PeerLinks<P> {
    /// The links of the process `me`. `number` is random.
    pub(crate) fn new(me: NodeId, number: u64) -> Self {
        Self { me, number, ..Self::default() }
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&Linked<P>> {
        self.peers.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut Linked<P>> {
        self.peers.get_mut(&id)
    }

    pub(crate) fn has(&self, id: NodeId) -> bool {
        self.peers.contains_key(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn iter(&self) -> btree_map::Iter<'_, NodeId, Linked<P>> {
        self.peers.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> btree_map::IterMut<'_, NodeId, Linked<P>> {
        self.peers.iter_mut()
    }

    /// Whether a connection to this process is open.
    pub(crate) fn is_there(&self, id: NodeId) -> bool {
        self.get(id).is_some_and(|peer| peer.link.is_there())
    }

    /// The number of this process's session with that one.
    pub(crate) fn number_for(&self, id: NodeId) -> u64 {
        let next = || self.forgotten.get(&id).map_or(self.number, |last| last.wrapping_add(1));
        self.get(id).map_or_else(next, |peer| peer.link.own_number)
    }

    /// Begins a session with a process that has these addresses. It is dialled when the link is next
    /// advanced.
    pub(crate) fn add(&mut self, now: Time, id: NodeId, addresses: Vec<SocketAddr>, known: P) {
        let link = PeerLink::new(self.me < id, self.number_for(id), addresses, now);
        self.peers.insert(id, Linked { link, due: None, known });
        self.touched.insert(id);
    }

    /// A connection to a process of which there is a link is open, and both hellos have been read.
    pub(crate) fn opened(&mut self, now: Time, id: NodeId, way: Way, conn: ConnId, number: u64) {
        if self.get(id).is_some_and(|peer| peer.link.is_outdated(now, way, number)) {
            // A segment of it was lost, and the process has begun anew meanwhile; or a stranger has its ID.
            if let Way::Dialled(dial) = way {
                self.dial_failed(now, id, dial, Failed::Silent);
            }
            return self.refuse(conn);
        }
        self.connections.insert(conn, id);
        self.with(id, |link| link.opened(now, way, conn, number));
    }

    pub(crate) fn dial_failed(&mut self, now: Time, id: NodeId, dial: DialId, failed: Failed) {
        self.with(id, |link| link.dial_failed(now, dial, failed));
    }

    /// A connection has ended. Returns the process at its other end.
    pub(crate) fn closed(&mut self, now: Time, conn: ConnId, ending: Ending) -> Option<NodeId> {
        let id = self.connections.remove(&conn)?;
        self.with(id, |link| link.closed(now, conn, ending));
        Some(id)
    }

    /// A frame was read. Returns whose it is, and what it says if that is news. If no process of mingle
    /// writes such a frame, its connection is closed.
    pub(crate) fn read<T>(
        &mut self,
        now: Time,
        conn: ConnId,
        frame: Frame,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<(NodeId, Result<Option<T>, Impossible>)> {
        let id = *self.connections.get(&conn)?;
        let news = self.peers.get_mut(&id)?.link.receive(now, conn, frame);
        let said = news.and_then(|news| news.map(|frame| decode(&frame.body).ok_or(Impossible)).transpose());
        self.touched.insert(id);
        if said.is_err() {
            tracing::debug!(?conn, "a frame that no node sends");
            self.refuse(conn);
            self.closed(now, conn, Ending::Broken);
        }
        Some((id, said))
    }

    /// Says this state, unless it was said last of its kind.
    pub(crate) fn say(&mut self, now: Time, to: NodeId, body: &Body) {
        self.with(to, |link| link.say(now, body));
    }

    /// Dials a process that is not there, if that is due.
    pub(crate) fn advance(&mut self, now: Time, id: NodeId) {
        self.with(id, |link| link.session.advance(now));
    }

    /// The next link for which something is due by now. It was advanced.
    pub(crate) fn next_due(&mut self, now: Time) -> Option<NodeId> {
        let &(at, id) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(&(at, id));
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.due = None;
        }
        self.advance(now, id);
        Some(id)
    }

    /// Passes the link to a process, if there is one, to `act`. What follows from that is carried out when
    /// the driver asks.
    pub(crate) fn with(&mut self, id: NodeId, act: impl FnOnce(&mut PeerLink)) {
        if let Some(peer) = self.peers.get_mut(&id) {
            act(&mut peer.link);
            self.touched.insert(id);
        }
    }

    /// This process was stopped for so long: the others' silence meanwhile is no evidence.
    pub(crate) fn forgive(&mut self, stopped: Duration) {
        for peer in self.peers.values_mut() {
            peer.link.forgive(stopped);
        }
        self.touched.extend(self.peers.keys());
    }

    /// Forgets a process, and closes all connections to it, once what was said is written.
    pub(crate) fn forget(&mut self, now: Time, id: NodeId) {
        self.settle(now, id);
        if let Some(peer) = self.peers.remove(&id) {
            if self.forgotten.len() >= FORGOTTEN {
                let last = std::mem::take(&mut self.forgotten).into_values().max().unwrap_or_default();
                self.number = self.number.max(last.wrapping_add(1));
            }
            // A hello that is on its way may have the number of a session in which nothing has happened.
            if peer.link.has_begun() {
                self.forgotten.insert(id, peer.link.own_number);
            }
            peer.due.map(|due| self.due.remove(&(due, id)));
            for connection in peer.link.session.connections {
                self.connections.remove(&connection.conn);
                self.orders.push_back(Order::Close(connection.conn));
            }
        }
    }

    /// Closes a connection of no session.
    pub(crate) fn refuse(&mut self, conn: ConnId) {
        self.orders.push_back(Order::Close(conn));
    }

    /// From now on this process is dialled there, or no more.
    pub(crate) fn set_addresses(&mut self, id: NodeId, addresses: &[SocketAddr]) {
        self.with(id, |link| link.set_addresses(addresses));
    }

    /// When [`PeerLinks::next_due`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next thing to do. An acknowledgement is due once all that has arrived was handed over, so the
    /// driver reads first and then asks.
    pub(crate) fn poll_order(&mut self, now: Time) -> Option<Order> {
        while self.orders.is_empty()
            && let Some(id) = self.touched.pop_first()
        {
            self.settle(now, id);
        }
        self.orders.pop_front()
    }

    /// Carries out what a link wants.
    fn settle(&mut self, now: Time, id: NodeId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let number = peer.link.own_number;
        while let Some((output, to)) = peer.link.poll_output() {
            let order = match (output, to) {
                (SessionOutput::Dial(dial), Some(to)) => Order::Dial { to, peer: id, dial, number },
                (SessionOutput::Dial(dial), None) => {
                    // It has not said yet where it is.
                    peer.link.dial_failed(now, dial, Failed::Silent);
                    continue;
                }
                (SessionOutput::Write(conn, frame), _) => Order::Write(conn, frame),
                (SessionOutput::Close(conn), _) => {
                    self.connections.remove(&conn);
                    Order::Close(conn)
                }
            };
            self.orders.push_back(order);
        }
        let next = peer.link.next(now);
        if next != peer.due {
            peer.due.take().map(|due| self.due.remove(&(due, id)));
            peer.due = next;
            self.due.extend(next.map(|next| (next, id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u16) -> NodeId {
        NodeId(std::array::from_fn(|at| number.to_be_bytes()[at % 2]))
    }

    /// Begins a session with a process, says something, and forgets it. Returns the session's number.
    fn meet(links: &mut PeerLinks<()>, id: NodeId) -> u64 {
        let asked = links.number_for(id);
        links.add(Time::ZERO, id, Vec::new(), ());
        assert_eq!(links.number_for(id), asked);
        links.say(Time::ZERO, id, &vec![0].into());
        links.forget(Time::ZERO, id);
        asked
    }

    #[test]
    fn the_number_of_a_session_changes_when_its_process_is_forgotten_and_not_when_others_are() {
        let mut links = PeerLinks::new(id(0), 7);
        for number in 1..1000 {
            assert_eq!(meet(&mut links, id(number)), 7, "{number}");
            assert_eq!(links.number_for(id(number)), 8, "{number}");
        }
        assert_eq!(links.number_for(id(1000)), 7);
    }

    /// A node that hears better and better candidates dials some of them twice: the second hello may be
    /// answered before the end of the first connection is read.
    #[test]
    fn a_session_in_which_nothing_has_happened_leaves_its_number_to_the_next() {
        let (mut links, process) = (PeerLinks::new(id(0), 7), id(1));
        let way =
            Way::Accepted(crate::proto::Ends { local: [10, 0, 0, 1].into(), remote: [10, 0, 0, 2].into() });
        for (addresses, next) in [(vec![], 7), (vec![SocketAddr::from(([10, 0, 0, 2], 29500))], 8)] {
            links.add(Time::ZERO, process, addresses, ());
            links.opened(Time::ZERO, process, way, ConnId(1), 5);
            links.closed(Time::ZERO, ConnId(1), Ending::Closed);
            while links.poll_order(Time::ZERO).is_some() {}
            links.forget(Time::ZERO, process);
            assert_eq!(links.number_for(process), next, "a late dial would count for the next session");
        }
    }

    #[test]
    fn the_end_of_a_connection_of_an_earlier_session_says_nothing_of_a_process_that_has_begun_anew() {
        let (mut links, process) = (PeerLinks::new(id(0), 7), id(1));
        let way =
            Way::Accepted(crate::proto::Ends { local: [10, 0, 0, 1].into(), remote: [10, 0, 0, 2].into() });
        links.add(Time::ZERO, process, Vec::new(), ());
        for (conn, number) in [(1, 5), (2, 6)] {
            links.opened(Time::ZERO, process, way, ConnId(conn), number);
        }
        // The driver hears that before it closes the connection.
        links.closed(Time::ZERO, ConnId(1), Ending::Closed);
        links.closed(Time::from_millis(500), ConnId(2), Ending::Broken);
        let link = &links.get(process).unwrap().link;
        assert!(!link.is_there() && !link.has_left());
    }

    #[test]
    fn no_two_sessions_with_a_process_have_the_same_number_however_many_others_are_forgotten() {
        let mut links = PeerLinks::new(id(0), 7);
        let mut seen = BTreeSet::new();
        links.add(Time::ZERO, id(1), Vec::new(), ());
        for turn in 0..20_000u16 {
            let other = id(2 + turn % 3000 / (1 + turn % 3));
            assert!(seen.insert((other, meet(&mut links, other))), "turn {turn}");
        }
        links.forget(Time::ZERO, id(1));
        assert_ne!(meet(&mut links, id(1)), 7);
    }
}
