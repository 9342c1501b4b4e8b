//! Traits, and which of them differ.

use super::Source;
use crate::model::{Sameness, Trait, Traits};

impl Source<'_> {
    pub(super) fn traits(&mut self) -> Traits {
        let count = self.up_to(9);
        let mut one = |key: usize| {
            let (value, is_long) = (self.byte() % 3, self.byte().is_multiple_of(8));
            let value = if is_long { "\u{1b}[2J".repeat(9) } else { value.to_string() };
            let key = format!("k{key}");
            if self.flag() { Trait::hidden(key, value) } else { Trait::shown(key, value) }
        };
        (0..count).map(&mut one).collect()
    }

    pub(super) fn sameness(&mut self) -> Sameness {
        let ranks: Vec<Traits> = (0..self.up_to(5)).map(|_| self.traits()).collect();
        Sameness::of(&ranks.iter().collect::<Vec<_>>())
    }
}
