//! The size of a world as its user asks for it: one number, or a range.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{InvalidId, World};

/// How many nodes a world may have: exactly `N`, or any number from `MIN` to `MAX`.
///
/// A [`World`] is the size of a world that has formed, and lies in this range.
///
/// ```
/// use mingle_core::{World, WorldSize};
///
/// let range: WorldSize = "2:4".parse()?;
/// assert_eq!((range.min().get(), range.max().get()), (2, 4));
/// assert!(range.contains(World::new(3)?));
/// let fixed = WorldSize::from(World::new(4)?);
/// assert_eq!((fixed.to_string(), fixed.is_range()), ("4".to_owned(), false));
/// # Ok::<(), mingle_core::error::InvalidId>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)", into = "(u32, u32)")]
pub struct WorldSize {
    min: World,
    max: World,
}

impl WorldSize {
    /// From `min` to `max` nodes, both included.
    ///
    /// # Errors
    /// [`InvalidId::WorldRange`] if `min` is above `max`.
    pub fn new(min: World, max: World) -> Result<Self, InvalidId> {
        if min > max {
            return Err(InvalidId::WorldRange { min: min.get(), max: max.get() });
        }
        Ok(Self { min, max })
    }

    /// The minimum, in nodes: no world forms with fewer nodes.
    pub fn min(self) -> World {
        self.min
    }

    /// The maximum, in nodes: no world has more nodes.
    pub fn max(self) -> World {
        self.max
    }

    /// Whether the minimum and the maximum differ.
    pub fn is_range(self) -> bool {
        self.min < self.max
    }

    /// The largest size for which this many nodes suffice; 0 if there are too few nodes.
    pub fn at_most(self, nodes: u32) -> u32 {
        let nodes = nodes.min(self.max.get());
        if nodes < self.min.get() { 0 } else { nodes }
    }

    /// Whether this size lies in the range.
    pub fn contains(self, world: World) -> bool {
        self.at_most(world.get()) == world.get()
    }

    /// Whether two worlds could form out of the nodes of a single full world, because the minimum is at most
    /// half of the maximum.
    pub fn splits(self) -> bool {
        self.is_range() && self.min.get() <= self.max.get() / 2
    }
}

#[cfg(test)]
impl WorldSize {
    /// Exactly this many.
    pub(crate) fn of(size: u32) -> Self {
        World::new(size).unwrap().into()
    }
}

impl From<World> for WorldSize {
    /// The range whose minimum and maximum are both this size.
    fn from(world: World) -> Self {
        Self { min: world, max: world }
    }
}

impl FromStr for WorldSize {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        match text.split_once(':') {
            Some((min, max)) => Self::new(min.parse()?, max.parse()?),
            None => text.parse().map(World::into),
        }
    }
}

impl fmt::Display for WorldSize {
    /// Writes the range as the user types it: `4`, or `2:4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_range() {
            return self.max.fmt(f);
        }
        write!(f, "{}:{}", self.min, self.max)
    }
}

/// The minimum and the maximum, as they are on the wire.
impl TryFrom<(u32, u32)> for WorldSize {
    type Error = InvalidId;

    fn try_from((min, max): (u32, u32)) -> Result<Self, InvalidId> {
        Self::new(World::new(min)?, World::new(max)?)
    }
}

impl From<WorldSize> for (u32, u32) {
    fn from(size: WorldSize) -> Self {
        (size.min.get(), size.max.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_one_number_or_a_range_and_comes_back_as_it_was_typed() {
        for text in ["1", "4", "2:4", "1:1000000"] {
            assert_eq!(text.parse::<WorldSize>().unwrap().to_string(), text);
        }
        assert_eq!("4:4".parse::<WorldSize>().unwrap().to_string(), "4");
        for text in ["", "0", "0:4", "4:2", "2:", ":4", "2:4:6", "2-4", "2:1000001", "a:b"] {
            assert!(text.parse::<WorldSize>().is_err(), "{text}");
        }
        let above = "5:4".parse::<WorldSize>().unwrap_err().to_string();
        assert!(above.contains("5 is above 4"), "{above}");
    }

    #[test]
    fn a_world_splits_if_twice_its_fewest_nodes_are_at_most_its_most() {
        let splits = |text: &str| text.parse::<WorldSize>().unwrap().splits();
        assert!(["2:4", "1:2", "2:5", "1:1000000"].iter().all(|text| splits(text)));
        assert!(["3:4", "4", "1", "2:3", "3:5"].iter().all(|text| !splits(text)));
    }
}
