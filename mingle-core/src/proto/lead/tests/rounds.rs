//! The rounds of a leader: which reports count, what they are held against, and how it ends.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::{Leader, announced_by, dials, endpoints, id, is_refusal, is_void, masters, ms, sent, to};
use crate::model::{Fault, Link, Paths, Rank, Trait, Traits};
use crate::proto::timer::Time;
use crate::proto::{ConnId, DialId, Event, Failure, Output, PathDial, PathNews};
use crate::wire::{Broken, BrokenTo, Message, NodeInfo, Prepare, Reach, Refusal, Welcome};

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
    let sent = sent(outputs).into_iter();
    let nodes = sent.filter_map(|(to, message)| match message {
        Message::Prepare(prepare) if prepare.round == round => Some(to),
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
pub(super) fn broken(round: u64, partners: &[u8], more: u32) -> Message {
    // The rounds are on two networks in turn.
    let network = usize::from(round.is_multiple_of(2));
    let to = |&partner: &u8| BrokenTo {
        partner: id(partner),
        path: endpoints(partner)[network],
        fault: Fault::Refused,
        own_port_answers: false,
    };
    Message::Broken(Broken { round, paths: partners.iter().map(to).collect(), more })
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
        assert_eq!((to(&outputs, 3, is_void), rounds(&outputs)), (0, vec![]), "{from}: {message:?}");
    }
}

#[test]
fn a_strangers_hello_in_a_members_name_takes_neither_its_roster_nor_its_traits() {
    let ring: Traits = [Trait::shown("NCCL_ALGO", "Ring")].into_iter().collect();
    // The leader has no traits, and requires that all have the same.
    for (own, of_stranger, is_same) in
        [(Traits::default(), ring.clone(), true), (ring, Traits::default(), false)]
    {
        let mut leader = Leader::of(3, |config| config.node.attributes.requires_same = true);
        leader.ask(2, |node| node.attributes.wants_roster = true);
        leader.hello(2, 2, &own);
        leader.hello(2, 99, &of_stranger);
        let mut outputs = leader.join(3, |_| {});
        outputs.extend(leader.run(ms(300)));
        let told: Vec<ConnId> = outputs
            .iter()
            .filter_map(|output| match output {
                Output::Tell(conn, _) => Some(*conn),
                _ => None,
            })
            .collect();
        if is_same {
            assert_eq!((prepared(&outputs, 1), told), (vec![2, 3], vec![ConnId(2), ConnId(99)]));
        } else {
            assert!(to(&outputs, 3, is_refusal) > 0 && told.is_empty(), "{told:?}");
        }
    }
}

#[test]
fn a_member_that_alone_reaches_no_master_gives_its_seat_to_a_standby_and_blames_nobody() {
    let mut leader = Leader::with(3, &[2, 3, 4]);
    leader.hear(2, &broken(1, &[1], 0));
    let outputs = leader.run(ms(300));
    assert_eq!(prepared(&outputs, 2), [3, 4]);
    assert_eq!(masters(&outputs).last().map(|master| master.1), Some(id(1)), "the same master");
    // If two fail, the fault is the master's, and both keep their seats.
    let mut leader = Leader::with(3, &[2, 3, 4]);
    leader.hear(2, &broken(1, &[1], 0));
    leader.hear(3, &broken(1, &[1], 0));
    let outputs = leader.run(ms(300));
    assert_eq!(prepared(&outputs, 2), [2, 3]);
    assert_eq!(masters(&outputs).last().map(|master| master.1), Some(id(2)));
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
            all.extend(leader.hear(member, &Message::Pong));
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
        assert_eq!(sent(&leader.ask(2, |node| node.rank = Some(Rank(rank)))).len(), answers, "rank {rank}");
    }
}

