//! A leader's rounds: ranks, prepare, ready, commit, done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::DialId;
use super::follower::LAST_WORDS;
use super::leader::{Entry, Lead};
use super::master::MasterProof;
use super::parts;
use super::proof::Arrivals;
use super::ranks::{self, Applicant};
use super::report::{Event, Failure, Formed, Unproved};
use super::shared::Shared;
use super::timer::{Time, Timer};
use super::waves::Waves;
use crate::model::{Digest, Endpoints, Member, NodeId, Rank, Roster};
use crate::rdma::Verdict;
use crate::wire::{self, Commit, Message, Prepare, Ready, Refusal, Want};

/// A member that has been silent for so long in a round is thrown out.
const EXPEL: Duration = Duration::from_secs(5);
/// A round that has not come to its end by then is void, whatever holds it up.
const ROUND: Duration = Duration::from_secs(15);
/// For so long another round starts where no other node can be master. A round of failed proofs takes
/// 5.3 s, so the third begins after 10 s: a network that heals within these still gets its world.
const PERSIST: Duration = Duration::from_secs(12);
/// Between two looks whether the members have a family in common by now.
const AGAIN: Duration = Duration::from_millis(500);
/// A leader that has committed stays so long for spares to hear that they are too many.
const SPARES: Duration = Duration::from_secs(1);
/// After the first word that the master cannot be reached, others have this long to say so too, so
/// that the message names all of them.
const MORE_FAILURES: Duration = Duration::from_millis(300);
/// How long a leader stays for members that have not said that they know.
const LINGER: Duration = Duration::from_secs(10);
/// How long a leader that ends without a world repeats why.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long the commit is told to the master alone. It answers at once if it can.
const MASTER_FIRST: Duration = Duration::from_secs(1);
/// From so many nodes that want the roster on, its parts go by multicast.
const MULTICAST_ROSTER: usize = 4;

/// Where a gathering stands.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Gathering,
    /// Prepared, and waiting for all to be ready.
    Round(Round),
    /// The world has formed; some may not know yet.
    Committed(Round),
    /// No world can form, and the members are told why.
    Ending(Ending),
    /// All has been said.
    Over(Result<Formed, Failure>),
}

