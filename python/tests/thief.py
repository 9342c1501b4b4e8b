"""Starts two processes of PyTorch again and again, while another program takes every free port that jobs use.

`thief.py N` prints how many of N starts have failed, and how many ports were taken meanwhile. `thief.py N --gap` lets
PyTorch open the port itself, as with MASTER_PORT, for comparison.
"""

import collections
import multiprocessing
import os
import random
import socket
import sys

# How many ports the thief holds at once, of 500.
HELD = 100


def steal(taken, ends):
    held = collections.deque()
    while not ends.value:
        thief = socket.socket()
        try:
            thief.bind(("127.0.0.1", random.randint(29500, 29999)))
            thief.listen()
        except OSError:
            thief.close()
            continue
        taken.value += 1
        held.append(thief)
        if len(held) > HELD:
            held.popleft().close()


def start(name, number, rank, has_gap, results):
    import mingle.torch

    if has_gap:
        mingle.torch.TAKES_SOCKET = False
    for run in range(number):
        # A process for each start, as in a job. In one process, torch 2.15 loses every fiftieth store that takes a socket of
        # whatever program.
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                meet(f"mingle://thief-{name}-{run}", rank)
            except BaseException as error:
                os.write(writer, f"rank {rank}: {error}".splitlines()[0].encode()[:1000])
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as said:
            results.put((run, said.read().decode()))
        os.waitpid(child, 0)


def meet(job, rank):
    from datetime import timedelta

    import torch.distributed as dist

    url = f"{job}?interface=lo&rank={rank}&world_size=2&quiet=true&timeout=20"
    store, own, world = next(dist.rendezvous(url, timeout=timedelta(seconds=5)))
    store.set(f"is-here-{own}", "yes")
    store.wait([f"is-here-{other}" for other in range(world)])
    # Rank 0 serves the store until the other has read it.
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < world:
        pass


def main():
    number, has_gap = int(sys.argv[1]), "--gap" in sys.argv
    spawn = multiprocessing.get_context("spawn")
    taken, ends = spawn.Value("L", 0), spawn.Value("b", 0)
    thief = spawn.Process(target=steal, args=(taken, ends))
    results = spawn.Queue()
    nodes = [spawn.Process(target=start, args=(os.getpid(), number, rank, has_gap, results)) for rank in range(2)]
    for process in [thief, *nodes]:
        process.start()
    failed = {}
    for _ in range(2 * number):
        run, error = results.get()
        if error:
            failed.setdefault(run, error)
    ends.value = 1
    for process in [thief, *nodes]:
        process.join()
    print(f"{len(failed)} of {number} starts have failed; {taken.value} ports were taken")
    for run, error in list(failed.items())[:5]:
        print(f"start {run}, {error}")


if __name__ == "__main__":
    main()
