//! What the user wants to be the same on all nodes.

use std::collections::BTreeMap;

/// The most keys of `--same`.
const KEYS: usize = 32;
/// The longest key.
const KEY: usize = 32;
/// The longest value, in bytes.
const VALUE: usize = 256;

/// What the user wants to be compared.
#[derive(Debug, Default)]
pub(crate) struct SameWanted {
    /// The pairs of `--same`, in the order of their keys.
    pub(crate) pairs: BTreeMap<String, String>,
    /// Whether the world must not form where anything differs.
    pub(crate) required: bool,
}

impl SameWanted {
    /// Adds a `KEY=VALUE`.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        let Some((key, value)) = text.split_once('=') else {
            return Err("write KEY=VALUE, such as image=v7".to_owned());
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !(1..=KEY).contains(&key.len()) || !key.chars().all(plain) {
            return Err(format!("the key {key:?} must be 1 to {KEY} of A-Z a-z 0-9 . _ -"));
        }
        if value.len() > VALUE {
            let length = value.len();
            return Err(format!("the value has {length} bytes, and may have {VALUE}; compare a hash of it"));
        }
        if let Some(other) = self.pairs.get(key).filter(|other| *other != value) {
            return Err(format!("{key} is {other:?} already; give each key once"));
        }
        self.pairs.insert(key.to_owned(), value.to_owned());
        if self.pairs.len() > KEYS {
            return Err(format!("this is key {}, and there may be {KEYS}", self.pairs.len()));
        }
        Ok(())
    }
}
