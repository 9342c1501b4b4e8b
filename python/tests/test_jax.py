"""Tests of `mingle.jax` on loopback, with the JAX that is installed, or a stand-in. Run `python -m unittest` here."""

import os
import pathlib
import socket
import subprocess
import sys
import textwrap
import unittest
from unittest import mock

try:
    import jax

    STUB = None
except ImportError:
    STUB = str(pathlib.Path(__file__).parent / "stub")
    sys.path.append(STUB)

from jax._src.clusters import ClusterEnv

import mingle
import mingle.jax

# JAX takes many seconds to load on a busy machine.
PATIENCE = 180

# Asks as jax.distributed.initialize() does, and opens the port of the coordinator as JAX does next.
ASKING = textwrap.dedent(
    """
    import socket, mingle.jax
    from jax._src.clusters import ClusterEnv
    address, count, index, devices = ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, 60)
    if index == 0:
        host, port = address.rsplit(":", 1)
        socket.create_server((host, int(port))).close()
    print(address, count, index, devices)
    """
)

REDUCING = textwrap.dedent(
    """
    import jax, jax.numpy as jnp, mingle.jax
    jax.distributed.initialize()
    number = jnp.full(jax.local_device_count(), jax.process_index() + 1)
    total = jax.pmap(lambda x: jax.lax.psum(x, "all"), axis_name="all")(number)
    print(f"process {jax.process_index()} of {jax.process_count()}: sum {total[0]}")
    """
)

GIVEN = {
    "MINGLE_ROSTER_DIGEST": "00",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29503",
    "WORLD_SIZE": "4",
    "RANK": "3",
}


def job(name):
    return f"jax-{name}-{os.getpid()}"


def ask(method=None, **variables):
    """What JAX finds with these variables."""
    with mock.patch.dict(os.environ, variables):
        return ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, method, 60)


def start(script, name, size):
    environ = {**os.environ, "MINGLE_JOB_ID": job(name), "MINGLE_WORLD": str(size), "MINGLE_INTERFACE": "lo"}
    if STUB:
        environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), STUB])
    command = [sys.executable, "-c", script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return [subprocess.Popen(command, env=environ, text=True, **pipes) for _ in range(size)]


class Jax(unittest.TestCase):
    def said(self, processes):
        said = []
        for process in processes:
            out, errors = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0, errors)
            said += out.splitlines()
        return sorted(said)

    def test_processes_get_their_places_and_the_port_is_free_for_the_coordinator(self):
        said = [line.split(" ", 1) for line in self.said(start(ASKING, "places", 3))]
        self.assertEqual(len({address for address, _ in said}), 1, said)
        self.assertEqual([places for _, places in said], [f"3 {rank} [{rank}]" for rank in range(3)])

    @unittest.skipIf(STUB, "skipped: this Python has no JAX")
    def test_processes_of_jax_meet_without_a_launcher_and_reduce(self):
        # Gloo says something as well.
        said = [line for line in self.said(start(REDUCING, "reduce", 2)) if line.startswith("process")]
        self.assertEqual(said, [f"process {rank} of 2: sum 3" for rank in range(2)])

    def test_a_world_that_is_there_is_not_joined_again(self):
        self.assertEqual(ask(**GIVEN), ("10.0.0.1:29503", 4, 3, None))
        workers = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
        self.assertEqual(ask(**GIVEN, **workers), ("10.0.0.1:29503", 4, 3, [1]))
        self.assertEqual(ask(**{**GIVEN, "MASTER_ADDR": "fd00::1"})[0], "[fd00::1]:29503")
        self.assertEqual(ask(**GIVEN, JAX_COORDINATOR_PORT="7")[0], "10.0.0.1:7")

    def test_mingle_is_asked_before_the_schedulers_of_jax(self):
        self.assertIs(ClusterEnv._cluster_types[0], mingle.jax.MingleCluster)
        self.assertEqual(ClusterEnv._cluster_types.count(mingle.jax.MingleCluster), 1)
        self.assertIn("slurm", [cluster.name for cluster in ClusterEnv._cluster_types])
        self.assertEqual(ask(**GIVEN, SLURM_JOB_ID="7", OMPI_MCA_orte_hnp_uri="x")[2], 3)

    def test_without_a_job_id_jax_looks_at_the_others(self):
        self.assertEqual(ask(), (None, None, None, None))
        # This coordinator is not the first process of mingle's world.
        with mock.patch.dict(os.environ, {"MINGLE_JOB_ID": "x", "JAX_COORDINATOR_ADDRESS": "10.0.0.9:7"}):
            self.assertFalse(mingle.jax.MingleCluster.is_env_present())

    def test_a_call_gives_the_job_id_and_each_initialization_has_a_world_of_its_own(self):
        with mock.patch.dict(os.environ), mock.patch.object(mingle.jax.MingleCluster, "_joins", False):
            for _ in range(2):
                assignment = mingle.jax.join(job("call"), 1, interface="lo")
                with self.assertRaises(OSError):
                    socket.create_server(assignment.master)
                host, port = assignment.master
                self.assertEqual(ask(), (f"{host}:{port}", 1, 0, None))
                socket.create_server(assignment.master).close()
            self.assertEqual(os.environ["MINGLE_JOB_ID"], job("call"))
            # The variables of that world are set, and the next one is joined all the same.
            more = {"MINGLE_WORLD": "1", "MINGLE_INTERFACE": "lo", "MASTER_PORT": "1"}
            with mock.patch("mingle.jax._join", side_effect=mingle.jax._join) as joins:
                self.assertNotIn(ask(**more)[0], ("127.0.0.1:1", None))
                self.assertEqual(joins.call_args[1], {"timeout": 60})
                # The user's variable counts before that of JAX.
                self.assertNotEqual(ask(**more, MINGLE_TIMEOUT="90s")[0], None)
                self.assertEqual(joins.call_args[1], {})

    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(mingle.UsageError, "a worker of torchrun"):
            ask(**GIVEN, TORCHELASTIC_RUN_ID="foo")
        with self.assertRaisesRegex(mingle.UsageError, "but RANK is not as mingle sets it"):
            ask(**{**GIVEN, "RANK": ""})
        with self.assertRaisesRegex(mingle.UsageError, "but MASTER_ADDR is"):
            ask(MINGLE_ROSTER_DIGEST="00")
        with self.assertRaisesRegex(mingle.UsageError, "world=4"):
            ask(MINGLE_JOB_ID="foo", MINGLE_WORLD="four")
        # Named, it is asked without variables as well.
        with self.assertRaisesRegex(mingle.UsageError, "job_id="):
            ask("mingle")

    def test_containers_of_one_host_name_are_hosts_of_their_own(self):
        own, same, other = (mock.Mock(rank=r, host="a", address=at) for r, at in ((0, "10.0.0.1"), (1, "10.0.0.1"), (2, "10.0.0.2")))
        for rank, local in ((0, ("0", "2")), (1, ("1", "2")), (2, ("0", "1"))):
            with mock.patch.dict(os.environ):
                mingle._export(mock.Mock(rank=rank, roster=(own, same, other), env={}))
                self.assertEqual((os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]), local)

    @unittest.skipIf(STUB, "skipped: this Python has no JAX")
    def test_this_jax_is_one_that_was_tried(self):
        self.assertIn(jax.__version__, mingle.jax.TRIED)


if __name__ == "__main__":
    unittest.main()
