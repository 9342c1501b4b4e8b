//! What the leader decides: when a world is over and why, and when and with whom the next one forms.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{FAREWELL, LOST, Presence, Process, Time, World};
use crate::model::{End, Epoch, Member, NodeId, Rank};
use crate::proto::lead::{Applicant, BrokenPaths, MORE_FAILURES, Planned, at_fault, plan_round};
use crate::proto::session::Linked;
use crate::wire::world::{
    ABSENT, Command, Contact, FirstCause, Phase, Plan, REIGN, Reign, RoundId, WorldSaid,
};
use crate::wire::{Answer, Body, Join, NodeInfo, Refusal, decode_traits};

/// A member to which no connection is open for so long is suspected: about 12 s after it was heard last,
/// since the kernel gives a connection up after 8 s.
const SUSPECT: Duration = Duration::from_secs(4);
/// A node that is dead or leaves, so soon after a command has failed, is why that command has failed.
/// A process that was killed with unread bytes resets its connections, so this is longer than a process has
/// after a reset.
const FIRST_CAUSE: Duration = Duration::from_millis(1500);
/// How long before a silent member is gone the others are asked whether they are there.
const ANSWERS: Duration = Duration::from_secs(1);
/// The interval between two such questions.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How long the nodes of a plan have to prove their paths.
const ROUND: Duration = Duration::from_secs(15);
/// The leader of a round looks at the clock so often. Where it was stopped for longer, the others may have
/// taken it for lost and have gone on: the round is void.
const LOOKS: Duration = Duration::from_secs(1);
/// How long the next plans leave out a node with a broken path, if enough others are here: longer than it
/// takes to try many others.
const LEFT_OUT: Duration = Duration::from_secs(60);
/// How long all members may pause before they come back.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// The pause after a round that has failed.
const AGAIN: Duration = Duration::from_millis(200);
/// How long the others wait until the first rank has learned that the world has formed: only then is its port
/// the job's.
const MASTER_FIRST: Duration = Duration::from_secs(1);

/// The pause between two questions whether others have gone on without this node.
const ASK_OTHERS: Duration = Duration::from_secs(1);

/// So many observers at once are told who the members are: what is told is as long as the world is large.
const OBSERVERS: usize = 16;

/// What a leader knows beside what its members say.
#[derive(Debug, Clone, Default)]
pub(super) struct WorldLead {
    phase: Phase,
    /// When this phase began.
    since: Time,
    /// The plan of the round that is under way, and as it is said.
    plan: Option<(Arc<Plan>, Body)>,
    /// Until then the first rank alone learns that the world has formed.
    master_first: Option<Time>,
    /// When this node began to lead, or the world to run: the members may take a while to come.
    pub(super) begun: Time,
    /// When a member of the world that is over came back first.
    back: Option<Time>,
    /// When a round may begin, after one that has failed.
    again: Time,
    /// When the others were last asked whether they are there.
    asked: Option<Time>,
    /// When it is next asked whether others have gone on without this node.
    asks_others: Option<Time>,
    /// This node is a member of the world that has formed, and its command starts when the first rank knows.
    enters: bool,
    /// The paths that were broken in a round, and until when no plan has both nodes.
    broken: BTreeMap<(NodeId, NodeId), Time>,
    /// What kept the next world from forming last.
    trouble: Option<Refusal>,
    /// How many rounds with broken paths there were since a world has formed or nodes were left out for that,
    /// and how many ways there are to reach each other.
    failed: u64,
    ways: u64,
    /// When nodes have had the time to say that they find paths broken, since others have.
    failing: Option<Time>,
    /// Others have gone on without this node, which leads no further world.
    gives_way: bool,
    /// No world follows this one, and the nodes that wait for a seat may end.
    pub(super) frees: bool,
    /// When it was last counted how many nodes are here.
    counted: Time,
    /// The plan that observers were told last.
    shown: Option<(RoundId, Body)>,
}

/// A member as the leader sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemberView {
    rank: u32,
    id: NodeId,
    pub(super) command: Command,
    is_dead: bool,
    /// Since when nobody has a connection to it.
    silence: Option<Time>,
}

impl MemberView {
    fn is_lost(&self) -> bool {
        self.is_dead || matches!(self.command, Command::Leaves | Command::Quits)
    }

    /// Since when it is missed: a node whose command has ended well may be silent.
    fn missed(&self) -> Option<Time> {
        self.silence.filter(|_| self.command != Command::Succeeded)
    }
}

impl WorldLead {
    /// The leader of a world that has just formed.
    pub(super) fn formed(now: Time) -> Self {
        Self { since: now, begun: now, again: now, ..Self::default() }
    }

