//! Ray: rank 0 runs `ray start --head --node-ip-address="$MASTER_ADDR" --port="$MASTER_PORT"`, the other
//! ranks `ray start --address="$RAY_ADDRESS"`.
//!
//! `ray.init()` reads RAY_ADDRESS (python/ray/_private/worker.py); `ray start` reads no variable, and takes
//! the same text as an argument (python/ray/scripts/scripts.py). An IPv6 address is in brackets
//! (src/ray/util/network_util.cc, `ParseAddress`).

use super::{Launcher, Shell, Syntax};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "ray",
    about: "Ray, with RAY_ADDRESS",
    syntax: Syntax::Script(Shell::Posix),
    needs_roster: false,
    own_ports: false,
    arguments: None,
    left_out: &[],
    owns: &[("RAY_ADDRESS", |input| Ok(input.master()))],
};
