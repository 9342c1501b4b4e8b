//! JAX: `jax.distributed.initialize(num_processes=int(os.environ["WORLD_SIZE"]), process_id=int(os.environ["RANK"]))`.
//!
//! It reads JAX_COORDINATOR_ADDRESS, and neither number nor index of the processes, which are arguments
//! (jax/_src/distributed.py, `State.initialize`). The address goes to gRPC, which wants IPv6 in brackets.

use super::{Facts, Variable, endpoint};

pub(super) fn variables(facts: Facts<'_>) -> Vec<Variable> {
    vec![("JAX_COORDINATOR_ADDRESS".into(), endpoint(facts.formed.master))]
}