    /// The leader in the place of another one.
    fn succeed(reign: &Reign, over: Option<FirstCause>, now: Time) -> Self {
        let phase = match (over, reign.phase) {
            (_, Phase::Released) | (None, Phase::Runs) => reign.phase,
            (Some(cause), _) | (None, Phase::Over(cause) | Phase::Round(cause)) => Phase::Over(cause),
        };
        Self { phase, ..Self::formed(now) }
    }

    /// Whether the world that this node leads runs.
    pub(super) fn leads_commands(&self) -> bool {
        self.phase == Phase::Runs
    }

    /// Whether a round is under way, or has just ended well, and this node has yet to begin.
    pub(super) fn is_in_round(&self) -> bool {
        self.enters || matches!(self.phase, Phase::Round(_))
    }

    /// This process was stopped for so long. Returns whether its round is void.
    pub(super) fn forgive(&mut self, stopped: Duration) -> bool {
        self.begun += stopped;
        self.since += stopped;
        self.back = self.back.map(|back| back + stopped);
        let Phase::Round(cause) = self.phase else { return false };
        let is_void = stopped >= LOOKS;
        if is_void {
            self.phase = Phase::Over(cause);
        }
        is_void
    }

    /// Others have gone on without this node: a round under way is void.
    pub(super) fn give_way(&mut self) {
        self.gives_way = true;
        if let Phase::Round(cause) = self.phase {
            self.phase = Phase::Over(cause);
        }
    }

    /// A round has failed: the next one begins after a pause, and these paths were broken.
    pub(super) fn learn(&mut self, now: Time, broken: Vec<(NodeId, NodeId)>) {
        self.again = now + AGAIN;
        self.broken.retain(|_, until| now < *until);
        self.broken.extend(broken.into_iter().map(|path| (path, now + LEFT_OUT)));
    }

    /// Few of these nodes, without which no path was broken lately: of two between which a path is
    /// broken the later one.
    pub(super) fn left_out(&self, now: Time, nodes: &[NodeId]) -> Vec<NodeId> {
        let places: BTreeMap<&NodeId, usize> = nodes.iter().zip(0..).collect();
        let are_here = |(from, to): &(NodeId, NodeId)| places.contains_key(from) && places.contains_key(to);
        let recent = self.broken.iter().filter(|(_, until)| now < **until).map(|(path, _)| *path);
        at_fault(recent.filter(are_here), |id| Reverse(places.get(id).copied()))
    }
}

impl World {
    /// Leads in the place of a leader that is lost or leaves.
    pub(super) fn succeed(&mut self, term: u32) {
        let Some(plan) = self.current_plan() else { return };
        let rank = plan.rank_of(self.own.id);
        let seats: Vec<Contact> = plan.seats().iter().map(Contact::of).collect();
        let is_round_of_plan = self.reign.round == Some(plan.round);
        let is_of_plan = self.over.is_some() || is_round_of_plan;
        let said = match self.reign.phase {
            Phase::Over(cause) | Phase::Round(cause) if is_round_of_plan => Some(cause),
            _ => None,
        };
        // The former leader may have learned a better cause, which this node has not reported yet.
        let over = said.filter(|cause| cause.end != End::Unknown).or(self.over);
        let lead = WorldLead::succeed(&self.reign, over, self.shared.now);
        // The former leader has found that this member is dead.
        let gone = match lead.phase {
            Phase::Over(FirstCause { rank: Some(rank), end: End::Gone }) if is_of_plan => plan.seat(rank),
            _ => None,
        };
        let gone = gone.map(|seat| seat.id).filter(|id| !self.is_there(*id));
        self.dead.extend(gone);
        self.lead = Some(lead);
        self.walk = None;
        self.reign = Reign {
            epoch: self.epoch,
            term,
            rank,
            leader: self.own.clone(),
            rounds: self.rounds,
            ..self.reign.clone()
        };
        for seat in &seats {
            self.link_to(seat);
        }
        if let Some(WorldLead { phase: Phase::Over(cause), .. }) = self.lead {
            self.end_world(cause);
        }
    }

