//! The parts of the benchmark, in the order of the report.

pub mod processes;
pub mod scale;

use crate::report::Table;

/// A part of the benchmark.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Its name on the command line.
    pub name: &'static str,
    /// Measures, and returns the table.
    pub measure: fn(Effort) -> Table,
}

/// How thoroughly the benchmark measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// A trial that each part works: seconds for each.
    Short,
    /// For the report: minutes.
    Full,
}

impl Effort {
    /// The value for this effort.
    pub fn choose<T>(self, short: T, full: T) -> T {
        match self {
            Self::Short => short,
            Self::Full => full,
        }
    }
}

/// All parts.
pub const ALL: [Part; 5] = [
    Part { name: "together", measure: processes::together },
    Part { name: "last", measure: processes::last },
    Part { name: "loss", measure: processes::loss },
    Part { name: "paths", measure: processes::paths },
    Part { name: "scale", measure: scale::measure },
];
