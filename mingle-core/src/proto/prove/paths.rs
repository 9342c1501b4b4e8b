//! The paths that this node must prove in one round: to each partner a connection that carries long segments.
//!
//! TCP decides. A path counts when two full segments behind its token have arrived and the partner has
//! answered. What fails is explained after [`EXPLAIN`]: on a connection that opens and is not answered,
//! others with shorter segments show which length passes; where none opens, one to the partner's own port
//! shows whether a firewall blocks ports or the host.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::model::{Fault, NodeId};
use crate::proto::output::{DialId, PathNews};
use crate::proto::scale::FIRST_REPEAT;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::{BROKEN, Broken, BrokenTo, Partner};

/// How long a node tries before it reports what it cannot prove.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);
/// The most connections to one partner at the same time; then the oldest is replaced. At 30% loss, one in
/// eight succeeds at once, and three of the others within 0.6 s.
const OPEN: usize = 12;
/// The most connections to all partners at the same time, but at least [`FEWEST`] to each.
const OPEN_TO_ALL: usize = 256;
const FEWEST: usize = 3;
/// Between two connections to one partner, for each partner: a host with many is busy, and its answers take
/// longer.
const TURN: Duration = Duration::from_millis(2);
/// But never longer, so that each of 10,000 partners is tried several times before the round fails.
const LONGEST: Duration = Duration::from_millis(250);
/// From this many connections to one partner on, the next follows after [`REPLACE`].
const HASTY: u32 = 12;
const REPLACE: Duration = Duration::from_millis(500);
/// The most paths that are explained: one tells as much as many.
const EXPLAINED: usize = 8;
/// How many connections are opened at once, and the pause before the next: each costs the kernels of both
/// hosts some 50 us.
const BURST: usize = 128;
const PAUSE: Duration = Duration::from_millis(1);
/// How long after the start of a round a path that is not proved is explained. At 30% loss, one path in a
/// thousand takes longer.
const EXPLAIN: Duration = Duration::from_millis(2500);
/// How long after that again, where a connection has opened only since.
const EXPLAIN_AGAIN: Duration = Duration::from_millis(500);
/// The lengths of packets that are tried where long segments vanish, in bytes with the headers of IP and TCP:
/// jumbo frames, Ethernet, PPPoE, tunnels (GRE, VXLAN, WireGuard), IPv6's least, IPv4's least.
const PACKETS: [u32; 12] = [8_950, 4_050, 1_500, 1_492, 1_476, 1_450, 1_420, 1_400, 1_372, 1_280, 1_000, 576];

type PathKey = (NodeId, SocketAddr);

/// The partners of one round, and how far the proof of each path is.
#[derive(Debug, Clone)]
pub(crate) struct PathProofs {
    /// The paths that are not proved yet.
    by_partner: BTreeMap<PathKey, PathProof>,
    /// The path of each connection that was opened in this round.
    by_dial: BTreeMap<DialId, PathKey>,
    pace: Pace,
    /// When to find out what is wrong with those that are not proved by then.
    explains_at: Time,
}

/// How often connections are opened to one partner, and how many at the same time.
#[derive(Debug, Clone, Copy)]
struct Pace {
    interval: Duration,
    open: usize,
}

impl Pace {
    fn new(partners: usize) -> Self {
        let turn = TURN.saturating_mul(u32::try_from(partners).unwrap_or(u32::MAX));
        let interval = turn.clamp(FIRST_REPEAT, LONGEST);
        Self { interval, open: (OPEN_TO_ALL / partners.max(1)).clamp(FEWEST, OPEN) }
    }
}

#[derive(Debug, Clone)]
struct PathProof {
    partner: Partner,
    /// The connections under way, the oldest first.
    dials: Vec<(DialId, Purpose)>,
    /// How many connections that prove the path were opened, and when the next is due.
    count: u32,
    next: Time,
    /// The length of the packets that carry a full segment, once a connection has opened.
    opened: Option<u32>,
    /// The longest packet that has arrived on a connection with shorter segments.
    passes: u32,
    /// How the last connection failed.
    fault: Fault,
    own_port_answers: bool,
    /// Whether a connection had opened when the connections that explain the fault were last opened.
    explained: Option<bool>,
}

