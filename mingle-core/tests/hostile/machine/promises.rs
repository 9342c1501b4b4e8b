//! The promises that no stranger can break, checked at each output of the attacked node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::Event;
use mingle_core::proto::testing::Forger;
use mingle_core::proto::{DialId, Formed, MAX_DATAGRAM, NodeId, Output, PathDial, Time};

/// The most datagrams that one input draws: those of a leader to a member at each of its addresses, and of a
/// member to its leader.
pub const AT_ONCE: usize = 32;
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
    dials: BTreeMap<DialId, SocketAddr>,
    /// The endpoints to which a connection was established, or a path proved.
    connected: BTreeSet<SocketAddr>,
    at_once: usize,
    pub drawn: Drawn,
    pub sent: BTreeMap<u8, usize>,
    pub formed: Option<Formed>,
    /// The end of the node, and its time.
    pub end: Option<(Event, Time)>,
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
            dials: BTreeMap::new(),
            connected: BTreeSet::new(),
            at_once: 0,
            drawn: Drawn::default(),
            sent: BTreeMap::new(),
            formed: None,
            end: None,
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

    /// A dial of the node is established.
    pub fn connected(&mut self, dial: DialId) {
        self.connected.extend(self.dials.get(&dial));
    }

    /// The last dial to this address.
    pub fn last_dial(&self, endpoint: SocketAddr) -> Option<u32> {
        self.dials.iter().rev().find(|(_, to)| **to == endpoint).map(|(dial, _)| dial.0)
    }

    pub fn output(&mut self, output: &Output, now: Time) {
        let closes = matches!(output, Output::Close(_) | Output::HangUp(_) | Output::StopAccepting);
        assert!(self.end.is_none() || closes, "a node that has ended says {output:?}");
        match output {
            Output::Send { to, datagram } => {
                self.datagram(datagram);
                if !self.home.contains(to) {
                    self.drawn.datagrams += 1;
                    self.drawn.bytes += datagram.len();
                }
            }
            Output::Multicast { datagram } => self.datagram(datagram),
            Output::Dial { dial, to, .. } => {
                assert!(self.dials.insert(*dial, *to).is_none(), "a dial's number is used twice");
                self.drawn.dials += usize::from(!self.home.contains(to));
            }
            Output::DialPath(PathDial { dial, to, .. }) => {
                assert!(self.dials.insert(*dial, *to).is_none(), "a dial's number is used twice");
                self.drawn.dials += usize::from(self.home.iter().all(|home| home.ip() != to.ip()));
            }
            Output::Event(event) => self.event(event, now),
            _ => {}
        }
    }

    fn datagram(&mut self, datagram: &[u8]) {
        self.at_once += 1;
        assert!(self.at_once <= AT_ONCE, "{} datagrams at one input", self.at_once);
        assert!(datagram.len() <= MAX_DATAGRAM);
        let (kind, frame) = self.reader.read(datagram).expect("a node's own datagrams are well formed");
        assert_eq!(frame.sender, self.id);
        *self.sent.entry(kind).or_default() += 1;
    }

    fn event(&mut self, event: &Event, now: Time) {
        match event {
            Event::Failed(failure) => harmless(&failure.to_string()),
            Event::Warning(warning) => harmless(&warning.to_string()),
            event => harmless(&format!("{event:?}")),
        }
        if let Event::Formed(formed) = event {
            self.formed(formed);
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
