//! Which node gets which rank, and which one is the master.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use mingle_rdma::{RankSummary, natural};

use super::unfit::{self, Excluded};
use crate::model::{Link, NodeId, Rank, Traits};
use crate::wire::NodeInfo;

/// A node of a full world, before it has a rank.
#[derive(Debug, Clone)]
pub(crate) struct Applicant {
    pub(crate) id: NodeId,
    pub(crate) node: NodeInfo,
    /// The node's own address on its session; for the leader, the one that most sessions have reached.
    pub(crate) session: Option<IpAddr>,
    /// The address of the leader that its session has reached.
    pub(crate) met: Option<IpAddr>,
    pub(crate) traits: Arc<Traits>,
    /// It was in the last world, which these nodes form again.
    pub(crate) is_former: bool,
}

impl Applicant {
    /// The endpoint that the node prefers, by which nodes are ordered.
    pub(super) fn address(&self) -> SocketAddr {
        self.node.endpoints.preferred()
    }

    /// The node's link on the network of another node's.
    pub(super) fn link_on(&self, network: &Link) -> Option<Link> {
        self.node.reach.links().iter().copied().find(|link| network.has(link.address))
    }

    /// The summary that is compared with those of the other ranks.
    pub(crate) fn comparable(&self) -> RankSummary {
        RankSummary { address: self.address().ip(), summary: self.node.attributes.fabric }
    }
}

/// Leaves the endpoints of one address family that all nodes have. The job's own traffic between any two
/// nodes needs a family that both have, and NCCL can be given one for all. IPv4 comes first unless `ipv6` is
/// set; the other family follows after a round that has failed. Returns how many families are common, and
/// how often all were tried before.
///
/// # Errors
/// No family is common.
pub(super) fn settle_family(
    applicants: &mut [Applicant],
    (me, ipv6): (NodeId, bool),
    failed_rounds: u64,
) -> Result<(usize, usize), Box<Excluded>> {
    let has = |a: &Applicant, is_ipv6: bool| a.node.endpoints.iter().any(|e| e.is_ipv6() == is_ipv6);
    let common = |is_ipv6: bool| applicants.iter().all(|a| has(a, is_ipv6));
    let families: Vec<bool> = [ipv6, !ipv6].into_iter().filter(|&is_ipv6| common(is_ipv6)).collect();
    let turn = usize::try_from(failed_rounds).unwrap_or(0);
    let Some(&chosen) = families.get(turn % families.len().max(1)) else {
        let only = |is_ipv6: bool| applicants.iter().filter(|a| !has(a, !is_ipv6)).collect::<Vec<_>>();
        // Without a common family, some nodes have IPv6 alone and some IPv4 alone.
        return Err(unfit::apart(&only(true), &only(false), me));
    };
    for applicant in applicants {
        applicant.node.keep_family(chosen);
    }
    Ok((families.len(), turn / families.len()))
}

