//! The rounds of a leader: which reports count, what they are held against, and how it ends.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::{Leader, announced_by, endpoints, id, idle, is_refusal, masters, ms, part, said, to, voided};
use crate::model::{Fault, Link, List, Paths, Rank, Trait, Traits};
use crate::proto::{DialId, Event, Failure, Output, PathDial, PathNews};
use crate::wire::{Answer, Broken, BrokenTo, Count, NodeInfo, Prepare, Reach, Refusal, Said, Welcome};

/// The rounds that were prepared.
pub(super) fn rounds(outputs: &[Output]) -> Vec<u64> {
    let rounds = outputs.iter().filter_map(|output| match output {
        Output::Event(Event::Preparing { round }) => Some(*round),
        _ => None,
    });
    rounds.collect()
}

/// The nodes to which this round is prepared, each once.
pub(super) fn prepared(outputs: &[Output], round: u64) -> Vec<u8> {
    let nodes = said(outputs).into_iter().filter_map(|(to, said)| match said {
        Said::Prepare(prepare) if prepare.round == round => Some(to),
        _ => None,
    });
    nodes.collect::<BTreeSet<u8>>().into_iter().collect()
}

pub(super) fn failure(outputs: &[Output]) -> Option<&Failure> {
    outputs.iter().find_map(|output| match output {
        Output::Event(Event::Failed(failure)) => Some(failure),
        _ => None,
    })
}

/// The paths from a node to these nodes are broken.
pub(super) fn broken(round: u64, partners: &[u8], more: u32) -> Said {
    // The rounds are on two networks in turn.
    let network = usize::from(round.is_multiple_of(2));
    let to = |&partner: &u8| BrokenTo {
        partner: id(partner),
        path: endpoints(partner)[network],
        fault: Fault::Refused,
        own_port_answers: false,
    };
    part(round, Answer::Broken(Broken { paths: partners.iter().map(to).collect(), more }))
}

/// How a node says where paths to it are proved.
fn reach(node: u8) -> Reach {
    let both = endpoints(node);
    let links = both.iter().map(|endpoint| Link { address: endpoint.ip(), prefix: 24, mtu: 1500 });
    Reach::new(40_000, links.collect::<Vec<_>>())
}

pub(super) fn with_paths(node: u8) -> impl FnOnce(&mut NodeInfo) {
    move |info| {
        info.reach = reach(node);
        info.attributes.paths = Paths::All;
    }
}

/// A leader of a world of this size that proves all paths, with these members, and what it has done so far.
fn leader_of_paths(world: u32, members: &[u8]) -> (Leader, Vec<Output>) {
    let mut leader = Leader::of(world, |config| with_paths(1)(&mut config.node));
    let mut all = Vec::new();
    for &member in members {
        all.extend(leader.join(member, with_paths(member)));
    }
    (leader, all)
}

/// The leader's connections that prove its paths.
pub(super) fn path_dials(outputs: &[Output]) -> Vec<DialId> {
    let dials = outputs.iter().filter_map(|output| match output {
        Output::DialPath(PathDial { dial, .. }) => Some(*dial),
        _ => None,
    });
    dials.collect()
}

#[test]
fn no_other_node_nor_another_round_nor_the_master_itself_voids_a_round() {
    for (from, message) in
        [(9, broken(1, &[3], 0)), (3, broken(2, &[2], 0)), (3, broken(0, &[2], 0)), (2, broken(1, &[2], 0))]
    {
        let mut leader = Leader::of(3, |config| config.node.attributes.may_be_master = false);
        leader.join(2, |_| {});
        assert_eq!(masters(&leader.join(3, |_| {}))[0].1, id(2));
        leader.hear(from, &message);
        let outputs = leader.run(ms(1000));
        assert!(rounds(&outputs).is_empty() && voided(&outputs, 3).unwrap_or(0) == 0, "{from}: {message:?}");
    }
}

#[test]
fn members_that_have_other_traits_are_refused_if_a_node_requires_that_all_have_the_same() {
    let ring: Traits = [Trait::shown("NCCL_ALGO", "Ring")].into_iter().collect();
    for (traits, is_same) in [(Traits::default(), true), (ring, false)] {
        let mut leader = Leader::of(3, |config| config.node.attributes.requires_same = true);
        let mut outputs = leader.join_with(2, &traits, |_| {});
        outputs.extend(leader.join(3, |_| {}));
        outputs.extend(leader.run(ms(300)));
        assert_eq!(prepared(&outputs, 1), if is_same { vec![2, 3] } else { vec![] });
        assert_eq!(to(&outputs, 3, is_refusal) > 0, !is_same);
    }
}

