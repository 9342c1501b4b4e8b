//! The promises that no stranger can break, checked at each output of the attacked node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::Event;
use mingle_core::proto::testing::{Forger, Seen, seen};
use mingle_core::proto::{
    ConnId, DialId, Formed, Frame, MAX_DATAGRAM, NodeId, Order, Output, PathDial, Time,
};

/// The most datagrams that one input draws.
const AT_ONCE: usize = 8;
/// The most connections to a process, whoever opens them; and to a process with a lower ID, which closes what
/// is too much.
const CONNECTIONS: usize = 4;
pub const LEFT_TO_THE_OTHER: usize = 8;
/// The deadline of the attacked node.
pub const TIMEOUT: Duration = Duration::from_secs(40);
/// How much longer it may take: for a round of a leader that began before, and its commit, 25 s; for a ready
/// node 30 s after its first Prepare.
pub const GRACE: Duration = Duration::from_secs(30);

/// The datagrams and dials of a node to addresses at which no node of its job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    pub datagrams: usize,
    pub bytes: usize,
    pub dials: usize,
}

/// Watches what the attacked node says.
#[derive(Clone)]
pub struct Watch {
    pub id: NodeId,
    own: SocketAddr,
    given: Option<u32>,
    world: u32,
    /// The endpoints of nodes of the job.
    home: BTreeSet<SocketAddr>,
    reader: Forger,
    /// The dials of sessions.
    dials: BTreeSet<(NodeId, u64, DialId)>,
    /// Where the dials go that prove paths.
    paths: BTreeMap<DialId, SocketAddr>,
    /// The endpoints to which a connection was established, or a path proved.
    connected: BTreeSet<SocketAddr>,
    /// The open connections of sessions, and the processes at their other ends.
    open: BTreeMap<ConnId, NodeId>,
    /// To whom a connection has just opened.
    newest: Option<NodeId>,
    /// The last round in which the node takes part, and whether it has written that it is ready in it.
    round: (u64, bool),
    /// Whom the node has asked for a seat last.
    pub leader: Option<NodeId>,
    at_once: usize,
    /// The most bytes that a datagram may have now: an answer is not longer than what it answers.
    pub longest: usize,
    pub drawn: Drawn,
    /// The frames that the node has written.
    pub said: Vec<Frame>,
    pub formed: Option<Formed>,
    /// The end of the node, and its time.
    pub end: Option<(Event, Time)>,
    /// What it has said last is carried out.
    has_left: bool,
}

impl Watch {
    pub fn new(id: NodeId, own: SocketAddr, given: Option<u32>, world: u32, reader: Forger) -> Self {
        Self {
            id,
            own,
            given,
            world,
            home: BTreeSet::new(),
            reader,
            dials: BTreeSet::new(),
            paths: BTreeMap::new(),
            connected: BTreeSet::new(),
            open: BTreeMap::new(),
            newest: None,
            round: (0, false),
            leader: None,
            at_once: 0,
            longest: MAX_DATAGRAM,
            drawn: Drawn::default(),
            said: Vec::new(),
            formed: None,
            end: None,
            has_left: false,
        }
    }

    /// Nodes of the job are at this address.
    pub fn is_home(&mut self, endpoint: SocketAddr) {
        self.home.insert(endpoint);
    }

    /// Something happens to the node.
    pub fn input(&mut self) {
        self.at_once = 0;
    }

    /// The node has reached this endpoint.
    pub fn connected(&mut self, endpoint: SocketAddr) {
        self.connected.insert(endpoint);
    }

    /// The target of a path has answered.
    pub fn arrived(&mut self, dial: DialId) {
        self.connected.extend(self.paths.get(&dial));
    }

    /// A connection of a session is open.
    pub fn opened(&mut self, conn: ConnId, peer: NodeId) {
        self.open.insert(conn, peer);
        self.newest = Some(peer);
    }

    /// The node is about to learn that a connection has ended.
    pub fn closed(&mut self, conn: ConnId) {
        self.open.remove(&conn);
    }

