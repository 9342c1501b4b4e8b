//! Running worlds in trouble: up to 40 nodes with one or several addresses, whose commands fail or end, and
//! that are stopped, cut off, killed and replaced.
//!
//! `worlds` makes the worlds; here they run, and it is checked what is promised: one world for each lineage,
//! one MASTER_ADDR, nobody that lives and can be reached is declared gone, and in the end all that live are
//! in one world.

mod worlds;

use std::collections::{BTreeMap, BTreeSet};

use mingle_core::Failure;
use mingle_core::proto::{Digest, Lineage, Time};

use crate::network::{Ended, Fact, Network};
use crate::storms::excuses::{broken, in_doubt, unproved};
use crate::storms::promises::check_commits;
use crate::tally::{Checked, Kind, keep_every_promise};
use worlds::make;

/// A kind of trouble for a running world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Commands fail and end well.
    Commands,
    /// Nodes are killed or lose power, and start again there or elsewhere.
    Deaths,
    /// Processes are stopped for up to 60 s.
    Pauses,
    /// Nothing passes from some hosts to others for up to 60 s, and a newcomer asks.
    Cuts,
    /// The network falls into halves for up to 60 s.
    Halves,
    /// The same and deaths, of a world that goes on with fewer nodes, grows, and has nodes that wait.
    Elastic,
    /// All of it.
    Mixed,
}

/// How long it takes at most, after the last trouble, until all that live are in one world. A newcomer may
/// have to wait 15 s for the next look, that takes up to 12 s, and a candidate that could not be joined is
/// ignored for up to 60 s.
const AGAIN: Time = Time::from_secs(120);

/// The interval between two looks at that.
const STEP: Time = Time::from_millis(100);

impl Kind for Trouble {
    const ALL: &'static [Self] =
        &[Self::Commands, Self::Deaths, Self::Pauses, Self::Cuts, Self::Halves, Self::Elastic, Self::Mixed];
    const ENOUGH: u64 = 0;

    fn runs(self) -> u64 {
        40
    }

    fn evidence(self) -> &'static [(Fact, u64)] {
        match self {
            Self::Commands => &[(Fact::CommandFailed, 500), (Fact::Again, 500), (Fact::Released, 200)],
            Self::Deaths => &[(Fact::MemberLost, 800), (Fact::DeclaredGone, 100), (Fact::Again, 800)],
            Self::Pauses => &[(Fact::PausedRunning, 800), (Fact::Again, 300)],
            Self::Cuts | Self::Halves => &[(Fact::CutRunning, 400), (Fact::Again, 300)],
            Self::Elastic => {
                &[(Fact::Smaller, 100), (Fact::TookASeat, 100), (Fact::KeptRank, 500), (Fact::Grew, 30)]
            }
            Self::Mixed => &[
                (Fact::MemberLost, 150),
                (Fact::PausedRunning, 50),
                (Fact::CutRunning, 200),
                (Fact::VeryLate, 100),
                (Fact::VerySlow, 50),
            ],
        }
    }

    fn run(self, seed: u64, tracing: bool) -> (Network, Result<Checked, String>) {
        let (net, took) = run(seed, self, tracing);
        let excuses = check(&net, took);
        (net, excuses.map(|excuses| Checked { took, excuses }))
    }
}

/// Runs the world of a seed until its troubles are over and all that live are in one world, or too late.
/// Returns how long that took after the last trouble.
fn run(seed: u64, trouble: Trouble, tracing: bool) -> (Network, Option<Time>) {
    let (mut net, calm) = make(seed, trouble);
    net.tracing = tracing;
    net.run_until(calm, |_| false);
    let calm = calm.max(net.healed);
    let mut took = Time::ZERO;
    while took <= AGAIN && !is_settled(&net) {
        took += STEP;
        net.run_until(calm + took, |_| false);
    }
    (net, Some(took).filter(|&took| took <= AGAIN))
}

/// Whether all members of one world run in it, or have finished. A node more waits. Where the world may have
/// one of several sizes, no other world may be left.
fn is_settled(net: &Network) -> bool {
    let mut worlds: BTreeMap<Digest, (u32, u32)> = BTreeMap::new();
    for host in &net.hosts {
        let runs = host.running.as_ref().is_some_and(|running| running.lineage() == host.config.lineage);
        if let Some(Ok(formed)) = host.outcome.as_ref().filter(|_| runs || host.finished) {
            worlds.entry(formed.digest).or_insert((0, formed.world.get())).0 += 1;
        }
    }
    let is_range = net.hosts[0].config.world.is_range();
    worlds.values().any(|(here, size)| here == size) && (!is_range || worlds.len() == 1)
}

