//! Which newcomers take which ranks, so that nodes which are near to each other in the network are
//! neighbours.

use std::collections::{BTreeMap, VecDeque};

use super::ranks::Applicant;
use crate::model::Place;

/// The hashes of the first parts of a place. The nodes with the same beginning are a group.
type Beginning<'a> = &'a [[u8; 4]];

/// Gives newcomers a free rank beside nodes with which they share the beginning of their place: the longest
/// beginnings first. Returns the others, in their order. Rank 0 is for those who may lead. All are numbers of
/// `nodes`.
pub(super) fn settle(
    nodes: &[Applicant],
    ranks: &mut [Option<usize>],
    newcomers: VecDeque<usize>,
    may_lead: impl Fn(usize) -> bool,
) -> VecDeque<usize> {
    if ranks.iter().all(Option::is_none) {
        // All are newcomers, and in order.
        return newcomers;
    }
    let mut all: Vec<Option<usize>> = newcomers.into_iter().map(Some).collect();
    for levels in (1..=Place::LEVELS).rev() {
        let mut left = Left::new(nodes, &mut all, levels);
        if left.groups.is_empty() {
            continue;
        }
        // A gap between two groups would do for either, so those within a group come first.
        let (within, mut between): (Vec<Gap<'_>>, Vec<Gap<'_>>) =
            gaps(nodes, ranks, levels).into_iter().partition(|gap| gap.before == gap.behind);
        for gap in &within {
            left.fill(gap, ranks, &may_lead);
        }
        // From one on before which nobody is left: what is left of a group before a gap has no other one
        // then.
        let start = between.iter().position(|gap| !left.has(gap.before));
        between.rotate_left(start.unwrap_or(0));
        for gap in &between {
            left.fill(gap, ranks, &may_lead);
        }
    }
    all.into_iter().flatten().collect()
}

/// The newcomers that have no rank yet, by their groups.
struct Left<'a> {
    all: &'a mut [Option<usize>],
    groups: BTreeMap<Beginning<'a>, VecDeque<usize>>,
}

impl<'a> Left<'a> {
    fn new(nodes: &'a [Applicant], all: &'a mut [Option<usize>], levels: usize) -> Self {
        let mut groups: BTreeMap<Beginning<'a>, VecDeque<usize>> = BTreeMap::new();
        for (at, newcomer) in all.iter().enumerate() {
            if let Some(beginning) = newcomer.and_then(|newcomer| beginning(nodes, newcomer, levels)) {
                groups.entry(beginning).or_default().push_back(at);
            }
        }
        Self { all, groups }
    }

    fn has(&self, group: Option<Beginning<'_>>) -> bool {
        group.and_then(|group| self.groups.get(&group)).is_some_and(|group| !group.is_empty())
    }

    /// The next of a group that may have this rank.
    fn take(
        &mut self,
        group: Option<Beginning<'a>>,
        rank: usize,
        may_lead: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let group = self.groups.get_mut(&group?)?;
        let fits = |at: &usize| rank > 0 || self.all[*at].is_some_and(&may_lead);
        let at = group.iter().position(fits).and_then(|place| group.remove(place))?;
        self.all[at].take()
    }

    /// Fills a gap from its lower end with those of the group before it, then from its upper end with those
    /// of the group behind it.
    fn fill(&mut self, gap: &Gap<'a>, ranks: &mut [Option<usize>], may_lead: impl Fn(usize) -> bool) {
        let mut free = gap.ranks.clone();
        free.retain(|rank| {
            ranks[*rank] = self.take(gap.before, *rank, &may_lead);
            ranks[*rank].is_none()
        });
        for rank in free.into_iter().rev() {
            ranks[rank] = self.take(gap.behind, rank, &may_lead);
        }
    }
}

/// Free ranks in a row, on the ring of all ranks, and the groups of the nodes before and behind them.
struct Gap<'a> {
    before: Option<Beginning<'a>>,
    ranks: Vec<usize>,
    behind: Option<Beginning<'a>>,
}

fn gaps<'a>(nodes: &'a [Applicant], ranks: &[Option<usize>], levels: usize) -> Vec<Gap<'a>> {
    let Some(first) = ranks.iter().position(Option::is_some) else { return Vec::new() };
    let mut gaps = Vec::new();
    let (mut before, mut free) = (first, Vec::new());
    for at in (first + 1..=first + ranks.len()).map(|at| at % ranks.len()) {
        if ranks[at].is_none() {
            free.push(at);
            continue;
        }
        if !free.is_empty() {
            let [before, behind] = [before, at].map(|at| beginning(nodes, ranks[at]?, levels));
            gaps.push(Gap { before, ranks: std::mem::take(&mut free), behind });
        }
        before = at;
    }
    gaps
}

