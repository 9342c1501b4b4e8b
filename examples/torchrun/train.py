"""A training job that can be interrupted: it saves a snapshot after each step, and continues from it.

`torchrun train.py --steps 40 --snapshot /shared/snapshot.pt`: in each step every rank adds its number plus one to the
weight, so the final weight shows whether a step was lost or done twice.
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
print(f"rank {rank} of {world} continues from step {state['step']}", flush=True)

while state["step"] < args.steps:
    time.sleep(args.pause)
    gradient = torch.ones(1) * (rank + 1)
    dist.all_reduce(gradient)
    state["weight"] += gradient
    state["step"] += 1
    if rank == 0:
        # Rename the finished file, so that no rank reads half of a snapshot.
        torch.save(state, args.snapshot + ".new")
        os.replace(args.snapshot + ".new", args.snapshot)
    # No rank starts the next step before this one is saved.
    dist.barrier()
    print(f"rank {rank} has done step {state['step']}", flush=True)

print(f"rank {rank} of {world}: weight {state['weight'].item():g}", flush=True)
dist.destroy_process_group()
