//! The paths that this node must prove in one round: to each partner a connection that carries long segments.
//!
//! TCP decides. A path counts when two full segments behind its token have arrived and the partner has
//! answered. What fails is explained after [`EXPLAIN`]: on a connection that opens and is not answered,
//! others with shorter segments show which length passes; where none opens, one to the partner's own port
//! shows whether a firewall blocks ports or the host.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::model::{Fault, NodeId};
use crate::proto::scale::FIRST_REPEAT;
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::proto::{DialId, PathNews};
use crate::wire::{BROKEN, Broken, BrokenTo, Partner};

/// The most connections to one partner at the same time; then the oldest is replaced. At 30% loss, one in
/// eight succeeds at once, and three of the others within 0.6 s.
const OPEN: usize = 12;
/// The most to all partners, but at least two to each.
const OPEN_TO_ALL: usize = 256;
/// The most paths that are explained: one tells as much as many.
const EXPLAINED: usize = 8;
/// From this many dials to one partner on, [`REPLACE`] is the interval.
const HASTY: u32 = 12;
const REPLACE: Duration = Duration::from_millis(500);
/// Between two dials to one partner, for each partner: a host with many is busy, and its answers take longer.
const TURN: Duration = Duration::from_millis(2);
/// How many connections are opened at once, and the pause before the next: each costs the kernels of both
/// hosts some 50 us.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);
/// How long after the start of a round a path that is not proved is explained. At 30% loss, one path in a
/// thousand takes longer.
const EXPLAIN: Duration = Duration::from_millis(2500);
/// How long after that again, where a connection has opened only since.
const EXPLAIN_AGAIN: Duration = Duration::from_millis(500);
/// The lengths of packets that are tried where long segments vanish, in bytes with the headers of IP and TCP:
/// jumbo frames, Ethernet, PPPoE, tunnels (GRE, VXLAN, WireGuard), IPv6's least, IPv4's least.
const PACKETS: [u32; 12] = [8_950, 4_050, 1_500, 1_492, 1_476, 1_450, 1_420, 1_400, 1_372, 1_280, 1_000, 576];

/// The partners of one round, and how far the proof of each path is.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// How many addresses of partners there are. They may arrive later.
    expected: usize,
    by_partner: BTreeMap<(NodeId, SocketAddr), Path>,
    proved: usize,
    /// When to find out what is wrong with the others.
    explains_at: Time,
}

#[derive(Debug, Clone)]
struct Path {
    partner: Partner,
    open: Vec<Open>,
    next: Time,
    tries: u32,
    proved: bool,
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

#[derive(Debug, Clone, Copy)]
struct Open {
    dial: DialId,
    purpose: Purpose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The proof of the path.
    Proof,
    /// Whether packets of this length pass.
    Length(u32),
    /// Whether the partner's own port answers.
    OwnPort,
}

impl Paths {
    pub(super) fn new(expected: u32, now: Time) -> Self {
        Self {
            expected: usize::try_from(expected).unwrap_or(usize::MAX),
            by_partner: BTreeMap::new(),
            proved: 0,
            explains_at: now + EXPLAIN,
        }
    }

    /// The leader has named partners. Returns whether any of them is new.
    pub(super) fn add(&mut self, partners: &[Partner], shared: &mut Shared) -> bool {
        let known = self.by_partner.len();
        for &partner in partners {
            if self.by_partner.len() < self.expected && partner.id != shared.me() {
                self.by_partner
                    .entry((partner.id, partner.path))
                    .or_insert_with(|| Path::new(partner, shared.now));
            }
        }
        let are_new = self.by_partner.len() > known;
        if are_new {
            self.advance(shared);
        }
        are_new
    }

    /// Whether all paths are proved.
    pub(super) fn are_proved(&self) -> bool {
        self.proved == self.expected
    }

    /// Opens the connections that are due.
    pub(super) fn advance(&mut self, shared: &mut Shared) {
        if self.by_partner.is_empty() || self.are_proved() {
            return;
        }
        let partners = u32::try_from(self.expected).unwrap_or(u32::MAX);
        let interval = FIRST_REPEAT.max(TURN.saturating_mul(partners));
        let most = (OPEN_TO_ALL / self.expected.max(1)).clamp(2, OPEN);
        let mut left = BURST;
        if shared.now >= self.explains_at {
            self.explains_at = shared.now + EXPLAIN_AGAIN;
            for path in self.by_partner.values_mut().filter(|path| !path.proved).take(EXPLAINED) {
                path.explain(shared);
            }
        }
        let mut next = self.explains_at;
        for path in self.by_partner.values_mut().filter(|path| !path.proved) {
            if path.next <= shared.now && left > 0 {
                path.prove(interval, most, shared);
                left -= 1;
            }
            next = next.min(path.next.max(shared.now + PAUSE));
        }
        shared.timers.set_earlier(Timer::Dial, next);
    }

