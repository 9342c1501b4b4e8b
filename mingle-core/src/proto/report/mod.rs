//! What a node reports to its caller: what happens on the way to a world, and how the node ended.
//!
//! All texts here state facts: what was tried, on what, and what was seen. Advice, which names options and
//! commands, is the caller's.

mod change;
mod deadline;
mod event;
mod failure;
mod formed;
mod progress;
mod warning;

pub use change::Change;
pub use deadline::{Cause, Heard, OtherJob, Report};
pub use event::Event;
pub use failure::Failure;
pub use formed::{Formed, Over};
pub use progress::Progress;
pub use warning::{Tried, Warning};
