//! The lines that a waiting user sees: one for each change, and on a terminal one that is redrawn.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use mingle_core::error::{Cause, RankRange};
use mingle_core::proto::Progress;
use mingle_core::{Event, Rendezvous, Warning, WorldSize};

use crate::advice;
use crate::config::Settings;
use crate::events::Journal;
use crate::stderr::{self, printable};

/// Shows events, and writes them to the journal.
#[derive(Debug)]
pub(crate) struct ProgressView<'a> {
    pub(crate) journal: &'a mut Journal,
    shown: Shown,
    config: &'a Settings,
    /// The line that is redrawn every second, for the time in it.
    live: Option<ProgressBar>,
}

impl<'a> ProgressView<'a> {
    /// Nothing is shown before the first event.
    pub(crate) fn new(config: &'a Settings, journal: &'a mut Journal) -> Self {
        let live = if journal.formed_ms.is_some() { None } else { live(config) };
        Self { journal, shown: Shown { joined: 1, line: String::new() }, config, live }
    }

    /// All nodes restart: the pause before is over.
    pub(crate) fn restart(&mut self, generation: u32) {
        self.journal.restart(generation);
        self.live = live(self.config);
    }

    /// Shows what happened.
    pub(crate) fn show(&mut self, event: &Event) {
        self.journal.event(event);
        let Some(line) = self.shown.describe(event, &self.config.rendezvous) else { return };
        match &self.live {
            // Progress is redrawn in place; lines that may explain a failure later stay on the screen.
            Some(live) if matches!(event, Event::Progress(_) | Event::Preparing { .. }) => {
                live.set_message(printable(&line).into_owned());
            }
            Some(live) => live.suspend(|| stderr::say(format_args!("{line}"))),
            None => stderr::say(format_args!("{line}")),
        }
    }
}