/// What a connection shows if it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The path is proved.
    Proof,
    /// Packets of this length pass.
    Length(u32),
    /// The partner's own port answers.
    OwnPort,
}

impl PathProofs {
    /// Starts to prove the paths to these partners. A node reaches itself, and is no partner of its own.
    pub(crate) fn start(partners: impl IntoIterator<Item = Partner>, shared: &mut Shared) -> Self {
        let others = partners.into_iter().filter(|partner| partner.id != shared.me());
        let path = |partner: Partner| ((partner.id, partner.path), PathProof::new(partner, shared.now));
        let by_partner: BTreeMap<_, _> = others.map(path).collect();
        let (pace, explains_at) = (Pace::new(by_partner.len()), shared.now + EXPLAIN);
        let mut proofs = Self { by_partner, by_dial: BTreeMap::new(), pace, explains_at };
        if !proofs.are_proved() {
            shared.set_after(Timer::ProofFailed, PATIENCE);
        }
        proofs.advance(shared);
        proofs
    }

    /// Whether all paths are proved.
    pub(crate) fn are_proved(&self) -> bool {
        self.by_partner.is_empty()
    }

    /// Opens the connections that are due.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        if self.are_proved() {
            return;
        }
        let Self { by_partner, by_dial, .. } = self;
        if shared.now >= self.explains_at {
            self.explains_at = shared.now + EXPLAIN_AGAIN;
            for key in in_order(by_partner).into_iter().take(EXPLAINED) {
                let Some(path) = by_partner.get_mut(&key) else { continue };
                by_dial.extend(path.explain(shared).iter().map(|&(dial, _)| (dial, key)));
            }
        }
        let (mut next, mut left) = (self.explains_at, BURST);
        for (&key, path) in by_partner {
            if path.next <= shared.now && left > 0 {
                by_dial.insert(path.prove(self.pace, shared), key);
                left -= 1;
            }
            next = next.min(path.next.max(shared.now + PAUSE));
        }
        shared.timers.set_earlier(Timer::Dial, next);
    }

    /// Something has happened on a connection. Returns whether all paths are proved by it.
    pub(crate) fn hear(&mut self, dial: DialId, news: &PathNews, shared: &mut Shared) -> bool {
        let has_ended = !matches!(news, PathNews::Opened { .. });
        let key = if has_ended { self.by_dial.remove(&dial) } else { self.by_dial.get(&dial).copied() };
        let path = key.map(|key| self.by_partner.entry(key));
        let Some(Entry::Occupied(mut path)) = path else { return false };
        if path.get_mut().hear(dial, news) {
            path.remove().stop(shared);
        }
        self.are_proved()
    }

    /// The paths that are not proved, and how each fails.
    pub(crate) fn unproved(&self) -> Vec<BrokenTo> {
        let keys = in_order(&self.by_partner).into_iter();
        keys.filter_map(|key| self.by_partner.get(&key)).map(PathProof::broken).collect()
    }

    /// The first of them, and how many more there are; nothing where all paths are proved.
    pub(crate) fn broken(&self) -> Option<Broken> {
        let paths = self.unproved();
        let more = u32::try_from(paths.len().saturating_sub(BROKEN)).unwrap_or(u32::MAX);
        (!paths.is_empty()).then(|| Broken { paths: paths.into_iter().collect(), more })
    }

    /// Ends the proofs and closes their connections: once a round is void, or its world has formed, the ports
    /// may be a job's.
    pub(crate) fn stop(&mut self, shared: &mut Shared) {
        shared.timers.stop(Timer::ProofFailed);
        shared.timers.stop(Timer::Dial);
        for path in self.by_partner.values_mut() {
            path.stop(shared);
        }
    }
}

/// The paths that are not proved, in the order in which they are explained and named: the first of each
/// partner before the second of any, and the master's own port first. If that is out of reach, the leader
/// chooses another master.
fn in_order(by_partner: &BTreeMap<PathKey, PathProof>) -> Vec<PathKey> {
    let mut keys: Vec<_> = by_partner
        .iter()
        .map(|(&key, PathProof { partner, .. })| (partner.rank, partner.path.port() != partner.own_port, key))
        .collect();
    keys.sort_unstable();
    let mut named = BTreeSet::new();
    let (first, again): (Vec<_>, Vec<_>) =
        keys.into_iter().map(|(_, _, key)| key).partition(|(partner, _)| named.insert(*partner));
    [first, again].concat()
}