/// The applicants in the order of their ranks, the master first, after the proofs between these provers and
/// masters have failed. Given ranks are kept. The other nodes take the ranks that are left, in the order of
/// their keys, so that the same hosts get the same ranks at the next start, in whatever order they come.
///
/// Without a given rank 0 the master is preferably a node that no node has failed to reach; then a node that
/// has not found itself that no node reaches it; then a node that was not alone in failing to reach a master;
/// then the first. Nothing is returned where no node may have rank 0.
pub(super) fn order(
    applicants: Vec<Applicant>,
    unproved: &BTreeSet<(NodeId, NodeId)>,
) -> Option<Vec<Applicant>> {
    // An applicant is large, so only numbers are moved until each has its rank.
    let nodes = &applicants;
    let mut places: Vec<Option<usize>> = vec![None; nodes.len()];
    let place = |rank: Rank| usize::try_from(rank.get()).ok();
    let (given, mut rest): (VecDeque<usize>, VecDeque<usize>) =
        sorted(nodes).into_iter().partition(|&at| nodes[at].node.rank.is_some());
    for applicant in given {
        // The book holds each rank once, all below the world's size.
        let at = nodes[applicant].node.rank.and_then(place)?;
        *places.get_mut(at)? = Some(applicant);
    }
    if places.first()?.is_none() {
        let mut failures: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (_, master) in unproved {
            *failures.entry(*master).or_default() += 1;
        }
        // Where only one node has failed to reach a master, the fault may as well be that node's.
        let alone = unproved.iter().filter(|(_, master)| failures.get(master) == Some(&1));
        let alone: BTreeSet<NodeId> = alone.map(|(prover, _)| *prover).collect();
        let weight = |&at: &usize| {
            let Applicant { id, node, .. } = &nodes[rest[at]];
            (failures.contains_key(id), !node.attributes.may_be_master, alone.contains(id))
        };
        let at = (0..rest.len()).min_by_key(weight)?;
        places[0] = rest.remove(at);
    }
    let mut applicants: Vec<Option<Applicant>> = applicants.into_iter().map(Some).collect();
    places.into_iter().map(|place| applicants[place.or_else(|| rest.pop_front())?].take()).collect()
}

