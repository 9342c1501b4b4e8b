//! Counts of names and of ends of channels.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::AddAssign;

use serde::{Serialize, Serializer};

/// The most different names of one kind that are kept.
pub(super) const NAMES: usize = 64;

/// Ends of channels, by the network that they use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Ends {
    pub(super) gpudirect: u64,
    pub(super) rdma: u64,
    pub(super) sockets: u64,
    pub(super) other: u64,
}

/// How often each of the first [`NAMES`] names was seen, and how often all others.
#[derive(Debug, Serialize)]
pub(super) struct Counts<T: Ord> {
    #[serde(serialize_with = "pairs", bound(serialize = "T: Serialize"))]
    pub(super) counts: BTreeMap<T, u64>,
    pub(super) others: u64,
}

impl Ends {
    pub(super) fn one(network: &str, gpudirect: bool) -> Self {
        // `IBext` is nccl-rdma-sharp-plugins, `gIB` is Google's plugin for RoCE, and `AWS Libfabric` or
        // `Libfabric` is the plugin for EFA. Others may say GDRDMA without RDMA, such as those for TCP with
        // device memory.
        let is_rdma = match network.split_once('/') {
            Some(("NET", name)) => {
                matches!(name, "IB" | "gIB") || name.starts_with("IBext") || name.ends_with("Libfabric")
            }
            // SHARP, a function of InfiniBand switches.
            _ => true,
        };
        let mut ends = Self::default();
        match network {
            _ if is_rdma && gpudirect => ends.gpudirect = 1,
            _ if is_rdma => ends.rdma = 1,
            "NET/Socket" => ends.sockets = 1,
            _ => ends.other = 1,
        }
        ends
    }

    pub(super) fn all(self) -> [u64; 4] {
        [self.gpudirect, self.rdma, self.sockets, self.other]
    }

    pub(super) fn sum(self) -> u64 {
        self.all().iter().sum()
    }

    /// The index in [`Ends::all`] of the most frequent network, the better one of two that are equally
    /// frequent.
    pub(super) fn most(self) -> Option<usize> {
        (0..4).rev().max_by_key(|&way| self.all()[way]).filter(|_| self.sum() > 0)
    }

    pub(super) fn is_uniform(self) -> bool {
        self.all().iter().filter(|&&count| count > 0).count() <= 1
    }
}

impl AddAssign for Ends {
    fn add_assign(&mut self, more: Self) {
        self.gpudirect += more.gpudirect;
        self.rdma += more.rdma;
        self.sockets += more.sockets;
        self.other += more.other;
    }
}

impl<T: Ord> Counts<T> {
    pub(super) fn add(&mut self, name: T) {
        let is_full = self.counts.len() >= NAMES;
        match self.counts.entry(name) {
            Entry::Vacant(_) if is_full => self.others += 1,
            entry => *entry.or_default() += 1,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &T> {
        self.counts.keys()
    }
}

impl<T: Ord> Default for Counts<T> {
    fn default() -> Self {
        Self { counts: BTreeMap::new(), others: 0 }
    }
}

/// `[{"name": ..., "count": ...}]`: text from a log must not become a key.
fn pairs<T: Serialize, S: Serializer>(counts: &BTreeMap<T, u64>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a, T> {
        name: &'a T,
        count: u64,
    }
    to.collect_seq(counts.iter().map(|(name, &count)| Named { name, count }))
}
