//! MINGLE_SET: which values in the environment are mingle's own, from an earlier `eval`. Each entry is a
//! name, a colon and a hash of the value: the values themselves may be long, and some have commas.

use super::Variable;

/// The digits of a hash: 32 bits, to tell a value that a user has chosen from one of mingle.
const DIGITS: usize = 8;

/// Whether mingle has set `value`, which the variable `name` has now. `listed` is the value of MINGLE_SET.
///
/// ```
/// use mingle_core::env::is_own;
/// assert!(is_own("PET_NPROC_PER_NODE:24fab59a,GLOO_SOCKET_IFNAME:c3e607cf", "PET_NPROC_PER_NODE", "8"));
/// assert!(!is_own("PET_NPROC_PER_NODE:24fab59a", "PET_NPROC_PER_NODE", "4"));
/// ```
pub fn is_own(listed: &str, name: &str, value: &str) -> bool {
    listed
        .split(',')
        .filter_map(|entry| entry.split_once(':'))
        .any(|(own, digest)| own == name && digest == hash(value))
}

/// The names in the list.
pub(super) fn names(listed: &str) -> impl Iterator<Item = &str> {
    listed.split(',').filter_map(|entry| entry.split_once(':')).map(|(name, _)| name)
}

/// The list of these variables.
pub(super) fn list(variables: &[Variable]) -> String {
    let entries = variables.iter().map(|(name, value)| format!("{name}:{}", hash(value)));
    entries.collect::<Vec<_>>().join(",")
}

fn hash(value: &str) -> String {
    let hash = blake3::Hasher::new_derive_key("mingle 1 own value").update(value.as_bytes()).finalize();
    hash.to_hex()[..DIGITS].to_owned()
}
