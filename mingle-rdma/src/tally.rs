//! How many nodes of a world that is forming can use RDMA: the leader advertises it to observers.

use serde::{Deserialize, Serialize};

use super::summary::{Capability, Summary};

/// How many nodes can use RDMA, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// InfiniBand.
    pub infiniband: u32,
    /// RoCE.
    pub roce: u32,
    /// EFA.
    pub efa: u32,
}

impl Tally {
    /// How many nodes can use RDMA in all.
    pub fn usable(&self) -> u32 {
        // The numbers come from the network.
        self.infiniband.saturating_add(self.roce).saturating_add(self.efa)
    }

    /// A text such as `3 of 4, RoCE`, for this number of nodes.
    pub fn among(&self, nodes: u32) -> String {
        use Capability::{Efa, InfiniBand, Roce};
        let counts = [(InfiniBand, self.infiniband), (Roce, self.roce), (Efa, self.efa)];
        let counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        match counts[..] {
            [] => format!("none of {nodes}"),
            [(kind, count)] => format!("{count} of {nodes}, {}", kind.name()),
            _ => {
                let each: Vec<String> =
                    counts.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
                format!("{} of {nodes}, {}", self.usable(), each.join(" and "))
            }
        }
    }

    fn count_of(&mut self, capability: Capability) -> Option<&mut u32> {
        match capability {
            Capability::InfiniBand => Some(&mut self.infiniband),
            Capability::Roce => Some(&mut self.roce),
            Capability::Efa => Some(&mut self.efa),
            Capability::NotExamined
            | Capability::NoDevice
            | Capability::NoUsablePort
            | Capability::Disabled => None,
        }
    }
}

/// A tally that follows the nodes as they join and leave.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    tally: Tally,
    /// How many nodes have been examined.
    examined: u32,
}

impl Counted {
    /// The tally of a world of one node.
    pub fn new(own: Summary) -> Self {
        let mut counted = Self::default();
        counted.add(own);
        counted
    }

    /// Adds the summary of a node.
    pub fn add(&mut self, summary: Summary) {
        self.examined += u32::from(summary.is_examined());
        if let Some(count) = self.tally.count_of(summary.capability) {
            *count += 1;
        }
    }

    /// Removes the summary of a node that was added.
    pub fn remove(&mut self, summary: Summary) {
        self.examined -= u32::from(summary.is_examined());
        if let Some(count) = self.tally.count_of(summary.capability) {
            *count -= 1;
        }
    }

    /// The tally, or `None` if no node has been examined.
    pub fn tally(&self) -> Option<Tally> {
        (self.examined > 0).then_some(self.tally)
    }
}

#[cfg(test)]
mod tests {
    use super::Capability::{Disabled, Efa, InfiniBand, NoDevice, NotExamined, Roce};
    use super::*;

    fn has(capability: Capability) -> Summary {
        Summary { capability, ..Summary::default() }
    }

    #[test]
    fn a_tally_follows_joins_and_leaves_and_exists_only_if_a_node_was_examined() {
        assert_eq!(Counted::new(has(Roce)).tally(), Some(Tally { roce: 1, ..Tally::default() }));
        let mut counted = Counted::new(has(NotExamined));
        assert_eq!(counted.tally(), None);
        for capability in [Roce, NoDevice, InfiniBand, Disabled, Efa, Roce] {
            counted.add(has(capability));
        }
        let all = Tally { infiniband: 1, roce: 2, efa: 1 };
        assert_eq!(counted.tally(), Some(all));
        for capability in [Roce, InfiniBand, Efa, Roce, Disabled] {
            counted.remove(has(capability));
        }
        assert_eq!(counted.tally(), Some(Tally::default()), "one examined node is left");
        counted.remove(has(NoDevice));
        assert_eq!(counted.tally(), None);
    }

    #[test]
    fn the_text_says_how_many_and_of_which_kind() {
        let tally = |infiniband, roce, efa| Tally { infiniband, roce, efa };
        assert_eq!(tally(0, 3, 0).among(4), "3 of 4, RoCE");
        assert_eq!(tally(0, 0, 0).among(4), "none of 4");
        assert_eq!(tally(2, 1, 0).among(4), "3 of 4, 2 InfiniBand and 1 RoCE");
        assert_eq!(tally(u32::MAX, 0, 1).usable(), u32::MAX, "the numbers of a stranger do not overflow");
    }
}
