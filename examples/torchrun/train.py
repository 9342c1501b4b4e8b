"""A training job that can be interrupted: it saves what it has, and goes on from there.

`torchrun train.py --steps 40 --snapshot /shared/snapshot.pt`: the weight is the sum over all steps of what all ranks add
in each, so that a step which is lost or done twice shows at the end.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pause", type=float, default=0.1, help="seconds a step takes")
parser.add_argument("--snapshot", required=True)
args = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
state = {"step": 0, "weight": torch.zeros(1)}
if os.path.exists(args.snapshot):
    state = torch.load(args.snapshot)
print(f"rank {rank} of {world} goes on from step {state['step']}", flush=True)

while state["step"] < args.steps:
    time.sleep(args.pause)
    gradient = torch.ones(1) * (rank + 1)
    dist.all_reduce(gradient)
    state["weight"] += gradient
    state["step"] += 1
    if rank == 0:
        # At once, so that nobody finds half of one.
        torch.save(state, args.snapshot + ".new")
        os.replace(args.snapshot + ".new", args.snapshot)
    # Nobody is a step ahead of what is saved.
    dist.barrier()
    print(f"rank {rank} has done step {state['step']}", flush=True)

print(f"rank {rank} of {world}: weight {state['weight'].item():g}", flush=True)
dist.destroy_process_group()
