//! A world that stays: its nodes while their commands run, from one world to the next.
//!
//! Every node has a session with the leader. It says what it does ([`Status`]), and the leader says what is
//! decided ([`Reign`]): the commands run; the world is over, and why; the next world is being formed
//! ([`Plan`]); all have ended well. The next world forms on the sessions that are there, so nobody searches.
//!
//! ```text
//! desk    what a node says and hears by datagrams, beside its sessions
//! lead    what the leader decides: when a world is over, when and with whom the next one forms
//! round   a member's part in a round
//! walk    who leads when the leader is lost: the first of a few named heirs that is there
//! ```
//!
//! What several nodes may say of one thing is ordered: of two leaders the one of the later epoch counts, then
//! the one that reaches most members, then the one of the later term ([`standing`]). A node that reads of a
//! better leader than its own, or than itself, follows that leader. So two leaders last no longer than the
//! network keeps them apart.

mod desk;
mod growth;
mod lead;
mod round;
#[cfg(test)]
mod tests;
mod view;
mod walk;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt as _;

use super::output::Output;
use super::pause::was_stopped;
pub(crate) use super::session::{Ending, Failed, Way};
use super::session::{Impossible, LOST, Linked, Order, PeerLinks, Presence};
use super::shared::Shared;
use super::timer::Timers;
use super::{Change, ConnId, DialId, Event, Formed, Time, Warning};
use crate::model::{End, Epoch, Member, NodeId};
use crate::wire::world::{
    Command, Contact, FirstCause, Phase, Plan, REIGN, Reign, RoundId, Status, WorldSaid,
};
use crate::wire::{Body, Frame, Join, Refusal, decode_traits};
use growth::Growth;
use lead::WorldLead;
use round::WorldRound;
use walk::Walk;

/// A leader whose process does not acknowledge a frame for so long is lost, although its kernel lives.
const OWES: Duration = Duration::from_secs(5);
/// A process that is no member, and to which no connection has been open for so long, is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// The most processes to which there are links: a world of 10,000 nodes, and nodes that wait.
const MOST_PEERS: usize = 16_384;
/// By how many generations what a process says of worlds may be ahead of what this node knows.
const FURTHEST: u32 = 1 << 16;
/// How long a node that leaves, or is released, waits until the others have read that.
const FAREWELL: Duration = Duration::from_secs(3);

/// What a [`World`] asks of its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it is carried out at once")]
pub(crate) enum Action {
    /// Do what a rendezvous asks for, too: send a datagram, prove a path, report an event.
    Output(Output),
    /// Of a dial, report what comes of it by [`World::opened`] or [`World::dial_failed`].
    Carry(Order),
    Report(WorldChange),
}

/// What the caller learns of its world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorldChange {
    /// The node is a member of this world: its command starts.
    Formed(Box<Formed>),
    /// The world is over: the command, if it runs, must stop. Call [`World::stopped`] when it has.
    Over(FirstCause),
    /// The world was over before, and this is the first cause.
    FirstCause(FirstCause),
    /// This has changed in the world that runs.
    Change(Change),
    /// No node that may lead lives, or others have gone on without this one: look for them as at the start.
    Lost,
    /// The others have read that this node leaves, or that all are released, or the time for that has passed.
    MayEnd,
}

/// One node of a job that stays.
#[derive(Debug, Clone)]
pub(crate) struct World {
    shared: Shared,
    own: Contact,
    /// What this node tells of itself.
    arrival: Join,
    /// The last world in which this node's command has started, or that may have formed with this node.
    epoch: Epoch,
    /// The plan of that world. None for a node that waits for its first seat, or has missed a world.
    plan: Option<Arc<Plan>>,
    command: Command,
    /// The leader's last plan, until this node has no command and proves its paths.
    offered: Option<Plan>,
    round: Option<WorldRound>,
    /// The cause of the end of `epoch`, as this node has reported it.
    pub(crate) over: Option<FirstCause>,
    /// When this node learned of that end.
    over_since: Time,
    /// What the leader that this node follows, or this node itself, has decided.
    reign: Reign,
    /// Since when this node has followed the leader of `reign`.
    followed: Time,
    lead: Option<WorldLead>,
    /// How many rounds this node has led: no two have one name.
    rounds: u32,
    /// The leader is lost, and this node asks the heirs.
    walk: Option<Walk>,
    peers: PeerLinks<Process>,
    /// The processes that are known to be dead.
    dead: BTreeSet<NodeId>,
    /// Those that have left the job, and how: while their world ran, or when it was over.
    left: BTreeMap<NodeId, Command>,
    /// The members whose commands have ended well in this epoch.
    succeeded: BTreeSet<NodeId>,
    suspected: BTreeSet<u32>,
    is_cut_off: bool,
    growth: Growth,
    /// The trouble with the next world that was reported last.
    trouble: Option<Refusal>,
    /// Who was reported to say that another world of the job runs.
    other: Option<SocketAddr>,
    /// This node ends when its peers have read what it has said, and at this time at the latest.
    farewell: Option<Time>,
    /// It has said that it may end, and does nothing more.
    has_ended: bool,
    actions: VecDeque<Action>,
    /// When there is something to decide next, even if nothing is heard.
    due: Option<Time>,
    /// Something was heard, of which nothing has followed yet.
    is_dirty: bool,
}

