"""Tests of the installed wheel: its program and its plugin, with a stub of torch. Run `python -m unittest` here."""

import importlib.metadata
import os
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "stub"))

from torch.distributed.elastic.rendezvous.api import (  # noqa: E402
    RendezvousClosedError,
    RendezvousParameters,
    RendezvousTimeoutError,
)

JOB = f"wheel-{os.getpid()}"


def create(job=JOB, nodes=2, **kwargs):
    """Creates a handler through the entry point, as torch does."""
    (entry,) = importlib.metadata.entry_points(group="torchrun.handlers", name="mingle")
    arguments = {"endpoint": "", "min_nodes": nodes, "max_nodes": nodes, "timeout": 900, "join_timeout": 30, **kwargs}
    return entry.load()()(RendezvousParameters("mingle", run_id=job, **arguments))


def all_meet(handlers):
    """Runs the next rendezvous of all handlers, and returns them with their results in the order of ranks."""
    infos = []
    agents = [threading.Thread(target=lambda h=h: infos.append((h, h.next_rendezvous()))) for h in handlers]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()
    assert len(infos) == len(handlers), "an agent failed"
    return sorted(infos, key=lambda pair: pair[1].rank)


class Plugin(unittest.TestCase):
    def setUp(self):
        os.environ["MINGLE_INTERFACE"] = "lo"
        os.environ["MINGLE_QUIET"] = "1"

    def test_two_agents_meet_and_meet_again_after_one_leaves(self):
        handlers = [create(), create()]
        (first, info), (second, other) = all_meet(handlers)
        self.assertEqual((info.rank, other.rank, info.world_size), (0, 1, 2))
        self.assertTrue(first.use_agent_store)
        self.assertEqual(info.bootstrap_store_info, other.bootstrap_store_info)
        store = info.store.store
        self.assertTrue(store.is_master)
        self.assertFalse(other.store.store.is_master)
        where = info.bootstrap_store_info
        self.assertEqual(store.address, (where.master_addr, where.master_port))
        self.assertEqual((first.num_nodes_waiting(), second.num_nodes_waiting()), (0, 0))
        # Workers inherit the first; the others come only from torchrun.
        self.assertEqual(os.environ["GLOO_SOCKET_IFNAME"], "lo")
        self.assertFalse({"RANK", "MASTER_ADDR", "PET_NNODES"} & set(os.environ))

        # The workers of the second agent have failed: it starts a rendezvous, and the first agent sees it waiting.
        again = threading.Thread(target=second.next_rendezvous)
        again.start()
        while again.is_alive() and first.num_nodes_waiting() == 0:
            time.sleep(0.001)
        first.next_rendezvous()
        again.join()
        self.assertEqual(first.get_run_id(), JOB)
        first.shutdown()
        self.assertTrue(first.is_closed())
        with self.assertRaises(RendezvousClosedError):
            first.next_rendezvous()

    def test_if_no_world_forms_the_timeout_has_a_reason(self):
        with self.assertRaisesRegex(RendezvousTimeoutError, "no world of 2"):
            create(f"{JOB}-alone", join_timeout=1).next_rendezvous()

    def test_unsupported_options_are_refused_at_once(self):
        for wanted, arguments in [
            ("--nnodes=4", {"min_nodes": 2, "max_nodes": 4}),
            ("--rdzv-id", {"job": "none"}),
            ("is_host", {"is_host": "1"}),
        ]:
            with self.assertRaisesRegex(ValueError, wanted):
                create(**arguments)
        with self.assertRaisesRegex(ValueError, "job-id"):
            create("x" * 200).next_rendezvous()


if __name__ == "__main__":
    unittest.main()