    pub fn output(&mut self, output: &Output, now: Time) {
        let closes =
            matches!(output, Output::Carry(Order::Close(_)) | Output::HangUp(_) | Output::StopAccepting);
        assert!(!self.has_left || closes, "a node that has ended says {output:?}");
        match output {
            Output::Send { to, datagram } => {
                self.datagram(datagram);
                assert!(
                    datagram.len() <= self.longest,
                    "{} bytes to {to} for {}",
                    datagram.len(),
                    self.longest
                );
                if !self.home.contains(to) {
                    self.drawn.datagrams += 1;
                    self.drawn.bytes += datagram.len();
                }
            }
            Output::Multicast { datagram } => self.datagram(datagram),
            Output::Carry(order) => self.order(order),
            Output::DialPath(PathDial { dial, to, .. }) => {
                assert!(self.paths.insert(*dial, *to).is_none(), "a dial's number is used twice");
                self.drawn.dials += usize::from(self.home.iter().all(|home| home.ip() != to.ip()));
            }
            Output::Event(event) => self.event(event, now),
            _ => {}
        }
    }

    fn order(&mut self, order: &Order) {
        match order {
            Order::Dial { to, peer, dial, number } => {
                assert!(self.dials.insert((*peer, *number, *dial)), "a dial's number is used twice");
                self.drawn.dials += usize::from(!self.home.contains(to));
            }
            Order::Write(conn, frame) => {
                let peer = self.open.get(conn).expect("a node writes on open connections alone");
                match seen(frame) {
                    Seen::Join => self.leader = Some(*peer),
                    Seen::Ready(round) if round == self.round.0 => self.round.1 = true,
                    _ => {}
                }
                self.said.push(frame.clone());
            }
            Order::Close(conn) => {
                assert!(self.open.remove(conn).is_some(), "a node closes what is open");
            }
        }
    }

    /// Whether a node that is ready has said so: only then may its leader commit.
    pub fn is_bound(&self) -> bool {
        self.round.1
    }

    /// All that the node wants is carried out. A node that has ended wants nothing more after that.
    pub fn carried_out(&mut self, has_ended: bool) {
        self.has_left |= has_ended;
        if let Some(newest) = self.newest.take() {
            let count = self.open.values().filter(|peer| **peer == newest).count();
            let most = if self.id < newest { CONNECTIONS } else { LEFT_TO_THE_OTHER };
            assert!(count <= most, "{count} connections to {newest}");
        }
    }

    fn datagram(&mut self, datagram: &[u8]) {
        self.at_once += 1;
        assert!(self.at_once <= AT_ONCE, "{} datagrams at one input", self.at_once);
        assert!(datagram.len() <= MAX_DATAGRAM);
        let (_, frame) = self.reader.read(datagram).expect("a node's own datagrams are well formed");
        assert_eq!(frame.sender, self.id);
    }

    fn event(&mut self, event: &Event, now: Time) {
        match event {
            Event::Failed(failure) => harmless(&failure.to_string()),
            Event::Warning(warning) => harmless(&warning.to_string()),
            event => harmless(&format!("{event:?}")),
        }
        match event {
            Event::Formed(formed) => self.formed(formed),
            Event::Preparing { round } => self.round = (*round, false),
            _ => {}
        }
        if matches!(event, Event::Formed(_) | Event::Failed(_)) {
            self.end = Some((event.clone(), now));
        }
    }

    /// Checks the world that a node prints, as far as a follower can check it by itself.
    fn formed(&mut self, formed: &Formed) {
        let (rank, master) = (formed.rank.get(), formed.master);
        assert!(rank < self.world && formed.world.get() == self.world, "{formed:?}");
        assert!(self.given.is_none_or(|given| given == rank), "a given rank is kept: {formed:?}");
        assert_eq!(rank == 0, master == self.own, "rank 0 is the master: {formed:?}");
        assert!(master == self.own || self.connected.contains(&master), "a proved master: {formed:?}");
        let slots = formed.slots;
        assert!(
            slots.before.checked_add(slots.own.into()).is_some_and(|own| own <= slots.total),
            "{slots:?}"
        );
        if let Some(roster) = &formed.roster {
            let member = &roster.members()[usize::try_from(rank).expect("a small world")];
            assert_eq!((member.id, member.address), (self.id, self.own), "it is in its roster: {formed:?}");
            assert_eq!(roster.digest(), formed.digest);
        }
        self.formed = Some(formed.clone());
    }
}

/// Checks that a message, which reaches terminals and logs, has no raw text from the network.
fn harmless(text: &str) {
    let bad = |c: char| c.is_control() || matches!(c, '$' | '`' | '\u{200e}'..='\u{202e}');
    assert!(!text.contains(bad), "{text:?}");
}
