//! A member in a round: prepare, roster, ready, void and commit.

use std::net::SocketAddr;

use super::{
    LEADER, ME, announce, candidate, commit, config, has_formed, hear, hear_datagram, is_ready, joined, said,
    says, told, with_roster,
};
use crate::model::Digest;
use crate::proto::Config;
use crate::proto::tests::{endpoint, id};
use crate::wire::{Prepare, Said};

#[test]
fn a_commit_of_another_round_forms_no_world() {
    let (mut node, prepare) = joined(config(2));
    let prepared = hear(&mut node, &Said::Prepare(Prepare { round: 7, ..prepare }));
    assert!(says(&prepared, is_ready), "{prepared:?}");
    for round in [0, 6, 8] {
        let outputs = hear(&mut node, &commit(round));
        assert!(!has_formed(&outputs), "round {round}");
    }
    assert!(has_formed(&hear(&mut node, &commit(7))));
}

#[test]
fn a_follower_ignores_a_prepare_that_no_honest_leader_sends() {
    type Change = fn(&mut Prepare, &mut Config);
    let loopback: SocketAddr = "127.0.0.1:22".parse().unwrap();
    let changes: [(&str, Change); 10] = [
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
    ];
    for (what, change) in changes {
        let mut config = config(3);
        let (_, mut wrong) = joined(config.clone());
        change(&mut wrong, &mut config);
        if what.contains("loopback") {
            wrong.master_at = loopback;
        }
        let (mut node, right) = joined(config.clone());
        let told = hear(&mut node, &Said::Prepare(wrong));
        assert_eq!(said(&told), [], "{what}");
        assert!(!node.is_bound(), "{what}");
        let told = hear(&mut node, &Said::Prepare(right));
        assert!(says(&told, is_ready) && node.is_bound(), "{what}: {told:?}");
    }
}

#[test]
fn a_follower_of_a_given_rank_0_takes_no_other_master() {
    let (mut node, prepare) = joined(config(3));
    let explicit = candidate(LEADER, 1, true);
    hear_datagram(&mut node, 1, &announce(explicit));
    let other = Prepare { master: id(3), master_at: endpoint(3), rank: 2, ..prepare.clone() };
    assert!(!says(&hear(&mut node, &Said::Prepare(other)), is_ready));
    assert!(says(&hear(&mut node, &Said::Prepare(prepare)), is_ready));
}

#[test]
fn a_node_that_wants_the_roster_takes_part_in_a_round_whose_roster_it_was_told_before() {
    let mut config = config(2);
    config.node.attributes.wants_roster = true;
    for (round, takes_part) in [(None, false), (Some(1), false), (Some(2), true), (Some(3), false)] {
        let (mut node, prepare) = joined(config.clone());
        let (prepare, roster) = with_roster(Prepare { round: 2, ..prepare });
        round.map(|round| told(&mut node, round, &roster));
        assert_eq!(says(&hear(&mut node, &Said::Prepare(prepare)), is_ready), takes_part, "{round:?}");
    }
}

#[test]
fn a_roster_that_is_not_that_of_the_prepare_makes_no_node_ready() {
    let mut config = config(2);
    config.node.attributes.wants_roster = true;
    let (mut node, prepare) = joined(config);
    let (right, roster) = with_roster(prepare);
    let wrong = Prepare { digest: Digest([7; 16]), ..right.clone() };
    told(&mut node, 1, &roster);
    assert!(!says(&hear(&mut node, &Said::Prepare(wrong)), is_ready), "another digest");
    let elsewhere = Prepare { round: 2, slots_total: 3, ..right };
    told(&mut node, 2, &roster);
    assert!(!says(&hear(&mut node, &Said::Prepare(elsewhere)), is_ready), "other workers");
}

#[test]
fn a_prepare_of_an_earlier_round_does_not_replace_the_one_under_way() {
    let (mut node, prepare) = joined(config(2));
    let second = Prepare { round: 2, ..prepare.clone() };
    assert!(says(&hear(&mut node, &Said::Prepare(second)), is_ready));
    assert_eq!(said(&hear(&mut node, &Said::Prepare(prepare))), []);
    assert!(has_formed(&hear(&mut node, &commit(2))));
}
