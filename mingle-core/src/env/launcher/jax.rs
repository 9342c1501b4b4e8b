//! JAX: the program calls `jax.distributed.initialize(num_processes=..., process_id=...)` with the values of
//! WORLD_SIZE and RANK.
//!
//! JAX reads JAX_COORDINATOR_ADDRESS. The number of processes and the index of this one are arguments, for
//! which there are no variables (jax/_src/distributed.py, `State.initialize`). JAX gives the address to gRPC,
//! which needs IPv6 addresses in brackets.

use super::Launcher;

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "jax",
    about: "JAX, with JAX_COORDINATOR_ADDRESS",
    owns: &[("JAX_COORDINATOR_ADDRESS", |input| Ok(input.master()))],
    ..Launcher::PLAIN
};