fn beginning(nodes: &[Applicant], node: usize, levels: usize) -> Option<Beginning<'_>> {
    nodes[node].place().beginning(levels)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};

    use super::super::ranks::assign;
    use super::super::ranks::tests::{hosts, placed, survivor};
    use super::*;
    use crate::model::{NodeId, Rank};
    use crate::proto::RankBy;
    use crate::wire::Former;

    /// How many edges of the ring connect nodes of different blocks.
    fn crossings(ranked: &[Applicant]) -> usize {
        let next = ranked.iter().cycle().skip(1);
        ranked.iter().zip(next).filter(|(a, b)| a.place().shared(b.place()) == 0).count()
    }

    /// 64 nodes in four blocks of four racks, whose addresses say nothing of their place.
    fn blocks() -> Vec<Applicant> {
        let at = |n: u8| {
            let mixed = n.wrapping_mul(37) % 64;
            placed(&format!("n{n}"), mixed, &format!("block-{}/rack-{}", n / 16, n / 4 % 4))
        };
        (0..64).map(at).collect()
    }

    /// The nodes of this world as they come to the next one.
    fn survivors(ranked: Vec<Applicant>) -> Vec<Applicant> {
        let with_rank = |(mut a, rank): (Applicant, u32)| {
            a.node.former = Some(Former { rank: Rank(rank), members: 0 });
            a
        };
        ranked.into_iter().zip(0..).map(with_rank).collect()
    }

    #[test]
    fn four_edges_of_a_ring_of_four_blocks_cross_and_a_replacement_adds_two_at_most() {
        let ranked = assign(blocks(), RankBy::Place, |_| false).unwrap();
        assert_eq!(crossings(&ranked), 4);
        let (all, places) = (survivors(ranked), ["block-0", "block-1", "block-2", "block-3", "elsewhere"]);
        for (lost, place) in (0..64).flat_map(|lost| places.map(|place| (lost, place))) {
            let mut nodes = all.clone();
            let gone = nodes.remove(lost);
            let new = placed("new", 200, &format!("{place}/rack-9"));
            let is_same = gone.place().shared(new.place()) > 0;
            nodes.push(new);
            nodes.reverse();
            let ranked = assign(nodes, RankBy::Place, |_| false).unwrap();
            let kept = ranked
                .iter()
                .zip(0..)
                .filter(|(a, rank)| a.node.former.is_some_and(|former| former.rank == Rank(*rank)))
                .count();
            assert_eq!((kept, ranked[lost].node.host.as_str()), (63, "new"));
            let limit = if is_same { 4..=4 } else { 4..=6 };
            assert!(limit.contains(&crossings(&ranked)), "{lost}, {place}: {}", crossings(&ranked));
        }
    }

    #[test]
    fn several_replacements_take_ranks_beside_nodes_of_their_place() {
        let all = survivors(assign(blocks(), RankBy::Place, |_| false).unwrap());
        let mut rng = 7_u64;
        let mut draw = |below: usize| {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(rng >> 33).unwrap() % below
        };
        for round in 0..500 {
            let mut nodes = all.clone();
            let lost: Vec<Applicant> = (0..=draw(8)).map(|_| nodes.remove(draw(nodes.len()))).collect();
            let whole_racks = (0..16).filter(|rack| {
                let place = format!("block-{}/rack-{}", rack / 4, rack % 4).parse::<Place>().unwrap().hash();
                nodes.iter().all(|a| *a.place() != place)
            });
            if whole_racks.count() > 0 {
                continue;
            }
            // Each of the lost is replaced by another node of its rack, but some by one from elsewhere.
            let strangers = draw(2);
            nodes.extend(lost.into_iter().zip(0..).map(|(mut a, at)| {
                a.node.former = None;
                if at < strangers {
                    a.node.attributes.place = format!("elsewhere-{round}").parse::<Place>().unwrap().hash();
                }
                a
            }));
            let ranked = assign(nodes, RankBy::Place, |_| false).unwrap();
            let next = ranked.iter().cycle().skip(1);
            let racks = ranked.iter().zip(next).filter(|(a, b)| a.place() != b.place()).count();
            let (most, most_racks) = (4 + 2 * strangers, 16 + 2 * strangers);
            assert!(crossings(&ranked) <= most && racks <= most_racks, "round {round}: {racks}");
        }
    }

    #[test]
    fn a_newcomer_near_the_neighbours_of_rank_0_takes_it() {
        let with = |mut node: Applicant, place: &str| {
            node.node.attributes.place = place.parse::<Place>().unwrap().hash();
            node
        };
        // Some of these come before the others in the order of places, and some behind them.
        for far in ["far-1", "far-2", "far-3", "far-4", "far-5", "far-6"] {
            let (b, c) = (with(survivor("b", 1, 1), "x"), with(survivor("c", 2, 2), "y"));
            let mut nodes = vec![b, c, placed("far", 3, far), placed("near", 4, "x")];
            let ranked = |nodes: &[Applicant], order| hosts(assign(nodes.to_vec(), order, |_| false));
            assert_eq!(ranked(&nodes, RankBy::Place), ["near", "b", "c", "far"]);
            assert_eq!(ranked(&nodes, RankBy::Address), ["far", "b", "c", "near"], "places say nothing then");
            nodes[3].node.attributes.may_be_master = false;
            assert_eq!(ranked(&nodes, RankBy::Place), ["far", "b", "c", "near"]);
        }
    }

    #[test]
    fn newcomers_near_nobody_take_the_ranks_that_are_free_in_their_own_order() {
        let ranked = |nodes: &[Applicant]| hosts(assign(nodes.to_vec(), RankBy::Place, |_| false));
        for (x, y) in [("x", "y"), ("v", "w"), ("t", "u")] {
            let newcomers = [placed("x", 1, x), placed("y", 2, y)];
            let order = ranked(&newcomers);
            let all = [&newcomers[..], &[survivor("old", 3, 1)]].concat();
            assert_eq!(ranked(&all), [&order[0], "old", &order[1]]);
        }
    }

    #[test]
    fn a_newcomer_beside_a_near_node_is_master_before_a_node_that_would_lose_its_rank() {
        let mut nodes = [survivor("a", 1, 0), survivor("b", 2, 1), placed("new", 3, "x")];
        for node in &mut nodes {
            node.node.attributes.place = "x".parse::<Place>().unwrap().hash();
        }
        assert_eq!(hosts(assign(nodes.to_vec(), RankBy::Place, |_| false)), ["a", "b", "new"]);
        nodes[0].node.attributes.may_be_master = false;
        assert_eq!(hosts(assign(nodes.to_vec(), RankBy::Place, |_| false)), ["new", "b", "a"]);
    }

    #[test]
    fn a_newcomer_that_cannot_be_master_takes_any_near_rank_but_0() {
        let with = |mut node: Applicant, place: &str| {
            node.node.attributes.place = place.parse::<Place>().unwrap().hash();
            node
        };
        let mut worker = placed("worker", 4, "x");
        worker.node.attributes.may_be_master = false;
        let far = placed("far", 6, "far");
        let ranked = |nodes: &[Applicant]| hosts(assign(nodes.to_vec(), RankBy::Place, |_| false));
        let (b, c) = (with(survivor("b", 1, 1), "x"), with(survivor("c", 2, 2), "y"));
        let nodes = [b, c, worker.clone(), placed("near", 5, "x"), far.clone()];
        assert_eq!(ranked(&nodes), ["near", "b", "c", "far", "worker"]);
        let (a, c) = (with(survivor("a", 1, 0), "x"), with(survivor("c", 2, 2), "x"));
        let nodes = [a, c, with(survivor("d", 3, 3), "y"), worker, far];
        assert_eq!(ranked(&nodes), ["a", "worker", "c", "d", "far"]);
    }

    #[test]
    #[ignore = "a measurement: run it in release mode, with --nocapture"]
    #[expect(clippy::disallowed_methods, reason = "it measures and prints")]
    fn the_time_to_rank_10_000_places() {
        let node = |n: u32| {
            let mixed = n.wrapping_mul(7_919) % 10_000;
            let place = format!("zone-{}/block-{}/rack-{}", mixed / 5_000, mixed / 500, mixed / 16);
            let mut a = placed(&format!("node-{n}"), 1, &place);
            a.id = NodeId(u128::from(n + 1).to_be_bytes());
            a.node.endpoints = SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + n), 29500)).into();
            a
        };
        let all: Vec<Applicant> = (0..10_000).map(node).collect();
        let half = survivors(assign(all.clone(), RankBy::Place, |_| false).unwrap());
        let half = half.into_iter().map(|mut a| {
            a.node.former = a.node.former.filter(|former| former.rank.get() % 2 == 0);
            a
        });
        let half: Vec<Applicant> = half.collect();
        for (what, order, nodes) in [
            ("by address", RankBy::Address, &all),
            ("by place", RankBy::Place, &all),
            ("by place, half of them replaced", RankBy::Place, &half),
        ] {
            let mut times: Vec<Duration> = (0..21)
                .map(|_| {
                    let nodes = nodes.clone();
                    let start = Instant::now();
                    let ranked = assign(nodes, order, |_| false);
                    let time = start.elapsed();
                    assert_eq!(ranked.map(|ranked| ranked.len()), Some(10_000));
                    time
                })
                .collect();
            times.sort();
            println!("{what}: median {:?}, longest {:?}, n = {}", times[10], times[20], times.len());
        }
    }
}
