//! The nodes that announce themselves or solicit although this one has a leader, and when each was last given
//! a hint.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Learned;
use crate::model::NodeId;
use crate::proto::timer::Time;

/// A candidate that still announces itself after this long has not heard of the better one.
const UNAWARE: Duration = Duration::from_secs(1);
/// Between two hints to a node that asks this node personally.
const PERSONAL: Duration = Duration::from_millis(100);

/// The most nodes that are remembered as rivals.
const REMEMBERED: usize = 4096;

/// When each rival was first heard, and when it was last given a hint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rivals(BTreeMap<NodeId, (Time, Option<Time>)>);

impl Rivals {
    /// Whether the node needs a hint now: it still calls to all although this node has had a leader for a
    /// while, and has had no hint for a second. The leader does not hear what it sends to this node
    /// personally: such a node gets its hint at once, and ten a second.
    pub(crate) fn is_unaware(&mut self, id: NodeId, learned: Learned, now: Time) -> bool {
        let (patience, pause) = match learned {
            Learned::Personally => (Duration::ZERO, PERSONAL),
            Learned::ByItself | Learned::ByAnother => (UNAWARE, UNAWARE),
        };
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, (since, hinted)| hinted.unwrap_or(*since) + 2 * UNAWARE > now);
        }
        if self.0.len() >= REMEMBERED {
            return false;
        }
        let (since, hinted) = self.0.entry(id).or_insert((now, None));
        let unaware = now >= *since + patience && hinted.is_none_or(|hinted| now >= hinted + pause);
        if unaware {
            *hinted = Some(now);
        }
        unaware
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Time {
        Time::from_millis(milliseconds)
    }

    #[test]
    fn the_memory_of_rivals_is_bounded_and_forgets_those_that_are_silent_for_two_seconds() {
        let mut rivals = Rivals::default();
        let id = |number: usize| NodeId(u128::try_from(number).unwrap().to_be_bytes());
        for number in 0..REMEMBERED {
            assert!(rivals.is_unaware(id(number), Learned::Personally, ms(0)));
        }
        assert!(!rivals.is_unaware(id(REMEMBERED), Learned::Personally, ms(1999)));
        assert_eq!(rivals.0.len(), REMEMBERED);
        assert!(rivals.is_unaware(id(REMEMBERED), Learned::Personally, ms(2000)));
        assert_eq!(rivals.0.len(), 1);
    }
}