#[test]
fn after_a_master_that_was_not_reached_comes_no_member_that_alone_has_not_reached_it() {
    // If two fail, the fault is the master's.
    for (provers, master) in [(&[2][..], 3), (&[2, 3], 2)] {
        let mut leader = Leader::with(3, &[2, 3, 4]);
        for &prover in provers {
            leader.hear(prover, &broken(1, &[1], 0));
        }
        let outputs = leader.run(ms(300));
        assert_eq!(prepared(&outputs, 2), [2, 3], "both keep their seats");
        assert_eq!(masters(&outputs).last().map(|master| master.1), Some(id(master)));
    }
}

#[test]
fn a_member_that_alone_reaches_no_master_is_left_out_after_12_seconds_where_a_standby_waits() {
    for waits in [true, false] {
        let mut leader = Leader::new(5);
        let mut all = Vec::new();
        for member in 2..=if waits { 6 } else { 5 } {
            all.extend(leader.join(member, |_| {}));
        }
        for round in 1..=3 {
            let &(number, master, at) = masters(&all).last().expect("a round begins");
            assert_eq!(number, round);
            for dial in path_dials(&all) {
                leader.node.handle_path(leader.now, dial, &PathNews::Arrived);
            }
            all.extend(leader.run(ms(round * 4300 - 300)));
            let to_master =
                BrokenTo { partner: master, path: at, fault: Fault::Silent, own_port_answers: false };
            let paths = [to_master].into_iter().collect();
            all.extend(leader.hear(2, &part(round, Answer::Broken(Broken { paths, more: 0 }))));
            all.extend(leader.run(ms(round * 4300)));
        }
        // Without a standby the last one that may be master is tried.
        let (members, master) = if waits { ([3, 4, 5, 6], 1) } else { ([2, 3, 4, 5], 5) };
        assert_eq!(prepared(&all, 4), members);
        assert_eq!(masters(&all).last().map(|master| master.1), Some(id(master)));
        assert_eq!(to(&all, 2, is_refusal) > 0, waits);
    }
}

#[test]
fn masters_are_tried_until_none_is_left_whose_own_port_may_be_open() {
    // The leader may not be master, and of five members the first four are out of reach.
    let mut leader = Leader::of(6, |config| config.node.attributes.may_be_master = false);
    let mut all = Vec::new();
    for member in 2..=6 {
        all.extend(leader.join(member, |_| {}));
    }
    while leader.now < ms(30_000) && masters(&all).last().is_none_or(|&(_, master, _)| master != id(6)) {
        let &(round, master, _) = masters(&all).last().expect("a round begins");
        for member in 2..=6 {
            all.extend(leader.hear(member, &idle()));
            if id(member) != master {
                all.extend(leader.hear(member, &broken(round, &[master.0[0]], 0)));
            }
        }
        all.extend(leader.run(leader.now + Duration::from_millis(100)));
    }
    let tried: BTreeSet<_> = masters(&all).into_iter().map(|(_, master, _)| master).collect();
    assert!(tried.len() == 5 && failure(&all).is_none(), "{tried:?}: {:?}", failure(&all));
}

#[test]
fn a_given_rank_that_does_not_exist_gets_no_answer() {
    for (rank, answers) in [(1, 1), (3, 1), (4, 0), (5, 0)] {
        let mut leader = Leader::new(4);
        assert_eq!(said(&leader.join(2, |node| node.rank = Some(Rank(rank)))).len(), answers, "rank {rank}");
    }
}

/// A world of four in which these members say in each round that these paths are broken. Returns what the
/// leader does until it has ended.
fn broken_world(world: u32, members: &[u8], reports: &[(u8, &[u8], u32)]) -> (Leader, Vec<Output>) {
    let (mut leader, mut all) = leader_of_paths(world, members);
    while leader.now < ms(20_000) && !leader.node.has_ended() {
        let round = *rounds(&all).last().unwrap();
        for &member in members {
            all.extend(leader.hear(member, &idle()));
        }
        for &(from, partners, more) in reports {
            all.extend(leader.hear(from, &broken(round, partners, more)));
        }
        let outputs = leader.run(leader.now + Duration::from_millis(100));
        for dial in path_dials(&outputs) {
            leader.node.handle_path(leader.now, dial, &PathNews::Arrived);
        }
        all.extend(outputs);
    }
    (leader, all)
}

#[test]
fn two_broken_paths_are_named_and_the_others_counted() {
    for (reports, named, more) in [
        (&[(2, &[3][..], 0)][..], &[(2, 3)][..], 0),
        (&[(2, &[3, 4], 0)], &[(2, 3), (2, 4)], 0),
        (&[(2, &[3, 4], 5)], &[(2, 3), (2, 4)], 5),
        (&[(2, &[3, 4], 5), (3, &[2, 4], 1), (4, &[2], 0)], &[(2, 3), (3, 2)], 9),
        (&[(3, &[2], 0), (4, &[2], 2)], &[(3, 2), (4, 2)], 2),
    ] {
        let (_, all) = broken_world(4, &[2, 3, 4], reports);
        let Some(Failure::PathsBroken { paths, more: others }) = failure(&all) else {
            panic!("{:?}", failure(&all))
        };
        let host = |node: u8| format!("host-{node}");
        let hosts: Vec<_> =
            paths.iter().map(|path| (path.from.host.to_string(), path.to.host.to_string())).collect();
        let expected: Vec<_> = named.iter().map(|&(from, to)| (host(from), host(to))).collect();
        assert_eq!((hosts, *others), (expected, more));
        let told = said(&all).into_iter().find_map(|(_, said)| match said {
            Said::Refuse(Refusal::PathsBroken(paths, more)) => Some((paths.len(), more)),
            _ => None,
        });
        assert_eq!(told, Some((named.len(), more)));
    }
}