/// Whether one world is whole, or nodes wait for one, and any other node runs in a world of another origin:
/// it was cut off while the others ended, and their processes started anew. Nobody tells it that its world is
/// over.
fn runs_in_another_origin(net: &Network) -> bool {
    let mut worlds: BTreeMap<Lineage, (u32, u32)> = BTreeMap::new();
    for host in &net.hosts {
        let lineage = host.config.lineage;
        let runs = host.running.as_ref().is_some_and(|running| running.lineage() == lineage);
        if let Some(Ok(formed)) = host.outcome.as_ref().filter(|_| runs || host.finished) {
            worlds.entry(lineage).or_insert((0, formed.world.get())).0 += 1;
        }
    }
    let whole: Vec<Lineage> =
        worlds.iter().filter(|(_, (here, size))| here == size).map(|(lineage, _)| *lineage).collect();
    let waiting = net.hosts.iter().filter(|host| host.node.is_some()).map(|host| host.config.lineage);
    let awaited: Vec<Lineage> = waiting.collect::<BTreeSet<_>>().into_iter().collect();
    let candidates = if whole.is_empty() { awaited } else { whole };
    let [one] = &candidates[..] else { return false };
    worlds.keys().all(|lineage| lineage == one || lineage.origin != one.origin)
}

/// Checks what is promised, whenever the run has ended. Returns the excuses.
fn check(net: &Network, took: Option<Time>) -> Result<BTreeSet<&'static str>, String> {
    if let Some(broken) = net.broken.first() {
        return Err(broken.clone());
    }
    let mut excuses = check_commits(net)?;
    for end in &net.history.ends {
        if let Ended::Failed(failure) = &end.how {
            // A process that was stopped reads what its leader has sent before.
            let since = end.at.saturating_sub(Time::from_secs(90));
            let sent = end.at.saturating_sub(net.paused_in(end.host, since, end.at));
            let excuse = match failure {
                Failure::OutcomeUnknown { .. } => in_doubt(net, end),
                Failure::WorldFull { .. } | Failure::JobFinished => Some("one node too many"),
                Failure::MasterUnproved { pairs } => unproved(net, pairs, end.at),
                Failure::PathsBroken { paths, .. } => {
                    broken(net, paths, end.at).or_else(|| broken(net, paths, sent))
                }
                // Nobody requires it, but members that have used it go on without a newcomer that cannot.
                Failure::NoRdma { .. } => Some("it would take RDMA away"),
                _ => None,
            };
            excuses.insert(excuse.ok_or_else(|| format!("{}: {failure}", end.host))?);
        }
    }
    excuses.extend(check_worlds(net)?);
    if took.is_none() && runs_in_another_origin(net) {
        excuses.insert("all others have started anew while it was cut off");
    } else if took.is_none() {
        let state = net.hosts.iter().enumerate().map(|(at, host)| {
            let what = match (&host.running, &host.node) {
                (Some(running), _) => format!("runs in {:?}", running.lineage()),
                (_, Some(_)) => format!("waits in {:?}", host.config.lineage),
                _ if host.finished => "has finished".to_owned(),
                _ => "is gone".to_owned(),
            };
            format!("{at} {what}")
        });
        return Err(format!("not in one world: {}", state.collect::<Vec<_>>().join(", ")));
    }
    Ok(excuses)
}

/// Whether only the leader of a world runs in it: the others were in doubt, and started again.
fn runs_alone(net: &Network, digest: Digest) -> bool {
    let mut formations = net.history.formations.iter().filter(|formed| formed.digest == digest);
    let (Some(only), None) = (formations.next(), formations.next()) else { return false };
    let mut ends = net.history.ends.iter().filter(|end| end.bound_to == Some(only.id)).peekable();
    ends.peek().is_some()
        && ends.all(|end| matches!(&end.how, Ended::Failed(Failure::OutcomeUnknown { .. }) | Ended::Killed))
}

/// One lineage has one world, whose nodes have different ranks and print one MASTER_ADDR, except for those
/// that warn. Returns the excuse where it had two.
fn check_worlds(net: &Network) -> Result<Option<&'static str>, String> {
    let mut digests: BTreeMap<Lineage, Digest> = BTreeMap::new();
    let mut masters = BTreeMap::new();
    let mut ranks: BTreeMap<(Digest, u32), usize> = BTreeMap::new();
    let mut excuse = None;
    for formed in &net.history.formations {
        if *digests.entry(formed.lineage).or_insert(formed.digest) != formed.digest {
            let fewest = usize::try_from(net.hosts[0].config.world.min().get()).unwrap();
            let first = digests[&formed.lineage];
            excuse = Some(match formed.beside_another {
                _ if runs_alone(net, first) || runs_alone(net, formed.digest) => {
                    "all members of a leader were in doubt"
                }
                false => "a node that missed a formation met one that had started again",
                true if net.hosts.len() >= 2 * fewest => "the hosts are enough for two worlds",
                true => return Err(format!("two worlds of {:?}", formed.lineage)),
            });
        }
        if *ranks.entry((formed.digest, formed.rank)).or_insert(formed.host) != formed.host {
            return Err(format!("two nodes have rank {} of {:?}", formed.rank, formed.lineage));
        }
        if !formed.elsewhere && *masters.entry(formed.digest).or_insert(formed.master) != formed.master {
            return Err(format!("MASTER_ADDR differs in {:?}, and nobody warns", formed.lineage));
        }
    }
    Ok(excuse)
}

#[test]
fn running_worlds_in_trouble_keep_every_promise() {
    keep_every_promise::<Trouble>();
}
