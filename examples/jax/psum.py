"""JAX, one process on each node: every device contributes its process's index plus one, and all print the sum.

    eval "$(mingle --job-id foo --world 4 --format jax)" && : "${MINGLE_ROSTER_DIGEST:?}" && python3 psum.py
"""

import os

import jax
import jax.numpy as jnp

# JAX reads the address of process 0 from JAX_COORDINATOR_ADDRESS. It has no variables for these two arguments.
jax.distributed.initialize(
    num_processes=int(os.environ["WORLD_SIZE"]),
    process_id=int(os.environ["RANK"]),
    # Otherwise JAX detects Slurm or Open MPI, and gives each process one device only.
    cluster_detection_method="deactivate",
)
number = jnp.full(jax.local_device_count(), jax.process_index() + 1)
total = jax.pmap(lambda x: jax.lax.psum(x, "all"), axis_name="all")(number)
print(f"process {jax.process_index()} of {jax.process_count()}: sum {total[0]}", flush=True)