/// Another process.
#[derive(Debug, Clone, Default)]
struct Process {
    arrival: Option<Join>,
    /// Since when it waits for a seat.
    since: Time,
    status: Option<Status>,
    /// What it has said of the leader since this node has last lost its own.
    reign: Option<Reign>,
    /// It follows a worse leader, and is told of the better one.
    is_behind: bool,
    /// This node has led a round with it. The round may count as formed for that process, which then leads.
    was_planned: bool,
}

/// How much a leader's word counts: the greater wins.
fn standing(reign: &Reign) -> impl Ord + use<> {
    let rank = Reverse(reign.rank.unwrap_or(u32::MAX));
    (reign.epoch.generation, !reign.is_cut_off, reign.term, rank, reign.leader.id)
}

impl World {
    /// A member of a world that has just formed, whose leader has planned it.
    pub(crate) fn member(shared: Shared, plan: impl Into<Arc<Plan>>) -> Self {
        let (plan, me, now) = (plan.into(), shared.me(), shared.now);
        let (leader, round) = (plan.round.leader, Some(plan.round));
        let (epoch, rank, rounds) = (plan.epoch, plan.rank_of(leader), plan.round.number);
        let (size, contact) = (shared.config.world, plan.terms.roster.find(leader).map(Contact::of));
        let contact = contact.unwrap_or_else(|| shared.join().contact(me));
        let reign = Reign { epoch, size, rank, leader: contact, round, rounds, ..Reign::default() };
        let mut world = Self::new(shared, reign);
        world.epoch = plan.epoch;
        world.plan = Some(plan);
        world.command = Command::Runs;
        if leader == me {
            world.rounds = world.reign.rounds;
            world.lead = Some(WorldLead::formed(now));
            // Others that form a world learn that there is one.
            world.ask_all();
        } else {
            world.follow();
        }
        world
    }

    /// A node that waits for a seat, and has heard of this leader.
    pub(crate) fn guest(shared: Shared, leader: Contact) -> Self {
        let (size, heirs) = (shared.config.world, vec![leader.clone()]);
        let reign = Reign { size, leader, is_cut_off: true, heirs, ..Reign::default() };
        let mut world = Self::new(shared, reign);
        world.follow();
        world
    }

    /// In the place of a node whose rendezvous has ended, with its sessions. In a job with a secret the
    /// datagrams' counters go on, so that none is used twice.
    fn new(mut shared: Shared, reign: Reign) -> Self {
        (shared.timers, shared.links, shared.unreached) = (Timers::default(), PeerLinks::default(), false);
        let (me, now, number) = (shared.me(), shared.now, shared.rng.random());
        let arrival = shared.join();
        Self {
            own: arrival.contact(me),
            arrival,
            epoch: Epoch::default(),
            plan: None,
            command: Command::Waits,
            offered: None,
            round: None,
            over: None,
            over_since: now,
            reign,
            followed: now,
            lead: None,
            rounds: 0,
            walk: None,
            peers: PeerLinks::new(me, number),
            dead: BTreeSet::new(),
            left: BTreeMap::new(),
            succeeded: BTreeSet::new(),
            suspected: BTreeSet::new(),
            is_cut_off: false,
            growth: Growth::default(),
            trouble: None,
            other: None,
            farewell: None,
            has_ended: false,
            actions: VecDeque::new(),
            due: None,
            is_dirty: true,
            shared,
        }
    }

    /// Whether this node leaves the job.
    pub(crate) fn has_left(&self) -> bool {
        matches!(self.command, Command::Leaves | Command::Quits)
    }