/// A world of four in which these members say in each round that these paths are broken. Returns what the
/// leader does until it has ended.
fn broken_world(world: u32, members: &[u8], reports: &[(u8, &[u8], u32)]) -> (Leader, Vec<Output>) {
    let (mut leader, mut all) = leader_of_paths(world, members);
    while leader.now < ms(20_000) && !leader.node.has_ended() {
        let round = *rounds(&all).last().unwrap();
        for &member in members {
            all.extend(leader.hear(member, &Message::Pong));
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
        let told = sent(&all).into_iter().find_map(|(_, message)| match message {
            Message::Refuse(Refusal::PathsBroken(paths, more)) => Some((paths.len(), more)),
            _ => None,
        });
        assert_eq!(told, Some((named.len(), more)));
    }
}

/// The prepares to one node.
fn prepares(outputs: &[Output], node: u8) -> Vec<Prepare> {
    let all = sent(outputs).into_iter().filter(|(to, _)| *to == node);
    let prepares = all.filter_map(|(_, message)| match message {
        Message::Prepare(prepare) => Some(prepare),
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
        assert_eq!((partners.len(), prepare.paths), (expected.len(), u32::try_from(expected.len()).unwrap()));
        assert_eq!(partners, expected, "{member}");
    }
    assert_eq!(path_dials(&outputs).len(), 2, "the leader's own");
}

/// A leader whose members repeat for almost twelve seconds that these paths are broken; then a standby
/// comes, and they say so once more. Returns what the leader does then.
fn broken_until_a_standby_comes(reports: &[(u8, &[u8])]) -> Vec<Output> {
    let (mut leader, mut all) = leader_of_paths(4, &[2, 3, 4]);
    let report = |leader: &mut Leader, all: &[Output]| {
        for dial in path_dials(all) {
            leader.node.handle_path(leader.now, dial, &PathNews::Arrived);
        }
        let round = *rounds(all).last().unwrap();
        for member in [2, 3, 4] {
            leader.hear(member, &Message::Pong);
        }
        for &(from, partners) in reports {
            leader.hear(from, &broken(round, partners, 0));
        }
    };
    while leader.now < ms(11_700) {
        report(&mut leader, &all);
        let outputs = leader.run(leader.now + Duration::from_millis(300));
        all.extend(outputs);
    }
    leader.join(5, with_paths(5));
    report(&mut leader, &all);
    let outputs = leader.run(leader.now + Duration::from_millis(300));
    assert!(leader.now >= ms(12_000));
    outputs
}

#[test]
fn broken_paths_of_a_member_that_has_lost_its_seat_end_no_world() {
    let outputs = broken_until_a_standby_comes(&[(2, &[1, 3, 4]), (3, &[2])]);
    assert_eq!(to(&outputs, 3, is_refusal), 0, "all of them were node 2's");
    let round = *rounds(&outputs).last().expect("another round begins");
    assert_eq!(prepared(&outputs, round), [3, 4, 5]);
}

#[test]
fn broken_paths_between_other_members_end_a_world_although_one_has_lost_its_seat() {
    let outputs = broken_until_a_standby_comes(&[(2, &[1, 3, 4]), (3, &[2, 4])]);
    let named = sent(&outputs).into_iter().find_map(|(_, message)| match message {
        Message::Refuse(Refusal::PathsBroken(paths, more)) => Some((paths.into_vec(), more)),
        _ => None,
    });
    let (paths, more) = named.expect("no world can form");
    let hosts: Vec<_> = paths.iter().map(|path| (path.from.host.as_str(), path.to.host.as_str())).collect();
    assert_eq!((hosts, more), (vec![("host-3", "host-4")], 0));
}

#[test]
fn a_leader_that_has_joined_another_starts_no_round_of_its_own() {
    let six = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 2], 29500));
    for yields in [false, true] {
        let mut leader = Leader::new(2);
        // All seats are taken, and no family is common.
        leader.join(2, |node| node.endpoints = six.into());
        if yields {
            let dial = dials(&leader.hear(7, &announced_by(7, true, leader.world)), 7)[0];
            leader.node.handle_dialed(Time::ZERO, dial);
            leader.hear(7, &Message::Welcome(Welcome { lease: Some(dial.0), seated: true, trouble: None }));
        }
        let outputs = leader.run(ms(14_000));
        assert_eq!(to(&outputs, 2, is_refusal) > 0, !yields);
    }
}
