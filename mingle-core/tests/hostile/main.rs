//! Input that no node sends must neither crash nor hang a node, nor break what is promised to it. The fuzz
//! targets in `fuzz/` run the same program, guided by coverage.
#![allow(unreachable_pub, reason = "a module of a test")]

mod limits;
mod machine;
mod scenarios;

use std::collections::BTreeSet;

use machine::cells::{Cell, Cells, Name, RECIPIENTS, Recipient, Way};
use machine::stages::{Play, STAGES, Stage, id, stranger};
use machine::{Attack, Bytes};
use mingle_core::proto::testing::{Forger, KINDS, Phase, SAID, name};
use mingle_core::proto::{NodeId, TOKEN};
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
    fn any_bytes_in_place_of_a_token_are_none(stage in 0..STAGES.len(), bytes in vec(any::<u8>(), TOKEN)) {
        let token: [u8; TOKEN] = bytes.try_into().expect("as long as a token");
        let mut play = STAGES[stage].play(token[0] % 2 == 1);
        assert_eq!(play.link.node(|node, _| node.path_target().answer(&token)), Some(None));
    }

    #[test]
    fn a_frame_with_any_numbers_in_any_name_does_no_harm(
        stage in 0..STAGES.len(),
        name in 0..6usize,
        kind in 0..SAID.len(),
        (number, read) in (any::<u64>(), prop_oneof![any::<u64>(), 0..8u64]),
        fields in vec(any::<u8>(), 0..200),
    ) {
        let mut play = STAGES[stage].play(fields.len() % 2 == 1);
        let name = play.scene.nodes[name % play.scene.nodes.len()];
        if let Some(conn) = play.intrude(name) {
            let frame = Forger::frame(SAID[kind].0, number, read, &play.scene, &fields);
            play.link.write(conn, frame.expect("a kind of frame"));
        }
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

/// How often each is written. What follows is up to chance.
const TIMES: usize = 3;

/// What an attacker writes to a node in this situation: a message of every kind to every recipient, and a
/// frame of every kind in every name, each with the name if that is not up to chance.
fn attacks(play: &Play) -> Vec<(u8, Way, Option<NodeId>)> {
    let datagrams = KINDS.iter().flat_map(|(kind, _)| {
        RECIPIENTS.map(|recipient| (*kind, Way::Datagram(recipient), None)).repeat(TIMES)
    });
    let names = play.peers.iter().map(|&peer| (id(peer), Name::Node));
    let names: Vec<_> = names.chain([(id(20), Name::Stranger)]).collect();
    let frames = SAID.iter().flat_map(|(kind, _)| {
        let frame = |&(name, whose)| (*kind, Way::Session(whose), Some(name));
        names.iter().map(frame).collect::<Vec<_>>().repeat(TIMES)
    });
    datagrams.chain(frames).collect()
}

/// Attacks a node in this situation in every way, each time followed by a random program.
fn attack_in(stage: &Stage, number: usize) -> Cells {
    let mut cells = Cells::new();
    for (at, (kind, way, sender)) in attacks(&stage.play(false)).into_iter().enumerate() {
        let seed = u64::try_from(number * 10_000 + at).expect("a small number");
        let mut play = stage.play(seed % 8 == 7);
        let program: Vec<u8> = random(seed).take(120).collect();
        let chosen = play.scene.nodes[usize::from(program[0]) % play.scene.nodes.len()];
        let attack = Attack { kind, way, sender: sender.unwrap_or(chosen), source: stranger(1) };
        let harm = std::panic::catch_unwind(move || {
            // What the decoder drops leaves the node as it was.
            let Some(reached) = attack.send(&mut play, &program[1..60]) else { return Cells::new() };
            let mut cells = machine::run_in(&mut play, &mut Bytes::new(&program[60..]));
            cells.insert(reached);
            cells
        });
        let Ok(reached) = harm else {
            panic!("{}: {} by {way:?}, seed {seed}", stage.name, named(kind, way));
        };
        cells.extend(reached);
    }
    cells
}

/// The name of what is sent.
fn named(kind: u8, way: Way) -> &'static str {
    match way {
        Way::Datagram(..) => name(kind),
        Way::Session(_) => SAID.iter().find(|(number, _)| *number == kind).expect("a kind of frame").1,
    }
}

#[test]
fn in_every_phase_whatever_arrives_by_datagram_or_session_does_no_harm() {
    let workers = std::thread::available_parallelism().map_or(2, usize::from).min(4);
    let cells: Cells = std::thread::scope(|scope| {
        let work = |worker| {
            let mine = STAGES.iter().enumerate().skip(worker).step_by(workers);
            mine.flat_map(|(number, stage)| attack_in(stage, number)).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no harm")).collect()
    });
    let expected: Cells =
        STAGES.iter().flat_map(|stage| expected_in(stage.phase, &stage.play(false))).collect();
    let missed: Vec<_> = expected.difference(&cells).copied().map(shown).collect();
    eprintln!("reached {} cells", cells.len());
    assert!(missed.is_empty(), "{} not reached: {}", missed.len(), missed.join("; "));
    let strange = cells.iter().find(|cell| !is_well_formed(cell.kind, cell.way));
    assert!(strange.is_none(), "decoded: {strange:?}");
}

fn shown(Cell { phase, kind, way }: Cell) -> String {
    format!("{phase:?}: {} by {way:?}", named(kind, way))
}

/// What reaches a node in this situation.
fn expected_in(phase: Phase, play: &Play) -> Vec<Cell> {
    let attacks = attacks(play).into_iter();
    let reach = attacks.filter(|(kind, way, _)| match way {
        Way::Datagram(..) => is_well_formed(*kind, *way),
        Way::Session(_) => has_sessions(phase),
    });
    reach.map(|(kind, way, _)| Cell { phase, kind, way }).collect()
}

fn has_sessions(phase: Phase) -> bool {
    ![Phase::Looking, Phase::StandsAside, Phase::Ended].contains(&phase)
}

/// Whether a message of this kind passes the decoder: it drops one to a recipient that PROTOCOL.md does not
/// permit for its kind. Every frame passes.
fn is_well_formed(kind: u8, way: Way) -> bool {
    let Way::Datagram(recipient) = way else { return true };
    let to_all = ["Announce", "Solicit", "Hint", "Query"];
    match recipient {
        Recipient::All => to_all.contains(&name(kind)),
        Recipient::Anyone => ["Announce", "Solicit"].contains(&name(kind)),
        Recipient::One => name(kind) != "Query",
    }
}

#[test]
fn a_node_that_neither_leads_nor_follows_answers_no_session() {
    for stage in STAGES {
        let mut play = stage.play(false);
        assert_eq!(play.intrude(id(20)).is_some(), has_sessions(stage.phase), "{}", stage.name);
        // Nor does any node speak to itself.
        assert_eq!(play.intrude(play.link.own_id()), None, "{}", stage.name);
    }
}
