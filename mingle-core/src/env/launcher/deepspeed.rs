//! DeepSpeed: `deepspeed --hostfile FILE`.
//!
//! A line is any text without white space, and `slots=N`; DeepSpeed gives the text to ssh or pdsh unchanged.
//! A host must not be in the file twice (deepspeed/launcher/runner.py, `_parse_hostfile`).
//!
//! Without `--no_ssh` the variables of the first host whose names begin with `NCCL` or `UCX` reach all hosts
//! (deepspeed/launcher/runner.py, `EXPORT_ENVS`).

use super::{Launcher, Syntax, node_list};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "deepspeed",
    about: "a hostfile of DeepSpeed",
    syntax: Syntax::Text(|input, _| node_list::lines_by_address(input)),
    needs_roster: true,
    exports: true,
    ..Launcher::PLAIN
};
