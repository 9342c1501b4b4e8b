"""JAX, one process on each node: every device contributes the number of its process plus one, and all print the sum.

    eval "$(mingle --job-id foo --world 4 --format jax)" && : "${MINGLE_ROSTER_DIGEST:?}" && python3 psum.py
"""

import os

import jax
import jax.numpy as jnp

# The address of process 0 comes from the environment, JAX_COORDINATOR_ADDRESS; for these there are no variables.
jax.distributed.initialize(
    num_processes=int(os.environ["WORLD_SIZE"]),
    process_id=int(os.environ["RANK"]),
    # All is said already. Left to look around, JAX finds Slurm or Open MPI and takes one device for itself.
    cluster_detection_method="deactivate",
)
number = jnp.full(jax.local_device_count(), jax.process_index() + 1)
total = jax.pmap(lambda x: jax.lax.psum(x, "all"), axis_name="all")(number)
print(f"process {jax.process_index()} of {jax.process_count()}: sum {total[0]}", flush=True)
