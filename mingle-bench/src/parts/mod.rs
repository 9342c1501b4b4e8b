//! What is measured, in the order of the report.

pub mod loopback;
pub mod processes;
pub mod program;
pub mod rdma;
pub mod simulated;
mod turns;
pub mod waiting;
pub mod words;

use crate::report::Table;

/// A part by its name.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// As it is given on the command line.
    pub name: &'static str,
    /// Measures; in the short form less often.
    pub measure: fn(Effort) -> Table,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// To see that it works: seconds for each part.
    Short,
    /// For the report: minutes.
    Full,
}

impl Effort {
    /// A number for each.
    pub fn choose<T>(self, short: T, full: T) -> T {
        match self {
            Self::Short => short,
            Self::Full => full,
        }
    }
}

/// All of them.
pub const ALL: [Part; 9] = [
    Part { name: "together", measure: processes::together },
    Part { name: "last", measure: processes::last },
    Part { name: "loss", measure: processes::loss },
    Part { name: "loopback", measure: loopback::measure },
    Part { name: "simulated", measure: simulated::measure },
    Part { name: "waiting", measure: waiting::measure },
    Part { name: "rdma", measure: rdma::measure },
    Part { name: "words", measure: words::measure },
    Part { name: "program", measure: program::measure },
];
