//! Recorded worlds: each node of them does what it did when they were recorded, to the last byte and
//! microsecond.
//!
//! Other tests ask whether a promise holds, and a promise leaves a node many ways to keep it. This one asks
//! whether anything has changed at all. After a refactoring nothing has. After an intended change the traces
//! of a world before and after show what it brings, and MINGLE_BLESS=1 records the worlds anew.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::any_world::any_world;
use crate::network::{Fact, Network};
use crate::number;
use crate::tally::Kind;

/// The digest of a world's trace, and its lines, which say how much happens in it.
fn line(name: &str, seed: u64, net: &Network) -> String {
    let digest = blake3::hash(net.trace.as_bytes()).to_hex();
    format!("{name} {seed}: {} lines, {}", net.trace.lines().count(), &digest[..16])
}

/// Compares the worlds of these seeds of each kind with the file of this name, or with MINGLE_BLESS=1 writes
/// the file.
pub(crate) fn are_as_recorded<K: Kind>(name: &str, seeds: u64) {
    let seeds = K::ALL.iter().flat_map(|&kind| (0..seeds).map(move |seed| (kind, seed)));
    compare(name, seeds.map(|(kind, seed)| line(&format!("{kind:?}"), seed, &kind.run(seed, true).0)));
}

/// The same for worlds of one kind.
pub(crate) fn compare(name: &str, worlds: impl Iterator<Item = String>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sim/recorded").join(name);
    let mut now = String::new();
    for world in worlds {
        writeln!(now, "{world}").unwrap();
    }
    if std::env::var_os("MINGLE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &now).unwrap();
    }
    let before = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let other: Vec<&str> = now.lines().filter(|line| !before.lines().any(|old| old == *line)).collect();
    assert!(
        now == before,
        "{} worlds run in another way than when {name} was recorded. CONTRIBUTING.md, The simulator, says how to \
         see what has changed. They are now:\n{}",
        other.len(),
        other.join("\n")
    );
}

/// What happens in some of the worlds with any options: a change of it is not seen otherwise.
const SEEN: &[Fact] = &[
    Fact::LeaderPausedLong,
    Fact::CutInRound,
    Fact::PowerLostInRound,
    Fact::VeryLate,
    Fact::CommandFailed,
    Fact::Released,
    Fact::DeclaredGone,
    Fact::PausedRunning,
    Fact::CutRunning,
    Fact::KeptRank,
    Fact::TookASeat,
    Fact::Grew,
    Fact::Smaller,
    Fact::Stepped,
    Fact::PathBroken,
];

#[test]
fn worlds_with_any_options_run_as_recorded() {
    if let Some(seed) = number("MINGLE_SEED") {
        eprintln!("{}", any_world(seed).trace);
        return;
    }
    let worlds: Vec<Network> = (0..60).map(any_world).collect();
    for fact in SEEN {
        assert!(worlds.iter().any(|net| net.history.facts.contains_key(fact)), "{fact:?} in no world");
    }
    compare("any.txt", (0..).zip(&worlds).map(|(seed, net)| line("any", seed, net)));
}

#[test]
fn random_worlds_run_as_recorded() {
    compare("random.txt", (0..100).map(|seed| line("random", seed, &crate::random_world(seed))));
}
