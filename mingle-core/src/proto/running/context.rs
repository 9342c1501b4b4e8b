//! What every part of a running world needs: the members, the time, the timers, and what goes out.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::members::Members;
use crate::model::{Lineage, NodeId};
use crate::proto::backoff::Backoff;
use crate::proto::output::{DialId, Output};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timers};
use crate::proto::waves::Waves;
use crate::wire::{Dropped, Header, Message, Partner};

/// What a running world waits for. Each timer has one time, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunningTimer {
    /// A rank above 0 asks rank 0 for its release again.
    Finished,
    /// Rank 0, whose command has ended, checks the members whose commands still run.
    CheckRunning,
    /// The next pings of a liveness check.
    Ping,
    /// The next `Over` to members that have not answered.
    Over,
    /// The next `Released` to members that have not said that they leave.
    Released,
    /// A newcomer has asked, and no lower rank has checked the members by now.
    CheckForNewcomer,
    /// A neighbour in doubt is tried again.
    Watch,
    /// It is counted how many members are there.
    Count,
    /// A neighbour that has said farewell is asked whether it has gone on.
    Left,
    /// A newcomer may be taken in.
    Grow,
    /// Observers wait for an answer.
    Status,
}

/// Owned by the running world and lent to its parts, which do not know each other.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) members: Members,
    pub(super) timers: Timers<RunningTimer>,
    shared: Shared,
}

impl Context {
    /// Takes over the identity, the seed, the time and the counters of the node that formed the world.
    pub(super) fn new(shared: Shared, members: Members) -> Self {
        Self { members, timers: Timers::default(), shared }
    }

    /// Time never goes back, or timers would fire twice.
    pub(super) fn at(&mut self, now: Time) {
        self.shared.now = self.shared.now.max(now);
    }

    pub(super) fn now(&self) -> Time {
        self.shared.now
    }

    pub(super) fn own_id(&self) -> NodeId {
        self.shared.me()
    }

    pub(super) fn is_rank_0(&self) -> bool {
        self.members.own_rank().get() == 0
    }

    pub(super) fn world(&self) -> u32 {
        u32::try_from(self.members.count()).unwrap_or(u32::MAX)
    }

    /// The address of rank 0, as others reach it.
    pub(super) fn first_address(&self) -> SocketAddr {
        self.members.first().address
    }

    /// Draws whether this member is one of so many, where each member draws.
    pub(super) fn is_one_of(&mut self, members: u32) -> bool {
        let world = self.world();
        self.shared.rng.random_range(0..world) < members
    }

    /// Whether the world is smaller than it may be.
    pub(super) fn has_room(&self) -> bool {
        self.world() < self.shared.most()
    }

    /// Whether members and newcomers are enough for two worlds, although its sizes exclude that as long as no
    /// more nodes than the most are there.
    pub(super) fn may_split(&self, newcomers: u32) -> bool {
        let size = self.shared.config.world;
        let fewest = u64::from(size.min().get());
        !size.splits() && u64::from(self.world()) + u64::from(newcomers) >= 2 * fewest
    }

    /// How long a member that is suspected may stay silent before it is gone.
    pub(super) fn gone_after(&self) -> Duration {
        self.shared.config.gone_after
    }

    /// How long a newcomer has to stay before it is taken in.
    pub(super) fn last_call(&self) -> Duration {
        self.shared.config.last_call
    }

    /// This node's port for paths, at which others can reach it while the command runs.
    pub(super) fn path_port(&self) -> Option<NonZeroU16> {
        let node = &self.shared.config.node;
        let port = node.reach.port().filter(|&port| port != node.endpoints.preferred().port());
        port.and_then(NonZeroU16::new)
    }

    pub(super) fn lineage(&self) -> Lineage {
        self.shared.config.lineage
    }

    /// Every later datagram of this node carries this lineage.
    pub(super) fn set_lineage(&mut self, lineage: Lineage) {
        self.shared.config.lineage = lineage;
    }

    pub(super) fn set_after(&mut self, timer: RunningTimer, delay: Duration) {
        self.timers.set(timer, self.now().saturating_add(delay));
    }

    /// The nodes to which this one has proved its path.
    pub(super) fn neighbours(&mut self) -> Vec<Partner> {
        std::mem::take(&mut self.shared.neighbours)
    }

    /// Opens a connection that carries nothing, to see whether the other end is there.
    pub(super) fn watch(&mut self, to: SocketAddr) -> DialId {
        self.shared.watch(to)
    }

    pub(super) fn hang_up(&mut self, dial: DialId) {
        self.shared.hang_up(dial);
    }

    pub(super) fn rng(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.shared.rng
    }

    pub(super) fn stop_all_timers(&mut self) {
        self.timers = Timers::default();
    }

    pub(super) fn decode(&mut self, datagram: &[u8]) -> Result<(Header, Message), Dropped> {
        self.shared.codec.decode(datagram)
    }

    pub(super) fn send(&mut self, to: SocketAddr, recipient: NodeId, message: &Message) {
        self.shared.send(to, recipient, message);
    }

    /// Sends to each of these members, at its address of when the world formed.
    pub(super) fn send_to_members(&mut self, recipients: &[NodeId], message: &Message) {
        for &id in recipients {
            if let Some(address) = self.members.address_of(id) {
                self.send(address, id, message);
            }
        }
    }

    pub(super) fn send_to_others(&mut self, message: &Message) {
        let others: Vec<NodeId> = self.members.other_ids().into_iter().collect();
        self.send_to_members(&others, message);
    }

    pub(super) fn multicast(&mut self, message: &Message) {
        self.shared.multicast(message);
    }

    /// Asks all nodes for a leader, and whatever node has this member's address: if the others have gone on
    /// without this node, the answer is of their lineage.
    pub(super) fn ask_all(&mut self, of: NodeId) {
        let question = self.shared.solicit();
        self.multicast(&question);
        self.ask(of);
    }

    /// Asks whatever node has this member's address for a leader.
    pub(super) fn ask(&mut self, of: NodeId) {
        let question = self.shared.solicit();
        if let Some(address) = self.members.address_of(of) {
            self.send(address, NodeId::ANYONE, &question);
        }
    }

    pub(super) fn next_output(&mut self) -> Option<Output> {
        self.shared.next_output()
    }

    pub(super) fn next_repeat(&mut self, backoff: &mut Backoff) -> Time {
        backoff.after(self.shared.now, &mut self.shared.rng)
    }

    /// The members of `unanswered` to write to now; sets `timer` to when to write again.
    pub(super) fn burst(
        &mut self,
        waves: &mut Waves,
        unanswered: impl IntoIterator<Item = NodeId>,
        timer: RunningTimer,
    ) -> Vec<NodeId> {
        let unanswered = || unanswered.into_iter().collect();
        let (burst, again) = waves.next_burst(unanswered, self.shared.now, &mut self.shared.rng);
        self.timers.set(timer, again);
        burst
    }
}
