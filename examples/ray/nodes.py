"""A Ray driver: it waits for all nodes of the world, and runs a task on each that returns the node's name."""

import os
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=0)
def name():
    return os.uname().nodename


world = int(os.environ["WORLD_SIZE"])
ray.init()  # reads RAY_ADDRESS
while len(alive := [node["NodeID"] for node in ray.nodes() if node["Alive"]]) < world:
    time.sleep(0.1)
there = [name.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote() for node in alive]
print(f"{len(alive)} of {world} nodes: {' '.join(sorted(ray.get(there)))}", flush=True)
