//! What several values have in common.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The most frequent value. Of several equally frequent values, the first counts.
pub fn most_frequent<T: Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, (usize, Reverse<usize>)> = BTreeMap::new();
    for (place, value) in values.enumerate() {
        let (count, _) = counts.entry(value).or_insert((0, Reverse(place)));
        *count += 1;
    }
    counts.into_iter().max_by_key(|(_, found)| *found).map(|(value, _)| value)
}

/// The value that all have. None where there is none, or they differ.
pub(crate) fn common<T: PartialEq>(mut values: impl Iterator<Item = Option<T>>) -> Option<T> {
    let first = values.next()?;
    if values.all(|value| value == first) { first } else { None }
}