    /// Decides what is to be decided, and brings `reign` in line with it.
    pub(super) fn decide(&mut self) {
        let Some(mut lead) = self.lead.take() else { return };
        let members = self.members(&lead);
        self.link_to_absent(&members, &mut lead);
        let has_most = Self::has_most(&members);
        self.give_up_silent(&members, &mut lead);
        let members = loop {
            let members = self.members(&lead);
            let next = match lead.phase {
                Phase::Runs => self.decide_running(&members, &mut lead),
                Phase::Over(cause) => self.decide_over(cause, &members, &mut lead),
                Phase::Round(cause) => self.decide_round(cause, &mut lead),
                Phase::Released => None,
            };
            let Some(phase) = next else { break members };
            (lead.phase, lead.since) = (phase, self.shared.now);
        };
        self.reign = self.decided(&mut lead, &members, has_most);
        let (suspected, is_cut_off) = (self.reign.suspected.clone(), self.reign.is_cut_off);
        let is_member = self.reign.rank.is_some();
        self.report_suspects(&suspected, is_cut_off && is_member && !suspected.is_empty());
        self.lead = Some(lead);
    }

    pub(super) fn members(&self, lead: &WorldLead) -> Vec<MemberView> {
        let seats = self.plan.iter().flat_map(|plan| plan.seats());
        let mut heard = BTreeMap::new();
        for peer in seats.clone().filter_map(|seat| self.peers.get(seat.id)) {
            let guests =
                peer.known.status.iter().filter(|status| peer.link.is_there() && status.epoch == self.epoch);
            heard.extend(guests.flat_map(|status| status.guests.iter().copied()));
        }
        let member = |(rank, seat): (u32, &Member)| {
            let id = seat.id;
            if id == self.own.id {
                let command = if lead.enters { Command::Runs } else { self.command };
                return MemberView { rank, id, command, is_dead: false, silence: None };
            }
            let presence = match self.peers.get(id) {
                _ if self.dead.contains(&id) => Presence::Dead,
                Some(peer) => peer.link.presence(self.shared.now),
                None => Presence::Silent(lead.begun),
            };
            let own_word = self.peers.get(id).and_then(|peer| self.command_of(peer));
            let passed_on = heard.get(&id).copied().filter(|_| presence != Presence::There);
            let succeeded = self.succeeded.contains(&id).then_some(Command::Succeeded);
            let command = self.left.get(&id).copied().or(passed_on).or(own_word).or(succeeded);
            let command = command.unwrap_or(Command::Runs);
            let silence = match presence {
                Presence::Silent(since) if !heard.contains_key(&id) => Some(since),
                _ => None,
            };
            MemberView { rank, id, command, is_dead: presence == Presence::Dead, silence }
        };
        (0..).zip(seats).map(member).collect()
    }

    /// What has become of a member's command, as it says itself; none where it has not read yet that the
    /// world has formed.
    fn command_of(&self, peer: &Linked<Process>) -> Option<Command> {
        let status = peer.known.status.as_ref()?;
        let is_ready = self.reign.round.is_some_and(|round| status.answer == Some((round, Answer::Ready)));
        match status.command {
            _ if status.epoch < self.epoch && is_ready => None,
            Command::Waits if self.over.is_some() => Some(Command::Waits),
            _ if status.epoch < self.epoch => None,
            Command::Waits if is_ready => None,
            command => Some(command),
        }
    }

    /// Members come by themselves at first; those that do not are dialled.
    fn link_to_absent(&mut self, members: &[MemberView], lead: &mut WorldLead) {
        // Of a world that is over, a member that has not come may be the first cause.
        let due = if lead.leads_commands() { lead.begun + LOST } else { lead.begun };
        let is_absent = |member: &&MemberView| {
            !member.is_lost() && member.id != self.own.id && !self.peers.has(member.id)
        };
        let absent: Vec<u32> = members.iter().filter(is_absent).map(|member| member.rank).collect();
        if !absent.is_empty() && self.shared.now < due {
            self.wake(due);
            return;
        }
        for rank in absent {
            if let Some(seat) = self.plan.as_ref().and_then(|plan| plan.seat(rank)).map(Contact::of) {
                self.link_to(&seat);
            }
        }
    }

    /// Whether this node and those that it reaches are more than half of the members that are not lost.
    fn has_most(members: &[MemberView]) -> bool {
        let living = members.iter().filter(|member| !member.is_lost());
        let there = living.clone().filter(|member| member.silence.is_none()).count();
        2 * there > living.count()
    }

    /// When a member is gone that is silent since then.
    fn gone_at(&self, since: Time) -> Time {
        since.saturating_add(SUSPECT).saturating_add(self.shared.config.gone_after)
    }

