//! What should be the same on every node: keys with hashes of their values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Label;

/// The longest key that is sent, in characters.
const KEY: usize = 48;
/// The longest part of a value that is sent, in characters.
const VALUE: usize = 32;
/// How many characters of a longer key are sent, before a hash of it.
const BEGINNING: usize = 39;
/// The key that stands for all traits beyond [`Traits::MOST`].
const OTHERS: &str = "all other keys";

/// A key as it is sent and shown.
pub(crate) type TraitKey = Label<KEY>;
/// A value as it is shown: its beginning.
pub(crate) type TraitValue = Label<VALUE>;

/// The traits of a node: what should be the same on every node of a world, because a job may hang or slow
/// down where it differs. Each trait is a key and a value, such as a variable for NCCL or the version of a
/// driver.
///
/// Nodes do not send values. They send a 32-bit hash of each value, and the first 32 characters of values
/// that may be shown. If a hidden value is one of few possible values, its hash reveals it.
///
/// ```
/// use mingle_core::{Trait, Traits};
/// let same = [Trait::shown("image", "v7"), Trait::hidden("DATA_URL", "https://user:pass@host")];
/// let traits: Traits = same.into_iter().collect();
/// assert_ne!(traits, [Trait::shown("image", "v8")].into_iter().collect());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Traits(pub(super) BTreeMap<TraitKey, Sent>);

/// A key and a value that should be the same on every node. See [`Traits`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trait {
    key: String,
    value: String,
    is_shown: bool,
}

impl Trait {
    /// A trait whose value the other nodes learn and may show.
    pub fn shown(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), is_shown: true }
    }

    /// A trait whose value the other nodes do not learn: they get only a hash.
    pub fn hidden(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { is_shown: false, ..Self::shown(key, value) }
    }
}

/// A value as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(super) hash: u32,
    pub(super) shown: Option<TraitValue>,
}

impl Traits {
    /// The most traits that a node sends. If a node has more, the last trait that it sends is a hash of all
    /// further traits.
    pub const MOST: usize = 160;

    /// Whether there are none: the node says nothing of what should be the same.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same with one trait more. There is no room for it beside [`Traits::MOST`] others.
    #[must_use]
    pub(crate) fn with(mut self, one: Trait) -> Self {
        if self.0.len() < Self::MOST {
            self.0.extend(Self::from_iter([one]).0);
        }
        self
    }

    /// The traits as they are sent.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (&TraitKey, &Sent)> {
        self.0.iter()
    }

    /// The traits that another node has sent; nothing where they are out of order or too many.
    pub(crate) fn received(sent: Vec<(TraitKey, Sent)>) -> Option<Self> {
        let is_sorted = sent.is_sorted_by(|(one, _), (next, _)| one < next);
        (is_sorted && sent.len() <= Self::MOST).then(|| Self(sent.into_iter().collect()))
    }
}

/// Of several traits with one key the last counts.
impl FromIterator<Trait> for Traits {
    fn from_iter<I: IntoIterator<Item = Trait>>(traits: I) -> Self {
        let sent = |Trait { key, value, is_shown }: Trait| {
            let hash = hash(&key, &value);
            (short(&key), Sent { hash, shown: is_shown.then(|| TraitValue::cut(&value)) })
        };
        let mut all: BTreeMap<TraitKey, Sent> = traits.into_iter().map(sent).collect();
        if all.len() > Self::MOST {
            let first = all.keys().nth(Self::MOST - 1).cloned().unwrap_or_default();
            let others = all.split_off(&first);
            let hashes = others.iter().map(|(key, sent)| format!("{} {:08x}\n", key.as_str(), sent.hash));
            let hash = hash(OTHERS, &hashes.collect::<String>());
            all.insert(TraitKey::cut(OTHERS), Sent { hash, shown: None });
        }
        Self(all)
    }
}

/// A key as it is sent: one that is too long is told from others with the same beginning by a hash.
fn short(key: &str) -> TraitKey {
    let whole = TraitKey::cut(key);
    if whole.as_str() == key {
        return whole;
    }
    let beginning: String = key.chars().take(BEGINNING).collect();
    TraitKey::cut(&format!("{beginning}~{:08x}", hash(key, "")))
}

fn hash(key: &str, value: &str) -> u32 {
    let mut hasher = blake3::Hasher::new_derive_key("mingle 2 trait");
    hasher.update(key.as_bytes()).update(&[0]).update(value.as_bytes());
    u32::from_le_bytes(hasher.finalize().as_bytes().first_chunk().copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(traits: impl IntoIterator<Item = Trait>) -> Traits {
        traits.into_iter().collect()
    }

    #[test]
    fn traits_differ_by_keys_values_and_what_may_be_shown_and_not_by_their_order() {
        let (a, b) = (Trait::shown("a", "1"), Trait::shown("b", "2"));
        let both = of([a.clone(), b.clone()]);
        assert_eq!(both, of([b.clone(), a]));
        for other in [Trait::shown("a", "2"), Trait::shown("c", "1"), Trait::hidden("a", "1")] {
            assert_ne!(both, of([other.clone(), b.clone()]), "{other:?}");
        }
        // What is cut off counts as well.
        let long = |end: char| of([Trait::shown("k", "v".repeat(99) + &end.to_string())]);
        assert_ne!(long('x'), long('y'));
    }

    #[test]
    fn long_keys_with_one_beginning_are_two_keys() {
        let key = "k".repeat(60);
        let two = of([Trait::shown(key.clone() + "1", ""), Trait::shown(key + "2", "")]);
        assert_eq!(two.0.len(), 2);
        assert!(two.0.keys().all(|key| key.as_str().len() == KEY && key.as_str().contains('~')));
    }

    #[test]
    fn a_difference_in_more_traits_than_are_sent_one_by_one_is_noticed() {
        let many = |last: &str| {
            of((0..500).map(|n| Trait::shown(format!("k{n:03}"), if n == 499 { last } else { "x" })))
        };
        assert_eq!(many("x").0.len(), Traits::MOST);
        assert_ne!(many("x"), many("y"));
        assert_eq!(Traits::received(many("x").0.into_iter().collect()), Some(many("x")));
    }

    #[test]
    fn received_traits_that_are_out_of_order_or_too_many_are_refused() {
        let sent = |keys: &[&str]| {
            let value = || Sent { hash: 1, shown: None };
            Traits::received(keys.iter().map(|key| (TraitKey::cut(key), value())).collect())
        };
        assert!(sent(&["a", "b"]).is_some() && sent(&[]).is_some());
        assert!(sent(&["b", "a"]).is_none() && sent(&["a", "a"]).is_none());
        let many: Vec<String> = (0..=Traits::MOST).map(|n| format!("{n:03}")).collect();
        assert!(sent(&many.iter().map(String::as_str).collect::<Vec<_>>()).is_none());
    }
}
