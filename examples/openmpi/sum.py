"""A minimal MPI job with mpi4py: every rank contributes its rank plus one, and prints the sum."""

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}: sum {total}", flush=True)
