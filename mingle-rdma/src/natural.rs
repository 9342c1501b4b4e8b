//! The order in which people expect host names.

use std::cmp::Ordering;

/// Natural order: runs of digits compare as numbers, so `node-9` comes before `node-10`.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a.first(), b.first()) {
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (x, y) = (digits(&mut a), digits(&mut b));
                // Without leading zeros the longer number is the larger one. Of equal numbers the one with
                // fewer leading zeros comes first.
                let zeros = |digits: &[u8]| digits.iter().position(|&c| c != b'0').unwrap_or(digits.len());
                let (short_x, short_y) = (&x[zeros(x)..], &y[zeros(y)..]);
                let order =
                    short_x.len().cmp(&short_y.len()).then(short_x.cmp(short_y)).then(x.len().cmp(&y.len()));
                if order.is_ne() {
                    return order;
                }
            }
            (Some(x), Some(y)) if x == y => (a, b) = (&a[1..], &b[1..]),
            (x, y) => return x.cmp(&y),
        }
    }
}

/// Takes the digits off the front of a text.
fn digits<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn natural_order_is_total_on_awkward_names() {
        let ordered = ["", "a", "a0", "a00", "a1", "a01", "a2", "a10", "a10b", "ab", "b"];
        for (i, a) in ordered.iter().enumerate() {
            for (j, b) in ordered.iter().enumerate() {
                assert_eq!(natural(a, b), i.cmp(&j), "{a:?} and {b:?}");
            }
        }
    }
}
