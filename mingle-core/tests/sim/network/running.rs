//! Running worlds: commands that run and end, and the formations that follow.

use std::collections::BTreeSet;

use mingle_core::Change;
use mingle_core::proto::{Lineage, Node, NodeId, Over, RunningNode, Time};
use mingle_core::{End, Formed};

use super::queue::Happening;
use super::{Fact, Formation, Host, Network};

/// For this long a member must have been silent that is declared gone, and rank 0 to a node that waits for
/// its release. Where it was stopped or cut off for half of that, the protocol does not promise that it
/// stays.
const GONE: Time = Time::from_secs(8);
/// How long a world of a range waits before it takes newcomers in.
const PAUSE: Time = Time::from_secs(5);
/// How long the next formation keeps seats for former members.
const STOPS: Time = Time::from_secs(30);
const RELEASE: Time = Time::from_secs(30);

impl Network {
    /// The command of a host ends at `at`, if it runs then: well, or with this failure.
    pub fn end_command_at(&mut self, host: usize, at: Time, end: Option<End>) {
        self.at(at, Happening::Command(host, end));
    }

    pub(super) fn start_command(&mut self, host: usize, node: Node, formed: &Formed) {
        let running = node.into_running(formed).expect("every node that stays wants the roster");
        // As the driver does: from now on each connection is greeted.
        self.close_watched(host);
        let lineage = running.lineage();
        let other = |slot: &Host| match &slot.outcome {
            Some(Ok(theirs)) if theirs.digest != formed.digest => {
                // A world that is over has the lineage of the next one.
                let runs = slot.running.as_ref().is_some_and(|running| running.lineage() == lineage);
                runs && slot.config.lineage == lineage
            }
            _ => false,
        };
        let beside_another = self.hosts.iter().any(other);
        let slot = &mut self.hosts[host];
        slot.config.lineage = lineage;
        let again = slot.config.lineage.generation > 0;
        self.history.formations.push(Formation {
            host,
            id: slot.config.id,
            lineage: slot.config.lineage,
            digest: formed.digest,
            rank: formed.rank.get(),
            master: formed.master,
            elsewhere: slot.elsewhere,
            beside_another,
        });
        slot.running = Some(Box::new(running));
        if again {
            self.check_rank(host, formed);
        }
        if formed.world < formed.asked.max() {
            self.saw(Fact::Smaller);
        }
        if self.hosts[host].config.world.is_range() {
            self.with_running(host, |running, now| running.set_growth(now, PAUSE));
        }
        let slot = &mut self.hosts[host];
        slot.command_runs = true;
        if again {
            self.saw(Fact::Again);
        }
        self.with_running(host, |_, _| {});
    }

    /// A node keeps its rank if the new world has it, unless rank 0 could not be reached, or two worlds came
    /// before: one of a leader whose members were in doubt, and one of these members.
    fn check_rank(&mut self, host: usize, formed: &Formed) {
        let node = &self.hosts[host].config.node;
        let Some(former) = node.former.map(|former| former.rank) else {
            return self.saw(Fact::TookASeat);
        };
        // A given rank comes before a former one.
        let is_given = self.hosts.iter().any(|other| other.config.node.rank == Some(former));
        let generation = self.hosts[host].config.lineage.generation;
        let had_it = |f: &&Formation| f.rank == former.get() && f.lineage.generation + 1 == generation;
        let worlds: BTreeSet<_> = self.history.formations.iter().filter(had_it).map(|f| f.digest).collect();
        let is_shared = worlds.len() > 1;
        let has_rank = former.get() < formed.world.get() && !is_given && !is_shared;
        if formed.rank == former {
            self.saw(Fact::KeptRank);
        } else if has_rank && node.rank.is_none() && former.get() > 0 && formed.rank.get() > 0 {
            self.broken.push(format!("{host} had rank {former} and has {} of {}", formed.rank, formed.world));
        }
    }

    /// The command of a world that is over has stopped.
    pub(super) fn stopped(&mut self, host: usize) {
        self.hosts[host].command_runs = false;
        self.with_running(host, |_, _| {});
    }

    pub(super) fn command_ends(&mut self, host: usize, end: Option<End>) {
        self.note(host, || format!("its command ends: {end:?}"));
        let slot = &mut self.hosts[host];
        let id = slot.config.id;
        // A command ends once.
        if slot.running.is_none() || !slot.command_runs || self.history.succeeded.contains(&id) {
            return;
        }
        slot.command_runs &= end.is_none();
        match end {
            None => _ = self.history.succeeded.insert(id),
            Some(_) => self.saw(Fact::CommandFailed),
        }
        self.with_running(host, |running, now| match end {
            None => running.handle_success(now),
            Some(end) => running.handle_failure(now, end),
        });
    }

