//! Measures what a world costs, beside a minimal program (the floor) and alternatives.
//!
//! `parts` has the measurements. `floor` is a program that does only what a world cannot do without. `lab`
//! makes the networks, `programs` builds and starts programs, `sample` holds figures, `report` shows them.
//! `budget` has the limits that a change must keep, some of them for a world that waits (`waiting`).

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock and waits")]

pub mod budget;
pub mod floor;
pub mod lab;
pub mod parts;
pub mod programs;
pub mod report;
pub mod sample;
pub mod waiting;
#[path = "../../mingle-core/tests/sim"]
#[allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_imports,
    reason = "the simulator of the library's tests, of which this crate uses a part"
)]
mod sim {
    pub mod network;
}
