"""The smallest MPI job, with mpi4py: every rank contributes its number plus one, and prints the sum of all."""

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}: sum {total}", flush=True)
