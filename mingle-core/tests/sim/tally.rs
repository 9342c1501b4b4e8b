//! The worlds of each kind of trouble: how long they took, what excused a node, and whether the trouble came
//! about.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mingle_core::proto::Time;

use crate::network::{Fact, Network};
use crate::number;

/// The most broken promises of one kind that are printed.
const MOST: usize = 10;

/// The result of a world.
pub(crate) struct Checked {
    /// How long the world took after the last start or the last trouble, if one has formed.
    pub(crate) took: Option<Time>,
    /// The reasons for which nodes have ended without the world that was promised to them.
    pub(crate) excuses: BTreeSet<&'static str>,
}

/// A kind of trouble.
pub(crate) trait Kind: fmt::Debug + Copy + 'static {
    const ALL: &'static [Self];
    /// From this many worlds on, the facts must be in their share of them.
    const ENOUGH: u64;

    /// How many worlds of this kind are run by default.
    fn runs(self) -> u64;

    /// The facts of this kind, each with the least number of 1,000 worlds that must have it. Otherwise the
    /// worlds have passed without the trouble that they are about.
    fn evidence(self) -> &'static [(Fact, u64)];

    /// Runs the world of a seed to its end, with a trace or without, and checks what is promised.
    fn run(self, seed: u64, tracing: bool) -> (Network, Result<Checked, String>);
}

/// Runs worlds of every kind. `MINGLE_TROUBLE=Pause` runs that kind alone, and with `MINGLE_SEED=n` one world
/// of it, whose trace is printed.
pub(crate) fn keep_every_promise<K: Kind>() {
    let wanted = std::env::var("MINGLE_TROUBLE").ok();
    let is_wanted = |kind: &&K| wanted.as_ref().is_none_or(|name| format!("{kind:?}") == *name);
    let mut wrong = Vec::new();
    for kind in K::ALL.iter().filter(is_wanted) {
        if let (Some(seed), Some(_)) = (number("MINGLE_SEED"), &wanted) {
            let (net, checked) = kind.run(seed, true);
            eprintln!("{}\n{:?}", net.trace, checked.map(|checked| checked.excuses));
            continue;
        }
        let mut tally = Tally::default();
        for seed in 0..number("MINGLE_SIM_RUNS").unwrap_or(kind.runs()) {
            tally.add(*kind, seed);
        }
        wrong.extend(tally.finish(*kind));
    }
    assert!(wrong.is_empty(), "{} broken promises:\n{}", wrong.len(), wrong.join("\n"));
}

/// The results of the worlds of one kind.
#[derive(Default)]
struct Tally {
    runs: u64,
    took: Vec<(Time, u64)>,
    excuses: BTreeMap<&'static str, u64>,
    facts: BTreeMap<Fact, u64>,
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, kind: impl Kind, seed: u64) {
        let (net, checked) = kind.run(seed, false);
        self.runs += 1;
        for fact in net.history.facts.keys() {
            *self.facts.entry(*fact).or_default() += 1;
        }
        match checked {
            Ok(checked) => {
                self.took.extend(checked.took.map(|time| (time, seed)));
                for excuse in checked.excuses {
                    *self.excuses.entry(excuse).or_default() += 1;
                }
            }
            Err(why) => self.wrong.push(format!("MINGLE_TROUBLE={kind:?} MINGLE_SEED={seed}: {why}")),
        }
    }

    /// Prints what was seen. Returns the promises that were broken, and the trouble that was missing.
    fn finish<K: Kind>(mut self, kind: K) -> Vec<String> {
        self.took.sort_unstable();
        if let Some(last) = self.took.len().checked_sub(1) {
            let at = |share: usize| self.took[last * share / 1000];
            eprintln!(
                "{kind:?}: {} of {} worlds formed; median {:?}, 99% {:?}, 99.9% {:?}, all {:?} (seed {})",
                self.took.len(),
                self.runs,
                at(500).0,
                at(990).0,
                at(999).0,
                at(1000).0,
                at(1000).1
            );
        }
        for (excuse, worlds) in &self.excuses {
            eprintln!("    excused in {worlds} of {} worlds: {excuse}", self.runs);
        }
        for &(fact, least) in kind.evidence() {
            let worlds = self.facts.get(&fact).copied().unwrap_or_default();
            eprintln!("    {fact:?} in {worlds} of {} worlds", self.runs);
            if self.runs >= K::ENOUGH && worlds * 1000 < least * self.runs {
                self.wrong.push(format!("{kind:?}: {fact:?} in {worlds} of {} worlds alone", self.runs));
            }
        }
        self.wrong.truncate(MOST);
        self.wrong
    }
}
