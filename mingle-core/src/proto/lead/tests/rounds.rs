//! The rounds of a leader: which reports count, what they are held against, and how it ends.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::{
    Leader, announced_by, committed, dials, endpoint, endpoints, id, is_ping, is_prepare, is_refusal,
    is_void, masters, ms, ready, sent, to,
};
use crate::model::{BrokenPath, Fault, Link, Paths, Rank};
use crate::proto::timer::Time;
use crate::proto::{ConnId, DialId, Event, Failure, Output, PathDial, PathNews};
use crate::wire::{Broken, BrokenTo, Message, NodeInfo, Prepare, Reach, Ready, Refusal, Welcome};

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
        address: endpoints(partner)[network].ip(),
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
    for (from, message) in [
        (9, Message::Unproved(1)),
        (9, broken(1, &[3], 0)),
        (3, Message::Unproved(2)),
        (3, broken(2, &[2], 0)),
        (3, Message::Unproved(0)),
        (3, broken(0, &[2], 0)),
        (2, Message::Unproved(1)),
    ] {
        let mut leader = Leader::of(3, |config| config.node.attributes.may_be_master = false);
        leader.join(2, |_| {});
        assert_eq!(masters(&leader.join(3, |_| {}))[0].1, id(2));
        leader.hear(from, &message);
        let outputs = leader.run(ms(1000));
        assert_eq!((to(&outputs, 3, is_void), rounds(&outputs)), (0, vec![]), "{from}: {message:?}");
    }
}

#[test]
fn a_member_that_alone_reaches_no_master_gives_its_seat_to_a_standby_and_blames_nobody() {
    let mut leader = Leader::with(3, &[2, 3, 4]);
    leader.hear(2, &Message::Unproved(1));
    let outputs = leader.run(ms(300));
    assert_eq!(prepared(&outputs, 2), [3, 4]);
    assert_eq!(masters(&outputs).last().map(|master| master.1), Some(id(1)), "the same master");
    // If two fail, the fault is the master's, and both keep their seats.
    let mut leader = Leader::with(3, &[2, 3, 4]);
    leader.hear(2, &Message::Unproved(1));
    leader.hear(3, &Message::Unproved(1));
    let outputs = leader.run(ms(300));
    assert_eq!(prepared(&outputs, 2), [2, 3]);
    assert_eq!(masters(&outputs).last().map(|master| master.1), Some(id(2)));
}

#[test]
fn a_member_that_alone_failed_to_reach_an_earlier_master_keeps_its_seat() {
    let mut leader = Leader::with(4, &[2, 3, 4]);
    leader.hear(2, &Message::Unproved(1));
    // Node 2 may be at fault, so node 3 is master.
    let outputs = leader.run(ms(300));
    assert_eq!(masters(&outputs).last(), Some(&(2, id(3), endpoint(3))));
    let dial = dials(&outputs, 3)[0];
    leader.node.handle_dialed(leader.now, dial);
    leader.hear(3, &Message::Proved(dial.0));
    leader.join(5, |_| {});
    leader.hear(4, &Message::Unproved(2));
    assert_eq!(prepared(&leader.run(ms(600)), 3), [2, 3, 5]);
}

#[test]
fn a_failed_proof_is_held_against_no_prover_whose_master_has_left() {
    let mut leader = Leader::of(4, |config| config.node.attributes.may_be_master = false);
    for member in [2, 3, 4] {
        leader.join(member, |_| {});
    }
    leader.hear(3, &Message::Unproved(1));
    leader.node.handle_closed(Time::ZERO, ConnId(2));
    assert_eq!(masters(&leader.join(5, |_| {}))[0], (2, id(3), endpoint(3)));
}

#[test]
fn a_world_whose_given_master_is_not_reached_has_12_seconds_and_then_names_who_did_not_reach_it() {
    let mut leader = Leader::of(3, |config| config.node.rank = Some(Rank(0)));
    let mut all = leader.join(2, |_| {});
    all.extend(leader.join(3, |_| {}));
    for step in 1..240 {
        let round = *rounds(&all).last().unwrap();
        all.extend(leader.hear(3, &Message::Unproved(round)));
        all.extend(leader.hear(2, &Message::Ready(Ready { round, endpoint: 0 })));
        assert!(masters(&all).iter().all(|&(_, master, _)| master == id(1)), "no other may be master");
        assert_eq!(to(&all, 3, is_refusal), 0, "after {:?}", leader.now);
        all.extend(leader.run(ms(50 * step)));
    }
    assert!(rounds(&all).len() > 30);
    let outputs = leader.run(ms(12_300));
    let pairs = sent(&outputs).into_iter().find_map(|(_, message)| match message {
        Message::Refuse(Refusal::MasterUnproved(pairs)) => Some(pairs.into_vec()),
        _ => None,
    });
    let pairs = pairs.expect("no node can be master");
    let hosts: Vec<_> =
        pairs.iter().map(|(prover, master)| (prover.host.as_str(), master.host.as_str())).collect();
    assert_eq!(hosts, [("host-3", "host-1")]);
    // A node that joins now learns the same.
    assert_eq!(to(&leader.ask(7, |_| {}), 7, is_refusal), 1);
    let ended = leader.run(ms(15_300));
    let Some(Failure::MasterUnproved { pairs }) = failure(&ended) else { panic!("{ended:?}") };
    assert_eq!(pairs.len(), 1);
}