    /// Members that have been silent for too long are gone: as far as most are there, or enough for a world.
    /// An open connection is no evidence of that, since a kernel takes 8 s to give one up: the others are
    /// asked.
    fn give_up_silent(&mut self, members: &[MemberView], lead: &mut WorldLead) {
        let mut is_due = false;
        for since in members.iter().filter_map(MemberView::missed) {
            let gone = self.gone_at(since);
            let ask = gone.saturating_sub(ANSWERS);
            for at in [since + SUSPECT, ask, gone] {
                self.wake(at);
            }
            is_due |= self.shared.now >= ask;
        }
        if !is_due {
            return;
        }
        if lead.asked.is_none_or(|asked| self.shared.now >= asked + ASK_AGAIN) {
            lead.asked = Some(self.shared.now);
            for (_, peer) in self.peers.iter_mut() {
                peer.link.say_again(REIGN);
            }
        }
        let asked = lead.asked.unwrap_or(self.shared.now);
        self.wake(asked + ASK_AGAIN);
        if asked == self.shared.now || !self.most_answer(members) {
            return;
        }
        for member in members {
            if member.missed().is_some_and(|since| self.shared.now >= self.gone_at(since)) {
                self.dead.insert(member.id);
            }
        }
    }

    /// Whether most of the members that are not lost have read all that this node has said, or as many nodes
    /// as a world needs.
    fn most_answer(&self, members: &[MemberView]) -> bool {
        let answers = |id: &NodeId| *id == self.own.id || self.has_read_all(*id);
        let living = members.iter().filter(|member| !member.is_lost());
        let there = living.clone().filter(|member| answers(&member.id)).count();
        let spares = self.spares().into_iter().filter(answers).count();
        let nodes = u32::try_from(there + spares).unwrap_or(u32::MAX);
        2 * there > living.count() || self.shared.config.world.at_most(nodes) > 0
    }

    /// Why the running world is over, if it is.
    fn decide_running(&mut self, members: &[MemberView], lead: &mut WorldLead) -> Option<Phase> {
        let knows = members.first().is_none_or(|first| {
            let status = self.peers.get(first.id).and_then(|peer| peer.known.status.as_ref());
            first.is_lost()
                || first.id == self.own.id
                || status.is_some_and(|status| status.epoch >= self.epoch)
        });
        lead.master_first.take_if(|until| knows || self.shared.now >= *until);
        if let Some(until) = lead.master_first {
            self.wake(until);
        } else if std::mem::take(&mut lead.enters) {
            self.enter();
        }
        if let Some(cause) = first_cause(members) {
            return Some(self.over(cause, lead));
        }
        if members.iter().all(|member| member.command == Command::Succeeded) {
            self.farewell = Some(self.shared.now + FAREWELL);
            return Some(Phase::Released);
        }
        let room = usize::try_from(self.shared.most()).unwrap_or(usize::MAX) > members.len();
        if self.shared.config.grow_after.is_some() && room {
            let since = |spare: &NodeId| self.peers.get(*spare).map_or(lead.begun, |peer| peer.known.since);
            // No world ends for a node that may have a broken path again.
            let is_broken = |id| lead.broken.keys().any(|(a, b)| *a == id || *b == id);
            let spares = self.seatable(&self.spares(), members.iter().map(|member| member.rank));
            let spares = spares.into_iter().filter(|spare| !is_broken(*spare));
            let stays = spares.map(|spare| since(&spare).saturating_add(self.shared.config.last_call)).min();
            let due = stays.map(|stays| stays.max(self.growth.next))?;
            if self.shared.now >= due {
                return Some(self.over(FirstCause { rank: self.reign.rank, end: End::Grows }, lead));
            }
            self.wake(due);
        }
        None
    }

    fn over(&mut self, cause: FirstCause, lead: &mut WorldLead) -> Phase {
        if std::mem::take(&mut lead.enters) {
            // This node's command has not begun, and does not in this world.
            self.end_round();
        }
        self.end_world(cause);
        Phase::Over(cause)
    }

