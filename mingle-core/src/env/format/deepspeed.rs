//! DeepSpeed: `deepspeed --hostfile FILE`.
//!
//! A line is any text without white space, and `slots=N`; the text goes to ssh or pdsh as it is. The file must not
//! have a host twice (deepspeed/launcher/runner.py, `_parse_hostfile`).

use super::nodes;
use crate::model::Roster;

pub(super) fn text(roster: &Roster) -> String {
    nodes::by_address(roster)
}