#[test]
fn of_many_members_that_are_not_ready_six_are_named() {
    let members: Vec<u8> = (2..=9).collect();
    let mut leader = Leader::with(9, &members);
    let mut all = Vec::new();
    while !leader.node.has_ended() && leader.now < ms(60_000) {
        all.extend(leader.run(leader.now + Duration::from_millis(500)));
        for &member in &members {
            all.extend(leader.hear(member, &Message::Pong));
        }
    }
    let Some(Failure::Unready { nodes }) = failure(&all) else { panic!("{:?}", failure(&all)) };
    let hosts: Vec<_> = nodes.iter().map(|peer| peer.host.as_str()).collect();
    assert_eq!(hosts, ["host-2", "host-3", "host-4", "host-5", "host-6", "host-7"]);
    let refused =
        |message: &Message| matches!(message, Message::Refuse(Refusal::Unready(nodes)) if nodes.len() == 6);
    assert!(to(&all, 9, refused) > 0);
}

#[test]
fn a_given_rank_that_does_not_exist_gets_no_answer() {
    for (rank, answers) in [(1, 1), (3, 1), (4, 0), (5, 0)] {
        let mut leader = Leader::new(4);
        assert_eq!(sent(&leader.ask(2, |node| node.rank = Some(Rank(rank)))).len(), answers, "rank {rank}");
    }
}

#[test]
fn a_leader_commits_when_its_own_last_path_is_proved_and_not_before() {
    let (mut leader, outputs) = leader_of_paths(3, &[2, 3]);
    let [first, second] = path_dials(&outputs)[..] else { panic!("{outputs:?}") };
    leader.node.handle_path(Time::ZERO, first, &PathNews::Arrived);
    leader.hear(2, &ready(0));
    leader.hear(3, &ready(0));
    assert_eq!(committed(&leader.run(ms(1))), None, "a path is not proved");
    leader.node.handle_path(leader.now, second, &PathNews::Arrived);
    assert!(leader.node.is_about_to_commit());
    assert_eq!(committed(&leader.run(ms(1))), Some(0));
    // The other way around: a member is last.
    let (mut leader, outputs) = leader_of_paths(3, &[2, 3]);
    leader.hear(2, &ready(0));
    for dial in path_dials(&outputs) {
        leader.node.handle_path(Time::ZERO, dial, &PathNews::Arrived);
    }
    assert_eq!(committed(&leader.run(ms(1))), None, "a member is not ready");
    leader.hear(3, &ready(0));
    assert_eq!(committed(&leader.run(ms(1))), Some(0));
}

