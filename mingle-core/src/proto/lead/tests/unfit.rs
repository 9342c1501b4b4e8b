//! Members with which no world could form are left out if enough others are here.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mingle_rdma::Verdict;

use super::rounds::{broken, failure, path_dials, prepared, rounds, with_paths};
use super::*;
use crate::model::{Link, Rank, Trait};
use crate::proto::lead::unfit::{Excluded, LeftOut, Planned};
use crate::proto::lead::{Applicant, RoundPlan, plan_round};
use crate::proto::{Failure, PathNews};
use crate::rdma::examples::largest_summary;
use crate::wire::Reach;

/// The hosts that were left out, as the leader reports them.
fn left_out(outputs: &[Output]) -> Vec<String> {
    let hosts = outputs.iter().filter_map(|output| match output {
        Output::Event(Event::Warning(Warning::LeftOut { node, .. })) => Some(node.host.to_string()),
        _ => None,
    });
    hosts.collect()
}

/// The nodes to which a refusal for this reason was sent.
fn refused(outputs: &[Output], reason: fn(&Refusal) -> bool) -> Vec<u8> {
    let refused = said(outputs).into_iter().filter_map(|(to, said)| match said {
        Said::Refuse(refusal) if reason(&refusal) => Some(to),
        _ => None,
    });
    let mut refused: Vec<u8> = refused.collect();
    refused.dedup();
    refused
}

fn for_paths(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::PathsBroken(..))
}

fn for_rdma(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NoRdma(_, true))
}

/// The nodes of the last round.
fn last_round(outputs: &[Output]) -> Vec<u8> {
    prepared(outputs, *rounds(outputs).last().expect("a round has begun"))
}

/// A leader of a world of this size that other nodes join with these summaries, the leader's own first.
fn with_fabrics(world: &str, fabrics: &[Summary]) -> (Leader, Vec<Output>) {
    let size: WorldSize = world.parse().unwrap();
    let mut leader = Leader::of(2, |config| {
        config.world = size;
        config.node.attributes.fabric = fabrics[0];
    });
    let mut all = Vec::new();
    for (&fabric, member) in fabrics[1..].iter().zip(2..) {
        all.extend(leader.join(member, |node| node.attributes.fabric = fabric));
    }
    all.extend(leader.run(ms(0)));
    (leader, all)
}

#[test]
fn a_member_whose_paths_stay_broken_for_12_seconds_is_left_out() {
    for (world, reports, expected) in [
        ("3:4", &[(2, &[4][..]), (3, &[4])][..], Some(4)),
        ("3:4", &[(2, &[3, 4])], Some(2)),
        // Of a single path, its prover: others have reached the target.
        ("3:4", &[(3, &[2])], Some(3)),
        // Too few would be left.
        ("4", &[(2, &[4]), (3, &[4])], None),
    ] {
        let size: WorldSize = world.parse().unwrap();
        let mut leader = Leader::of(2, |config| {
            config.world = size;
            with_paths(1)(&mut config.node);
        });
        let mut all = Vec::new();
        for member in [2, 3, 4] {
            all.extend(leader.join(member, with_paths(member)));
        }
        while leader.now < ms(20_000) && !leader.node.has_ended() && left_out(&all).is_empty() {
            let round = *rounds(&all).last().unwrap();
            for member in [2, 3, 4] {
                all.extend(leader.hear(member, &idle()));
            }
            for &(from, partners) in reports {
                all.extend(leader.hear(from, &broken(round, partners, 0)));
            }
            let outputs = leader.run(leader.now + Duration::from_millis(100));
            for dial in path_dials(&outputs) {
                leader.node.handle_path(leader.now, dial, &PathNews::Arrived);
            }
            all.extend(outputs);
        }
        let Some(node) = expected else {
            assert!(matches!(failure(&all), Some(Failure::PathsBroken { .. })), "{world} {reports:?}");
            continue;
        };
        assert!(leader.now >= ms(12_000), "it persists: {:?}", leader.now);
        assert_eq!(left_out(&all), [format!("host-{node}")], "{reports:?}");
        assert_eq!(refused(&all, for_paths), [node]);
        // The next round begins without another call, and the node stays out.
        let others: Vec<u8> = (2..=4).filter(|&other| other != node).collect();
        assert_eq!(last_round(&all), others, "{reports:?}");
        assert_eq!(refused(&leader.join(node, with_paths(node)), for_paths), [node]);
        // It has not heard that for so long that the network may have healed.
        leader.now += Duration::from_secs(10);
        assert!(refused(&leader.join(node, with_paths(node)), for_paths).is_empty(), "{reports:?}");
    }
}