    /// This node was asked to leave, which it does once its command has ended. The leader learns that now: if
    /// it makes another command fail before, its leaving is still the first cause.
    pub(crate) fn drain(&mut self, now: Time) {
        self.at(now);
        if self.command == Command::Runs {
            self.command = Command::Drains;
        }
    }

    /// Whether this node's command runs, or has ended well, and its world is not over.
    fn takes_part(&self) -> bool {
        self.over.is_none() && matches!(self.command, Command::Runs | Command::Drains | Command::Succeeded)
    }

    /// This node's command has ended. With [`End::Left`] the node leaves the job. A caller whose command had
    /// succeeded may still fail.
    pub(crate) fn ended(&mut self, now: Time, end: Option<End>) {
        self.at(now);
        if self.has_left() {
            return;
        }
        if self.takes_part() || end == Some(End::Left) {
            self.command = match end {
                Some(End::Left) if self.command == Command::Drains => Command::Leaves,
                Some(End::Left) if self.over.is_some() || self.has_failed() => Command::Quits,
                Some(End::Left) => Command::Leaves,
                Some(end) => Command::Failed(end),
                None => Command::Succeeded,
            };
        }
        if self.has_left() {
            self.farewell = Some(self.shared.now + FAREWELL);
        }
    }

    /// This node's command has ended after the world was over, and the node is ready for the next world.
    pub(crate) fn stopped(&mut self, now: Time) {
        self.at(now);
        // A leader whose command stops too late leads the next world without a seat in it.
        if (self.over.is_some() || self.seat_of(self.own.id).is_none()) && !self.has_left() {
            self.command = Command::Waits;
        }
    }

    /// Whether a process that dials this one, and means the process of this ID, is answered; and the number
    /// of the session for the answer.
    pub(crate) fn answers(&mut self, now: Time, peer: NodeId, meant: NodeId) -> Option<u64> {
        self.at(now);
        (meant == self.own.id && peer != meant).then(|| self.peers.number_for(peer))
    }

    /// A connection is open, and both hellos have been read, with the numbers of this process and of the
    /// other.
    pub(crate) fn opened(&mut self, now: Time, peer: NodeId, way: Way, conn: ConnId, numbers: (u64, u64)) {
        self.at(now);
        let (own_number, number) = numbers;
        let is_too_much = self.peers.len() >= MOST_PEERS && !self.peers.has(peer);
        if own_number != self.peers.number_for(peer) || is_too_much {
            // This node may have begun anew with that process since the hello, which the other has read.
            self.peers.refuse(conn);
            return;
        }
        self.meet(peer, &[]);
        self.peers.opened(self.shared.now, peer, way, conn, number);
        if self.peers.is_there(peer) {
            self.dead.remove(&peer);
        }
        // It may be at home only now.
        let arrival = self.peers.get(peer).and_then(|peer| peer.known.arrival.as_ref());
        if let Some(contact) = arrival.map(|arrival| arrival.contact(peer)) {
            self.hear_addresses(peer, &contact.addresses);
        }
        self.look_at(peer);
    }

    pub(crate) fn dial_failed(&mut self, now: Time, peer: NodeId, dial: DialId, failed: Failed) {
        self.at(now);
        self.peers.dial_failed(self.shared.now, peer, dial, failed);
        self.look_at(peer);
    }

    pub(crate) fn closed(&mut self, now: Time, conn: ConnId, ending: Ending) {
        self.at(now);
        if let Some(id) = self.peers.closed(self.shared.now, conn, ending) {
            self.look_at(id);
        }
    }

    /// A frame was read.
    ///
    /// # Errors
    /// The connection is closed: what was read is of no process of mingle.
    pub(crate) fn read(&mut self, now: Time, conn: ConnId, frame: Frame) -> Result<(), Impossible> {
        self.at(now);
        let read = self.peers.read(self.shared.now, conn, frame, WorldSaid::decode);
        let Some((id, said)) = read else { return Ok(()) };
        match said.inspect_err(|_| self.look_at(id))? {
            Some(WorldSaid::Arrival(arrival)) => self.on_arrival(id, *arrival),
            Some(WorldSaid::Status(status)) => self.on_status(id, status),
            Some(WorldSaid::Reign(reign)) => self.on_reign(id, reign),
            Some(WorldSaid::Plan(plan)) => self.on_plan(id, plan),
            None => {}
        }
        Ok(())
    }