impl PathProof {
    fn new(partner: Partner, now: Time) -> Self {
        Self {
            partner,
            dials: Vec::new(),
            count: 0,
            next: now,
            opened: None,
            passes: 0,
            fault: Fault::Silent,
            own_port_answers: false,
            explained: None,
        }
    }

    /// Whether all nodes of the world prove the path to this port.
    fn is_to_master(&self) -> bool {
        self.partner.rank == 0 && self.partner.path.port() == self.partner.own_port
    }

    fn dial(&mut self, to: SocketAddr, purpose: Purpose, shared: &mut Shared) -> DialId {
        let packet = if let Purpose::Length(length) = purpose { Some(length) } else { None };
        let dial = shared.dial_path(to, self.partner.id, packet);
        self.dials.push((dial, purpose));
        dial
    }

    /// Opens another connection that proves the path. If there are as many as the pace allows, it replaces
    /// the oldest.
    fn prove(&mut self, pace: Pace, shared: &mut Shared) -> DialId {
        let mut proofs = (0..self.dials.len()).filter(|&at| self.dials[at].1 == Purpose::Proof);
        if let Some(oldest) = proofs.next()
            && 1 + proofs.count() >= pace.open
        {
            shared.hang_up(self.dials.remove(oldest).0);
        }
        self.count += 1;
        // The master of a large world is dialled by all.
        let is_crowded = self.is_to_master() && shared.scale().is_large();
        let least = if is_crowded { shared.scale().dial_interval() } else { Duration::ZERO };
        let pause = if self.count < HASTY { pace.interval } else { REPLACE };
        self.next = shared.now + pause.max(least);
        self.dial(self.partner.path, Purpose::Proof, shared)
    }

    /// Opens the connections that show why the path is not proved, each only once, and returns them.
    fn explain(&mut self, shared: &mut Shared) -> &[(DialId, Purpose)] {
        let has_opened = self.opened.is_some();
        let known = self.dials.len();
        if self.explained.replace(has_opened) != Some(has_opened) {
            let Partner { path, own_port, .. } = self.partner;
            match self.opened {
                Some(fails) => {
                    for length in PACKETS.into_iter().filter(|&length| length < fails) {
                        self.dial(path, Purpose::Length(length), shared);
                    }
                }
                None if own_port == path.port() => {}
                None => _ = self.dial((path.ip(), own_port).into(), Purpose::OwnPort, shared),
            }
        }
        &self.dials[known..]
    }

    /// Returns whether the path is proved by it.
    fn hear(&mut self, dial: DialId, news: &PathNews) -> bool {
        let Some(at) = self.dials.iter().position(|(open, _)| *open == dial) else { return false };
        let (_, purpose) = match news {
            PathNews::Opened { .. } => self.dials[at],
            PathNews::Arrived | PathNews::Failed(_) => self.dials.remove(at),
        };
        match (purpose, news) {
            (Purpose::Proof, PathNews::Opened { packet }) => self.opened = Some(*packet),
            (Purpose::Proof, PathNews::Arrived) => return true,
            (Purpose::Proof, PathNews::Failed(fault)) => self.fault = *fault,
            (Purpose::Length(length), PathNews::Arrived) => self.passes = self.passes.max(length),
            (Purpose::OwnPort, PathNews::Arrived) => self.own_port_answers = true,
            (Purpose::Length(_) | Purpose::OwnPort, _) => {}
        }
        false
    }

    fn stop(&mut self, shared: &mut Shared) {
        for (dial, _) in self.dials.drain(..) {
            shared.hang_up(dial);
        }
    }

    fn broken(&self) -> BrokenTo {
        let fault = match self.opened {
            Some(fails) if self.passes > 0 => Fault::Size { passes: self.passes, fails },
            Some(_) => Fault::Unanswered,
            None => self.fault,
        };
        let Partner { id: partner, path, .. } = self.partner;
        BrokenTo { partner, path, fault, own_port_answers: self.own_port_answers }
    }
}
