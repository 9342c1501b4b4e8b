//! Recorded worlds: each node of them does what it did when they were recorded, to the last byte and
//! microsecond.
//!
//! Other tests ask whether a promise holds, and a promise leaves a node many ways to keep it. This one asks
//! whether anything has changed at all. After a refactoring nothing has. After an intended change the traces
//! of a world before and after show what it brings, and MINGLE_BLESS=1 records the worlds anew.

use std::fmt::Write as _;
use std::path::PathBuf;

use mingle_core::proto::testing::digest;

use crate::any_world::any_world;
use crate::large::listening_world;
use crate::network::{Fact, Network};
use crate::number;
use crate::tally::Kind;

/// The digest of a world's trace, and its lines, which say how much happens in it.
fn line(name: &str, seed: u64, net: &Network) -> String {
    format!("{name} {seed}: {} lines, {}", net.trace.lines().count(), digest(net.trace.as_bytes()))
}

/// Compares the worlds of these seeds of each kind with the file of this name, or with MINGLE_BLESS=1 writes
/// the file.
pub(crate) fn are_as_recorded<K: Kind>(name: &str, seeds: u64) {
    let seeds = K::ALL.iter().flat_map(|&kind| (0..seeds).map(move |seed| (kind, seed)));
    compare(name, seeds.map(|(kind, seed)| line(&format!("{kind:?}"), seed, &kind.run(seed, true).0)));
}

/// Compares these lines, one for each world, with the file of this name, or with MINGLE_BLESS=1 writes it.
fn compare(name: &str, worlds: impl Iterator<Item = String>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sim/recorded").join(name);
    let mut now = String::new();
    for world in worlds {
        writeln!(now, "{world}").unwrap();
    }
    if std::env::var_os("MINGLE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &now).unwrap();
    }
    let before = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(now.lines().count(), before.lines().count(), "{name} has other worlds");
    let other = now.lines().zip(before.lines()).filter(|(now, before)| now != before);
    let other: Vec<&str> = other.map(|(now, _)| now).collect();
    assert!(
        other.is_empty(),
        "{} worlds run in another way than when {name} was recorded. CONTRIBUTING.md, Recorded worlds, says how \
         to see what has changed. They are now:\n{}",
        other.len(),
        other.join("\n")
    );
}

/// Each of these facts must be in at least one of the worlds with any options: otherwise they would not show
/// how nodes behave then.
const SEEN: &[Fact] = &[
    Fact::LeaderPausedLong,
    Fact::PowerLostInRound,
    Fact::VeryLate,
    Fact::CommandFailed,
    Fact::Released,
    Fact::DeclaredGone,
    Fact::PausedRunning,
    Fact::CutRunning,
    Fact::KeptRank,
    Fact::TookASeat,
    Fact::Smaller,
    Fact::PathBroken,
];

#[test]
fn worlds_with_any_options_run_as_recorded() {
    if let Some(seed) = number("MINGLE_SEED") {
        eprintln!("{}", any_world(seed).trace);
        return;
    }
    let worlds: Vec<Network> = (0..70).map(any_world).collect();
    for fact in SEEN {
        assert!(worlds.iter().any(|net| net.history.facts.contains_key(fact)), "{fact:?} in no world");
    }
    for (seed, net) in worlds.iter().enumerate() {
        assert_eq!(net.broken, [""; 0], "seed {seed}");
    }
    compare("any.txt", (0..).zip(&worlds).map(|(seed, net)| line("any", seed, net)));
}

#[test]
fn worlds_in_which_nodes_listen_first_run_as_recorded() {
    let run = |seed| line("large", seed, &listening_world(seed, true));
    compare("large.txt", (0..4).map(run));
}

#[test]
fn random_worlds_run_as_recorded() {
    compare("random.txt", (0..100).map(|seed| line("random", seed, &crate::random_world(seed))));
}