    /// Time has passed. Early and repeated calls do nothing.
    pub(crate) fn advance(&mut self, now: Time) {
        self.at(now);
        while let Some(id) = self.peers.next_due(self.shared.now) {
            self.look_at(id);
        }
        self.go_on_with_round();
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        if self.is_dirty {
            return Some(self.shared.now);
        }
        let links = self.peers.poll_timeout().into_iter().chain(self.shared.timers.next());
        let own = [self.next_of_leader(), self.due, self.farewell];
        // A node that may end decides nothing more, and what was due then would be due for ever.
        links.chain(own.into_iter().flatten().filter(|_| !self.has_ended)).min()
    }

    /// The next thing to do. What follows from all that has been handed over is decided once, when the driver
    /// asks: so the driver hands over all that it has read, and then asks until there is nothing more.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        if self.actions.is_empty() && std::mem::take(&mut self.is_dirty) {
            self.settle();
        }
        // What was to be done in a round comes before the word that its world has formed.
        let output = self.shared.next_output().map(Action::Output);
        let action = output.or_else(|| self.actions.pop_front());
        action.or_else(|| self.peers.poll_order(self.shared.now).map(Action::Carry))
    }

    fn at(&mut self, now: Time) {
        let due =
            self.poll_timeout().map(|due| due.max(self.shared.now)).filter(|&due| was_stopped(due, now));
        (self.shared.now, self.is_dirty) = (self.shared.now.max(now), true);
        if let Some(due) = due {
            // This process was stopped: the others' silence meanwhile is no evidence, whatever is read first.
            self.forgive(now.saturating_sub(due));
        }
    }

    fn forgive(&mut self, stopped: Duration) {
        self.peers.forgive(stopped);
        self.forgive_proofs(stopped);
        if self.lead.as_mut().is_some_and(|lead| lead.forgive(stopped)) {
            self.end_round();
        }
        if let Some(walk) = &mut self.walk {
            walk.since += stopped;
        }
    }

    /// A member of this node's world, as its plan has it.
    pub(crate) fn seat_of(&self, id: NodeId) -> Option<&Member> {
        self.plan.as_ref()?.terms.roster.find(id)
    }

    /// Whether a process only wants to know what the leader says: it is no member, and has said that it has
    /// no command, but not what it is.
    fn observes(&self, id: NodeId) -> bool {
        let has_no_part =
            |peer: &Linked<Process>| peer.known.arrival.is_none() && peer.known.status.is_some();
        self.peers.get(id).is_some_and(has_no_part) && self.seat_of(id).is_none()
    }

    /// Whether a process was met where it is known to be.
    fn has_met(&self, id: NodeId) -> bool {
        self.peers.get(id).is_some_and(|peer| peer.link.is_at_home())
    }

    /// Begins a session with a process, unless there is one; with its addresses, as far as they are known.
    fn meet(&mut self, id: NodeId, addresses: &[SocketAddr]) {
        if self.peers.has(id) {
            if !addresses.is_empty() {
                self.peers.set_addresses(id, addresses);
            }
            return;
        }
        let known = self.seat_of(id).map(|seat| Contact::of(seat).addresses).unwrap_or_default();
        let first = if addresses.is_empty() { &known } else { addresses };
        // There the nodes of the plan have reached it.
        let reached = known.first().map(SocketAddr::ip);
        let process = Process { since: self.shared.now, ..Process::default() };
        self.peers.add(self.shared.now, id, first.to_vec(), process);
        if let Some((peer, reached)) = self.peers.get_mut(id).zip(reached) {
            peer.link.met = Some(reached);
        }
    }

    /// A process says itself where it is. If it has not been met where it is known to be, it may be a
    /// stranger, which would have this node look for the process elsewhere.
    fn hear_addresses(&mut self, id: NodeId, addresses: &[SocketAddr]) {
        if !self.believes(id) || self.has_met(id) {
            self.meet(id, addresses);
        }
    }

    fn link_to(&mut self, contact: &Contact) {
        if contact.id != self.own.id && !self.dead.contains(&contact.id) {
            // A process that was met knows its addresses better than a plan.
            self.meet(contact.id, if self.has_met(contact.id) { &[] } else { &contact.addresses });
            self.peers.advance(self.shared.now, contact.id);
            self.look_at(contact.id);
        }
    }

    /// Something has happened on a link: forgets a process that is dead.
    fn look_at(&mut self, id: NodeId) {
        let Some(peer) = self.peers.get(id) else { return };
        let presence = peer.link.presence(self.shared.now);
        let has_vanished =
            matches!(presence, Presence::Silent(since) if self.shared.now >= since + FORGOTTEN);
        if peer.link.listens_no_more(self.shared.now) || (has_vanished && !self.believes(id)) {
            let drains = peer.known.status.as_ref().is_some_and(|status| status.command == Command::Drains);
            self.peers.forget(self.shared.now, id);
            if self.believes(id) {
                self.dead.insert(id);
                // It was to leave: that it was killed before is no failure.
                self.left.extend(drains.then_some((id, Command::Leaves)));
            }
        }
    }

    /// A world has formed: what became of nodes that are no members of it is of no use.
    fn forget_former(&mut self) {
        let is_member = |id| self.plan.as_ref().is_some_and(|plan| plan.rank_of(id).is_some());
        self.succeeded.clear();
        self.dead.retain(|id| is_member(*id));
        self.left.retain(|id, _| is_member(*id));
    }

    /// Whether this node has a session with a process that is there.
    pub(crate) fn is_there(&self, id: NodeId) -> bool {
        id == self.own.id || self.peers.is_there(id)
    }

    /// Whether a process is known to be dead, or to leave.
    fn is_gone(&self, id: NodeId) -> bool {
        self.dead.contains(&id) || self.left.contains_key(&id)
    }

    /// Whether this other process is there, and has read all that this node has said to it.
    fn has_read_all(&self, id: NodeId) -> bool {
        self.peers.get(id).is_some_and(|peer| peer.link.is_there() && peer.link.session.is_read())
    }

    fn on_arrival(&mut self, from: NodeId, arrival: Join) {
        if decode_traits(&arrival.traits).is_some() {
            self.hear_addresses(from, &arrival.contact(from).addresses);
            if let Some(peer) = self.peers.get_mut(from) {
                if peer.known.arrival.is_none() {
                    peer.known.since = self.shared.now;
                }
                peer.known.arrival = Some(arrival);
            }
        }
    }

    /// Whether a world of this epoch can be of this job: no generation is far ahead of what this node knows,
    /// or one frame could use up all generations.
    fn may_be_of_this_job(&self, epoch: Epoch) -> bool {
        let known = self.reign.epoch;
        let is_near = epoch.generation <= known.generation.saturating_add(FURTHEST);
        known.origin == 0 || epoch.origin == 0 || (epoch.origin == known.origin && is_near)
    }

    fn on_status(&mut self, from: NodeId, status: Status) {
        if !self.may_be_of_this_job(status.epoch) {
            return;
        }
        match status.command {
            _ if !self.believes(from) => {}
            Command::Leaves | Command::Quits => {
                self.left.insert(from, status.command);
            }
            Command::Succeeded if status.epoch == self.epoch => {
                self.succeeded.insert(from);
            }
            _ => {}
        }
        let asks = status.lost == Some(self.reign.leader.id);
        if let Some(peer) = self.peers.get_mut(from) {
            if asks && peer.known.status.as_ref().is_none_or(|known| known.lost != status.lost) {
                peer.link.say_again(REIGN);
            }
            peer.known.status = Some(status);
        }
    }

    fn on_plan(&mut self, from: NodeId, plan: Plan) {
        // It may arrive before the word that its sender leads.
        let leader = self.reign.leader.id;
        let is_superseded = self.offered.as_ref().is_some_and(|offered| offered.round.leader == leader);
        let counts = from == leader || (self.believes(from) && !is_superseded);
        if counts && plan.round.leader == from && self.lead.is_none() {
            self.offered = Some(plan);
        }
    }

    /// Proves the leader's plan, once no command runs.
    fn take_offer(&mut self) {
        let leader = self.reign.leader.id;
        if self.command == Command::Waits
            && let Some(plan) = self.offered.take_if(|plan| plan.round.leader == leader)
            && plan.epoch > self.epoch
            && self.round.as_ref().is_none_or(|round| round.plan.round != plan.round)
        {
            self.prove(plan);
        }
    }

    /// Whether the word of this process counts: the leader's, and that of the processes that may know who
    /// leads.
    pub(crate) fn believes(&self, from: NodeId) -> bool {
        let mut leaders = self.reign.heirs.iter().chain([&self.reign.leader]);
        self.seat_of(from).is_some() || leaders.any(|leader| leader.id == from)
    }

    /// Somebody says what the leader has decided, who may be somebody else.
    fn on_reign(&mut self, from: NodeId, reign: Reign) {
        if !self.may_be_of_this_job(reign.epoch) {
            return;
        }
        let is_own_leader = reign.leader.id == self.reign.leader.id;
        let was_planned = self.peers.get(from).is_some_and(|peer| peer.known.was_planned);
        let is_believed = self.believes(from) || was_planned || (self.plan.is_none() && is_own_leader);
        // Another world of the same epoch: the network had fallen apart, or this node was in doubt.
        let is_another = reign.epoch.generation == self.epoch.generation
            && self.plan.as_ref().is_some_and(|plan| reign.round != Some(plan.round));
        // A leader may have no command itself.
        let has_commands = self.leads_commands() || self.takes_part();
        let runs_beside = is_another && has_commands;
        let gives_way = is_another && !runs_beside && reign.phase == Phase::Runs;
        // Others may not have read yet that their leader leaves.
        let leaves = self.left.contains_key(&reign.leader.id);
        let is_greater = gives_way || standing(&reign) > standing(&self.reign);
        let is_better = is_believed && !leaves && is_greater;
        let is_behind = !is_own_leader && (!is_better || runs_beside);
        if let Some(peer) = self.peers.get_mut(from) {
            let is_news = peer.known.reign.as_ref() != Some(&reign);
            peer.known.reign = Some(reign.clone());
            peer.known.is_behind = is_behind;
            if is_behind && is_news {
                peer.link.say_again(REIGN);
            }
        }
        if !is_believed {
            return;
        }
        if reign.leader.id == self.own.id {
            if self.lead.is_none() && !runs_beside {
                self.hear_that_it_leads(from, reign);
            }
            return;
        }
        if self.lead.is_some() {
            if is_better && !runs_beside {
                let frees = self.lead.take().is_some_and(|lead| lead.frees);
                self.reign = reign;
                self.follow();
                // The new leader may be lost before those that follow this node hear of it: they would go on
                // following a node that does not lead.
                let (to_members, to_others) = (self.reign_with_heirs(false), self.reign_with_heirs(frees));
                for id in self.peers.iter().map(|(id, _)| *id).collect::<Vec<_>>() {
                    let is_member = self.seat_of(id).is_some() || self.observes(id);
                    self.peers.say(self.shared.now, id, if is_member { &to_members } else { &to_others });
                }
            }
        } else if is_own_leader {
            // Its own word, or what another node passes on while the leader cannot be heard.
            if from == reign.leader.id || (self.walk.is_some() && !leaves) {
                self.reign = reign;
            }
            if from == self.reign.leader.id {
                let addresses = self.reign.leader.addresses.clone();
                self.hear_addresses(from, &addresses);
            }
        } else if !runs_beside {
            // The own leader is lost, and that node leads; or it names its leader to a node without a world.
            let is_next = self.walk.is_some() && (from == reign.leader.id || self.plan.is_none());
            if is_better || from == self.reign.leader.id || is_next {
                self.reign = reign;
                self.follow();
            }
        }
    }

    /// Somebody says that this node leads, which it does not.
    fn hear_that_it_leads(&mut self, from: NodeId, reign: Reign) {
        let is_of_leader = from == self.reign.leader.id;
        if standing(&reign) > standing(&self.reign) {
            self.reign = reign;
            // Another heir may lead at this term.
            self.succeed(self.reign.term.saturating_add(1));
        } else if is_of_leader {
            // Each of two has followed the other.
            self.succeed(self.reign.term.max(reign.term).saturating_add(1));
        }
    }

    /// Begins to follow the leader of `reign`.
    fn follow(&mut self) {
        self.walk = None;
        self.doubt(false);
        // Where it is known to be: it says itself where else it is, once it was met there.
        let leader = self.reign.leader.clone();
        let known = self.seat_of(leader.id).map(Contact::of);
        self.dead.remove(&leader.id);
        self.followed = self.shared.now;
        self.link_to(&known.unwrap_or(leader));
    }

    /// The leader of a round for which this node was ready is another one now, or is lost. The world may have
    /// formed: for this node it counts as formed and over.
    fn doubt(&mut self, is_lost: bool) {
        let Some(round) = self.under_way() else { return };
        let (leader, plan) = (round.plan.round.leader, Arc::clone(&round.plan));
        if !is_lost && leader == self.reign.leader.id {
            return;
        }
        // Whoever has led a round knows that it has not formed.
        if round.is_ready() && leader != self.own.id {
            (self.epoch, self.plan) = (plan.epoch, Some(plan));
            (self.over, self.over_since) =
                (Some(FirstCause { rank: None, end: End::Unknown }), self.shared.now);
        } else {
            self.end_round();
        }
    }

    /// There is something to decide at that time, if that is to come.
    fn wake(&mut self, at: Time) {
        if at > self.shared.now {
            self.due = Some(self.due.map_or(at, |due| due.min(at)));
        }
    }

    /// Brings everything in line with what has been heard.
    fn settle(&mut self) {
        if self.has_ended {
            return;
        }
        self.due = None;
        if self.lead.is_some() {
            self.decide();
        } else {
            // What the leader has said last of a round holds although the leader is lost by now.
            self.learn_of_commit();
            self.void_if_said();
            self.look_after_the_leader();
            self.obey();
        }
        if let Some(trouble) = &self.reign.trouble
            && self.trouble.as_ref().is_none_or(|known| !trouble.repeats(known))
        {
            self.trouble = Some(trouble.clone());
            if let Some(failure) = self.failure(trouble.clone()).map(Box::new) {
                self.shared.event(Event::Warning(Warning::TryAgain { failure }));
            }
        }
        self.tell();
        self.end();
    }

    /// Does what the leader has decided.
    fn obey(&mut self) {
        let reign = self.reign.clone();
        let is_round = |round: RoundId| reign.round == Some(round);
        let is_own = self.plan.as_ref().is_some_and(|plan| is_round(plan.round));
        let cause = match reign.phase {
            Phase::Over(cause) | Phase::Round(cause) if is_own => Some(cause),
            _ if reign.epoch.generation > self.epoch.generation && self.plan.is_some() => {
                Some(FirstCause { rank: None, end: End::Unknown })
            }
            _ => None,
        };
        if let Some(cause) = cause {
            self.end_world(cause);
        }
        self.take_offer();
        let is_current = reign.epoch.generation >= self.epoch.generation;
        if is_current && !is_own && self.command == Command::Waits {
            // Others have gone on without this node.
            self.plan = None;
        }
        let runs_beside = !is_own && matches!(self.command, Command::Runs | Command::Stops | Command::Drains);
        if reign.phase == Phase::Released && self.farewell.is_none() && is_current && !runs_beside {
            self.farewell = Some(self.shared.now + FAREWELL);
        }
        self.report_suspects(&reign.suspected, reign.is_cut_off && is_own && !reign.suspected.is_empty());
    }

    /// The world for which this node was ready has formed: it runs, or is over already.
    fn learn_of_commit(&mut self) {
        let Reign { round, epoch, phase, .. } = self.reign;
        let ready = self.round.as_ref().filter(|own| own.is_ready() && round == Some(own.plan.round));
        let is_late = epoch.generation < self.epoch.generation || self.command != Command::Waits;
        let Some(plan) = ready.filter(|_| !is_late).map(|own| Arc::clone(&own.plan)) else { return };
        match phase {
            Phase::Runs => self.enter(),
            Phase::Over(cause) | Phase::Round(cause) if self.epoch < plan.epoch => {
                (self.epoch, self.plan) = (plan.epoch, Some(plan));
                (self.over, self.over_since) = (Some(cause), self.shared.now);
            }
            _ => {}
        }
    }

    /// A round of this leader that is under way no more is void.
    fn void_if_said(&mut self) {
        let reign = &self.reign;
        let is_void = |plan: &Plan| {
            let is_under_way = matches!(reign.phase, Phase::Round(_)) && reign.rounds == plan.round.number;
            plan.round.leader == reign.leader.id && !is_under_way && reign.rounds >= plan.round.number
        };
        self.offered.take_if(|plan| is_void(plan));
        if self.under_way().is_some_and(|round| is_void(&round.plan)) {
            self.end_round();
        }
    }

    fn grows(&mut self) {
        let least = self.shared.config.grow_after.unwrap_or_default();
        self.growth.grows(self.shared.now, least);
    }

    /// The world of `epoch` is over.
    fn end_world(&mut self, cause: FirstCause) {
        match self.over {
            None => {
                if cause.end == End::Grows {
                    self.grows();
                }
                (self.over, self.over_since) = (Some(cause), self.shared.now);
                // A leader may not have begun yet.
                let has_begun = self.command != Command::Waits;
                if matches!(self.command, Command::Runs | Command::Succeeded) {
                    self.command = Command::Stops;
                }
                if has_begun {
                    self.actions.push_back(Action::Report(WorldChange::Over(cause)));
                }
            }
            Some(known) if known != cause && cause.end != End::Unknown => {
                self.over = Some(cause);
                self.actions.push_back(Action::Report(WorldChange::FirstCause(cause)));
            }
            Some(_) => {}
        }
    }

    fn report_suspects(&mut self, suspected: &[u32], is_cut_off: bool) {
        let suspected: BTreeSet<u32> = suspected.iter().copied().collect();
        let seat = |rank: &u32| self.plan.as_ref()?.seat(*rank);
        let new = suspected.difference(&self.suspected).filter_map(seat);
        let new = new.map(|seat| Change::Suspected(seat.rank, seat.peer()));
        // A rank that is gone is suspected no more either.
        let back = self.suspected.difference(&suspected).filter(|_| self.over.is_none()).filter_map(seat);
        let back = back.map(|seat| Change::Back(seat.rank, seat.peer()));
        self.actions.extend(new.chain(back).map(WorldChange::Change).map(Action::Report));
        self.suspected = suspected;
        if is_cut_off && !self.is_cut_off {
            self.actions.push_back(Action::Report(WorldChange::Change(Change::CutOff)));
        }
        self.is_cut_off = is_cut_off;
    }

    fn status(&self) -> Status {
        let is_guest = |(id, peer): (&NodeId, &Linked<Process>)| {
            let known = &peer.known;
            let status = known.status.as_ref().filter(|_| known.arrival.is_some() && peer.link.is_there())?;
            let command = match status.epoch.cmp(&self.epoch) {
                Ordering::Less => Command::Runs,
                Ordering::Equal => status.command,
                Ordering::Greater => Command::Waits,
            };
            (*id != self.reign.leader.id).then_some((*id, command))
        };
        let guests =
            if self.lead.is_some() { Vec::new() } else { self.peers.iter().filter_map(is_guest).collect() };
        let answer = self.round.as_ref().and_then(|round| Some((round.plan.round, round.answer.clone()?)));
        let lost = self.walk.as_ref().map(|walk| walk.lost);
        Status { epoch: self.epoch, command: self.command, answer, lost, guests }
    }

    /// Tells the others what they have to know.
    fn tell(&mut self) {
        if self.lead.is_some() {
            return self.tell_all();
        }
        let asked = self.walk.iter().flat_map(Walk::asked);
        let hosts: Vec<NodeId> = asked.chain([self.reign.leader.id]).collect();
        let arrival = WorldSaid::Arrival(Box::new(self.arrival.clone())).encode();
        let status = WorldSaid::Status(self.status()).encode();
        for host in hosts {
            self.peers.say(self.shared.now, host, &arrival);
            self.peers.say(self.shared.now, host, &status);
        }
        // Nodes that have lost the leader have come here. The leader has read that, or it may be stopped.
        if self.walk.is_none() && self.has_read_all(self.reign.leader.id) {
            let guests =
                self.peers.iter().filter(|(_, peer)| peer.known.status.is_some() || peer.known.is_behind);
            let guests: Vec<NodeId> = guests.map(|(id, _)| *id).collect();
            let reign = self.reign_with_heirs(false);
            for guest in guests {
                self.peers.say(self.shared.now, guest, &reign);
            }
        }
    }

    /// Who leads if the leader is lost, in this order.
    fn heirs(&self) -> Vec<Contact> {
        self.current_plan().map_or_else(|| self.reign.heirs.clone(), Plan::heirs)
    }

    /// What is decided, for nodes that may have no plan of this epoch; or that they are freed.
    fn reign_with_heirs(&self, frees: bool) -> Body {
        let phase = if frees { Phase::Released } else { self.reign.phase };
        WorldSaid::Reign(Reign { heirs: self.heirs(), phase, ..self.reign.clone() }).encode()
    }

    /// The plan of this node's world, unless others have gone on without this node.
    fn current_plan(&self) -> Option<&Plan> {
        self.plan.as_deref().filter(|_| self.reign.epoch.generation <= self.epoch.generation)
    }

    /// Ends, if this node leaves or all are released, and all that learn it from this node have read it.
    fn end(&mut self) {
        let Some(latest) = self.farewell else { return };
        let is_read = self.peers.iter().all(|(id, peer)| peer.link.session.is_read() || self.observes(*id));
        // A world may be so young that its members have not come to their leader yet.
        let is_awaited = |id: &NodeId| *id != self.own.id && !self.is_gone(*id) && !self.peers.has(*id);
        let awaits = match self.lead {
            Some(_) => self.plan.iter().flat_map(|plan| plan.seats()).any(|seat| is_awaited(&seat.id)),
            None => is_awaited(&self.reign.leader.id),
        };
        if (is_read && !awaits) || self.shared.now >= latest {
            self.has_ended = true;
            self.farewell = None;
            self.actions.push_back(Action::Report(WorldChange::MayEnd));
        }
    }
}
