//! What the user wants to be the same on all nodes.

use std::collections::BTreeMap;

/// The most keys of `--same`.
const KEYS: usize = 32;
/// The longest key.
const KEY: usize = 32;
/// The longest value, in bytes.
const VALUE: usize = 256;

/// Adds a `KEY=VALUE` to those that were given before it.
pub(super) fn add(pairs: &mut BTreeMap<String, String>, text: &str) -> Result<(), String> {
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
    if let Some(other) = pairs.get(key).filter(|other| *other != value) {
        return Err(format!("{key} is {other:?} already; give each key once"));
    }
    pairs.insert(key.to_owned(), value.to_owned());
    if pairs.len() > KEYS {
        return Err(format!("this is key {}, and there may be {KEYS}", pairs.len()));
    }
    Ok(())
}