    /// The commands stop. Once all that live have come back, the next world is planned.
    fn decide_over(
        &mut self,
        cause: FirstCause,
        members: &[MemberView],
        lead: &mut WorldLead,
    ) -> Option<Phase> {
        let drains =
            |member: &MemberView| Some(member.rank) == cause.rank && member.command == Command::Drains;
        let is_earlier = |earlier: &FirstCause| match cause.end {
            End::Gone => false,
            // Of a node that has yet to leave nobody knows whether it has made the command fail.
            End::Left => earlier.end == End::Gone && members.iter().any(drains),
            _ => matches!(earlier.end, End::Gone | End::Left),
        };
        let may_be_earlier = self.shared.now < self.over_since + FIRST_CAUSE;
        let earlier = first_cause(members).filter(|earlier| may_be_earlier && is_earlier(earlier));
        if let Some(earlier) = earlier {
            self.end_world(earlier);
            return Some(Phase::Over(earlier));
        }
        if self.has_left() || lead.gives_way {
            return None;
        }
        self.ask_for_others(lead);
        // All members pause equally long before they come back, and to a new leader they come only now.
        if lead.back.is_none() && members.iter().any(|member| self.is_back(member)) {
            lead.back = Some(self.shared.now);
        }
        let back = lead.back.unwrap_or(self.over_since + LONGEST_PAUSE);
        let patience = back.saturating_add(self.shared.config.stop_timeout).max(lead.begun + LOST);
        let is_awaited = |member: &MemberView| match member.command {
            _ if member.is_lost() => false,
            Command::Waits => member.silence.is_some(),
            _ => true,
        };
        if members.iter().any(is_awaited) && self.shared.now < patience {
            self.wake(patience);
            return None;
        }
        if self.shared.now < lead.again {
            self.wake(lead.again);
            return None;
        }
        // What kept an earlier plan from forming may be over; a broken path may be so for want of a proof.
        lead.trouble.take_if(|trouble| !matches!(trouble, Refusal::PathsBroken(..)));
        let plan = match self.plan_next(members, lead) {
            Ok(plan) => plan,
            Err(Some(unfit)) => {
                lead.trouble = Some(unfit.refusal);
                lead.learn(self.shared.now, unfit.nodes.into_iter().map(|id| (id, id)).collect());
                self.wake(lead.again);
                return None;
            }
            Err(None) => return None,
        };
        for seat in plan.seats() {
            if let Some(peer) = self.peers.get_mut(seat.id) {
                peer.known.was_planned = true;
            }
        }
        lead.failing = None;
        self.end_round();
        self.prove(plan.clone());
        let body = WorldSaid::Plan(plan.clone()).encode();
        lead.plan = Some((Arc::new(plan), body));
        Some(Phase::Round(cause))
    }

    /// Asks again and again whether others have gone on without this node, while they may have.
    fn ask_for_others(&mut self, lead: &mut WorldLead) {
        if !self.may_lack_others() {
            return;
        }
        // Two that are alone must not ask at the same time again and again.
        let next = self.shared.now + ASK_OTHERS + Duration::from_millis(self.own.id.0[0].into());
        // Those that are not back yet may only be late; but an heir must know before it plans a world.
        let due = lead.asks_others.get_or_insert(if self.reign.term > 0 { self.shared.now } else { next });
        if self.shared.now >= *due {
            *due = next;
            self.ask_all();
        }
        self.wake(*due);
    }

    /// The nodes that wait for a seat and are no members, in the order in which they came.
    pub(super) fn spares(&self) -> Vec<NodeId> {
        let is_member = |id| self.seat_of(id).is_some();
        let waits = |peer: &Process| {
            peer.arrival.is_some() && peer.status.as_ref().is_some_and(|own| own.command == Command::Waits)
        };
        let spares = self.peers.iter().filter(|(id, peer)| {
            !is_member(**id) && waits(&peer.known) && peer.link.answers(self.shared.now)
        });
        let mut spares: Vec<(Time, NodeId)> = spares.map(|(id, peer)| (peer.known.since, *id)).collect();
        if !is_member(self.own.id) && self.command == Command::Waits {
            spares.push((Time::ZERO, self.own.id));
        }
        spares.sort_unstable();
        spares.into_iter().map(|(_, id)| id).collect()
    }

    /// Those of these nodes that can get a seat beside the members that have these ranks, in the order in
    /// which they get one: a given rank can be taken, and else goes to no other node.
    fn seatable(&self, spares: &[NodeId], taken: impl Iterator<Item = u32>) -> Vec<NodeId> {
        let mut ranks: BTreeSet<u32> = taken.collect();
        let most = self.shared.most();
        let given = |id: &NodeId| self.arrival_of(*id).and_then(|arrival| arrival.node.rank);
        let mut is_free = |rank: Rank| rank.get() < most && ranks.insert(rank.get());
        let spares = spares.iter().copied().filter(|id| given(id).is_none_or(&mut is_free));
        let (first, others): (Vec<NodeId>, Vec<NodeId>) = spares.partition(|id| given(id).is_some());
        [first, others].concat()
    }

    /// Whether a member is ready for the next world.
    fn is_back(&self, member: &MemberView) -> bool {
        let answers =
            |peer: &Linked<Process>| peer.known.arrival.is_some() && peer.link.answers(self.shared.now);
        let is_there = member.id == self.own.id || self.peers.get(member.id).is_some_and(answers);
        member.command == Command::Waits && is_there && !member.is_lost()
    }