    /// Something has happened on a connection. Returns whether all paths are proved by it.
    pub(super) fn hear(&mut self, dial: DialId, news: &PathNews, shared: &mut Shared) -> bool {
        let of_dial = |path: &&mut Path| path.open.iter().any(|open| open.dial == dial);
        let Some(path) = self.by_partner.values_mut().find(of_dial) else { return false };
        if path.hear(dial, news, shared) {
            self.proved += 1;
        }
        self.are_proved()
    }

    /// A connection has closed or could not be opened.
    pub(super) fn closed(&mut self, dial: DialId) {
        for path in self.by_partner.values_mut() {
            path.open.retain(|open| open.dial != dial);
        }
    }

    /// The partners to which the path is proved.
    #[cfg(feature = "net")]
    pub(super) fn proved(&self) -> impl Iterator<Item = NodeId> {
        self.by_partner.values().filter(|path| path.proved).map(|path| path.partner.id)
    }

    /// The paths that are not proved, and how each fails.
    pub(super) fn unproved(&self) -> impl Iterator<Item = BrokenTo> {
        self.by_partner.values().filter(|path| !path.proved).map(Path::broken)
    }

    /// The paths that are not proved; nothing where all are, or where no partner is known.
    pub(super) fn broken(&self, round: u64) -> Option<Broken> {
        let broken: Vec<BrokenTo> = self.unproved().collect();
        let more = u32::try_from(broken.len().saturating_sub(BROKEN)).unwrap_or(u32::MAX);
        (!broken.is_empty()).then(|| Broken { round, paths: broken.into_iter().collect(), more })
    }

    pub(super) fn stop(self, shared: &mut Shared) {
        for open in self.by_partner.into_values().flat_map(|path| path.open) {
            shared.hang_up(open.dial);
        }
    }
}

impl Path {
    fn new(partner: Partner, now: Time) -> Self {
        Self {
            partner,
            open: Vec::new(),
            next: now,
            tries: 0,
            proved: false,
            opened: None,
            passes: 0,
            fault: Fault::Silent,
            own_port_answers: false,
            explained: None,
        }
    }

    /// Opens another connection that proves the path. The next follows after `interval`; where `most` are
    /// open, it replaces the oldest.
    fn prove(&mut self, interval: Duration, most: usize, shared: &mut Shared) {
        self.tries += 1;
        self.next = shared.now + if self.tries < HASTY { interval } else { REPLACE.max(interval) };
        let is_proof = |open: &Open| open.purpose == Purpose::Proof;
        if self.open.iter().filter(|open| is_proof(open)).count() >= most
            && let Some(oldest) = self.open.iter().position(is_proof)
        {
            shared.hang_up(self.open.remove(oldest).dial);
        }
        self.dial(Purpose::Proof, shared);
    }

    /// Opens the connections that show why the path is not proved, each only once.
    fn explain(&mut self, shared: &mut Shared) {
        let has_opened = self.opened.is_some();
        if self.explained.replace(has_opened) == Some(has_opened) {
            return;
        }
        match self.opened {
            Some(fails) => {
                for length in PACKETS.into_iter().filter(|&length| length < fails) {
                    self.dial(Purpose::Length(length), shared);
                }
            }
            None if self.partner.own_port == self.partner.path.port() => {}
            None => self.dial(Purpose::OwnPort, shared),
        }
    }

    fn dial(&mut self, purpose: Purpose, shared: &mut Shared) {
        let mut to = self.partner.path;
        let packet = match purpose {
            Purpose::Length(length) => Some(length),
            Purpose::Proof | Purpose::OwnPort => None,
        };
        if purpose == Purpose::OwnPort {
            to.set_port(self.partner.own_port);
        }
        let dial = shared.dial_path(to, self.partner.id, packet);
        self.open.push(Open { dial, purpose });
    }

    /// Returns whether the path is proved by it.
    fn hear(&mut self, dial: DialId, news: &PathNews, shared: &mut Shared) -> bool {
        let Some(at) = self.open.iter().position(|open| open.dial == dial) else { return false };
        let purpose = self.open[at].purpose;
        match (purpose, news) {
            (Purpose::Proof, PathNews::Opened { packet }) => self.opened = Some(*packet),
            (Purpose::Proof, PathNews::Arrived) => {
                for open in self.open.drain(..) {
                    shared.hang_up(open.dial);
                }
                return !std::mem::replace(&mut self.proved, true);
            }
            (Purpose::Length(length), PathNews::Arrived) => self.passes = self.passes.max(length),
            (Purpose::OwnPort, PathNews::Arrived) => self.own_port_answers = true,
            (_, PathNews::Failed(fault)) => {
                self.open.remove(at);
                if purpose == Purpose::Proof {
                    self.fault = *fault;
                }
            }
            (Purpose::Length(_) | Purpose::OwnPort, PathNews::Opened { .. }) | (_, PathNews::Rails(_)) => {}
        }
        false
    }

    fn broken(&self) -> BrokenTo {
        let fault = match self.opened {
            Some(fails) if self.passes > 0 => Fault::Size { passes: self.passes, fails },
            Some(_) => Fault::Unanswered,
            None => self.fault,
        };
        let Partner { id: partner, path, .. } = self.partner;
        BrokenTo { partner, address: path.ip(), fault, own_port_answers: self.own_port_answers }
    }
}
