"""Lightning: every process contributes its rank plus one, and all print the sum.

    eval "$(mingle --job-id foo --world 4)" && : "${MINGLE_ROSTER_DIGEST:?}" && python3 sum.py

Lightning starts the processes of its node itself, one for each GPU. All nodes must have the same number.
"""

import os

import torch
from lightning.fabric import Fabric

# Lightning has no variables for the two numbers; a Trainer takes the same arguments. WORLD_SIZE counts nodes
# in the first process of each node alone: in those that Lightning starts it is the number of processes.
fabric = Fabric(
    num_nodes=int(os.environ["PET_NNODES"]),
    devices=int(os.environ["PET_NPROC_PER_NODE"]),
    strategy="ddp",
)
fabric.launch()
number = torch.ones(1, device=fabric.device) * (fabric.global_rank + 1)
total = fabric.all_reduce(number, reduce_op="sum")
print(f"rank {fabric.global_rank} of {fabric.world_size}: sum {total.item():g}", flush=True)
