//! How many nodes of a gathering can use RDMA: what a leader tells those who only listen.

use serde::{Deserialize, Serialize};

use super::agree::{Link, Summary};

/// How many nodes can use RDMA, by what they would use.
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
    /// How many in all.
    pub fn usable(&self) -> u32 {
        // Three numbers from outside.
        self.infiniband.saturating_add(self.roce).saturating_add(self.efa)
    }

    /// `3 of 4, RoCE`, where so many nodes are there.
    pub fn among(&self, nodes: u32) -> String {
        let links = [(Link::InfiniBand, self.infiniband), (Link::Roce, self.roce), (Link::Efa, self.efa)];
        let links: Vec<_> = links.into_iter().filter(|(_, count)| *count > 0).collect();
        match links[..] {
            [] => format!("none of {nodes}"),
            [(link, count)] => format!("{count} of {nodes}, {}", link.name()),
            _ => {
                let each: Vec<String> =
                    links.iter().map(|(link, count)| format!("{count} {}", link.name())).collect();
                format!("{} of {nodes}, {}", self.usable(), each.join(" and "))
            }
        }
    }

    fn of(&mut self, link: Link) -> Option<&mut u32> {
        match link {
            Link::InfiniBand => Some(&mut self.infiniband),
            Link::Roce => Some(&mut self.roce),
            Link::Efa => Some(&mut self.efa),
            Link::Unasked | Link::Nothing | Link::Unusable | Link::Disabled => None,
        }
    }
}

/// The tally as nodes come and go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    tally: Tally,
    /// How many have looked at all.
    asked: u32,
}

impl Counted {
    pub(crate) fn new(own: Summary) -> Self {
        let mut counted = Self::default();
        counted.add(own);
        counted
    }

    pub(crate) fn add(&mut self, fabric: Summary) {
        self.asked += u32::from(fabric.link != Link::Unasked);
        if let Some(count) = self.tally.of(fabric.link) {
            *count += 1;
        }
    }

    /// A node goes that was added.
    pub(crate) fn remove(&mut self, fabric: Summary) {
        self.asked -= u32::from(fabric.link != Link::Unasked);
        if let Some(count) = self.tally.of(fabric.link) {
            *count -= 1;
        }
    }

    /// None where nobody has looked.
    pub(crate) fn tally(&self) -> Option<Tally> {
        (self.asked > 0).then_some(self.tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(link: Link) -> Summary {
        Summary { link, ..Summary::default() }
    }

    #[test]
    fn what_comes_and_goes_is_counted_and_nobody_who_has_not_looked_says_that_there_is_none() {
        let mut counted = Counted::new(has(Link::Unasked));
        assert_eq!(counted.tally(), None);
        for link in [Link::Roce, Link::Nothing, Link::InfiniBand, Link::Disabled, Link::Efa, Link::Roce] {
            counted.add(has(link));
        }
        let all = Tally { infiniband: 1, roce: 2, efa: 1 };
        assert_eq!(counted.tally(), Some(all));
        for link in [Link::Roce, Link::InfiniBand, Link::Efa, Link::Roce, Link::Disabled] {
            counted.remove(has(link));
        }
        assert_eq!(counted.tally(), Some(Tally::default()), "one is left that has looked");
        counted.remove(has(Link::Nothing));
        assert_eq!(counted.tally(), None);
    }

    #[test]
    fn the_words_say_how_many_and_of_which_kind() {
        let tally = |infiniband, roce, efa| Tally { infiniband, roce, efa };
        assert_eq!(tally(0, 3, 0).among(4), "3 of 4, RoCE");
        assert_eq!(tally(0, 0, 0).among(4), "none of 4");
        assert_eq!(tally(2, 1, 0).among(4), "3 of 4, 2 InfiniBand and 1 RoCE");
        assert_eq!(tally(u32::MAX, 0, 1).usable(), u32::MAX, "a stranger may say anything");
    }
}
