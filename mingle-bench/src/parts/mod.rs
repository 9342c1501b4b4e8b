//! The parts of the benchmark, in the order of the report.

pub mod loopback;
pub mod messages;
pub mod processes;
pub mod program;
pub mod rdma;
pub mod simulated;
mod steps;
pub mod waiting;

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
pub const ALL: [Part; 10] = [
    Part { name: "together", measure: processes::together },
    Part { name: "last", measure: processes::last },
    Part { name: "loss", measure: processes::loss },
    Part { name: "paths", measure: processes::paths },
    Part { name: "loopback", measure: loopback::measure },
    Part { name: "simulated", measure: simulated::measure },
    Part { name: "waiting", measure: waiting::measure },
    Part { name: "rdma", measure: rdma::measure },
    Part { name: "messages", measure: messages::measure },
    Part { name: "program", measure: program::measure },
];
