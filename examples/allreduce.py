"""A minimal training job: every rank contributes its rank plus one, and prints the sum.

With an argument it fails unless the world has that size: `torchrun allreduce.py 4`.
"""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
number = torch.ones(1) * (rank + 1)
dist.all_reduce(number)
print(f"rank {rank} of {world}: sum {number.item():g}", flush=True)
dist.destroy_process_group()

if len(sys.argv) > 1 and int(sys.argv[1]) != world:
    sys.exit(f"this is a world of {world}, not of {sys.argv[1]}")
