//! A member in a round: prepare, roster, ready, void and commit.

use std::net::SocketAddr;

use super::{
    LEADER, ME, announce, candidate, commit, config, has_formed, hear, is_ready, joined, says, sent,
    with_roster,
};
use crate::proto::Config;
use crate::proto::tests::{endpoint, id};
use crate::wire::{Message, Part, Prepare};

#[test]
fn a_commit_of_another_round_forms_no_world() {
    let (mut node, prepare) = joined(config(2));
    let prepared = hear(&mut node, &Message::Prepare(Prepare { round: 7, ..prepare }));
    assert!(says(&prepared, is_ready), "{prepared:?}");
    for round in [0, 6, 8] {
        let outputs = hear(&mut node, &commit(round));
        assert!(!has_formed(&outputs), "round {round}");
        assert!(!says(&outputs, |message| matches!(message, Message::Done(_))), "round {round}");
    }
    assert!(has_formed(&hear(&mut node, &commit(7))));
}

#[test]
fn a_follower_ignores_a_prepare_that_no_honest_leader_sends() {
    type Change = fn(&mut Prepare, &mut Config);
    let loopback: SocketAddr = "127.0.0.1:22".parse().unwrap();
    let changes: [(&str, Change); 11] = [
        ("the given rank is not kept", |prepare, config| {
            (prepare.rank, config.node.rank) = (2, config.world.max().rank(1).ok());
        }),
        ("no such rank", |prepare, _| prepare.rank = 3),
        ("rank 0 is not the master", |prepare, _| prepare.rank = 0),
        ("the master has another rank than 0", |prepare, _| {
            (prepare.master, prepare.master_at) = (ME, endpoint(2));
        }),
        ("it is the master at another node's address", |prepare, _| {
            (prepare.master, prepare.rank, prepare.slots_before) = (ME, 0, 0);
        }),
        ("the master is at a loopback address", |_, _| {}),
        ("rank 0 has workers before it", |prepare, _| {
            (prepare.master, prepare.master_at, prepare.rank) = (ME, endpoint(2), 0);
        }),
        ("the last rank has workers after it", |prepare, _| {
            (prepare.rank, prepare.slots_total) = (2, prepare.slots_before + 2);
        }),
        ("more workers before and here than in all", |prepare, _| prepare.slots_total = 1),
        ("more workers than the world can have", |prepare, _| prepare.slots_total = u64::MAX),
        ("the roster that it wants is empty", |_, config| config.node.attributes.wants_roster = true),
    ];
    for (what, change) in changes {
        let mut config = config(3);
        let (_, mut wrong) = joined(config.clone());
        change(&mut wrong, &mut config);
        if what.contains("loopback") {
            wrong.master_at = loopback;
        }
        let (mut node, right) = joined(config.clone());
        let told = hear(&mut node, &Message::Prepare(wrong));
        assert_eq!(sent(&told), [], "{what}");
        assert!(!node.is_bound(), "{what}");
        let right = Prepare { roster_bytes: 9, ..right };
        let told = hear(&mut node, &Message::Prepare(right));
        assert!(sent(&told).len() == 1 && node.is_bound(), "{what}: {told:?}");
    }
}

#[test]
fn a_follower_of_a_given_rank_0_takes_no_other_master() {
    let (mut node, prepare) = joined(config(3));
    let explicit = candidate(LEADER, 1, true);
    hear(&mut node, &announce(explicit));
    let other = Prepare { master: id(3), master_at: endpoint(3), rank: 2, ..prepare.clone() };
    assert_eq!(sent(&hear(&mut node, &Message::Prepare(other))), []);
    assert!(says(&hear(&mut node, &Message::Prepare(prepare)), is_ready));
}

#[test]
fn a_part_of_another_rounds_roster_is_not_taken() {
    let mut config = config(2);
    config.node.attributes.wants_roster = true;
    let (mut node, prepare) = joined(config);
    let (prepare, part) = with_roster(Prepare { round: 2, ..prepare });
    hear(&mut node, &Message::Prepare(prepare));
    for (round, is_taken) in [(1, false), (3, false), (2, true)] {
        let part = Part { round, ..part.clone() };
        assert_eq!(says(&hear(&mut node, &Message::Part(part)), is_ready), is_taken, "round {round}");
    }
}

#[test]
fn a_prepare_of_an_earlier_round_does_not_replace_the_one_under_way() {
    let (mut node, prepare) = joined(config(2));
    let second = Prepare { round: 2, ..prepare.clone() };
    assert!(says(&hear(&mut node, &Message::Prepare(second)), is_ready));
    assert_eq!(hear(&mut node, &Message::Prepare(prepare)), []);
    assert!(has_formed(&hear(&mut node, &commit(2))));
}