fn live(config: &Settings) -> Option<ProgressBar> {
    // The log's lines and a live line would overwrite each other.
    if config.quiet || config.verbose > 0 || !stderr::is_live() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
        // Cleared when dropped, so that nothing of it is left beside the next line.
        .with_finish(ProgressFinish::AndClear);
    if let Ok(style) = ProgressStyle::with_template("mingle: {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.set_message("looking for the other nodes");
    bar.enable_steady_tick(Duration::from_secs(1));
    Some(bar)
}

/// What was shown last, so that only changes are shown.
#[derive(Debug)]
struct Shown {
    /// How many nodes were here; 0 where this node has just joined them.
    joined: u32,
    line: String,
}

impl Shown {
    /// The line for an event, unless it is the same as the last one.
    fn describe(&mut self, event: &Event, Rendezvous { job, world, .. }: &Rendezvous) -> Option<String> {
        let line = match event {
            Event::Leading => format!("1 of {} of job {job} here; looking for others", nodes(*world)),
            Event::Following(leader) => {
                self.joined = 0;
                format!("joined {leader}")
            }
            Event::LostLeader(leader) => format!("lost the leader {leader}; looking for another"),
            Event::Progress(progress) => self.progress(progress),
            // Nothing is wrong where nodes start late.
            Event::Warning(warning @ Warning::Waiting { report, .. })
                if report.cause() == Cause::Incomplete =>
            {
                warning.to_string()
            }
            Event::Warning(warning) => format!("warning: {}", advice::warning(warning)),
            Event::Preparing { .. } if world.max().get() == 1 => return None,
            Event::Preparing { round: 1 } => "proving that each node reaches the others".to_owned(),
            // A faulty leader may begin thousands of rounds.
            Event::Preparing { round } if *round > 4 && !round.is_power_of_two() => return None,
            Event::Preparing { round } => format!("proving that each node reaches the others, round {round}"),
            Event::FirstCause(over) => format!("the first cause: {over}"),
            // A warning before it says why a node steps down; the caller shows the end; events of later
            // versions are not known.
            _ => return None,
        };
        let last = std::mem::replace(&mut self.line, line);
        (last != self.line).then(|| self.line.clone())
    }

    /// `3 of 4 nodes here (node-b joined), missing rank 2`.
    fn progress(&mut self, progress: &Progress) -> String {
        let Progress { joined, world, newest, missing, .. } = progress;
        let was = std::mem::replace(&mut self.joined, *joined);
        let change = match newest.first() {
            _ if *joined < was => format!(" ({} left)", was - joined),
            Some(host) if was > 0 && *joined == was + 1 => format!(" ({host} joined)"),
            Some(host) if was > 0 && *joined > was => {
                format!(" ({host} and {} more joined)", joined - was - 1)
            }
            _ => String::new(),
        };
        // A node that has waited takes the rank of a node that is missing.
        let missing = match &missing[..] {
            [_, ..] if *joined < world.max().get() => format!(", missing {}", RankRange::list(missing)),
            _ => String::new(),
        };
        format!("{joined} of {world} nodes here{change}{missing}")
    }
}

fn nodes(world: WorldSize) -> String {
    if world.max().get() == 1 { "1 node".to_owned() } else { format!("{world} nodes") }
}

#[cfg(test)]
mod tests {
    use mingle_core::HostName;
    use mingle_core::proto::Peer;

    use super::*;

    fn lines() -> impl FnMut(&Event) -> Option<String> {
        let rendezvous = Rendezvous::new("foo".parse().unwrap(), "8".parse::<WorldSize>().unwrap());
        let mut shown = Shown { joined: 1, line: String::new() };
        move |event| shown.describe(event, &rendezvous)
    }

    fn leader() -> Peer {
        Peer { host: HostName::new("node-a"), address: "10.0.0.1:29503".parse().unwrap() }
    }

    fn here(joined: u32, newest: &[&str], missing: &[(u32, u32)]) -> Event {
        Event::Progress(Progress {
            joined,
            world: "8".parse().unwrap(),
            newest: newest.iter().copied().map(HostName::new).collect(),
            missing: missing.iter().map(|&(first, last)| RankRange { first, last }).collect(),
            leader: leader(),
        })
    }

    #[test]
    fn every_change_is_one_line() {
        let mut lines = lines();
        for (event, line) in [
            (Event::Leading, "1 of 8 nodes of job foo here; looking for others"),
            (Event::Following(leader()), "joined node-a (10.0.0.1:29503)"),
            (here(2, &["own"], &[]), "2 of 8 nodes here"),
            (Event::LostLeader(leader()), "lost the leader node-a (10.0.0.1:29503); looking for another"),
            (here(1, &[], &[]), "1 of 8 nodes here (1 left)"),
            (here(2, &["b"], &[(2, 2)]), "2 of 8 nodes here (b joined), missing rank 2"),
            (
                here(4, &["d", "c", "b"], &[(1, 1), (4, 7)]),
                "4 of 8 nodes here (d and 1 more joined), missing ranks 1, 4-7",
            ),
            (here(3, &["d", "c"], &[]), "3 of 8 nodes here (1 left)"),
            // A node that has waited takes the rank of a node that is missing.
            (here(8, &["8", "7"], &[(2, 2)]), "8 of 8 nodes here (8 and 4 more joined)"),
            (
                Event::Warning(Warning::Unconnectable { endpoint: leader().address, elsewhere: None }),
                "warning: others join, but none of them can connect to 10.0.0.1:29503 over TCP, so this node does \
                 not lead; in the firewall of this host, accept UDP 29499, TCP and UDP 29500-29999 (or those of --multicast and \
                 --master-port), and TCP 32768-60999 from the other nodes",
            ),
            (Event::Preparing { round: 1 }, "proving that each node reaches the others"),
            (Event::Preparing { round: 2 }, "proving that each node reaches the others, round 2"),
        ] {
            assert_eq!(lines(&event).as_deref(), Some(line));
        }
    }

    #[test]
    fn a_line_is_not_repeated() {
        let mut lines = lines();
        assert!(lines(&here(2, &[], &[])).is_some());
        assert_eq!(lines(&here(2, &[], &[])), None);
        assert!(lines(&here(2, &[], &[(7, 7)])).is_some());
    }
}