    /// The next world. No plan where the nodes are too few.
    fn plan_next(&mut self, members: &[MemberView], lead: &mut WorldLead) -> Planned<Plan> {
        let back = members.iter().filter(|member| self.is_back(member));
        let spares = self.seatable(&self.spares(), back.clone().map(|member| member.rank));
        let nodes: Vec<NodeId> = back.map(|member| member.id).chain(spares).collect();
        let out = lead.left_out(self.shared.now, &nodes);
        let others: Vec<NodeId> = nodes.iter().copied().filter(|id| !out.contains(id)).collect();
        let world = self.shared.config.world;
        let size = |nodes: &[NodeId]| world.at_most(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        let nodes = if size(&others) > 0 { others } else { nodes };
        let seats = usize::try_from(size(&nodes)).unwrap_or(0);
        if seats == 0 {
            return Err(None);
        }
        let seated = &nodes[..seats];
        let said = seated.iter().filter_map(|id| self.peers.get(*id)?.known.status.as_ref());
        let epoch = said.map(|status| status.epoch).chain([self.epoch]).max().and_then(Epoch::next);
        let epoch = epoch.ok_or(None)?;
        let applicants = self.applicants(seated).ok_or(None)?;
        let own = (self.own.id, self.shared.config.prefers_ipv6);
        let fewest = usize::try_from(world.min().get()).unwrap_or(usize::MAX);
        let number = self.rounds + 1;
        let spare = nodes.len().saturating_sub(fewest);
        let planned = plan_round(number.into(), applicants, own, lead.failed, spare, &BTreeSet::new());
        planned.map(|(planned, ways)| {
            (self.rounds, lead.ways) = (number, lead.ways.max(ways));
            let round = RoundId { leader: self.own.id, number };
            Plan { round, epoch, terms: planned.terms }
        })
    }

    /// These nodes as they take part in the next round: former members keep their ranks, as far as a world of
    /// so many nodes has these.
    fn applicants(&self, ids: &[NodeId]) -> Option<Vec<Applicant>> {
        let exists = |rank: &Rank| usize::try_from(rank.get()).is_ok_and(|rank| rank < ids.len());
        let applicant = |&id: &NodeId| {
            let (said, link) = (self.arrival_of(id)?, self.peers.get(id).map(|peer| &peer.link));
            let former = self.seat_of(id);
            let session = link.and_then(|link| link.met).or(former.map(|seat| seat.address.ip()));
            let met = link.and_then(|link| link.ends).map(|ends| ends.local);
            let rank = former.map(|seat| seat.rank).or(said.node.rank).filter(exists);
            let node = NodeInfo { rank, ..said.node.clone() };
            let traits = Arc::new(decode_traits(&said.traits)?);
            Some(Applicant { id, node, session, met, traits, is_former: former.is_some() })
        };
        ids.iter().map(applicant).collect()
    }

    /// What this node or another has told of itself.
    fn arrival_of(&self, id: NodeId) -> Option<&Join> {
        let is_own = id == self.own.id;
        if is_own { Some(&self.arrival) } else { self.peers.get(id)?.known.arrival.as_ref() }
    }

    /// The nodes of the plan prove their paths.
    fn decide_round(&mut self, cause: FirstCause, lead: &mut WorldLead) -> Option<Phase> {
        let (plan, _) = &lead.plan.clone()?;
        let (mut all_ready, mut have_answered) = (true, true);
        self.wake((lead.since + ROUND).min(self.shared.now + LOOKS));
        let is_late = self.shared.now >= lead.since + ROUND;
        let mut is_void = is_late || self.has_left();
        let mut fails = false;
        for seat in plan.seats() {
            let answer = self.answer_of(seat.id, plan.round);
            all_ready &= answer == Some(&Answer::Ready);
            have_answered &= answer.is_some();
            fails |= answer.map_or(is_late, |answer| *answer != Answer::Ready);
            if seat.id == self.own.id {
                continue;
            }
            let Some(peer) = self.peers.get(seat.id) else {
                is_void = true;
                continue;
            };
            let status = peer.known.status.as_ref();
            // A node that was in doubt has had this epoch: this node did not know that yet.
            is_void |= status.is_some_and(|status| {
                matches!(status.command, Command::Leaves | Command::Quits) || status.epoch >= plan.epoch
            });
            if let Some(until) = peer.link.lost_at(self.shared.now, LOST) {
                self.wake(until);
                is_void |= self.shared.now >= until;
            }
        }
        if fails {
            let until = *lead.failing.get_or_insert(self.shared.now + MORE_FAILURES);
            self.wake(until);
            is_void |= have_answered || self.shared.now >= until;
        }
        if is_void {
            let (broken, mut ends) = self.broken_in(plan, is_late);
            if !broken.is_empty() {
                lead.trouble = Some(broken.ending());
            }
            self.end_round();
            // A round that is void because a node of it has left needs no pause.
            if fails {
                lead.failed += 1;
                if lead.failed < lead.ways {
                    // By another way they may reach each other.
                    ends.clear();
                } else {
                    (lead.failed, lead.ways) = (0, 0);
                }
                lead.learn(self.shared.now, ends);
            }
            return Some(Phase::Over(cause));
        }
        all_ready.then(|| self.commit(plan, lead))
    }

    /// What a node of a round has said of its paths.
    fn answer_of(&self, id: NodeId, round: RoundId) -> Option<&Answer> {
        if id == self.own.id {
            return self.round.as_ref().filter(|own| own.plan.round == round)?.answer.as_ref();
        }
        let (of, answer) = self.peers.get(id)?.known.status.as_ref()?.answer.as_ref()?;
        (*of == round).then_some(answer)
    }

    /// The paths that are broken, and the pairs of nodes between which they are. A node that has not answered
    /// in time, or names no path of the round, is its own partner.
    fn broken_in(&self, plan: &Plan, is_late: bool) -> (BrokenPaths, Vec<(NodeId, NodeId)>) {
        let (mut broken, mut unclear) = (BrokenPaths::default(), Vec::new());
        for id in plan.seats().iter().map(|seat| seat.id) {
            let is_clear = match self.answer_of(id, plan.round) {
                Some(Answer::Broken(said)) => broken.insert(id, said, &plan.terms),
                Some(Answer::Ready) => true,
                None => !is_late,
            };
            unclear.extend((!is_clear).then_some((id, id)));
        }
        let ends = broken.ends().chain(unclear).collect();
        (broken, ends)
    }

    fn commit(&mut self, plan: &Arc<Plan>, lead: &mut WorldLead) -> Phase {
        (self.reign.term, lead.begun) = (0, self.shared.now);
        lead.enters = plan.rank_of(self.own.id).is_some();
        (self.epoch, self.plan, self.over) = (plan.epoch, Some(Arc::clone(plan)), None);
        self.forget_former();
        (lead.failed, lead.ways, lead.trouble) = (0, 0, None);
        (lead.asks_others, lead.back) = (None, None);
        let is_spare = |id: &NodeId| self.seat_of(*id).is_none() && self.is_there(*id);
        lead.broken.retain(|(a, b), _| is_spare(a) || is_spare(b));
        lead.master_first = Some(self.shared.now + MASTER_FIRST);
        Phase::Runs
    }

    fn decided(&mut self, lead: &mut WorldLead, members: &[MemberView], has_most: bool) -> Reign {
        let (waiting, here, absent) = self.count(lead, members);
        let plan = self.plan.as_ref();
        let is_suspected = |since: Time| self.shared.now >= since + SUSPECT;
        let suspected = members.iter().filter(|member| !member.is_lost());
        let suspected = suspected.filter(|member| member.missed().is_some_and(is_suspected));
        Reign {
            epoch: self.epoch,
            size: self.shared.config.world,
            term: self.reign.term,
            rank: plan.and_then(|plan| plan.rank_of(self.own.id)),
            leader: self.own.clone(),
            // Nodes that are released end one after the other.
            is_cut_off: !has_most && lead.phase != Phase::Released,
            round: plan.map(|plan| plan.round),
            phase: lead.phase,
            rounds: self.rounds,
            suspected: suspected.map(|member| member.rank).collect(),
            waiting,
            here,
            absent,
            trouble: lead.trouble.clone(),
            heirs: Vec::new(),
        }
    }

    /// How many nodes wait for a seat; and of a world that is over, how many are here for the next one and
    /// which ranks are not. Each node that comes changes that, and each change goes to all nodes, so changes
    /// are collected for a while.
    fn count(&mut self, lead: &mut WorldLead, members: &[MemberView]) -> (u32, u32, Vec<u32>) {
        let Reign { waiting, here, ref absent, .. } = self.reign;
        let told = (waiting, here, absent.clone());
        let is_over = matches!(lead.phase, Phase::Over(_) | Phase::Round(_));
        let spares = self.spares();
        let (back, absent): (Vec<&MemberView>, Vec<&MemberView>) =
            members.iter().filter(|_| is_over).partition(|member| self.is_back(member));
        let seated = || self.seatable(&spares, back.iter().map(|member| member.rank));
        let here = if is_over { back.len() + seated().len() } else { 0 };
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let absent = absent.iter().map(|member| member.rank).take(ABSENT).collect();
        let counted = (number(spares.len()), number(here), absent);
        let due = lead.counted + self.shared.scale().announce_delay();
        if counted == told {
            return told;
        }
        if lead.phase == self.reign.phase && self.shared.now < due {
            self.wake(due);
            return told;
        }
        lead.counted = self.shared.now;
        counted
    }

    /// Whether a node is there that leads in the place of this one. Where none is, nobody has anywhere to go
    /// before this node has ended.
    fn has_heir(&self) -> bool {
        let leads =
            |heir: &Contact| heir.id != self.own.id && !self.is_gone(heir.id) && self.peers.is_there(heir.id);
        self.heirs().iter().any(leads)
    }

    /// Tells all that have come, and all members, what is decided; and behind that, that this node leaves.
    pub(super) fn tell_all(&mut self) {
        let Some(lead) = &self.lead else { return };
        let first = self.plan.as_ref().and_then(|plan| plan.seats().first()).map(|first| first.id);
        let plan = lead.plan.clone().filter(|_| matches!(lead.phase, Phase::Round(_)));
        let is_firsts_turn = lead.leads_commands() && lead.master_first.is_some();
        let leaves = self.has_left() && !lead.leads_commands() && self.has_heir();
        let farewell = leaves.then(|| WorldSaid::Status(self.status()).encode());
        let to_members = WorldSaid::Reign(self.reign.clone()).encode();
        let to_others = self.reign_with_heirs(lead.frees);
        let is_told = |id: &NodeId, peer: &Process| {
            let listens = self.seat_of(*id).is_some() || peer.arrival.is_some() || peer.is_behind;
            listens && (!is_firsts_turn || first == Some(*id))
        };
        let told = self.peers.iter().filter(|(id, peer)| is_told(id, &peer.known)).map(|(id, _)| *id);
        for id in told.collect::<Vec<_>>() {
            if let Some((_, body)) = plan.as_ref().filter(|(plan, _)| plan.rank_of(id).is_some()) {
                self.peers.say(self.shared.now, id, body);
            }
            let reign = if self.seat_of(id).is_some() { &to_members } else { &to_others };
            self.peers.say(self.shared.now, id, reign);
            if let Some(farewell) = &farewell {
                self.peers.say(self.shared.now, id, farewell);
            }
        }
        self.tell_observers(&to_members);
    }

    /// Observers learn what members learn, and who the members are.
    fn tell_observers(&mut self, reign: &Body) {
        let there = self.peers.iter().filter(|(id, peer)| peer.link.is_there() && self.observes(**id));
        let observers: Vec<NodeId> = there.map(|(id, _)| *id).take(OBSERVERS).collect();
        let (Some(plan), Some(lead), false) = (&self.plan, &mut self.lead, observers.is_empty()) else {
            return;
        };
        let known = lead.shown.take().filter(|(round, _)| *round == plan.round);
        let encoded = || (plan.round, WorldSaid::Plan(Plan::clone(plan)).encode());
        let (_, members) = &*lead.shown.insert(known.unwrap_or_else(encoded));
        for id in observers {
            self.peers.say(self.shared.now, id, members);
            self.peers.say(self.shared.now, id, reign);
        }
    }
}

/// The first cause among what has become of the members: a member that is dead or leaves makes others fail,
/// and so does a member that drains, which is no cause by itself.
fn first_cause(members: &[MemberView]) -> Option<FirstCause> {
    let cause = |member: &MemberView| {
        let end = match member.command {
            Command::Succeeded => return None,
            Command::Leaves => End::Left,
            Command::Quits => End::Unknown,
            _ if member.is_dead => End::Gone,
            Command::Failed(end) => end,
            Command::Waits | Command::Stops => End::Unknown,
            Command::Runs | Command::Drains => return None,
        };
        Some(FirstCause { rank: Some(member.rank), end })
    };
    let weight = |cause: &FirstCause| match cause.end {
        End::Gone => 0,
        End::Left => 1,
        End::Unknown => 3,
        _ => 2,
    };
    let first = members.iter().filter_map(cause).min_by_key(|cause| (weight(cause), cause.rank))?;
    let drains = members.iter().find(|member| member.command == Command::Drains);
    match (first.end, drains) {
        (End::Exited(_) | End::Killed(_), Some(member)) => {
            Some(FirstCause { rank: Some(member.rank), end: End::Left })
        }
        _ => Some(first),
    }
}
