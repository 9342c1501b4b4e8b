//! How a node ends: refused, out of time, or with its world formed.

use std::time::Duration;

use super::Node;
use super::absent::absent;
use super::memory::Here;
use crate::proto::follow::{Follow, GaveUp};
use crate::proto::report::{Event, Failure, Report};
use crate::proto::timer::Timer;
use crate::wire::{Refusal, Trouble};

/// How long a node whose time is up stays after a void round: a leader for its members to read that it is
/// void, and a member to read why.
const REASON: Duration = Duration::from_secs(1);

impl Node {
    pub(super) fn on_refusal(&mut self, refusal: Refusal) {
        let Some(follow) = self.follow.as_ref().filter(|follow| !follow.is_ready()) else { return };
        let leader = follow.leader.candidate.peer();
        let is_full = refusal == Refusal::WorldFull;
        if is_full {
            // So it is for those that have joined this node.
            self.lead.book.refuse_all(&refusal, &mut self.shared);
        }
        if let Some(failure) = self.shared.failure(refusal, leader) {
            self.end(Event::Failed(failure));
        } else if is_full {
            // The world has formed, and soon says where a node that stands by waits.
            self.miss_world();
        } else if let Some(follow) = self.follow.take() {
            // The next formation has another leader, or none yet.
            self.seek.blocklist.add(follow.leader_id(), GaveUp::Unreached, self.shared.now);
            self.leave(follow);
        }
    }

    /// The time is up. A round that has begun goes on to its end, which has limits of its own. After a void
    /// round this node stays for a moment, unless it `has_stayed`: a ready member that does not read that its
    /// round is void would not know whether the world has formed.
    pub(super) fn on_deadline(&mut self, has_stayed: bool) {
        let is_void = self.lead.overdue || self.follow.is_none() && self.lead.has_voided();
        let is_in_round = self.follow.as_ref().is_some_and(Follow::in_round);
        if is_in_round || !self.lead.is_collecting() {
            self.lead.overdue = true;
        } else if self.follow.is_none() && self.lead.give_up(&mut self.shared) {
            // The members learn it first.
        } else if is_void && !has_stayed {
            self.lead.overdue = true;
            self.shared.timers.set_earlier(Timer::Deadline, self.shared.now + REASON);
        } else {
            let report = self.report();
            self.end(Event::Failed(Failure::Deadline(Box::new(report))));
        }
    }

    fn report(&mut self) -> Report {
        self.note_most(true);
        let mut report = self.memory.report(&self.shared.config, self.shared.now);
        let trouble = self.follow.as_ref().map_or(&self.lead.trouble, |follow| &follow.trouble);
        if let Some(Trouble::Broken(path)) = trouble {
            report.broken = Some(Box::new(path.clone()));
        }
        if let Some(follow) = self.follow.as_ref().filter(|follow| follow.is_unreached(&self.shared)) {
            let leader = &follow.leader.candidate;
            report.unreached = Some((leader.peer(), leader.endpoints.to_vec()));
        }
        report
    }

    /// Remembers the nodes that are here, if more are than ever before; or as many, at the `end`. Where all
    /// were here, something else has kept the world from forming, and they do not count.
    pub(super) fn note_most(&mut self, end: bool) {
        let joined = self.joined();
        let is_all = joined >= self.shared.config.world.min().get();
        if is_all {
            self.memory.all_here();
        }
        if joined < self.memory.most.joined || (!end && (is_all || joined == self.memory.most.joined)) {
            return;
        }
        let here = self.here();
        self.memory.most = here;
    }

    /// How many nodes are here, this one included.
    pub(super) fn joined(&self) -> u32 {
        let progress = self.follow.as_ref().and_then(|follow| follow.progress.as_ref());
        progress.map_or_else(|| self.lead.book.seated, |progress| progress.joined)
    }

    /// The nodes that are here.
    pub(super) fn here(&self) -> Here {
        let progress = self.follow.as_ref().and_then(|follow| follow.progress.as_ref());
        let joined = self.joined();
        let config = &self.shared.config;
        let leads = self.follow.is_none() && config.is_candidate();
        let mut present: Vec<_> =
            if leads { self.lead.hosts().collect() } else { self.memory.hosts().collect() };
        // A member may know another by its leader's count alone.
        let knows_all = leads || u32::try_from(present.len() + 1) == Ok(joined);
        present.extend(config.node.hosts());
        let missing = self.shared.most().saturating_sub(joined);
        let mut here = Here { joined, ..Here::default() };
        if knows_all {
            here.absent = absent(&config.listed, present.into_iter(), missing);
        }
        if let Some(progress) = progress {
            here.missing.clone_from(&progress.missing);
        } else if leads {
            here.missing = self.lead.book.missing(&self.shared);
            if joined > 1 {
                here.members = self.lead.present().take(Report::NAMES).collect();
                here.members.sort();
            }
        }
        here
    }

    /// Ends this node where its part as a leader is over, or where the round that outlived the deadline is.
    pub(super) fn check_end(&mut self) {
        if self.ended {
            return;
        }
        for trouble in std::mem::take(&mut self.lead.news) {
            self.hear_trouble(&trouble);
        }
        if let Some(event) = self.lead.outcome().cloned() {
            self.end(event);
        } else if self.lead.overdue {
            self.on_deadline(false);
        }
    }

    pub(super) fn end(&mut self, event: Event) {
        self.shared.event(event);
        self.ended = true;
        if let Some(follow) = &self.follow {
            // The leader is to learn for certain what this node has read.
            self.shared.links.with(follow.leader_id(), |link| link.session.conclude());
        }
    }
}
