"""A training that goes on in the processes that live, without a launcher. On each node, in any order:

    MINGLE_JOB_ID=foo MINGLE_WORLD=3:4 python survivors.py --steps 1000

Kill one of four nodes: the others go on with the next step. Start it again: it takes the state of the others.
"""

import argparse
import time

import mingle.torch
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--pause", type=float, default=0.1, help="what a step takes at least, in seconds")
args = parser.parse_args()

model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def train(step, rank, world):
    """One step of the batch `step`, of which each rank has a part. The state changes after the last collective."""
    numbers = torch.Generator().manual_seed(step)
    batch = torch.randn(96, 32, generator=numbers)[rank::world]
    loss = (model(batch) - batch.sum(1, keepdim=True)).square().sum() / 96
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    time.sleep(args.pause)
    group.check()
    optimizer.step()


with mingle.torch.Group() as group:
    while group.goes_on(group.steps < args.steps):
        with group.step():
            if group.is_new:
                print(f"rank {group.rank} of {group.world} goes on from step {group.steps}", flush=True)
                state = [(model.state_dict(), optimizer.state_dict())]
                dist.broadcast_object_list(state, group.source)
                model.load_state_dict(state[0][0])
                optimizer.load_state_dict(state[0][1])
            else:
                train(group.steps, group.rank, group.world)
                print(f"has done step {group.steps}", flush=True)
print(f"weights {sum(parameter.double().sum().item() for parameter in model.parameters()).hex()}", flush=True)