#[test]
fn a_node_without_the_rdma_that_others_require_is_left_out() {
    let (has, lacks) = (largest_summary().required(true), largest_summary().required(false).disabled());
    let (_, all) = with_fabrics("3:4", &[has, has, lacks, has]);
    assert_eq!((left_out(&all), refused(&all, for_rdma)), (vec!["host-3".to_owned()], vec![3]));
    assert_eq!(last_round(&all), [2, 4]);
    // Two at once, and the round is one of all others.
    let (_, all) = with_fabrics("3:5", &[has, lacks, has, lacks, has]);
    assert_eq!((left_out(&all).len(), last_round(&all)), (2, vec![3, 5]));
    // More than a verdict names.
    let fabrics: Vec<Summary> = [[has; 8], [lacks; 8]].concat();
    let (_, all) = with_fabrics("8:16", &fabrics);
    assert_eq!((left_out(&all).len(), last_round(&all)), (8, (2..=8).collect()));
    // The one that requires it is alone.
    let (_, all) = with_fabrics("3:4", &[lacks, lacks, has, lacks]);
    assert_eq!((refused(&all, for_rdma), last_round(&all)), (vec![3], vec![2, 4]));
    // Too few would be left, of one size or of a range.
    for (world, fabrics) in [("4", [has, has, lacks, has]), ("3:4", [has, lacks, lacks, has])] {
        let (_, all) = with_fabrics(world, &fabrics);
        assert!(left_out(&all).is_empty() && rounds(&all).is_empty(), "{world}");
        assert_eq!(refused(&all, for_rdma), [2, 3, 4], "{world}");
    }
}

#[test]
fn nobody_is_left_out_where_too_few_would_remain_without_all_that_lack_rdma() {
    // A verdict names six of the eight, and six are to spare.
    let (has, lacks) = (largest_summary().required(true), largest_summary().required(false).disabled());
    let (_, all) = with_fabrics("10:16", &[[has; 8], [lacks; 8]].concat());
    assert!(left_out(&all).is_empty() && rounds(&all).is_empty(), "{:?}", left_out(&all));
    assert_eq!(refused(&all, for_rdma), (2..=16).collect::<Vec<u8>>());
}

#[test]
fn of_the_nodes_that_were_left_out_64_are_remembered() {
    let mut nodes = LeftOut::default();
    let counts = (1..=200).map(|node| {
        nodes.insert(&[id(node)], &Refusal::Closing, Time::ZERO);
        assert!(nodes.refusal(id(node), Time::ZERO).is_some(), "the last one");
        (1..=200).filter(|&node| nodes.refusal(id(node), Time::ZERO).is_some()).count()
    });
    assert_eq!(counts.max(), Some(64));
}

#[test]
fn a_node_that_was_left_out_stays_out_when_another_one_is_left_out() {
    let (has, lacks) = (largest_summary().required(true), largest_summary().required(false).disabled());
    let (mut leader, mut all) = with_fabrics("3:5", &[has, has, lacks, has, has]);
    assert_eq!((left_out(&all), last_round(&all)), (vec!["host-3".to_owned()], vec![2, 4, 5]));
    all.extend(leader.join(6, |node| node.attributes.fabric = lacks));
    all.extend(leader.close(5));
    all.extend(leader.run(leader.now));
    assert_eq!((left_out(&all).len(), last_round(&all)), (2, vec![2, 4]));
    for node in [3, 6] {
        assert_eq!(refused(&leader.join(node, |node| node.attributes.fabric = lacks), for_rdma), [node]);
    }
}

