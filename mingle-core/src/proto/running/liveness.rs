//! Whether all members are still there.

use std::collections::BTreeSet;
use std::time::Duration;

use super::context::{Context, RunningTimer};
use super::unanswered::Unanswered;
use crate::model::{NodeId, Rank};
use crate::proto::timer::Time;
use crate::wire::{MISSING, Message};

/// A member that sends nothing for this long, while it is pinged about a hundred times, is gone.
const GONE: Duration = Duration::from_secs(8);
/// After a check, newcomers cause no other one for this long.
const CHECKED: Duration = Duration::from_secs(15);
/// The same after another member's ping: a little longer than a check takes.
const OTHERS_CHECK: Duration = GONE.saturating_add(Duration::from_secs(1));
/// When a newcomer asks, each rank leaves this much time to the rank below it to start the check.
const TURN: Duration = Duration::from_millis(200);
/// Ranks above this one start as early as it does.
const LAST_TURN: u32 = 20;

/// The check that is under way, and when the last one was.
#[derive(Debug, Clone, Default)]
pub(super) struct Liveness {
    /// The members that have sent nothing since it began.
    check: Option<Unanswered>,
    /// Until when newcomers cause no check.
    quiet: Time,
}

impl Liveness {
    pub(super) fn is_checking(&self) -> bool {
        self.check.is_some()
    }

    /// Whether a newcomer is a reason for a check: not during one, nor shortly after this or another
    /// member's.
    pub(super) fn may_check_for_newcomer(&self, now: Time) -> bool {
        !self.is_checking() && now >= self.quiet
    }

    /// Plans a check for when the lower ranks have had their chance to start one.
    pub(super) fn plan(context: &mut Context) {
        let turn = TURN * context.members.own_rank().get().min(LAST_TURN);
        context.timers.set_earlier(RunningTimer::CheckForNewcomer, context.now() + turn);
    }

    /// Another member checks, so this node need not until that check has its result. The member may be gone
    /// before that.
    pub(super) fn others_check(&mut self, now: Time) {
        self.quiet = self.quiet.max(now + OTHERS_CHECK);
    }

    /// Starts a check of these members.
    pub(super) fn start(&mut self, members: BTreeSet<NodeId>, context: &mut Context) {
        let now = context.now();
        self.quiet = now + CHECKED;
        self.check = Some(Unanswered::new(members, now, GONE));
        self.ping(context);
    }

    /// Pings the members that have sent nothing.
    pub(super) fn ping(&mut self, context: &mut Context) {
        let Some(check) = &mut self.check else { return };
        let burst = check.burst(context, RunningTimer::Ping);
        context.send_to_members(&burst, &Message::Ping);
        if check.members().len() <= MISSING && check.wave() > 0 {
            // Some may be reached at another address than the one in the roster.
            let ranks = check.members().iter().filter_map(|id| context.members.rank_of(*id));
            let missing = Message::Missing(ranks.map(Rank::get).collect());
            context.multicast(&missing);
        }
    }

    /// Takes any message of this member as a sign of life.
    pub(super) fn heard(&mut self, member: NodeId, context: &mut Context) {
        if let Some(check) = &mut self.check {
            check.answered(member);
            if check.is_empty() {
                self.stop(context);
            }
        }
    }

    /// Ends a check whose time is over. Returns the lowest rank that is gone.
    pub(super) fn find_gone(&mut self, context: &Context) -> Option<Rank> {
        let check = self.check.take_if(|check| check.is_out_of_time(context.now()))?;
        check.members().iter().filter_map(|id| context.members.rank_of(*id)).min()
    }

    pub(super) fn stop(&mut self, context: &mut Context) {
        if self.check.take().is_some() {
            context.timers.stop(RunningTimer::Ping);
        }
    }

    /// This process was stopped for so long, and has not read what the members sent meanwhile.
    pub(super) fn forgive(&mut self, stopped: Duration) {
        if let Some(check) = &mut self.check {
            check.extend(stopped);
        }
    }
}
