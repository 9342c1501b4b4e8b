//! Input that no node sends must neither crash nor hang a node, nor break what is promised to it. The fuzz
//! targets in `fuzz/` run the same program, guided by coverage.
#![allow(unreachable_pub, reason = "a module of a test")]

mod limits;
mod machine;
mod scenarios;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use machine::cells::{Cell, Cells, RECIPIENTS, RELATIONS, Recipient, Relation};
use machine::stages::{STAGES, Stage, stranger};
use machine::{Attack, Bytes};
use mingle_core::proto::testing::{KINDS, Phase, name};
use mingle_core::proto::{ConnId, DialId};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_as_a_datagram_do_no_harm(stage in 0..STAGES.len(), bytes in vec(any::<u8>(), 0..1400)) {
        let mut play = STAGES[stage].play(bytes.len() % 2 == 1);
        play.link.attack(stranger(1), &bytes);
    }

    #[test]
    fn any_bytes_on_a_lease_do_no_harm(stage in 0..STAGES.len(), bytes in vec(any::<u8>(), 0..200)) {
        let mut play = STAGES[stage].play(bytes.len() % 2 == 1);
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        play.link.node(|node, now| node.handle_hello(now, ConnId(1), local, local, &bytes));
        play.link.node(|node, now| node.handle_roster(now, DialId(1), &bytes));
    }

    #[test]
    fn whatever_happens_in_any_order_a_node_neither_panics_nor_hangs(program in vec(any::<u8>(), 0..400)) {
        machine::run(&program);
    }
}

#[test]
fn every_situation_is_reached_with_a_secret_and_without() {
    let mut phases = BTreeSet::new();
    for stage in STAGES {
        for has_secret in [false, true] {
            let play = stage.play(has_secret);
            assert_eq!(play.link.phase(), stage.phase, "{}", stage.name);
            phases.insert(stage.phase as usize);
        }
    }
    assert!(phases.into_iter().eq(0..=Phase::Ended as usize), "a phase has no situation");
}

/// The bytes of the program with this seed.
fn random(seed: u64) -> impl Iterator<Item = u8> {
    // SplitMix64.
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()
    })
    .flatten()
}

/// All recipients with all lineages.
fn ways() -> impl Iterator<Item = (Recipient, Relation)> {
    RECIPIENTS.into_iter().flat_map(|recipient| RELATIONS.map(|relation| (recipient, relation)))
}

/// Attacks a node in this situation with a message of every kind, recipient and lineage, each followed by a
/// random program.
fn attack_in(stage: &Stage, number: usize) -> Cells {
    let mut cells = Cells::new();
    let attacks = KINDS.iter().flat_map(|(kind, _)| ways().map(|(r, l)| (*kind, r, l)));
    for (at, (kind, recipient, relation)) in attacks.enumerate() {
        let seed = u64::try_from(number * 10_000 + at).expect("a small number");
        let mut play = stage.play(seed % 8 == 7);
        let program: Vec<u8> = random(seed).take(100).collect();
        let sender = play.scene.nodes[usize::from(program[0]) % play.scene.nodes.len()];
        let attack = Attack { kind, recipient, relation, sender, source: stranger(1) };
        let harm = std::panic::catch_unwind(move || {
            // A datagram that the decoder drops leaves the node as it was.
            let Some(reached) = attack.send(&mut play, &program[1..40]) else { return Cells::new() };
            let mut cells = machine::run_in(&mut play, &mut Bytes::new(&program[40..]));
            cells.insert(reached);
            cells
        });
        let Ok(reached) = harm else {
            panic!("{}: {} to {recipient:?}, {relation:?}, seed {seed}", stage.name, name(kind));
        };
        cells.extend(reached);
    }
    cells
}

#[test]
fn in_every_phase_a_message_of_every_kind_recipient_and_lineage_does_no_harm() {
    let workers = std::thread::available_parallelism().map_or(2, usize::from).min(4);
    let cells: Cells = std::thread::scope(|scope| {
        let work = |worker| {
            let mine = STAGES.iter().enumerate().skip(worker).step_by(workers);
            mine.flat_map(|(number, stage)| attack_in(stage, number)).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no harm")).collect()
    });
    let phases: BTreeSet<Phase> = STAGES.iter().map(|stage| stage.phase).collect();
    let mut missed = Vec::new();
    for phase in phases {
        for (kind, _) in KINDS {
            for (recipient, relation) in ways().filter(|way| is_well_formed(*kind, *way)) {
                let cell = Cell { phase, kind: *kind, recipient, relation };
                if !cells.contains(&cell) {
                    missed.push(format!("{phase:?}: {} to {recipient:?}, {relation:?}", name(*kind)));
                }
            }
        }
    }
    eprintln!("reached {} cells", cells.len());
    assert!(missed.is_empty(), "{} not reached: {}", missed.len(), missed.join("; "));
    let strange = cells.iter().find(|cell| !is_well_formed(cell.kind, (cell.recipient, cell.relation)));
    assert!(strange.is_none(), "decoded: {strange:?}");
}

/// Whether a message of this kind passes the decoder: it drops one to a recipient that PROTOCOL.md does not
/// permit for its kind, and one of a later generation without an origin.
fn is_well_formed(kind: u8, (recipient, relation): (Recipient, Relation)) -> bool {
    let to_all = ["Announce", "Solicit", "Hint", "Query"];
    let is_permitted = match recipient {
        Recipient::All => to_all.contains(&name(kind)),
        Recipient::Anyone => ["Announce", "Solicit"].contains(&name(kind)),
        Recipient::One => name(kind) != "Query",
    };
    is_permitted && relation != Relation::NoOrigin
}