#[test]
fn the_leaders_own_broken_path_voids_a_round_and_ends_the_world_after_twelve_seconds() {
    let (mut leader, outputs) = leader_of_paths(2, &[2]);
    let mut all = outputs;
    while leader.now < ms(20_000) && !leader.node.has_ended() {
        let round = *rounds(&all).last().unwrap();
        all.extend(leader.hear(2, &Message::Ready(Ready { round, endpoint: 0 })));
        let outputs = leader.run(leader.now + Duration::from_millis(100));
        assert!(leader.now >= ms(12_000) || to(&outputs, 2, is_refusal) == 0, "{:?}", leader.now);
        all.extend(outputs);
    }
    // Each round takes 4.3 s.
    assert_eq!(rounds(&all), [1, 2, 3]);
    let Some(Failure::PathsBroken { paths, more: 0 }) = failure(&all) else { panic!("{:?}", failure(&all)) };
    let [path] = &paths[..] else { panic!("{paths:?}") };
    assert_eq!((path.from.host.as_str(), path.to.host.as_str()), ("host-1", "host-2"));
    // The third round was on the first network again.
    assert_eq!((path.from.address, path.to.address.port()), (endpoints(1)[0], 40_000));
    assert_eq!((path.fault, path.answers, path.mtus), (Fault::Silent, None, (1500, 1500)));
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
        (&[(2, &[3, 4], 5), (3, &[2, 4], 1), (4, &[2], 0)], &[(2, 3), (2, 4)], 9),
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

#[test]
fn a_broken_path_of_a_member_that_has_left_is_held_against_nobody() {
    let (mut leader, _) = leader_of_paths(4, &[2, 3, 4, 5]);
    // Without the path from node 2, nodes 3 and 4 are at one end each.
    leader.hear(2, &broken(1, &[3], 0));
    leader.hear(3, &broken(1, &[4], 0));
    leader.node.handle_closed(Time::ZERO, ConnId(2));
    let outputs = leader.run(Time::ZERO);
    assert_eq!([3, 4, 5].map(|node| to(&outputs, node, is_prepare)), [1, 1, 1], "node 5 has its seat");
    leader.join(6, with_paths(6));
    let outputs = leader.run(ms(5500));
    let prepared: Vec<u8> = (3..=6).filter(|&node| to(&outputs, node, is_prepare) > 0).collect();
    assert!(prepared.contains(&3), "{prepared:?}");
}

#[test]
fn a_leader_accepts_nothing_after_the_commit_and_tells_nobody_twice_who_is_done() {
    let mut leader = Leader::with(3, &[2, 3]);
    leader.hear(2, &ready(0));
    leader.hear(3, &ready(0));
    let is_commit = |message: &Message| matches!(message, Message::Commit(_));
    let outputs = leader.run(Time::ZERO);
    assert_eq!(outputs.iter().filter(|output| **output == Output::StopAccepting).count(), 1);
    assert_eq!([2, 3].map(|node| to(&outputs, node, is_commit)), [1, 1]);
    leader.hear(2, &Message::Done(1));
    let outputs = leader.run(ms(1000));
    assert!(to(&outputs, 2, is_commit) == 0 && to(&outputs, 3, is_commit) > 5);
    // The end of a lease is no news for the user any more.
    leader.node.handle_closed(leader.now, ConnId(3));
    let outputs = leader.outputs();
    let [Output::Event(Event::Formed(formed))] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((formed.rank, formed.master, formed.roster.is_none()), (Rank(0), endpoint(1), true));
}

#[test]
fn those_alone_that_were_not_ready_in_any_of_three_rounds_are_named() {
    let mut leader = Leader::with(4, &[2, 3, 4]);
    let mut all = Vec::new();
    // In the rounds one after another, these are ready.
    let ready_in: [&[u8]; 3] = [&[4], &[3, 4], &[3]];
    while leader.now < ms(60_000) && !leader.node.has_ended() {
        all.extend(leader.run(leader.now + Duration::from_millis(500)));
        let round = 1 + rounds(&all).len();
        for member in 2..=4 {
            all.extend(leader.hear(member, &Message::Pong));
            if ready_in.get(round - 1).is_some_and(|ready| ready.contains(&member)) {
                let round = u64::try_from(round).unwrap();
                all.extend(leader.hear(member, &Message::Ready(Ready { round, endpoint: 0 })));
            }
        }
    }
    let Some(Failure::Unready { nodes }) = failure(&all) else { panic!("{:?}", failure(&all)) };
    let hosts: Vec<_> = nodes.iter().map(|peer| peer.host.as_str()).collect();
    assert_eq!(hosts, ["host-2"]);
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

#[test]
fn each_member_is_told_of_its_rank_and_of_the_workers_on_lower_ranks_and_in_all() {
    let mut leader = Leader::of(4, |config| config.node.attributes.slots = 8);
    let mut outputs = Vec::new();
    for (member, slots) in [(2, 1), (3, 2), (4, 4)] {
        outputs = leader.join(member, |node| node.attributes.slots = slots);
    }
    let told = [2, 3, 4].map(|member| {
        let prepares = prepares(&outputs, member);
        let [prepare] = &prepares[..] else { panic!("{prepares:?}") };
        assert_eq!((prepare.master, prepare.lease, prepare.round), (id(1), 1, 1));
        assert_eq!(prepare.address, endpoint(member).ip());
        (prepare.rank, prepare.slots_before, prepare.slots_total)
    });
    assert_eq!(told, [(1, 8, 15), (2, 9, 15), (3, 11, 15)]);
}

/// Node 2 reports this broken path in every round until the leader ends. Returns the paths that it names.
fn ends_with_broken(
    leader: &mut Leader,
    mut all: Vec<Output>,
    to: impl Fn(u64) -> BrokenTo,
) -> Vec<BrokenPath> {
    while leader.now < ms(20_000) && !leader.node.has_ended() {
        let round = *rounds(&all).last().unwrap();
        let paths = [to(round)].into_iter().collect();
        all.extend(leader.hear(3, &Message::Pong));
        all.extend(leader.hear(2, &Message::Broken(Broken { round, paths, more: 0 })));
        let outputs = leader.run(leader.now + Duration::from_millis(100));
        for dial in path_dials(&outputs) {
            leader.node.handle_path(leader.now, dial, &PathNews::Arrived);
        }
        all.extend(outputs);
    }
    let Some(Failure::PathsBroken { paths, .. }) = failure(&all) else { panic!("{:?}", failure(&all)) };
    paths.clone()
}

#[test]
fn a_path_whose_partner_answers_at_its_own_port_is_named_with_that() {
    for answers in [false, true] {
        let (mut leader, all) = leader_of_paths(3, &[2, 3]);
        let paths = ends_with_broken(&mut leader, all, |round| BrokenTo {
            partner: id(3),
            address: endpoints(3)[usize::from(round.is_multiple_of(2))].ip(),
            fault: Fault::Silent,
            own_port_answers: answers,
        });
        assert_eq!(paths[0].answers, answers.then_some(29_500));
    }
}

#[test]
fn a_broken_path_is_named_with_the_address_of_the_partner_that_was_not_reached() {
    let given = Link { address: [10, 9, 0, 3].into(), prefix: 24, mtu: 9000 };
    let mut leader = Leader::of(3, |config| with_paths(1)(&mut config.node));
    let mut all = leader.join(2, with_paths(2));
    all.extend(leader.join(3, |node| {
        with_paths(3)(node);
        node.reach = reach(3).with([given]);
    }));
    let (partner, fault, own_port_answers) = (id(3), Fault::Silent, false);
    let to = |_| BrokenTo { partner, address: given.address, fault, own_port_answers };
    let paths = ends_with_broken(&mut leader, all, to);
    let [path] = &paths[..] else { panic!("{paths:?}") };
    assert_eq!((path.to.address, path.mtus), ((given.address, 40_000).into(), (1500, 9000)));
}

#[test]
fn the_leaders_own_rank_is_refused_at_once_with_its_name() {
    let mut leader = Leader::of(4, |config| config.node.rank = Some(Rank(0)));
    let outputs = leader.join(2, |node| node.rank = Some(Rank(0)));
    let refusals: Vec<_> = sent(&outputs)
        .into_iter()
        .filter_map(|(to, message)| match message {
            Message::Refuse(refusal) => Some((to, refusal)),
            _ => None,
        })
        .collect();
    let [(2, Refusal::RankTaken(holder))] = &refusals[..] else { panic!("{refusals:?}") };
    assert_eq!((holder.host.as_str(), holder.address), ("host-1", endpoint(1)));
    assert_eq!(to(&leader.run(ms(5000)), 2, is_ping), 0);
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
            leader.hear(7, &Message::Welcome(Welcome { lease: Some(dial.0), seated: true }));
        }
        let outputs = leader.run(ms(14_000));
        assert_eq!(to(&outputs, 2, is_refusal) > 0, !yields);
    }
}

fn has_formed(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Event(Event::Formed(_))))
}

#[test]
fn a_leader_waits_ten_seconds_for_a_member_and_one_for_a_standby_and_none_for_those_that_have_left() {
    for (says_done, standby_leaves, after) in
        [(true, true, 0), (true, false, 1000), (false, true, 10_000), (false, false, 10_000)]
    {
        let mut leader = Leader::with(2, &[2, 3]);
        leader.hear(2, &ready(0));
        assert_eq!(committed(&leader.run(Time::ZERO)), Some(0));
        let mut outputs = Vec::new();
        if says_done {
            outputs.extend(leader.hear(2, &Message::Done(2)));
            assert!(!has_formed(&outputs), "another round");
            outputs.extend(leader.hear(2, &Message::Done(1)));
        }
        if standby_leaves {
            leader.node.handle_closed(leader.now, ConnId(3));
            outputs.extend(leader.outputs());
        }
        if after > 0 {
            outputs.extend(leader.run(ms(after - 1)));
            assert!(!has_formed(&outputs), "{says_done} {standby_leaves}");
            // The next wave is at most 0.1 s away.
            outputs.extend(leader.run(ms(after + 100)));
        }
        assert!(has_formed(&outputs), "{says_done} {standby_leaves}");
    }
}
