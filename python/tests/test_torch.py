"""Tests of `mingle://` with the torch that is installed, on loopback. Run `python -m unittest` here."""

import os
import socket
import subprocess
import sys
import textwrap
import unittest
from datetime import timedelta
from unittest import mock

try:
    import torch.distributed as dist

    import mingle.torch
except ImportError:
    dist = None

import mingle

# torch takes many seconds to load on a busy machine.
PATIENCE = 180

WORKER = textwrap.dedent(
    """
    import os, sys, torch, torch.distributed as dist, mingle.torch
    url, *sizes = sys.argv[1:]
    dist.init_process_group("gloo", init_method=url, **{"world_size": int(size) for size in sizes})
    number = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(number)
    variables = [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {number.item():.0f}", *variables)
    dist.barrier()
    dist.destroy_process_group()
    """
)


def job(name):
    return f"torch-{name}-{os.getpid()}"


def start(url, *sizes):
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WORKER, url, *map(str, sizes)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def options(**query):
    return "&".join(f"{name}={value}" for name, value in {"interface": "lo", **query}.items())


@unittest.skipUnless(dist, "skipped: this Python has no torch")
class Torch(unittest.TestCase):
    def test_processes_meet_without_a_launcher_and_reduce(self):
        # Capitals and a slash: torch must not change the ID.
        url = f"mingle://{job('A%2FB')}?{options(world_size=4)}"
        self.check([start(url) for _ in range(4)])

    def test_the_argument_world_size_counts_as_well(self):
        url = f"mingle://{job('argument')}?{options()}"
        self.check([start(url, 2) for _ in range(2)])

    def check(self, processes):
        size = len(processes)
        said = []
        for process in processes:
            out, errors = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0, errors)
            said += out.splitlines()
        total = size * (size + 1) // 2
        wanted = [f"rank {rank} of {size}: sum {total} {rank} {size} {rank} {size}" for rank in range(size)]
        self.assertEqual(sorted(said), wanted)

    def test_the_port_belongs_to_rank_0_from_the_rendezvous_to_the_store(self):
        if not mingle.torch.TAKES_SOCKET:
            self.skipTest("skipped: this torch takes no socket, so the port is free for some milliseconds")
        name = job("thief")
        stolen = []
        join = mingle.torch.join

        def robbed(**options):
            assignment = join(**options)
            # The world has formed, and the store is not there yet: another program tries to take the port.
            try:
                socket.create_server(assignment.master).close()
                stolen.append(assignment.master)
            except OSError:
                pass
            return assignment

        mingle.torch.join = robbed
        try:
            for _ in range(3):
                url = f"mingle://{name}?{options(world_size=1)}"
                ((store, rank, world),) = [next(dist.rendezvous(url))]
                store.set("key", "value")
                self.assertEqual((rank, world, store.get("key")), (0, 1, b"value"))
        finally:
            mingle.torch.join = join
        self.assertEqual(stolen, [])

    def test_a_timeout_in_the_url_counts_before_that_of_torch(self):
        url = f"mingle://{job('timeout')}?{options(world_size=2, timeout='300ms')}"
        with self.assertRaisesRegex(mingle.DeadlineError, "^no world of 2 in time: "):
            next(dist.rendezvous(url))
        # And so does the variable.
        with mock.patch.dict(os.environ, MINGLE_TIMEOUT="300ms"), self.assertRaises(mingle.DeadlineError):
            next(dist.rendezvous(f"mingle://{job('variable')}?{options(world_size=2)}"))

    def test_of_an_option_that_is_given_again_each_counts_or_the_last(self):
        url = "mingle://foo?world_size=2&seed=a&timeout=1&seed=b&timeout=2&ipv6=true"
        found = mingle.torch._options(url, timedelta(seconds=9))
        self.assertEqual((found["seed"], found["timeout"], found["ipv6"]), (["a", "b"], "2", True))

    def test_what_is_wrong_is_said(self):
        for wanted, url, more in [
            ("how many processes", f"mingle://{job('x')}", {}),
            ("ipv6= must be True or False", f"mingle://{job('x')}?{options(world_size=2, ipv6='yes')}", {}),
            ("as %2F", f"mingle://a/b?{options(world_size=2)}", {}),
            ("Did you mean 'timeout'", f"mingle://{job('x')}?{options(world_size=2, timout=1)}", {}),
            ("a worker of torchrun", f"mingle://{job('x')}?world_size=2", {"TORCHELASTIC_RUN_ID": "foo"}),
        ]:
            os.environ.update(more)
            try:
                with self.assertRaisesRegex(mingle.UsageError, wanted):
                    next(dist.rendezvous(url))
            finally:
                for variable in more:
                    del os.environ[variable]
        with self.assertRaises(AssertionError):
            dist.rendezvous(f"mingle://{job('x')}?world_size=2", world_size=2)


if __name__ == "__main__":
    unittest.main()
