//! The paths that could not be proved in the rounds of one leader.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::{BrokenPath, NodeId};
use crate::wire::world::Terms;
use crate::wire::{Broken, REFUSED, Refusal};

/// The paths that were broken in the last round, and in the one that had fewest: each round may try another
/// network, and on that of the job the fewest are broken.
#[derive(Debug, Clone, Default)]
pub(super) struct BrokenRounds {
    pub(super) last: BrokenPaths,
    fewest: BrokenPaths,
}

impl BrokenRounds {
    /// Paths that were broken may be proved in the next round while the leader `persists`. Otherwise, the
    /// broken paths of the round that had fewest.
    pub(super) fn settle(&mut self, persists: bool) -> Option<BrokenPaths> {
        let last = std::mem::take(&mut self.last);
        if last.is_empty() {
            return None;
        }
        if self.fewest.is_empty() || last.count() <= self.fewest.count() {
            self.fewest = last;
        }
        (!persists).then(|| std::mem::take(&mut self.fewest))
    }

    /// No other round begins: the broken paths of the last one, or of the one that had fewest.
    pub(super) fn give_up(&mut self) -> Option<BrokenPaths> {
        let broken = self.settle(false).unwrap_or_else(|| std::mem::take(&mut self.fewest));
        (!broken.is_empty()).then_some(broken)
    }
}

/// The broken paths, by prover: with their targets, and how many more there are.
#[derive(Debug, Clone, Default)]
pub(crate) struct BrokenPaths(BTreeMap<NodeId, (Vec<(NodeId, BrokenPath)>, u32)>);

impl BrokenPaths {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes the report of a node in this round, in place of its last one. Returns whether it names a path of
    /// the round.
    pub(crate) fn insert(&mut self, from: NodeId, broken: &Broken, terms: &Terms) -> bool {
        let named = broken.paths.iter().filter_map(|to| Some((to.partner, terms.broken(from, to)?)));
        let named: Vec<_> = named.collect();
        if named.is_empty() {
            return false;
        }
        self.0.insert(from, (named, broken.more));
        true
    }

    /// Whether the node has said which of its paths are broken.
    pub(super) fn has(&self, from: NodeId) -> bool {
        self.0.contains_key(&from)
    }

    /// Whether paths are broken, and all of them are to the master's own port.
    pub(super) fn are_to_master(&self) -> bool {
        let mut paths = self.0.values().flat_map(|(paths, _)| paths);
        !self.is_empty() && paths.all(|(_, path)| path.to_master)
    }

    /// The nodes that could not reach the master's own port.
    pub(super) fn without_master(&self) -> Vec<NodeId> {
        let failed = self.0.iter().filter(|(_, (paths, _))| paths.iter().any(|(_, path)| path.to_master));
        failed.map(|(&from, _)| from).collect()
    }

    /// One of the paths.
    pub(super) fn first(&self) -> Option<BrokenPath> {
        self.0.values().flat_map(|(paths, _)| paths).next().map(|(_, path)| path.clone())
    }

    /// The provers and targets of the paths, each pair once.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        let ends = self.0.iter().flat_map(|(&from, (paths, _))| paths.iter().map(move |&(to, _)| (from, to)));
        ends.collect::<BTreeSet<_>>().into_iter()
    }

    /// Whether the reports name all broken paths.
    pub(super) fn are_all_named(&self) -> bool {
        self.0.values().all(|(_, more)| *more == 0)
    }

    fn count(&self) -> usize {
        self.0.values().map(|(named, more)| named.len() + usize::try_from(*more).unwrap_or(usize::MAX)).sum()
    }

    /// How a world ends for which these are the last.
    pub(crate) fn ending(self) -> Refusal {
        let (mut paths, mut more) = (Vec::new(), 0_u32);
        for (named, unnamed) in self.0.into_values() {
            paths.extend(named.into_iter().map(|(_, path)| path).enumerate());
            more = more.saturating_add(unnamed);
        }
        // The first path of each prover before the second of any.
        paths.sort_by_key(|(at, _)| *at);
        let paths = paths.into_iter().map(|(_, path)| path);
        more = more.saturating_add(u32::try_from(paths.len().saturating_sub(REFUSED)).unwrap_or(u32::MAX));
        Refusal::PathsBroken(paths.take(REFUSED).collect(), more)
    }
}

/// Nodes without which none of these paths is broken, which are given as provers and targets: always the
/// node at the ends of most paths that are left, so these are few nodes, if not always the fewest. Of
/// several, that which is worth less comes first; then a prover before a target, which others may have
/// reached.
pub(crate) fn at_fault<K: Ord>(
    paths: impl Iterator<Item = (NodeId, NodeId)>,
    worth: impl Fn(&NodeId) -> K,
) -> Vec<NodeId> {
    // The other end of each path of a node, and whether the node is the prover.
    let mut ends: BTreeMap<NodeId, Vec<(NodeId, bool)>> = BTreeMap::new();
    for (prover, target) in paths {
        ends.entry(prover).or_default().push((target, true));
        ends.entry(target).or_default().push((prover, false));
    }
    let weight = |id: NodeId, paths: &[(NodeId, bool)]| {
        let as_prover = paths.iter().filter(|(_, proves)| *proves).count();
        (paths.len(), Reverse(worth(&id)), as_prover, id)
    };
    let mut order: BTreeSet<_> = ends.iter().map(|(id, paths)| weight(*id, paths)).collect();
    let mut nodes = Vec::new();
    while let Some((1.., _, _, worst)) = order.pop_last() {
        nodes.push(worst);
        for (other, _) in ends.remove(&worst).unwrap_or_default() {
            let Some(paths) = ends.get_mut(&other) else { continue };
            order.remove(&weight(other, paths));
            paths.retain(|(end, _)| *end != worst);
            order.insert(weight(other, paths));
        }
    }
    nodes
}
