//! How a node ends: refused, out of time, or with its world formed.

use super::Node;
use crate::model::Peer;
use crate::proto::follow::Follow;
use crate::proto::report::{Event, Failure, Heard, Report, Unproved};
use crate::wire::Refusal;

impl Node {
    pub(super) fn on_refusal(&mut self, refusal: Refusal) {
        let Some(follow) = self.follow.as_ref().filter(|follow| !follow.is_ready()) else { return };
        let leader = follow.leader_peer();
        let config = &self.shared.config;
        let failure = match refusal {
            Refusal::RankTaken(holder) => config.node.rank.map(|rank| Failure::RankTaken { rank, holder }),
            Refusal::WorldDiffers(theirs) => {
                Some(Failure::WorldDiffers { ours: config.world, theirs, leader })
            }
            // The next formation may have a seat for this node.
            Refusal::WorldFull if config.stands_by => None,
            Refusal::WorldFull => Some(Failure::WorldFull { world: config.world, leader }),
            Refusal::MasterUnproved(pairs) => {
                let pairs = pairs.into_vec().into_iter().map(|(prover, master)| Unproved { prover, master });
                Some(Failure::MasterUnproved { pairs: pairs.collect() })
            }
            Refusal::Unready(nodes) => Some(Failure::Unready { nodes: nodes.into_vec() }),
            Refusal::PathsBroken(paths, more) => Some(Failure::PathsBroken { paths: paths.into_vec(), more }),
            Refusal::NoRdma(verdict, is_required) => Some(Failure::NoRdma { verdict, is_required }),
            Refusal::Differs(sameness) => Some(Failure::Differs { sameness }),
            Refusal::Closing => None,
        };
        if let Some(failure) = failure {
            self.end(Event::Failed(failure));
        } else if let Some(follow) = self.follow.take() {
            // The next formation has another leader, or none yet.
            self.seek.block_unreached(follow.leader_id(), &self.shared);
            self.leave(follow);
        }
    }

    /// The time is up. A round that has begun goes on to its end, which has limits of its own.
    pub(super) fn on_deadline(&mut self) {
        let is_ready = self.follow.as_ref().is_some_and(Follow::is_ready);
        if is_ready || !self.lead.is_collecting() {
            self.lead.set_overdue();
        } else {
            let report = self.report();
            self.end(Event::Failed(Failure::Deadline(Box::new(report))));
        }
    }

    fn report(&self) -> Report {
        let config = &self.shared.config;
        let progress = self.follow.as_ref().and_then(Follow::progress);
        let mut heard = self.memory.heard(&config.node.host);
        let leads = self.follow.is_none() && config.is_candidate();
        if leads && self.lead.seated() > 1 {
            heard = self.lead.present().map(Heard::from).take(Report::NAMES).collect();
            heard.sort();
        }
        let unreached = match &self.follow {
            Some(follow) if follow.has_answered() && !follow.is_joined() => {
                Some((follow.leader_peer(), follow.leader_endpoints().to_vec()))
            }
            _ => self.memory.unreached(),
        };
        Report {
            world: config.world,
            rank: config.node.rank,
            joined: progress.map_or(self.lead.seated(), |progress| progress.joined),
            heard,
            missing: progress.map_or_else(
                || if leads { self.lead.missing(&self.shared) } else { Vec::new() },
                |progress| progress.missing.clone(),
            ),
            absent: if leads { self.lead.absent(&self.shared) } else { Vec::new() },
            unreached: unreached.filter(|_| progress.is_none()),
            nobody_leads: !config.is_candidate() && !self.memory.has_candidate(),
            unanswered: self.memory.unanswered().filter(|_| progress.is_none()),
            running: self.memory.runs(),
            versions: self.memory.versions(),
            unauthentic: self.memory.all_unauthentic(),
            unauthentic_others: self.memory.unauthentic_others(),
        }
    }

    /// Ends this node where its part as a leader is over, or where the round that outlived the deadline is.
    pub(super) fn check_end(&mut self) {
        if self.ended {
            return;
        }
        if let Some(result) = self.lead.outcome() {
            let event = match result.clone() {
                Ok(formed) => Event::Formed(formed),
                Err(failure) => Event::Failed(failure),
            };
            self.end(event);
        } else if self.lead.is_overdue() {
            self.on_deadline();
        }
    }

    pub(super) fn end(&mut self, event: Event) {
        self.shared.event(event);
        self.ended = true;
    }
}

impl From<(Peer, Option<u32>)> for Heard {
    fn from((peer, rank): (Peer, Option<u32>)) -> Self {
        Self { host: peer.host, address: Some(peer.address), rank }
    }
}
