//! A majority.

use std::collections::BTreeMap;

/// The most frequent value. Of several equally frequent values, the first counts.
pub fn most_frequent<T: Copy + Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: Vec<(T, usize)> = Vec::new();
    let mut places: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        let place = *places.entry(value).or_insert_with(|| {
            counts.push((value, 0));
            counts.len() - 1
        });
        counts[place].1 += 1;
    }
    // `max_by_key` returns the last of several maxima, so reverse the order to get the first.
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}
