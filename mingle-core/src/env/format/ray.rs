//! Ray: rank 0 runs `ray start --head --node-ip-address="$MASTER_ADDR" --port="$MASTER_PORT"`, the others
//! `ray start --address="$RAY_ADDRESS"`.
//!
//! `ray.init()` reads RAY_ADDRESS (python/ray/_private/worker.py); `ray start` reads no variable and takes the same
//! text as an argument (python/ray/scripts/scripts.py). An address of IPv6 stands in brackets
//! (src/ray/util/network_util.cc, `ParseAddress`).

use super::{Facts, Variable, endpoint};

pub(super) fn variables(facts: Facts<'_>) -> Vec<Variable> {
    vec![("RAY_ADDRESS".into(), endpoint(facts.formed.master))]
}