/// The numbers of the applicants in the natural order of their rank keys and then by address. Nodes without a
/// key come behind those with a key. Equal ones are in the order of their host names, and then of their IDs.
fn sorted(nodes: &[Applicant]) -> Vec<usize> {
    // What is compared first is in one piece: an applicant's own data are far apart.
    let lacks_key = |a: &Applicant| a.node.attributes.rank_key.as_str().is_empty();
    let mut keys: Vec<_> = nodes.iter().map(|a| (lacks_key(a), a.address().ip())).zip(0..).collect();
    keys.sort_unstable_by(|((one, ip), a), ((other, other_ip), b)| {
        let text = |at: &usize| nodes[*at].node.attributes.rank_key.as_str();
        let by_key = || if *one { Ordering::Equal } else { natural(text(a), text(b)) };
        one.cmp(other).then_with(by_key).then_with(|| ip.cmp(other_ip)).then_with(|| {
            let (a, b) = (&nodes[*a], &nodes[*b]);
            natural(a.node.host.as_str(), b.node.host.as_str()).then_with(|| a.id.cmp(&b.id))
        })
    });
    keys.into_iter().map(|(_, at)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Endpoints, HostName};
    use crate::wire::Refusal;

    fn applicant(host: &str, last: u8, rank: Option<u32>) -> Applicant {
        let endpoint = SocketAddr::from(([10, 0, 0, last], 29500));
        let node = NodeInfo::new(HostName::new(host), endpoint.into());
        Applicant {
            id: NodeId([last; 16]),
            node: NodeInfo { rank: rank.map(Rank), ..node },
            session: None,
            met: None,
            traits: Arc::default(),
            is_former: false,
        }
    }

    /// The hosts in the order of their ranks, after the proofs of these provers to these masters have failed.
    fn ordered(nodes: &[Applicant], unproved: &[(u8, u8)]) -> Vec<String> {
        let id = |number: u8| NodeId([number; 16]);
        let unproved = unproved.iter().map(|&(prover, master)| (id(prover), id(master))).collect();
        let ordered = order(nodes.to_vec(), &unproved).unwrap_or_default();
        ordered.iter().map(|a| a.node.host.to_string()).collect()
    }

    #[test]
    fn ranks_by_address_are_in_numeric_order() {
        let nodes = vec![applicant("a", 10, None), applicant("b", 9, None), applicant("c", 100, None)];
        assert_eq!(ordered(&nodes, &[]), ["b", "a", "c"]);
    }

    #[test]
    fn a_world_uses_one_address_family_that_all_nodes_have() {
        let id = |n: u8| NodeId([n; 16]);
        let v6 = |last: u16| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, last], 29500));
        let both = |n: u8| {
            let mut both = applicant("both", n, None);
            both.node.endpoints = Endpoints::new(vec![both.address(), v6(n.into())]).unwrap();
            both
        };
        let only = |n: u8| {
            let mut six = applicant("six", n, None);
            six.node.endpoints = v6(n.into()).into();
            six
        };
        let settled = |mut nodes: Vec<Applicant>, ipv6: bool, failed: u64| {
            let _ = settle_family(&mut nodes, (id(1), ipv6), failed);
            nodes
                .iter()
                .map(|a| a.node.endpoints.iter().map(|e| if e.is_ipv6() { '6' } else { '4' }).collect())
                .collect::<Vec<String>>()
        };
        assert_eq!(settled(vec![both(1), both(2)], false, 0), ["4", "4"]);
        assert_eq!(settled(vec![both(1), both(2)], true, 0), ["6", "6"]);
        assert_eq!(settled(vec![both(1), both(2)], false, 1), ["6", "6"]);
        assert_eq!(settled(vec![both(1), both(2)], false, 2), ["4", "4"]);
        assert_eq!(settled(vec![both(1), only(2)], false, 0), ["6", "6"]);
        assert_eq!(settled(vec![both(1), applicant("four", 2, None)], true, 1), ["4", "4"]);
        assert_eq!(settled(vec![only(1), applicant("four", 2, None)], false, 0), ["6", "4"]);
        for mut nodes in [
            vec![both(3), only(1), applicant("four", 2, None)],
            vec![applicant("four", 2, None), both(3), only(1)],
        ] {
            for (me, out) in [(1, 2), (2, 1)] {
                let unfit = settle_family(&mut nodes, (id(me), false), 0).unwrap_err();
                assert_eq!(unfit.nodes, [id(out)], "of two of one size, the leader stays");
                let Refusal::NoCommonFamily(six, four) = unfit.refusal else { panic!("{:?}", unfit.refusal) };
                assert_eq!([six.host.as_str(), four.host.as_str()], ["six", "four"]);
            }
        }
    }

    #[test]
    fn ranks_follow_the_natural_order_of_the_keys_and_nodes_without_a_key_come_last() {
        let keyed = |host: &str, last: u8, key: &str| {
            let mut keyed = applicant(host, last, None);
            keyed.node.attributes.rank_key = key.parse().unwrap();
            keyed
        };
        let mut nodes = vec![
            applicant("none", 1, None),
            keyed("d", 2, "block-10/rack-1"),
            keyed("c", 9, "block-9/rack-2"),
            keyed("b", 8, "block-9/rack-2"),
            keyed("a", 7, "block-9/rack-1"),
            applicant("first", 200, Some(0)),
        ];
        for _ in 0..nodes.len() {
            nodes.rotate_left(1);
            assert_eq!(ordered(&nodes, &[]), ["first", "a", "b", "c", "d", "none"]);
        }
    }

    #[test]
    fn nodes_that_are_equal_in_one_thing_are_ordered_by_the_next() {
        let at =
            |host: &str, last: u8, id: u8| Applicant { id: NodeId([id; 16]), ..applicant(host, last, None) };
        let nodes = vec![at("b", 1, 4), at("a", 2, 3), at("a", 1, 2), at("a", 1, 1)];
        let ids: Vec<u8> = order(nodes, &BTreeSet::new()).unwrap().iter().map(|a| a.id.0[0]).collect();
        assert_eq!(ids, [1, 2, 4, 3]);
    }

    #[test]
    fn given_ranks_are_kept_and_the_others_fill_the_gaps_in_order() {
        let nodes = vec![
            applicant("a", 1, Some(2)),
            applicant("b", 2, None),
            applicant("c", 3, Some(0)),
            applicant("d", 4, None),
        ];
        assert_eq!(ordered(&nodes, &[]), ["c", "b", "a", "d"]);
    }

    #[test]
    fn an_unreached_node_is_not_master_and_keeps_its_place_among_the_others() {
        let mut nodes = vec![applicant("a", 1, None), applicant("b", 2, None), applicant("c", 3, None)];
        let unreached = [(8, 1), (9, 1)];
        assert_eq!(ordered(&nodes, &unreached), ["b", "a", "c"]);
        nodes[1].node.attributes.may_be_master = false;
        assert_eq!(ordered(&nodes, &unreached), ["c", "a", "b"]);
    }

    #[test]
    fn a_node_with_a_given_rank_does_not_take_the_place_of_a_master_that_is_not_reached() {
        let nodes = vec![applicant("a", 1, None), applicant("given", 2, Some(1)), applicant("c", 3, None)];
        assert_eq!(ordered(&nodes, &[(8, 1), (9, 1)]), ["c", "given", "a"]);
    }

    #[test]
    fn a_master_without_a_broken_path_is_preferred() {
        let mut nodes = [applicant("a", 1, None), applicant("b", 2, None), applicant("c", 3, None)];
        assert_eq!(ordered(&nodes, &[]), ["a", "b", "c"]);
        // Only b fails to reach a: the fault may be b's.
        assert_eq!(ordered(&nodes, &[(2, 1)]), ["c", "a", "b"]);
        // Both fail to reach a: the fault is a's.
        assert_eq!(ordered(&nodes, &[(2, 1), (3, 1)]), ["b", "a", "c"]);
        // A node that nobody has reached so far is better than a node that was tried in vain.
        nodes[1].node.attributes.may_be_master = false;
        nodes[2].node.attributes.may_be_master = false;
        assert_eq!(ordered(&nodes, &[(2, 1), (3, 1)]), ["b", "a", "c"]);
        // Where all were tried in vain, the fault may be over soon.
        assert_eq!(ordered(&nodes, &[(2, 1), (3, 1), (1, 2), (1, 3)]), ["a", "b", "c"]);
    }

    #[test]
    fn a_node_with_given_rank_0_is_master_although_it_was_not_reached() {
        let nodes = [applicant("a", 1, None), applicant("b", 2, Some(0))];
        assert_eq!(ordered(&nodes, &[(1, 2), (3, 2)]), ["b", "a"]);
    }

    #[test]
    fn no_node_is_master_where_all_were_given_other_ranks() {
        let nodes = vec![applicant("a", 1, Some(1)), applicant("b", 2, Some(2))];
        assert!(order(nodes, &BTreeSet::new()).is_none());
    }

    #[test]
    fn a_node_that_alone_failed_to_reach_any_master_is_not_preferred() {
        let nodes = [("a", 1), ("b", 2), ("c", 3), ("d", 4)].map(|(host, last)| applicant(host, last, None));
        assert_eq!(ordered(&nodes, &[(2, 1), (3, 1), (2, 4)]), ["c", "a", "b", "d"]);
    }

    #[test]
    fn a_given_rank_that_the_world_does_not_have_leaves_no_order() {
        let last = |rank| ordered(&[applicant("a", 1, None), applicant("b", 2, Some(rank))], &[]);
        assert!(last(2).is_empty());
        assert_eq!(last(1), ["a", "b"]);
    }

    #[test]
    fn each_attempt_with_all_families_is_counted() {
        let v6 = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 1], 29500));
        let mut both = applicant("both", 1, None);
        both.node.endpoints = Endpoints::new(vec![both.address(), v6]).unwrap();
        let turns: Vec<usize> = (0..6)
            .map(|failed| settle_family(&mut [both.clone()], (NodeId([1; 16]), false), failed).unwrap().1)
            .collect();
        assert_eq!(turns, [0, 0, 1, 1, 2, 2]);
        let turns: Vec<usize> = (0..3)
            .map(|failed| {
                settle_family(&mut [applicant("four", 1, None)], (NodeId([1; 16]), true), failed).unwrap().1
            })
            .collect();
        assert_eq!(turns, [0, 1, 2]);
    }
}