#[test]
fn a_bad_node_of_a_world_of_one_size_gives_its_seat_to_a_spare() {
    let (has, lacks) = (largest_summary().required(true), largest_summary().required(false).disabled());
    let mut leader = Leader::of(3, |config| {
        with_paths(1)(&mut config.node);
        config.node.attributes.fabric = has;
    });
    let join = |leader: &mut Leader, member, fabric| {
        leader.join(member, |node| {
            with_paths(member)(node);
            node.attributes.fabric = fabric;
        })
    };
    // The round of the first three goes on while the spare comes, and a member of it leaves.
    let mut all = join(&mut leader, 2, has);
    all.extend(join(&mut leader, 3, has));
    all.extend(join(&mut leader, 4, lacks));
    all.extend(join(&mut leader, 5, has));
    assert_eq!(rounds(&all), [1]);
    all.extend(leader.close(3));
    all.extend(leader.run(leader.now));
    assert_eq!((left_out(&all), refused(&all, for_rdma)), (vec!["host-4".to_owned()], vec![4]));
    assert_eq!(last_round(&all), [2, 5]);
}

#[test]
fn a_leader_with_which_no_world_can_form_leaves_it_to_the_others() {
    let (has, lacks) = (largest_summary().required(true), largest_summary().required(false).disabled());
    let (leader, all) = with_fabrics("3:4", &[lacks, has, has, has]);
    assert!(matches!(failure(&all), Some(Failure::NoRdma { .. })) && leader.node.has_ended());
    assert!(!refused(&all, |refusal| *refusal == Refusal::Closing).is_empty());
    assert!(refused(&all, for_rdma).is_empty(), "the others look for another leader");
}

#[test]
fn the_fewer_nodes_of_one_family_are_left_out() {
    let six: SocketAddr = "[fd00::4]:29500".parse().unwrap();
    let four = endpoint(2);
    let mut leader = Leader::of(2, |config| config.world = "3:4".parse().unwrap());
    let mut all = Vec::new();
    for (member, endpoint) in [(2, four), (3, endpoint(3)), (4, six)] {
        all.extend(leader.join(member, |node| node.endpoints = endpoint.into()));
    }
    while leader.now < ms(20_000) && left_out(&all).is_empty() {
        all.extend(leader.run(leader.now + Duration::from_millis(100)));
        for member in [2, 3, 4] {
            all.extend(leader.hear(member, &idle()));
        }
    }
    assert_eq!(left_out(&all), ["host-4"]);
    all.extend(leader.run(leader.now));
    assert_eq!(last_round(&all), [2, 3]);
}

#[test]
fn a_leader_with_the_fewer_nodes_of_one_family_leaves_the_world_to_the_others() {
    let six = |member: u8| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(member)], 29500));
    let mut leader = Leader::of(2, |config| config.world = "3:4".parse().unwrap());
    let mut all = Vec::new();
    for member in [2, 3, 4] {
        all.extend(leader.join(member, |node| node.endpoints = six(member).into()));
    }
    while leader.now < ms(20_000) && !leader.node.has_ended() {
        all.extend(leader.run(leader.now + Duration::from_millis(100)));
        for member in [2, 3, 4] {
            all.extend(leader.hear(member, &idle()));
        }
    }
    assert!(matches!(failure(&all), Some(Failure::NoCommonFamily { .. })) && left_out(&all).is_empty());
    assert!(!refused(&all, |refusal| *refusal == Refusal::Closing).is_empty());
}

/// The plan of nodes 1, 2 and 3, of which the third is new, with one node to spare or none, after so many
/// rounds of theirs have failed; and in how many ways they may reach each other. Or who is left out.
fn planned(spare: usize, failed: u64, change: impl Fn(&mut Applicant)) -> Planned<(RoundPlan, u64)> {
    let applicant = |number: u8| {
        let mut applicant = Applicant {
            id: id(number),
            node: NodeInfo {
                rank: Some(Rank(u32::from(number) - 1)),
                ..NodeInfo::new(HostName::new("host"), endpoint(number).into())
            },
            session: None,
            met: None,
            traits: Arc::default(),
            is_former: number < 3,
        };
        change(&mut applicant);
        applicant
    };
    let (applicants, unproved) = ([1, 2, 3].map(applicant).into(), BTreeSet::new());
    let planned = plan_round(7, applicants, (id(2), false), failed, spare, &unproved);
    planned.inspect(|(plan, _)| {
        let ids = plan.terms.roster.members().iter().map(|member| member.id);
        assert!(ids.eq([1, 2, 3].map(id)), "they keep their ranks");
    })
}

fn planned_again(spare: usize, change: impl Fn(&mut Applicant)) -> Result<Verdict, Vec<NodeId>> {
    let out = |unfit: Option<Box<Excluded>>| unfit.unwrap().nodes;
    planned(spare, 0, change).map(|(plan, _)| plan.terms.verdict).map_err(out)
}

