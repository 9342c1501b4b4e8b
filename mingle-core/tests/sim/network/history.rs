//! The record of a run: the causes that can excuse how a node ends, and the facts that show that a kind of
//! trouble has come about.

use std::collections::BTreeMap;

use mingle_core::Failure;
use mingle_core::proto::testing::{self, digest};
use mingle_core::proto::{Digest, NodeId, Order, Output, PathDial, Time};

use super::Network;

/// A fact about a run, which a kind of trouble must bring about in some of its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// A process was stopped while its node was in a round.
    PausedInRound,
    /// The same, for longer than others wait for it.
    PausedLongInRound,
    /// The leader of a round was stopped for longer than its members wait for it.
    LeaderPausedLong,
    /// A packet of a node in a round was lost to a cut.
    CutInRound,
    /// A node with an open connection was killed.
    KilledMember,
    /// A node with an open connection lost power.
    PowerLost,
    /// A node in a round lost power.
    PowerLostInRound,
    /// A node started at the address and port of one that has lost power, while others still held connections
    /// to that one.
    GhostMet,
    /// A timer fired over 100 ms late.
    VeryLate,
    /// A packet took over 200 ms.
    VerySlow,
    /// A node proved one on its own address.
    Neighbours,
    /// A node joined from an address that is not its own.
    Translated,
    /// A world formed with fewer nodes than it may have.
    Smaller,
    /// A node ran when a world was committed, and is not in it.
    LeftOut,
    /// No world formed.
    NoneFormed,
    /// A node dialled where a path has a flaw.
    PathBroken,
    /// A world whose hosts have two kinds of RDMA uses one of them.
    TwoKinds,
    /// A world uses another kind of RDMA than some of its hosts would alone.
    KindGivenUp,
    /// All paths worked again before all nodes had ended.
    PathHealed,
}

/// The kinds of a node's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Formed(Digest),
    Failed(Failure),
    /// Its process was killed, or its host lost power.
    Killed,
}

/// One node's end.
#[derive(Debug, Clone)]
pub struct End {
    pub host: usize,
    pub id: NodeId,
    pub started: Time,
    pub at: Time,
    pub how: Ended,
    /// The leader for which the node was ready.
    pub bound_to: Option<NodeId>,
}

/// The record of a run.
#[derive(Debug, Default)]
pub struct History {
    pub facts: BTreeMap<Fact, u32>,
    /// The end of each node.
    pub ends: Vec<End>,
    /// The host of each node.
    pub host_of: BTreeMap<NodeId, usize>,
    /// From when to when a process of a host was stopped.
    pauses: Vec<(usize, Time, Time)>,
    /// From when to when nothing passed from one host to another.
    cuts: Vec<(usize, usize, Time, Time)>,
}

/// The name of a datagram's kind, its length, and a digest of its bytes.
pub(super) fn name(datagram: &[u8]) -> String {
    let kind = datagram.get(5).map_or("?", |&kind| testing::name(kind));
    format!("{kind} ({} bytes, {})", datagram.len(), digest(datagram))
}

/// The line of the trace for an output.
pub(super) fn describe(output: &Output) -> String {
    match output {
        Output::Send { to, datagram } => format!("to {to}: {}", name(datagram)),
        Output::Multicast { datagram } => format!("to all: {}", name(datagram)),
        Output::Carry(Order::Write(conn, frame)) => format!("{}: {}", conn.0, testing::describe(frame)),
        Output::Carry(order) => format!("{order:?}"),
        Output::DialPath(PathDial { dial, to, token, answer, packet }) => {
            let (token, answer) = (digest(token), digest(answer));
            format!("{dial:?} to {to} with {token} for {answer}, packets of {packet:?}")
        }
        other => format!("{other:?}"),
    }
}

fn overlap((a, b): (Time, Time), (c, d): (Time, Time)) -> Time {
    b.min(d).saturating_sub(a.max(c))
}

impl Network {
    pub(super) fn saw(&mut self, fact: Fact) {
        *self.history.facts.entry(fact).or_default() += 1;
    }

    pub(super) fn ends(&mut self, host: usize, how: Ended) {
        let slot = &self.hosts[host];
        let (id, started) = (slot.config.id, slot.started.unwrap_or_default());
        let bound_to = self.promises.bound_to(host);
        self.history.ends.push(End { host, id, started, at: self.now, how, bound_to });
    }

    pub(super) fn was_paused(&mut self, host: usize, from: Time) {
        self.history.pauses.push((host, from, self.now));
    }

    pub(super) fn was_cut(&mut self, from: usize, to: usize, since: Time) {
        self.history.cuts.push((from, to, since, self.now));
    }

    /// For how long a host's process was stopped in this time.
    pub fn paused_in(&self, host: usize, from: Time, to: Time) -> Time {
        let now = self.hosts[host].paused_since.map(|since| overlap((since, self.now), (from, to)));
        let past = self.history.pauses.iter().filter(|(paused, ..)| *paused == host);
        past.map(|&(_, start, end)| overlap((start, end), (from, to))).sum::<Time>() + now.unwrap_or_default()
    }

    /// For how long nothing passed between two hosts, one way or the other, in this time.
    pub fn cut_in(&self, a: usize, b: usize, from: Time, to: Time) -> Time {
        let between = |(x, y): (usize, usize)| (x, y) == (a, b) || (x, y) == (b, a);
        let now = self.cut.iter().filter(|&(&pair, _)| between(pair));
        let now = now.map(|(_, &since)| overlap((since, self.now), (from, to)));
        let past = self.history.cuts.iter().filter(|&&(x, y, ..)| between((x, y)));
        now.chain(past.map(|&(_, _, start, end)| overlap((start, end), (from, to)))).sum()
    }
}
