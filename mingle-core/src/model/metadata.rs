//! Pairs of key and value that a launcher adds to its node.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// What a node's launcher tells the other nodes: pairs of a key and a value, such as a port that the launcher
/// has opened, a version or a rack. Every roster contains the pairs.
///
/// A node has at most [`Metadata::PAIRS`] pairs, of [`Metadata::MAX`] bytes together. Metadata is input from
/// the network: any node of the job can send everything that [`Metadata::insert`] accepts.
///
/// ```
/// use mingle_core::Metadata;
/// let mut metadata = Metadata::default();
/// metadata.insert("ray-port", "6379")?;
/// assert_eq!(metadata.get("ray-port"), Some("6379"));
/// assert!(metadata.insert("ray port", "6379").is_err());
/// # Ok::<(), mingle_core::error::InvalidMetadata>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(transparent)]
pub struct Metadata(BTreeMap<String, String>);

/// Why a pair is not valid metadata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidMetadata {
    /// The key is empty, longer than 32 characters, or has a character that is not allowed.
    #[error("the key {0:?} must be 1 to 32 of A-Z a-z 0-9 . _ -")]
    Key(String),
    /// The value has this character, which is not allowed.
    #[error("{0:?} in a value: only printable ASCII can be sent")]
    Value(char),
    /// All pairs together would have this many bytes, more than [`Metadata::MAX`].
    #[error("keys and values of one node have {0} bytes together, and must have at most {max}", max = Metadata::MAX)]
    Long(usize),
    /// There would be more than [`Metadata::PAIRS`] pairs.
    #[error("a node can bring at most {max} pairs", max = Metadata::PAIRS)]
    Many,
}

impl Metadata {
    /// The most bytes that all keys and values of a node may have together.
    pub const MAX: usize = 256;
    /// The most pairs that a node may have.
    pub const PAIRS: usize = 16;

    /// Adds a pair, or replaces the value of its key. An error changes nothing.
    ///
    /// # Errors
    /// [`InvalidMetadata`] if the key is not 1 to 32 of `A-Z a-z 0-9 . _ -`, if the value has a character
    /// that is not printable ASCII, or if there would be more than [`Metadata::PAIRS`] pairs or
    /// [`Metadata::MAX`] bytes.
    pub fn insert(&mut self, key: &str, value: &str) -> Result<(), InvalidMetadata> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !(1..=32).contains(&key.len()) || !key.chars().all(plain) {
            return Err(InvalidMetadata::Key(key.to_owned()));
        }
        if let Some(c) = value.chars().find(|c| !matches!(c, ' '..='~')) {
            return Err(InvalidMetadata::Value(c));
        }
        let others: usize = self.iter().filter(|(k, _)| *k != key).map(|(k, v)| k.len() + v.len()).sum();
        let length = others + key.len() + value.len();
        if length > Self::MAX {
            return Err(InvalidMetadata::Long(length));
        }
        if self.0.len() == Self::PAIRS && !self.0.contains_key(key) {
            return Err(InvalidMetadata::Many);
        }
        self.0.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All pairs, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Checks each pair as [`Metadata::insert`] does.
impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut metadata = Self::default();
        for (key, value) in <BTreeMap<&str, &str>>::deserialize(deserializer)? {
            metadata.insert(key, value).map_err(D::Error::custom)?;
        }
        Ok(metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_is_refused_changes_nothing() {
        let mut metadata = Metadata::default();
        metadata.insert("a", "1").unwrap();
        let before = metadata.clone();
        for key in ["", "a b", "a=b", "é", &"k".repeat(33)] {
            assert_eq!(metadata.insert(key, "x"), Err(InvalidMetadata::Key(key.to_owned())));
        }
        assert_eq!(metadata.insert("k", "a\nb"), Err(InvalidMetadata::Value('\n')));
        assert_eq!(metadata.insert("k", &"v".repeat(255)), Err(InvalidMetadata::Long(258)));
        assert_eq!(metadata, before);
        metadata.insert("k", &"v".repeat(253)).unwrap();
        metadata.insert("k", "short").unwrap();
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [("a", "1"), ("k", "short")]);
        for key in 2..Metadata::PAIRS {
            metadata.insert(&key.to_string(), "").unwrap();
        }
        assert_eq!(metadata.insert("z", ""), Err(InvalidMetadata::Many));
        metadata.insert("a", "2").unwrap();
    }
}