#[test]
fn a_world_that_forms_again_tries_each_network_and_family_that_all_nodes_have_in_turn() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let addresses =
        |number: u8| [format!("10.1.0.{number}"), format!("10.2.0.{number}"), format!("fd00::{number}")];
    let masters: Vec<String> = (0..4)
        .map(|failed| {
            let (plan, ways) = planned(1, failed, |applicant| {
                let addresses = addresses(applicant.id.0[0]).map(|text| ip(&text));
                let prefix = |address: IpAddr| if address.is_ipv6() { 64 } else { 24 };
                let links = addresses.map(|address| Link { address, prefix: prefix(address), mtu: 1500 });
                let endpoints = addresses.map(|address| SocketAddr::new(address, 29500));
                applicant.node.endpoints = Endpoints::new(endpoints.into()).unwrap();
                applicant.node.reach = Reach::new(40_000, links);
            })
            .unwrap();
            assert_eq!(ways, if failed % 2 == 0 { 4 } else { 2 });
            plan.master_at.ip().to_string()
        })
        .collect();
    assert_eq!(masters, ["10.1.0.1", "fd00::1", "10.2.0.1", "fd00::1"]);
}

#[test]
fn a_newcomer_takes_rdma_from_no_world_that_forms_again_without_it() {
    let (has, lacks) = (largest_summary().required(false), largest_summary().required(false).disabled());
    let lacks_new = |node: &mut Applicant| {
        node.node.attributes.fabric = if node.is_former { has } else { lacks };
    };
    assert_eq!(planned_again(1, lacks_new), Err(vec![id(3)]));
    assert!(planned_again(0, lacks_new).is_ok_and(|verdict| !verdict.transport.is_rdma()));
    let all_have = planned_again(1, |node| node.node.attributes.fabric = has);
    assert!(all_have.is_ok_and(|verdict| verdict.transport.is_rdma()));
}

#[test]
fn a_world_that_forms_again_leaves_out_a_newcomer_without_a_common_family_and_one_that_differs() {
    let six = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 3], 29500));
    let apart = planned_again(1, |node| {
        if !node.is_former {
            node.node.endpoints = six.into();
        }
    });
    assert_eq!(apart, Err(vec![id(3)]));
    let differs = |node: &mut Applicant| {
        node.node.attributes.requires_same = true;
        let value = if node.is_former { "Ring" } else { "Tree" };
        node.traits = Arc::new([Trait::shown("NCCL_ALGO", value)].into_iter().collect());
    };
    assert_eq!(planned_again(1, differs), Err(vec![id(3)]));
}

#[test]
fn nobody_is_left_out_of_a_world_that_forms_again_where_nobody_is_to_spare() {
    let lacks_new = |node: &mut Applicant| {
        let has = largest_summary().required(true);
        node.node.attributes.fabric = if node.is_former { has } else { has.disabled() };
    };
    let refused = planned(0, 0, lacks_new).map(|_| ()).unwrap_err().unwrap();
    assert!(matches!(refused.refusal, Refusal::NoRdma(_, true)) && refused.nodes.is_empty(), "{refused:?}");
    assert_eq!(planned_again(1, lacks_new), Err(vec![id(3)]));
}

#[test]
fn the_leader_of_a_world_that_forms_again_is_reached_where_most_sessions_have_reached_it() {
    let address = |net: u8, number: u8| IpAddr::from([10, net, 0, number]);
    for (met, expected) in [(Some(1), 1), (None, 3)] {
        let (plan, _) = planned(1, 0, |applicant| {
            let number = applicant.id.0[0];
            let addresses = [2, 1, 3].map(|net| address(net, number));
            let links = addresses.map(|address| Link { address, prefix: 32, mtu: 1500 });
            let endpoints = addresses.map(|address| SocketAddr::new(address, 29500));
            applicant.node.endpoints = Endpoints::new(endpoints.into()).unwrap();
            applicant.node.reach = Reach::new(40_000, links);
            // Where the last world has reached it.
            applicant.session = Some(address(3, number));
            applicant.met = met.filter(|_| number != 2).map(|net| address(net, 2));
        })
        .unwrap();
        let addresses = plan.terms.roster.members().iter().map(|member| member.address.ip());
        assert!(addresses.eq([address(3, 1), address(expected, 2), address(3, 3)]), "{met:?}");
    }
}
