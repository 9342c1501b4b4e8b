//! The place of a host in its network, by which ranks can be ordered.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::List;

/// The place of a host in its network: the names of what it is part of, the broadest first, such as a block
/// of racks and a rack in it. The host itself is no part. The default has no parts, which is no place.
///
/// Nodes send a hash of 32 bits of each part. Of two parts of the same broader part that have the same hash,
/// one in four billion pairs, the hosts are ordered as if the parts were one.
///
/// ```
/// use mingle_core::Place;
/// let place: Place = "block-1/rack-7".parse()?;
/// assert_eq!(place.levels(), 2);
/// assert!("block-1//host".parse::<Place>().is_err());
/// # Ok::<(), mingle_core::error::InvalidPlace>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place(Vec<String>);

/// The hashes of a place's parts, as a join carries them. They are in the order of the place's parts, and
/// compare by them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlaceHash(List<[u8; 4], { Place::LEVELS }>);

/// Why a text is no place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidPlace {
    /// It has more parts than [`Place::LEVELS`]: so many.
    Levels(usize),
    /// The part of this number, counted from 1, is empty.
    Empty(usize),
    /// This part has more than [`Place::PART`] characters: so many.
    Long(String, usize),
    /// This part has a character that is not printable ASCII.
    Character(String),
}

impl Place {
    /// The most parts. Networks are described by three to five: core, spine and leaf, and perhaps a data
    /// center before them and an NVLink domain behind. Eight cost a join 32 bytes.
    pub const LEVELS: usize = 8;
    /// The most characters of a part. Labels in Kubernetes have up to 63, Oracle's identifiers about 100.
    pub const PART: usize = 128;

    /// The place with these parts, the broadest first: any texts, and no more than [`Place::LEVELS`] of them.
    /// Where all are empty, it is no place.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let parts: Vec<String> = parts.into_iter().take(Self::LEVELS).map(str::to_owned).collect();
        if parts.iter().all(String::is_empty) { Self::default() } else { Self(parts) }
    }

    /// How many parts it has; 0 where there is no place.
    pub fn levels(&self) -> usize {
        self.0.len()
    }

    /// The place as it is sent.
    pub fn hash(&self) -> PlaceHash {
        PlaceHash(self.0.iter().map(|part| hash(part)).collect())
    }
}

impl FromStr for Place {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('/').collect();
        if parts.len() > Self::LEVELS {
            return Err(InvalidPlace::Levels(parts.len()));
        }
        for (part, number) in parts.iter().zip(1..) {
            let length = part.chars().count();
            if part.trim().is_empty() {
                return Err(InvalidPlace::Empty(number));
            } else if length > Self::PART {
                return Err(InvalidPlace::Long((*part).to_owned(), length));
            } else if !part.chars().all(|c| matches!(c, ' '..='~')) {
                return Err(InvalidPlace::Character((*part).to_owned()));
            }
        }
        Ok(Self::of(parts))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

impl fmt::Display for InvalidPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Levels(levels) => write!(f, "it has {levels} parts, and may have {}", Place::LEVELS),
            Self::Empty(number) => write!(f, "part {number} is empty"),
            Self::Long(part, length) => {
                let beginning: String = part.chars().take(16).collect();
                let most = Place::PART;
                write!(f, "the part {beginning:?}... has {length} characters, and may have {most}")
            }
            Self::Character(part) => write!(f, "the part {part:?} may have printable ASCII only"),
        }
    }
}

impl std::error::Error for InvalidPlace {}

impl PlaceHash {
    /// Whether the node has no place.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The first of its parts, so many.
    pub(crate) fn beginning(&self, levels: usize) -> Option<&[[u8; 4]]> {
        self.0.get(..levels)
    }

    pub(crate) fn levels(&self) -> usize {
        self.0.len()
    }

    /// The parts as numbers of the same order, two in each, with zeros behind the last. Places are in the
    /// order of these and then of how many parts they have.
    pub(crate) fn words(&self) -> [u64; Place::LEVELS / 2] {
        let mut words = [0; Place::LEVELS / 2];
        for (word, parts) in words.iter_mut().zip(self.0.chunks(2)) {
            let number = |at: usize| parts.get(at).map_or(0, |part| u64::from(u32::from_be_bytes(*part)));
            *word = number(0) << 32 | number(1);
        }
        words
    }

    /// How many parts it shares with another place, from the broadest on.
    #[cfg(test)]
    pub(crate) fn shared(&self, other: &Self) -> usize {
        self.0.iter().zip(other.0.iter()).take_while(|(own, theirs)| own == theirs).count()
    }

    /// So many equal parts, for tests and fuzz targets.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn example(levels: usize) -> Self {
        Self(std::iter::repeat_n([0xff; 4], levels).collect())
    }
}

fn hash(part: &str) -> [u8; 4] {
    let mut hasher = blake3::Hasher::new_derive_key("mingle 2 place");
    hasher.update(part.as_bytes());
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..4]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_up_to_eight_parts_of_printable_text() {
        let long = "x".repeat(Place::PART + 1);
        for (text, reason) in [
            ("", "part 1 is empty"),
            ("a//c", "part 2 is empty"),
            ("/a", "part 1 is empty"),
            ("a/b/", "part 3 is empty"),
            ("a/ /c", "part 2 is empty"),
            ("1/2/3/4/5/6/7/8/9", "it has 9 parts, and may have 8"),
            ("a/b\nc", r#"the part "b\nc" may have printable ASCII only"#),
            ("a/ü", r#"the part "ü" may have printable ASCII only"#),
            (&long, r#"the part "xxxxxxxxxxxxxxxx"... has 129 characters, and may have 128"#),
        ] {
            assert_eq!(text.parse::<Place>().unwrap_err().to_string(), reason);
        }
        let place: Place = "dc 1/block-2/rack.3".parse().unwrap();
        assert_eq!((place.levels(), place.to_string().as_str()), (3, "dc 1/block-2/rack.3"));
        assert_eq!(
            "1/2/3/4/5/6/7/8".parse::<Place>().unwrap().hash(),
            Place::of("12345678".split("").skip(1)).hash()
        );
        assert_eq!(Place::of(["", ""]), Place::default());
        assert!(Place::default().hash().is_none());
    }

    #[test]
    fn the_numbers_of_places_are_in_the_order_of_their_parts() {
        let parts = [[0; 4], [0, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0xff; 4]];
        let mut places = vec![PlaceHash::default()];
        for length in 1..=4 {
            for mut n in 0..parts.len().pow(length) {
                places.push(PlaceHash(
                    (0..length)
                        .map(|_| {
                            let part = parts[n % parts.len()];
                            n /= parts.len();
                            part
                        })
                        .collect(),
                ));
            }
        }
        let key = |place: &PlaceHash| (place.words(), place.levels());
        let mut by_numbers = places.clone();
        by_numbers.sort_by_key(key);
        places.sort();
        assert_eq!(by_numbers, places);
        assert_eq!(PlaceHash::example(8).words(), [u64::MAX; 4]);
    }

    #[test]
    fn places_share_the_parts_that_they_begin_with() {
        let hash = |text: &str| text.parse::<Place>().unwrap().hash();
        for (one, other, shared) in
            [("a/b/c", "a/b/c", 3), ("a/b/c", "a/x/c", 1), ("a/b", "a/b/c", 2), ("b/a", "a/b", 0)]
        {
            assert_eq!(hash(one).shared(&hash(other)), shared, "{one} and {other}");
        }
        assert_eq!(hash("a/b").beginning(2), hash("a/b/c").beginning(2));
        assert_eq!(hash("a/b").beginning(3), None);
    }
}
