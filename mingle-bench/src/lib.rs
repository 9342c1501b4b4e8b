//! What a world costs, beside what it must cost and what others take.
//!
//! `parts` has what is measured, each with its floor; `floor` does what physics demands and nothing else. `lab` makes
//! the networks, `sample` holds figures, `report` and `plot` show them, and `budget` is what a change must not exceed.

#![allow(clippy::disallowed_methods, reason = "this measures, and waits for what is measured")]

pub mod budget;
pub mod counters;
pub mod floor;
pub mod lab;
pub mod parts;
pub mod plot;
pub mod programs;
pub mod report;
pub mod sample;
#[path = "../../mingle-core/tests/sim"]
#[allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "the simulator of the library's tests, of which this uses a part"
)]
mod sim {
    pub mod network;
}
