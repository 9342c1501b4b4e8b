//! Running worlds: commands that run and end, and the formations that follow.

use mingle_core::Change;
use mingle_core::proto::{Node, RunningWorld, Time};
use mingle_core::{End, Formed};

use super::Network;
use super::queue::Happening;

/// How long a command takes to stop.
const STOP: Time = Time::from_millis(20);

impl Network {
    /// The command of a host ends at `at`, if it runs then: well, or with this failure.
    pub fn end_command_at(&mut self, host: usize, at: Time, end: Option<End>) {
        self.at(at, Happening::Command(host, end));
    }

    pub(super) fn start_command(&mut self, host: usize, node: Node, formed: &Formed) {
        let running = node.into_running(formed).expect("every node that stays wants the roster");
        self.hosts[host].config.lineage = running.lineage();
        self.hosts[host].running = Some(Box::new(running));
        self.hosts[host].command_runs = true;
    }

    /// The command of a world that is over has stopped.
    pub(super) fn stopped(&mut self, host: usize) {
        self.hosts[host].command_runs = false;
        self.with_running(host, |_, _| {});
    }

    pub(super) fn command_ends(&mut self, host: usize, end: Option<End>) {
        self.note(host, || format!("its command ends: {end:?}"));
        self.hosts[host].command_runs &= end.is_none();
        self.with_running(host, |running, now| match end {
            None => running.handle_success(now),
            Some(end) => running.handle_failure(now, end),
        });
    }

    /// Calls a running world, and carries out its outputs and changes.
    pub(super) fn with_running(&mut self, host: usize, act: impl FnOnce(&mut RunningWorld, Time)) {
        let Some(mut running) = self.hosts[host].running.take() else { return };
        act(&mut running, self.now);
        while let Some(output) = running.poll_output() {
            self.carry_out(host, output);
        }
        while let Some(change) = running.poll_change() {
            self.note(host, || format!("{change:?}"));
            match change {
                Change::Over(over) => {
                    self.hosts[host].overs.push(over);
                    self.at(self.now + STOP, Happening::Stopped(host));
                }
                Change::Notified => self.hosts[host].notified = true,
                _ => {
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
            self.hosts[host].config.lineage = running.lineage();
            self.launch(host);
            let former = running.others();
            self.with(host, |node, now| node.handle_seeds(now, former));
            return;
        }
        if let Some(at) = running.poll_timeout() {
            let at = at.max(self.now);
            if self.hosts[host].wake.replace(at) != Some(at) {
                self.at(at, Happening::Wake(host, at));
            }
        }
        self.hosts[host].running = Some(running);
    }
}