/// The prepares to one node.
fn prepares(outputs: &[Output], node: u8) -> Vec<Prepare> {
    let all = said(outputs).into_iter().filter(|(to, _)| *to == node);
    let prepares = all.filter_map(|(_, said)| match said {
        Said::Prepare(prepare) => Some(prepare),
        _ => None,
    });
    prepares.collect()
}

#[test]
fn a_node_without_a_port_for_paths_proves_none_and_is_nobodys_partner() {
    let mut leader = Leader::of(4, |config| with_paths(1)(&mut config.node));
    leader.join(2, with_paths(2));
    leader.join(3, |node| node.attributes.paths = Paths::All);
    let outputs = leader.join(4, with_paths(4));
    for (member, expected) in [(2, vec![id(1), id(4)]), (3, vec![]), (4, vec![id(1), id(2)])] {
        let prepares = prepares(&outputs, member);
        let [prepare] = &prepares[..] else { panic!("{prepares:?}") };
        let partners: Vec<_> = prepare.partners.iter().map(|partner| partner.id).collect();
        assert_eq!(partners, expected, "{member}");
    }
    assert_eq!(path_dials(&outputs).len(), 2, "the leader's own");
}

/// A leader whose members repeat for almost twelve seconds that these paths are broken; then these standbys
/// come, and the members say so once more. Returns what the leader does then.
fn broken_until_standbys_come(reports: &[(u8, &[u8])], more: u32, standbys: &[u8]) -> Vec<Output> {
    let (mut leader, mut all) = leader_of_paths(4, &[2, 3, 4]);
    let report = |leader: &mut Leader, all: &[Output]| {
        for dial in path_dials(all) {
            leader.node.handle_path(leader.now, dial, &PathNews::Arrived);
        }
        let round = *rounds(all).last().unwrap();
        for member in [2, 3, 4] {
            leader.hear(member, &idle());
        }
        for &(from, partners) in reports {
            leader.hear(from, &broken(round, partners, more));
        }
    };
    while leader.now < ms(11_700) {
        report(&mut leader, &all);
        let outputs = leader.run(leader.now + Duration::from_millis(300));
        all.extend(outputs);
    }
    for &standby in standbys {
        leader.join(standby, with_paths(standby));
    }
    report(&mut leader, &all);
    let outputs = leader.run(leader.now + Duration::from_millis(300));
    assert!(leader.now >= ms(12_000));
    outputs
}

#[test]
fn a_standby_takes_the_seat_of_the_member_with_most_broken_paths() {
    for others in [&[2][..], &[2, 4]] {
        let outputs = broken_until_standbys_come(&[(2, &[1, 3, 4]), (3, others)], 0, &[5]);
        assert!(to(&outputs, 2, is_refusal) > 0 && to(&outputs, 3, is_refusal) == 0, "{others:?}");
        let round = *rounds(&outputs).last().expect("another round begins");
        assert_eq!(prepared(&outputs, round), [3, 4, 5]);
    }
}

#[test]
fn two_standbys_take_the_seats_of_two_members_with_broken_paths_at_once() {
    // A report that does not name all paths says too little of the second.
    for (more, expected) in [(0, [4, 5, 6]), (1, [3, 4, 5])] {
        let outputs = broken_until_standbys_come(&[(2, &[1, 3, 4]), (3, &[1, 4])], more, &[5, 6]);
        let round = *rounds(&outputs).last().expect("another round begins");
        assert_eq!(prepared(&outputs, round), expected, "{more} more");
    }
}

#[test]
fn a_leader_that_has_joined_another_starts_no_round_of_its_own() {
    let six = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 2], 29500));
    for yields in [false, true] {
        let mut leader = Leader::new(2);
        // All seats are taken, and no family is common.
        leader.join(2, |node| node.endpoints = six.into());
        if yields {
            let outputs = leader.hear_announce(7, &announced_by(7, true, leader.world));
            leader.node.open(leader.now, 7, &outputs);
            let count = Count { joined: 1, newest: List::default(), missing: List::default() };
            let welcome = Welcome { count, trouble: None, void: 0 };
            leader.hear(7, &Said::Welcome(welcome));
        }
        let outputs = leader.run(ms(14_000));
        let reason = |said: &Said| matches!(said, Said::Refuse(Refusal::NoCommonFamily(..)));
        assert_eq!(to(&outputs, 2, reason) > 0, !yields);
    }
}
