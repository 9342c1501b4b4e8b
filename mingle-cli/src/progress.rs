//! The lines that a waiting user sees: one for each change, and on a terminal one that is redrawn.

use std::fmt::Write as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use mingle_core::error::{Cause, RankRange};
use mingle_core::proto::Progress;
use mingle_core::tools::host_name;
use mingle_core::{Event, HostName, JobId, Warning, WorldSize};

use crate::advice;
use crate::config::Settings;
use crate::events::Journal;
use crate::stderr::{self, printable};

/// Shows events, and writes them to the journal.
#[derive(Debug)]
pub(crate) struct ProgressView<'a> {
    pub(crate) journal: &'a mut Journal,
    lines: EventLines,
    config: &'a Settings,
    /// The line that is redrawn every second, for the time in it.
    live: Option<ProgressBar>,
}

impl<'a> ProgressView<'a> {
    /// Nothing is shown before the first event.
    pub(crate) fn new(config: &'a Settings, journal: &'a mut Journal) -> Self {
        let mut lines = EventLines::new(config.rendezvous.job.clone(), config.rendezvous.world, host_name());
        lines.may_be_small |= config.rendezvous.tries;
        let live = if journal.timings.formed_ms.is_some() { None } else { live(config) };
        Self { journal, lines, config, live }
    }

    /// All nodes restart: the pause before is over.
    pub(crate) fn restart(&mut self, generation: u32) {
        self.journal.restart(generation);
        self.live = live(self.config);
    }

    /// Shows what happened.
    pub(crate) fn show(&mut self, event: &Event) {
        self.journal.event(event);
        let Some(line) = self.lines.describe(event) else { return };
        match &self.live {
            _ if self.config.quiet => {}
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

/// Turns events into lines; remembers the last one, so that only changes are shown.
#[derive(Debug)]
struct EventLines {
    job: JobId,
    world: WorldSize,
    /// Whether the world may form without some of the nodes.
    may_be_small: bool,
    /// This host, which is not told that it has joined.
    host: HostName,
    /// It has joined a leader, which has not announced it yet.
    joins: bool,
    joined: u32,
    last: String,
}

impl EventLines {
    fn new(job: JobId, world: WorldSize, host: HostName) -> Self {
        let may_be_small = world.is_range();
        Self { job, world, may_be_small, host, joins: false, joined: 1, last: String::new() }
    }

    /// The line for an event, unless it is the same as the last one.
    fn describe(&mut self, event: &Event) -> Option<String> {
        let line = match event {
            Event::Leading => {
                format!("1 of {} of job {} here; looking for others", nodes(self.world), self.job)
            }
            Event::Following(leader) => {
                self.joins = true;
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
            Event::Preparing { .. } if self.world.max().get() == 1 => return None,
            Event::Preparing { round: 1 } if self.may_be_small => {
                "the world forms of those who are here; proving that each reaches the others".to_owned()
            }
            Event::Preparing { round: 1 } => {
                "all nodes are here; proving that each reaches the others".to_owned()
            }
            // A faulty leader may begin thousands of rounds.
            Event::Preparing { round } if *round > 4 && !round.is_power_of_two() => return None,
            Event::Preparing { round } => format!("proving that each node reaches the others, round {round}"),
            Event::FirstCause(over) => format!("the first cause: {over}"),
            // A warning before it says why a node steps down; the caller shows the end; events of later
            // versions are not known.
            _ => return None,
        };
        if line == self.last {
            return None;
        }
        self.last.clone_from(&line);
        Some(line)
    }

    /// `3 of 4 nodes here (node-b joined), missing rank 2`.
    fn progress(&mut self, progress: &Progress) -> String {
        let new = progress.joined.saturating_sub(self.joined);
        let gone = self.joined.saturating_sub(progress.joined);
        self.joined = progress.joined;

        let mut line = format!("{} of {} nodes here", progress.joined, progress.world);
        // Writing to a string cannot fail.
        let new = usize::try_from(new).unwrap_or(usize::MAX);
        let mut newest: Vec<&HostName> = progress.newest.iter().take(new).collect();
        // Of several nodes on this host, one is this node itself.
        let own = newest.iter().rposition(|host| **host == self.host).filter(|_| self.joins);
        let new = new - own.iter().count();
        if let Some(own) = own {
            newest.remove(own);
            self.joins = false;
        }
        let names: Vec<&str> = newest.into_iter().map(HostName::as_str).collect();
        if gone > 0 {
            let _ = write!(line, " ({gone} left)");
        } else if !names.is_empty() {
            let others = match new.saturating_sub(names.len()) {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            let _ = write!(line, " ({}{others} joined)", names.join(", "));
        }
        // A node that has waited takes the rank of a node that is missing.
        if !progress.missing.is_empty() && progress.joined < progress.world.max().get() {
            let _ = write!(line, ", missing {}", RankRange::list(&progress.missing));
        }
        line
    }
}

fn nodes(world: WorldSize) -> String {
    if world.max().get() == 1 { "1 node".to_owned() } else { format!("{world} nodes") }
}

#[cfg(test)]
mod tests {
    use mingle_core::proto::Peer;

    use super::*;

    fn lines() -> EventLines {
        EventLines::new("foo".parse().unwrap(), "8".parse().unwrap(), HostName::new("own"))
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
            (Event::LostLeader(leader()), "lost the leader node-a (10.0.0.1:29503); looking for another"),
            (here(1, &[], &[]), "1 of 8 nodes here"),
            (here(2, &["b"], &[(2, 2)]), "2 of 8 nodes here (b joined), missing rank 2"),
            (
                here(4, &["d", "c", "b"], &[(1, 1), (4, 7)]),
                "4 of 8 nodes here (d, c joined), missing ranks 1, 4-7",
            ),
            (here(3, &["d", "c"], &[]), "3 of 8 nodes here (1 left)"),
            (here(4, &["own", "d"], &[]), "4 of 8 nodes here"),
            // A node that has waited takes the rank of a node that is missing.
            (here(8, &["8", "7"], &[(2, 2)]), "8 of 8 nodes here (8, 7 and 2 more joined)"),
            (
                Event::Warning(Warning::Unconnectable { endpoint: leader().address, elsewhere: None }),
                "warning: others join, but none of them can connect to 10.0.0.1:29503 over TCP, so this node does \
                 not lead; in the firewall of this host, accept UDP 29499, TCP and UDP 29500-29999 (or those of --multicast and \
                 --master-port), and TCP 32768-60999 from the other nodes",
            ),
            (Event::Preparing { round: 1 }, "all nodes are here; proving that each reaches the others"),
            (Event::Preparing { round: 2 }, "proving that each node reaches the others, round 2"),
        ] {
            assert_eq!(lines.describe(&event).as_deref(), Some(line));
        }
    }

    #[test]
    fn a_line_is_not_repeated() {
        let mut lines = lines();
        assert!(lines.describe(&here(2, &[], &[])).is_some());
        assert_eq!(lines.describe(&here(2, &[], &[])), None);
        assert!(lines.describe(&here(2, &[], &[(7, 7)])).is_some());
    }
}
