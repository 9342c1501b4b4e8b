//! A mutant: one change of the source text, which a switch turns on at run time.

use std::ops::Range;

/// One change that a careless person might have made.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The file, by its path below mingle-core/src.
    pub file: String,
    /// The type and the function.
    pub function: String,
    /// The change in words.
    pub change: String,
    /// The bytes of the file that it concerns.
    pub range: Range<usize>,
    pub edit: Edit,
}

/// How the mutated and the original code are both in the text.
#[derive(Debug, Clone)]
pub enum Edit {
    /// Another expression takes the place of this one.
    Replace(String),
    /// The statement is left out.
    Delete,
    /// The function returns this before it does anything; the range is empty.
    Return(String),
    /// The arm of a match never matches; the range is empty, after its pattern.
    NeverMatch,
    /// As [`Edit::NeverMatch`], and the range is the guard that the arm has.
    NeverPassGuard,
}

impl Mutant {
    /// The name of the mutant, which stays the same while its function does.
    pub fn key(&self) -> String {
        format!("{} {}: {}", self.file, self.function, self.change)
    }

    /// The text before the original one and after it, for the mutant of this number.
    pub fn wrap(&self, number: usize) -> (String, String) {
        let is = format!("crate::mutant::is({number})");
        match &self.edit {
            Edit::Replace(other) => (format!("(if {is} {{ {other} }} else {{ "), " })".to_owned()),
            Edit::Delete => (format!("if !{is} {{ "), " }".to_owned()),
            Edit::Return(value) => (format!(" if {is} {{ return {value}; }} "), String::new()),
            Edit::NeverMatch => (format!(" if !{is}"), String::new()),
            Edit::NeverPassGuard => (format!("!{is} && ("), ")".to_owned()),
        }
    }
}

/// Gives mutants with equal names a number in the order of the text, so that each name is unique.
pub fn number_equal_names(mutants: &mut [Mutant]) {
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for mutant in mutants {
        let times = seen.entry(mutant.key()).or_default();
        *times += 1;
        if *times > 1 {
            mutant.change = format!("{} ({times})", mutant.change);
        }
    }
}

/// Draws `count` of the mutants: those with the least hashes of the seed and their names. A change of the
/// code changes the draw only where it changes a name.
pub fn draw(mut mutants: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    mutants.sort_by_cached_key(|mutant| hash(seed, &mutant.key()));
    mutants.truncate(count);
    mutants
}

/// FNV-1a, and the last steps of `SplitMix64`, since FNV mixes the last bytes too little.
fn hash(seed: u64, text: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    let mut hash =
        text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Mutant> {
        let mutant = |at: usize| Mutant {
            file: "x.rs".to_owned(),
            function: "f".to_owned(),
            change: format!("without `{at}`"),
            range: at..at,
            edit: Edit::Delete,
        };
        (0..100).map(mutant).collect()
    }

    #[test]
    fn a_seed_draws_the_same_although_other_code_has_changed_and_another_seed_others() {
        let names = |mutants: &[Mutant]| mutants.iter().map(Mutant::key).collect::<Vec<_>>();
        let all = some();
        let drawn = names(&draw(all.clone(), 10, 1));
        assert_ne!(drawn, names(&draw(all.clone(), 10, 2)));
        let kept: Vec<Mutant> = all.into_iter().filter(|mutant| mutant.key() != drawn[0]).collect();
        assert_eq!(drawn[1..], names(&draw(kept, 9, 1)));
    }

    #[test]
    fn equal_changes_of_a_function_have_different_names() {
        let mut mutants = [some(), some()].concat();
        number_equal_names(&mut mutants);
        assert_eq!(mutants[101].key(), "x.rs f: without `1` (2)");
        let names: std::collections::BTreeSet<String> = mutants.iter().map(Mutant::key).collect();
        assert_eq!(names.len(), mutants.len());
    }
}
