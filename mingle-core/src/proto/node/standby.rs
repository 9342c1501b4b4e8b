//! A node that waits for a seat in a job that runs already.

use std::net::SocketAddr;
use std::time::Duration;

use super::Node;
use super::steps::STAND_ASIDE;
use crate::model::{Lineage, NodeId};
use crate::proto::output::{DialId, WatchNews};
use crate::proto::report::{Event, Failure, Warning};
use crate::proto::timer::{Time, Timer};
use crate::wire::Running;

/// How long a node waits for an answer when nobody has said for a while that the job still runs.
const ANSWER: Duration = Duration::from_secs(5);
/// The least time between two questions to rank 0, and between two connections to its host.
const AGAIN: Duration = Duration::from_secs(1);
const REDIAL: Duration = Duration::from_secs(5);

/// What a node knows of the world that runs without it.
#[derive(Debug, Clone, Default)]
pub(super) struct Standby {
    /// When a member last said that the world runs, and in which lineage.
    told: Option<(Time, Lineage)>,
    /// Nobody has said so for a while, and this node has asked all.
    has_asked: bool,
    /// When this node last asked rank 0.
    asked: Option<Time>,
    /// The connection to rank 0's host, which shows that this node can reach it, and when it was opened.
    arrival: Option<(DialId, Time)>,
}

impl Node {
    /// A node of this job says that the job runs already.
    pub(super) fn on_running(&mut self, from: SocketAddr, lineage: Lineage, running: &Running) {
        let (follows, now) = (self.follow.is_some(), self.shared.now);
        (self.standby.told, self.standby.has_asked) = (Some((now, lineage)), false);
        if self.memory.running(from) && !follows {
            self.shared.event(Event::Warning(Warning::AlreadyRunning { from }));
        }
        if follows {
            return;
        }
        self.seek.put_off_desertion(&mut self.shared);
        if !self.shared.config.stands_by {
            return;
        }
        if let Some(port) = running.door {
            // Rank 0 may have forgotten this node, so it arrives again and again.
            if self.standby.arrival.is_none_or(|(_, since)| now >= since + REDIAL) {
                if let Some((dial, _)) = self.standby.arrival.take() {
                    self.shared.hang_up(dial);
                }
                let mut to = from;
                to.set_port(port.get());
                self.standby.arrival = Some((self.shared.watch(to), now));
            }
        } else if running.first != from && self.standby.asked.is_none_or(|asked| now >= asked + AGAIN) {
            // Only rank 0 takes newcomers in, and it may not hear what this node sends to all.
            self.standby.asked = Some(now);
            let question = self.shared.solicit();
            self.shared.send(running.first, NodeId::ANYONE, &question);
        }
    }

    /// Something has happened on the connection to rank 0's host.
    pub fn handle_watch(&mut self, now: Time, dial: DialId, news: WatchNews) {
        self.at(now);
        let is_open = matches!(news, WatchNews::Opened | WatchNews::Greeted);
        self.standby.arrival.take_if(|(arrival, _)| *arrival == dial && !is_open);
    }

    /// The time is up. Returns whether this node goes on to wait for a seat, since the job still runs.
    pub(super) fn stands_by(&mut self) -> bool {
        let Some((told, _)) = self.standby.told else { return false };
        if !self.shared.config.stands_by || self.is_bound() {
            return false;
        }
        if told + STAND_ASIDE > self.shared.now {
            self.shared.set_after(Timer::Deadline, STAND_ASIDE);
            return true;
        }
        // A member of another spare does not ask by itself, nor does a process that was stopped.
        let asks = !std::mem::replace(&mut self.standby.has_asked, true);
        if asks {
            let question = self.shared.solicit();
            self.shared.multicast(&question);
            self.shared.set_after(Timer::Deadline, ANSWER);
        }
        asks
    }

    /// The commands of the world that this node waits for have ended well.
    pub(super) fn on_released(&mut self, lineage: Lineage) {
        let is_told = self.standby.told.is_some_and(|(_, told)| told == lineage);
        if self.shared.config.stands_by && is_told && !self.is_bound() {
            self.end(Event::Failed(Failure::JobFinished));
        }
    }
}