#[derive(Debug, Clone)]
pub(crate) struct Round {
    number: u64,
    roster: Roster,
    /// The roster as it is sent; empty where no member wants it.
    parts: Vec<u8>,
    digest: Digest,
    /// The rank of each, and the slots on lower ranks; and the slots of all.
    places: BTreeMap<NodeId, (u32, u64)>,
    slots: u64,
    master: NodeId,
    endpoints: Endpoints,
    proof: MasterProof,
    started: Time,
    /// How many members are ready.
    ready: u32,
    /// Once committed: how many members have not said that they know, and how many spares that they are too many.
    unaware: Unaware,
    /// Somebody cannot reach the master.
    failing: bool,
    /// The endpoint that is MASTER_ADDR, once committed.
    endpoint: u8,
    verdict: Verdict,
    waves: Waves,
    /// When each part of the roster was last multicast.
    multicast: BTreeMap<u32, Time>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Unaware {
    members: usize,
    spares: usize,
}

impl Unaware {
    fn of(&mut self, entry: &Entry) -> &mut usize {
        if entry.seated { &mut self.members } else { &mut self.spares }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Ending {
    refusal: Refusal,
    failure: Failure,
    until: Time,
    waves: Waves,
}

/// The rank of each, and the slots on lower ranks; and the slots of all.
fn places(roster: &Roster) -> (BTreeMap<NodeId, (u32, u64)>, u64) {
    let (mut places, mut slots) = (BTreeMap::new(), 0);
    for member in roster.members() {
        places.insert(member.id, (member.rank.get(), slots));
        slots += u64::from(member.slots);
    }
    (places, slots)
}

impl Round {
    fn commit(&self) -> Message {
        Message::Commit(Commit { round: self.number, endpoint: self.endpoint, verdict: self.verdict.clone() })
    }

    /// Whether the commit has yet to reach the master, which is told first.
    fn awaits_master(&self, members: &BTreeMap<NodeId, Entry>, now: Time) -> bool {
        let unaware = members.get(&self.master).is_some_and(|entry| !entry.done);
        unaware && now < self.started + MASTER_FIRST
    }
}

impl Lead {
    pub(crate) fn in_round(&self) -> bool {
        matches!(self.phase, Phase::Round(_))
    }

    pub(crate) fn start_round_if_full(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        let may = matches!(self.phase, Phase::Gathering) && !self.frozen && !self.overdue;
        if !may || self.seated != shared.world() {
            return;
        }
        let own = Applicant { id: shared.me(), node: shared.node_info() };
        let seated = self.members.iter().filter(|(_, entry)| entry.seated);
        let members = seated.map(|(&id, entry)| Applicant { id, node: entry.node.clone() });
        let mut applicants: Vec<_> = std::iter::once(own).chain(members).collect();
        let since = *self.proving_since.get_or_insert(shared.now);
        if let Err(apart) =
            ranks::settle_family(&mut applicants, shared.config.prefers_ipv6, self.failed_rounds)
        {
            if shared.now < since + PERSIST {
                // Some host's addresses may have changed, and the word of it be under way.
                shared.set_after(Timer::Round, AGAIN);
            } else {
                self.unproved.insert(apart);
                self.end_unproved(shared);
            }
            return;
        }
        let order = shared.config.rank_by;
        let chosen = ranks::choose(applicants.clone(), order, &self.unproved).or_else(|| {
            // Nobody is left, but what kept them apart may be over soon.
            let again = shared.now < since + PERSIST;
            again.then(|| ranks::choose(applicants, order, &BTreeSet::new())).flatten()
        });
        let Some(assigned) = chosen else {
            self.end_unproved(shared);
            return;
        };
        let ranks: Vec<_> = assigned.iter().map(Applicant::comparable).collect();
        let verdict = Verdict::of(&ranks);
        if !verdict.is_enough(&ranks) {
            self.end_without_rdma(verdict, shared);
            return;
        }
        let (master, endpoints) = (assigned[0].id, assigned[0].node.endpoints.advertised());
        let members = (0..).zip(&assigned).map(|(rank, a)| Member {
            rank: Rank(rank),
            id: a.id,
            host: a.node.host.clone(),
            address: a.address(),
            slots: a.node.attributes.slots,
            metadata: a.node.attributes.metadata.clone(),
        });
        let Some(roster) = Roster::new(members.collect()) else { return };
        let is_wanted = self.members.values().any(|entry| entry.seated && entry.node.attributes.wants_roster);
        self.rounds += 1;
        for entry in self.members.values_mut() {
            entry.ready = None;
        }
        shared.event(Event::Preparing { round: self.rounds });
        let proof = MasterProof::start(shared, master, &endpoints, None);
        let (places, slots) = places(&roster);
        self.phase = Phase::Round(Round {
            number: self.rounds,
            digest: roster.digest(),
            places,
            slots,
            parts: if is_wanted { wire::encode_roster(&roster) } else { Vec::new() },
            roster,
            master,
            endpoints,
            proof,
            started: shared.now,
            ready: 0,
            unaware: Unaware::default(),
            failing: false,
            endpoint: 0,
            verdict,
            waves: Waves::in_round(shared.world(), shared.now),
            multicast: BTreeMap::new(),
        });
        self.repeat(arrivals, shared);
    }

    /// Writes to those that have not answered: prepare, commit, or why there is no world.
    pub(crate) fn repeat(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        if matches!(&self.phase, Phase::Round(round) if shared.now >= round.started + ROUND) {
            // Everybody lives, and somebody cannot get ready.
            self.void_round(shared);
            self.seat_waiting(arrivals, shared);
            self.start_round_if_full(arrivals, shared);
            return;
        }
        let silent = self.silent_in_round(shared);
        if !silent.is_empty() {
            for id in silent {
                tracing::debug!(%id, "silent since the prepare: thrown out");
                self.thrown_out.push(id);
            }
            return;
        }
        match &mut self.phase {
            Phase::Round(round) => {
                let unready = |members: &BTreeMap<NodeId, Entry>| {
                    let unready = members.iter().filter(|(_, entry)| entry.seated && entry.ready.is_none());
                    unready.map(|(&id, _)| id).collect::<VecDeque<_>>()
                };
                let burst = round.waves.burst(|| unready(&self.members), shared);
                for id in burst {
                    let (Some(entry), Some(&(rank, slots_before)), Some(lease)) =
                        (self.members.get(&id), round.places.get(&id), arrivals.lease(id))
                    else {
                        continue;
                    };
                    let prepare = Message::Prepare(Prepare {
                        round: round.number,
                        lease,
                        rank,
                        digest: round.digest,
                        slots_before,
                        slots_total: round.slots,
                        roster_bytes: u32::try_from(round.parts.len()).unwrap_or(u32::MAX),
                        master: round.master,
                        endpoints: round.endpoints.clone(),
                    });
                    entry.reach(id, round.waves.number(), &prepare, shared);
                }
            }
            Phase::Committed(round) => {
                let over = shared.now >= round.started + LINGER;
                if over || round.unaware.members == 0 && shared.now >= round.started + SPARES {
                    self.finish(shared);
                    return;
                }
                // The master alone at first: as soon as others know, their jobs look for its port, and
                // until it knows itself it would take them for nodes.
                let alone = round.awaits_master(&self.members, shared.now).then_some(round.master);
                let unaware = |members: &BTreeMap<NodeId, Entry>| {
                    let unaware = members.iter().filter(|(_, entry)| !entry.done).map(|(&id, _)| id);
                    unaware.filter(|id| alone.is_none_or(|master| *id == master)).collect::<VecDeque<_>>()
                };
                let burst = round.waves.burst(|| unaware(&self.members), shared);
                let commit = round.commit();
                let full = Message::Refuse(Refusal::WorldFull);
                for id in burst {
                    if let Some(entry) = self.members.get(&id) {
                        let word = if entry.seated { &commit } else { &full };
                        entry.reach(id, round.waves.number(), word, shared);
                    }
                }
            }
            Phase::Ending(ending) => {
                if shared.now >= ending.until || self.members.is_empty() {
                    self.phase = Phase::Over(Err(ending.failure.clone()));
                    return;
                }
                let burst = ending.waves.burst(|| self.members.keys().copied().collect(), shared);
                let refusal = Message::Refuse(ending.refusal.clone());
                for id in burst {
                    if let Some(entry) = self.members.get(&id) {
                        entry.reach(id, ending.waves.number(), &refusal, shared);
                    }
                }
            }
            Phase::Gathering => self.start_round_if_full(arrivals, shared),
            Phase::Over(_) => {}
        }
    }

    fn silent_in_round(&self, shared: &Shared) -> Vec<NodeId> {
        let Phase::Round(round) = &self.phase else { return Vec::new() };
        if !round.waves.is_between() {
            return Vec::new();
        }
        let silent = |entry: &Entry| shared.now >= entry.heard.max(round.started) + EXPEL;
        let silent = self.members.iter().filter(|(_, entry)| entry.seated && silent(entry));
        silent.map(|(&id, _)| id).collect()
    }

    /// A member is ready; where all are, the world has formed.
    pub(crate) fn on_ready(&mut self, from: NodeId, source: SocketAddr, ready: &Ready, shared: &mut Shared) {
        let answer = match &mut self.phase {
            Phase::Round(round) if round.number == ready.round => {
                if let Some(entry) = self.members.get_mut(&from).filter(|entry| entry.seated)
                    && entry.ready.replace(ready.endpoint).is_none()
                {
                    round.ready += 1;
                    round.waves.answered(shared);
                }
                self.commit_if_ready(shared);
                // Committed by this very word: the commit is on its way.
                if !self.in_round() {
                    return;
                }
                Message::Pong
            }
            // To members alone: the verdict is longer than what asks for it.
            Phase::Committed(round)
                if round.number == ready.round
                    && self.members.get(&from).is_some_and(|entry| entry.seated) =>
            {
                if from != round.master && round.awaits_master(&self.members, shared.now) {
                    Message::Pong
                } else {
                    round.commit()
                }
            }
            _ => Message::Void(ready.round),
        };
        shared.send(source, from, &answer);
    }

    /// A member cannot reach the master: that master is not tried again.
    pub(crate) fn on_unproved(&mut self, from: NodeId, source: SocketAddr, number: u64, shared: &mut Shared) {
        match &mut self.phase {
            Phase::Round(round) if round.number == number => {
                if !self.members.get(&from).is_some_and(|entry| entry.seated) {
                    return;
                }
                self.unproved.insert((from, round.master));
                if !std::mem::replace(&mut round.failing, true) {
                    shared.set_after(Timer::ProofFailed, MORE_FAILURES);
                }
            }
            _ => shared.send(source, from, &Message::Void(number)),
        }
    }

    /// This node's own proof has taken too long, or the others have had their time to say so.
    pub(crate) fn proof_failed(&mut self, arrivals: &Arrivals, shared: &mut Shared) {
        let Phase::Round(round) = &mut self.phase else { return };
        if round.proof.endpoint().is_none() {
            self.unproved.insert((shared.me(), round.master));
        }
        if !std::mem::replace(&mut round.failing, true) {
            shared.set_after(Timer::ProofFailed, MORE_FAILURES);
            return;
        }
        self.failed_rounds += 1;
        self.void_round(shared);
        self.seat_waiting(arrivals, shared);
        self.start_round_if_full(arrivals, shared);
    }

    /// This node's own proof goes on.
    pub(crate) fn proceed(&mut self, shared: &mut Shared) {
        if let Phase::Round(round) = &mut self.phase {
            round.proof.ask(shared);
        }
    }

    pub(crate) fn on_proved(&mut self, master: NodeId, dial: DialId, shared: &mut Shared) {
        if let Phase::Round(round) = &mut self.phase
            && round.proof.proved(master, dial, shared)
        {
            if round.failing {
                shared.set_after(Timer::ProofFailed, MORE_FAILURES);
            }
            self.commit_if_ready(shared);
        }
    }

    pub(crate) fn proof(&mut self) -> Option<&mut MasterProof> {
        match &mut self.phase {
            Phase::Round(round) => Some(&mut round.proof),
            _ => None,
        }
    }

    pub(crate) fn on_want(&mut self, from: NodeId, source: SocketAddr, want: &Want, shared: &mut Shared) {
        let Phase::Round(round) = &mut self.phase else { return };
        // A seat has been proved, so its address is not forged.
        let seated = self.members.get_mut(&from).filter(|entry| entry.seated);
        let Some(entry) = seated.filter(|_| round.number == want.round) else { return };
        let again = entry.wanted.replace(want.clone()).as_ref() == Some(want);
        let alone = again || entry.deaf;
        let many = self
            .members
            .values()
            .filter(|entry| entry.node.attributes.wants_roster)
            .take(MULTICAST_ROSTER)
            .count()
            == MULTICAST_ROSTER;
        for part in parts::answer(want, &round.parts) {
            if !many || alone {
                shared.send(source, from, &Message::Part(part));
                continue;
            }
            // Others ask for the same parts at the same moment.
            let last = round.multicast.get(&part.index);
            if last.is_none_or(|&at| shared.now >= at + Duration::from_millis(10)) {
                round.multicast.insert(part.index, shared.now);
                shared.multicast(&Message::Part(part));
            }
        }
    }

    /// The world has formed, if everybody is ready; a world of one has nobody to wait for.
    pub(crate) fn commit_if_ready(&mut self, shared: &mut Shared) {
        let Phase::Round(round) = &self.phase else { return };
        let Some(own) = round.proof.endpoint() else { return };
        // Who they are is looked at once, and not at the word of each.
        if round.ready + 1 < self.seated {
            return;
        }
        let mut votes: BTreeMap<u8, u32> = BTreeMap::new();
        for (id, entry) in self.members.iter().filter(|(_, entry)| entry.seated) {
            let Some(endpoint) = entry.ready else { return };
            // The master itself proves nothing.
            if *id != round.master {
                *votes.entry(endpoint).or_default() += 1;
            }
        }
        if round.master != shared.me() {
            *votes.entry(own).or_default() += 1;
        }
        // What most have proved; among equals, what the master prefers.
        let endpoint = votes.iter().max_by_key(|&(&e, &n)| (n, std::cmp::Reverse(e))).map_or(0, |(&e, _)| e);
        let Phase::Round(mut round) = std::mem::replace(&mut self.phase, Phase::Gathering) else { return };
        round.endpoint = endpoint;
        round.started = shared.now;
        round.waves = Waves::in_round(shared.world(), shared.now);
        shared.timers.stop(Timer::ProofFailed);
        shared.timers.stop(Timer::Proof);
        shared.timers.set(Timer::Round, shared.now);
        self.phase = Phase::Committed(round);
        shared.stop_accepting();
        let waiting = self.waiting.clone();
        for (&id, entry) in self.members.iter_mut().filter(|(_, entry)| !entry.seated) {
            // Who has not proved has no lease whose end would tell that it knows.
            entry.done = !waiting.contains(&id);
            for _ in 0..if entry.done { LAST_WORDS } else { 0 } {
                shared.send(entry.source, id, &Message::Refuse(Refusal::WorldFull));
            }
        }
        let Phase::Committed(round) = &mut self.phase else { return };
        for entry in self.members.values().filter(|entry| !entry.done) {
            *round.unaware.of(entry) += 1;
        }
        self.finish_if_done(shared);
    }

    pub(crate) fn on_done(&mut self, from: NodeId, number: u64, shared: &mut Shared) {
        if matches!(&self.phase, Phase::Committed(round) if round.number == number) {
            self.done(from, shared);
        }
    }

    fn done(&mut self, id: NodeId, shared: &mut Shared) {
        if let Some(entry) = self.members.get_mut(&id).filter(|entry| !entry.done) {
            entry.done = true;
            if let Phase::Committed(round) = &mut self.phase {
                *round.unaware.of(entry) -= 1;
                round.waves.answered(shared);
                if round.master == id {
                    // Now the others may know.
                    round.waves = Waves::in_round(shared.world(), shared.now);
                    shared.timers.set(Timer::Round, shared.now);
                }
            }
        }
        self.finish_if_done(shared);
    }

    fn finish_if_done(&mut self, shared: &mut Shared) {
        let Phase::Committed(round) = &self.phase else { return };
        let spares_matter = shared.now < round.started + SPARES;
        if round.unaware.members == 0 && (round.unaware.spares == 0 || !spares_matter) {
            self.finish(shared);
        }
    }

    fn finish(&mut self, shared: &mut Shared) {
        let Phase::Committed(round) = &self.phase else { return };
        let rank = round.roster.members().iter().find(|m| m.id == shared.me()).map(|m| m.rank);
        let published = round.proof.published(round.endpoint, shared);
        let slots = rank.and_then(|rank| round.roster.slots(rank));
        let (Some(rank), Some(slots), Some((master, local))) = (rank, slots, published) else { return };
        self.phase = Phase::Over(Ok(Formed {
            rank,
            world: shared.config.world,
            master,
            local,
            digest: round.digest,
            roster: shared.config.node.attributes.wants_roster.then(|| round.roster.clone()),
            verdict: round.verdict.clone(),
            slots,
        }));
    }

    /// A member's last connection has closed. Returns whether that has been dealt with: after the
    /// commit, and when all are sent away, it is the answer that was waited for.
    pub(crate) fn round_lost(&mut self, id: NodeId, shared: &mut Shared) -> bool {
        match &self.phase {
            Phase::Committed(_) => self.done(id, shared),
            Phase::Ending(_) => {
                self.members.remove(&id);
                shared.timers.set(Timer::Round, shared.now);
            }
            Phase::Over(_) => {}
            Phase::Gathering | Phase::Round(_) => return false,
        }
        true
    }

    /// The round comes to nothing; gathering goes on.
    pub(crate) fn void_round(&mut self, shared: &mut Shared) {
        let Phase::Round(round) = std::mem::replace(&mut self.phase, Phase::Gathering) else { return };
        shared.timers.stop(Timer::Round);
        shared.timers.stop(Timer::Proof);
        for (&id, entry) in self.members.iter().filter(|(_, entry)| entry.seated) {
            shared.send(entry.source, id, &Message::Void(round.number));
        }
        round.proof.stop(shared);
    }

    /// A join in a phase in which nobody can join. Returns whether it has been answered.
    pub(crate) fn refuse_or_repeat(&self, from: NodeId, source: SocketAddr, shared: &mut Shared) -> bool {
        let answer = match &self.phase {
            Phase::Gathering | Phase::Round(_) => return false,
            // It asks for its commit by saying that it is ready.
            Phase::Committed(_) if self.members.get(&from).is_some_and(|entry| entry.seated) => return true,
            Phase::Committed(_) if self.members.contains_key(&from) => Message::Refuse(Refusal::WorldFull),
            Phase::Ending(ending) => Message::Refuse(ending.refusal.clone()),
            Phase::Committed(_) | Phase::Over(_) => Message::Refuse(Refusal::Closing),
        };
        shared.send(source, from, &answer);
        true
    }

    /// Nobody can be master: all are told who could not reach whom.
    fn end_unproved(&mut self, shared: &mut Shared) {
        let peer = |id: NodeId| {
            if id == shared.me() { Some(shared.peer()) } else { self.members.get(&id).map(Entry::peer) }
        };
        let pairs = self
            .unproved
            .iter()
            .filter_map(|&(prover, master)| Some(Unproved { prover: peer(prover)?, master: peer(master)? }));
        let pairs: Vec<Unproved> = pairs.collect();
        let told = pairs.iter().map(|pair| (pair.prover.clone(), pair.master.clone())).collect();
        self.end_for_all(Refusal::MasterUnproved(told), Failure::MasterUnproved { pairs }, shared);
    }

    /// Somebody needs RDMA, and there is none that all can use.
    fn end_without_rdma(&mut self, verdict: Verdict, shared: &mut Shared) {
        self.end_for_all(Refusal::NoRdma(verdict.clone()), Failure::NoRdma { verdict }, shared);
    }

    /// No world can form: all are told why.
    fn end_for_all(&mut self, refusal: Refusal, failure: Failure, shared: &mut Shared) {
        let waiting = &self.waiting;
        self.members.retain(|id, entry| entry.seated || waiting.contains(id));
        self.phase = Phase::Ending(Ending {
            refusal,
            failure,
            until: shared.now + FAREWELL,
            waves: Waves::in_round(shared.world(), shared.now),
        });
        shared.timers.set(Timer::Round, shared.now);
    }
}