    /// A timer of a running world fires. A member that is gone by this node's own finding must be gone.
    pub(super) fn running_timeout(&mut self, host: usize) {
        let before = self.hosts[host].overs.len();
        let lineage = self.hosts[host].config.lineage;
        self.with_running(host, RunningNode::handle_timeout);
        if let Some(Over { rank: Some(rank), end: End::Gone, .. }) = self.hosts[host].overs.get(before) {
            self.declared_gone(host, lineage, rank.get());
        }
    }

    fn declared_gone(&mut self, host: usize, lineage: Lineage, rank: u32) {
        self.saw(Fact::DeclaredGone);
        let mut member = self.history.formations.iter().rev();
        let Some(member) = member.find(|f| f.lineage == lineage && f.rank == rank) else { return };
        let (victim, id) = (member.host, member.id);
        let slot = &self.hosts[victim];
        let lives = slot.running.as_ref().is_some_and(|running| running.lineage() == lineage);
        let was_apart = |window: Time| {
            let since = self.now.saturating_sub(window);
            let apart = self.paused_in(victim, since, self.now) + self.cut_in(host, victim, since, self.now);
            apart >= window / 2
        };
        // A node that waits for its release asks rank 0 for longer; a newcomer makes it look as well.
        let waits = self.history.succeeded.contains(&self.id_in(host, lineage)) && rank == 0;
        let is_excused = was_apart(GONE) || waits && was_apart(RELEASE);
        if lives && slot.config.id == id && !is_excused {
            self.broken.push(format!("{host} declares {victim} gone, which runs and can be reached"));
        }
    }

    /// The ID that a host's node had in this world.
    fn id_in(&self, host: usize, lineage: Lineage) -> NodeId {
        let mut own = self.history.formations.iter().rev();
        own.find(|f| f.host == host && f.lineage == lineage).map_or(NodeId([0; 16]), |f| f.id)
    }

    /// All commands have ended well: those of all members, and nobody else's matter.
    fn check_finished(&mut self, host: usize) {
        self.saw(Fact::Released);
        let id = self.hosts[host].config.id;
        let formations = &self.history.formations;
        let Some(own) = formations.iter().find(|f| f.id == id) else { return };
        let mut members = formations.iter().filter(|f| f.digest == own.digest);
        let unfinished = members.find(|f| !self.history.succeeded.contains(&f.id));
        if let Some(unfinished) = unfinished {
            let unfinished = unfinished.host;
            self.broken
                .push(format!("{host} is released, and the command of {unfinished} has not ended well"));
        }
    }

    /// Calls a running world, and carries out its outputs and changes.
    pub(super) fn with_running(&mut self, host: usize, act: impl FnOnce(&mut RunningNode, Time)) {
        let Some(mut running) = self.hosts[host].running.take() else { return };
        act(&mut running, self.now);
        while let Some(output) = running.poll_output() {
            self.carry_out(host, output);
        }
        while let Some(change) = running.poll_change() {
            self.note(host, || format!("{change:?}"));
            match change {
                Change::Over(over) => {
                    if over.end == End::Grows {
                        self.saw(Fact::Grew);
                    }
                    self.hosts[host].overs.push(over);
                    self.at(self.now + self.stop, Happening::Stopped(host));
                }
                Change::Notified => self.hosts[host].notified = true,
                Change::Cause(over) => self.hosts[host].found.causes.push(over),
                Change::Suspected(rank, _) => self.hosts[host].found.suspected.push((self.now, rank)),
                Change::Back(rank, _) => self.hosts[host].found.back.push(rank),
                Change::CutOff => self.hosts[host].found.cut_off += 1,
                Change::MaySplit { .. } => {}
                _ => {
                    self.check_finished(host);
                    self.hosts[host].finished = true;
                    self.close_all(host);
                    return;
                }
            }
        }
        let slot = &mut self.hosts[host];
        if slot.notified && !slot.command_runs {
            slot.notified = false;
            self.close_all(host);
            let config = &mut self.hosts[host].config;
            config.lineage = running.lineage();
            (config.node.former, config.awaited) = (None, None);
            if let Some(former) = running.former() {
                config.succeed(former, self.now + STOPS);
            }
            self.launch(host);
            let former = running.others();
            self.with(host, |node, now| node.handle_seeds(now, former));
            return;
        }
        if let Some(at) = running.poll_timeout() {
            self.wake_at(host, at);
        }
        self.hosts[host].running = Some(running);
    }
}
