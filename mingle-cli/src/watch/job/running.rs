//! A running world, as its members answer the watch.

use std::collections::BTreeSet;
use std::time::Duration;

use mingle_core::HostName;
use mingle_core::tools::Runs;
use serde_json::{Value, json};

use super::{HeardNode, Job, State};
use crate::watch::is_silent;

/// The members of a running world that answer.
pub(super) struct Answers<'a> {
    answered: Vec<&'a Runs>,
    /// Those that have answered before, and do not any more.
    silent: usize,
}

impl Job {
    /// The members of the world that runs; nothing where none has answered.
    pub(super) fn answers(&self, now: Duration) -> Option<Answers<'_>> {
        let all = || self.nodes.values().filter_map(|node| Some((node, node.runs.as_ref()?)));
        let answered: Vec<&Runs> =
            all().filter(|(node, _)| !is_silent(now, node.last)).map(|(_, runs)| runs).collect();
        let silent = all().count() - answered.len();
        (silent + answered.len() > 0).then_some(Answers { answered, silent })
    }
}

impl Answers<'_> {
    /// The lowest ranks that some member suspects.
    fn suspected(&self) -> BTreeSet<u32> {
        self.answered.iter().flat_map(|runs| runs.suspected.iter().copied()).collect()
    }

    fn restarts_left(&self) -> Option<u32> {
        self.answered.iter().filter_map(|runs| runs.restarts_left).min()
    }

    fn world(&self) -> Option<u32> {
        self.answered.first().map(|runs| runs.world.get())
    }

    fn finished(&self) -> usize {
        self.answered.iter().filter(|runs| runs.has_finished).count()
    }

    fn waiting(&self) -> u32 {
        self.answered.iter().map(|runs| runs.waiting).max().unwrap_or(0)
    }

    /// The lines above the table. `host` names a rank's host, if that has answered.
    pub(super) fn lines<'a>(
        &self,
        job: &str,
        generation: u32,
        host: impl Fn(u32) -> Option<&'a HostName>,
    ) -> Vec<String> {
        let Some(world) = self.world() else {
            return vec![format!(
                "job {job}: its world ran, and no node answers any more: the job has ended, or is out of reach"
            )];
        };
        let finished = match self.finished() {
            0 => String::new(),
            count => format!(", {count} of them with a command that has ended well"),
        };
        let first = format!("job {job} runs: {} of {world} nodes answer{finished}", self.answered.len());
        let left = match self.restarts_left() {
            Some(1) => ", 1 restart left".to_owned(),
            Some(left) => format!(", {left} restarts left"),
            None => String::new(),
        };
        let mut lines = vec![first, format!("generation {generation}{left}")];
        let named = self.suspected().into_iter().map(|rank| match host(rank) {
            Some(host) => format!("rank {rank} ({host})"),
            None => format!("rank {rank}"),
        });
        let named: Vec<String> = named.collect();
        if !named.is_empty() {
            lines.push(format!("suspected to be gone: {}", named.join(", ")));
        }
        match self.waiting() {
            0 => {}
            1 => lines.push("1 node waits for a seat".to_owned()),
            count => lines.push(format!("{count} nodes wait for a seat")),
        }
        lines
    }

    pub(super) fn document(&self) -> Value {
        json!({
            "world": self.world(),
            "answered": self.answered.len(),
            "silent": self.silent,
            "finished": self.finished(),
            "restarts_left": self.restarts_left(),
            "suspected": self.suspected(),
            "waiting": self.waiting(),
        })
    }

    /// The state of a member.
    pub(super) fn state(&self, now: Duration, node: &HeardNode, runs: &Runs) -> State {
        if self.suspected().contains(&runs.rank) {
            State::Suspected
        } else if is_silent(now, node.last) {
            State::Silent
        } else if runs.has_finished {
            State::Finished
        } else {
            State::Runs
        }
    }
}
