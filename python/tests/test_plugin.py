"""Tests of the installed wheel: its program and its plugin, with a stub of torch. Run `python -m unittest` here."""

import importlib
import importlib.metadata
import os
import subprocess
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent / "stub"))

import mingle  # noqa: E402
import mingle_torch  # noqa: E402
from torch.distributed.elastic.rendezvous import api  # noqa: E402
from torch.distributed.rendezvous import HANDLERS, rendezvous  # noqa: E402

JOB = f"wheel-{os.getpid()}"


def create(job=JOB, nodes=2, **kwargs):
    """Creates a handler through the entry point, as torch does."""
    entries = importlib.metadata.entry_points(group="torchrun.handlers", name="mingle")
    # Beside an installed wheel there is the folder of the project.
    handler = next(iter(entries)).load() if entries else importlib.import_module("mingle_torchrun").get_handler
    arguments = {"endpoint": "", "min_nodes": nodes, "max_nodes": nodes, "timeout": 900, "join_timeout": 30, **kwargs}
    return handler()(api.RendezvousParameters("mingle", run_id=job, **arguments))


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

    def test_two_agents_meet_and_meet_again_after_the_workers_of_one_have_failed(self):
        handlers = [create(), create()]
        (first, info), (second, other) = all_meet(handlers)
        self.assertEqual((info.rank, other.rank, info.world_size), (0, 1, 2))
        self.assertTrue(first.use_agent_store)
        self.assertEqual(info.bootstrap_store_info, other.bootstrap_store_info)
        store = info.store.store
        self.assertTrue(store.is_master)
        self.assertFalse(other.store.store.is_master)
        self.assertEqual([one.store.store.timeout.total_seconds() for one in (info, other)], [900, 900])
        where = info.bootstrap_store_info
        self.assertEqual(store.address, (where.master_addr, where.master_port))
        self.assertEqual((first.num_nodes_waiting(), second.num_nodes_waiting()), (0, 0))
        # Workers inherit the first; the others come only from torchrun.
        self.assertEqual(os.environ["GLOO_SOCKET_IFNAME"], "lo")
        self.assertFalse({"RANK", "MASTER_ADDR", "PET_NNODES"} & set(os.environ))

        # The workers of the second agent have failed: it starts a rendezvous, and the first agent hears it.
        with ThreadPoolExecutor(1) as pool:
            again = pool.submit(second.next_rendezvous)
            self.wait_for(lambda: first.num_nodes_waiting() > 0)
            info, again = first.next_rendezvous(), again.result()
        # The store of the last one still has its port.
        self.assertNotEqual(info.bootstrap_store_info, where)
        self.assertEqual(info.bootstrap_store_info, again.bootstrap_store_info)
        self.assertEqual(first.num_nodes_waiting(), 0)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda handler: handler.shutdown(), handlers))
        self.assertEqual(first.get_run_id(), JOB)
        self.assertTrue(first.is_closed())
        # Also where the others have closed it: this agent has met, and is no spare.
        for first._is_closed in (True, False):
            with self.assertRaises(api.RendezvousClosedError):
                first.next_rendezvous()

    def test_an_agent_whose_process_ends_by_a_signal_says_farewell(self):
        # torch makes an exception of it, with which the process ends with code 1.
        # The stores of a test are in one process.
        code = "from tests.test_plugin import create; import mingle_torchrun; mingle_torchrun.open_store = lambda node, *_: node\n"
        code += f"create('{JOB}-signal').next_rendezvous(); raise InterruptedError"
        first = create(f"{JOB}-signal")
        here = mock.patch("mingle_torchrun.open_store", lambda node, *_: node)
        with here, subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[1], stderr=subprocess.DEVNULL) as other:
            first.next_rendezvous()
            self.wait_for(lambda: first.num_nodes_waiting() > 0)
            self.assertEqual((first._world.over.how, other.wait()), ("left", 1))
        self.assertFalse(first.is_closed())
        first._world.close()

    def test_torch_knows_mingle_urls_without_an_import(self):
        project = Path(__file__).parents[1] / "pyproject.toml"
        if project.exists():
            self.assertIn('"torch.backends"]\nmingle = "mingle_torch:register"\n', project.read_text())
        # As in a process that is none of torchrun's.
        HANDLERS.clear()
        with self.assertRaisesRegex(RuntimeError, "No rendezvous handler"):
            rendezvous("mingle://x")
        mingle_torch.register()
        with mock.patch.dict(os.environ, LOCAL_RANK="7"):
            store, rank, world = next(rendezvous(f"mingle://{JOB}-url?world_size=1&interface=lo"))
            self.assertEqual(os.environ["LOCAL_RANK"], "0")
        self.assertEqual((store.is_master, rank, world), (True, 0, 1))
        # What torch is given reaches mingle.
        with mock.patch("mingle.torch.join", side_effect=mingle.Error("stop", 1, "other")) as joins:
            with self.assertRaises(mingle.Error):
                next(rendezvous(f"mingle://{JOB}-url?world_size=1", timeout=timedelta(seconds=9)))
        self.assertEqual(joins.call_args[1]["timeout"], 9)
        # The module that has the handler may be imported as well.
        self.assertIs(sys.modules["mingle.torch"], importlib.import_module("mingle.torch"))

    def test_an_agent_that_fails_closes_for_one_that_wants_to_go_on(self):
        job = f"{JOB}-closes"
        (first, _), (second, _) = all_meet([create(job), create(job)])
        self.fail_and_shut_down(first)
        self.wait_for(lambda: second.num_nodes_waiting() > 0)
        with self.assertRaisesRegex(api.RendezvousClosedError, "is closed"):
            second.next_rendezvous()

    def test_an_agent_that_fails_closes_for_one_that_waits_for_it_already(self):
        job = f"{JOB}-waits"
        (first, _), (second, _) = all_meet([create(job), create(job)])
        with ThreadPoolExecutor(1) as pool:
            again = pool.submit(second.next_rendezvous)
            self.wait_for(lambda: first.num_nodes_waiting() > 0)
            self.fail_and_shut_down(first)
            with self.assertRaisesRegex(api.RendezvousClosedError, "is closed"):
                again.result()

    def test_an_agent_without_a_seat_ends_with_code_0_once_the_others_have_ended_well(self):
        job = f"{JOB}-spare"
        pairs = all_meet([create(job), create(job)])
        spare = create(job)
        with ThreadPoolExecutor(3) as pool:
            waits = pool.submit(spare.next_rendezvous)
            self.wait_for(lambda: pairs[0][0]._world.waiting > 0)
            list(pool.map(lambda pair: pair[0].shutdown(), pairs))
            with self.assertRaises(SystemExit) as raised:
                waits.result()
        self.assertEqual(raised.exception.code, 0)

    def test_an_agent_that_vanishes_before_it_has_the_store_does_not_hold_the_others_up(self):
        job = f"{JOB}-early"
        handlers = [create(job), create(job)]
        with ThreadPoolExecutor(3) as pool:
            meets = pool.submit(handlers[0].next_rendezvous)
            # It takes part in the world and never opens the store.
            other = mingle.RunningWorld(job, 2, timeout=30)
            other.next()
            other.close()
            both = [meets, pool.submit(handlers[1].next_rendezvous)]
            self.assertEqual(sorted(one.result().rank for one in both), [0, 1])
            list(pool.map(lambda handler: handler.shutdown(), handlers))

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)

    def fail_and_shut_down(self, handler):
        """As launch_agent, after a failure of the workers."""
        try:
            raise ChildProcessError
        except ChildProcessError:
            handler.shutdown()

    def test_a_node_that_never_reaches_the_store_ends_at_its_timeout(self):
        module, now, tries = importlib.import_module("mingle.torch"), time.monotonic(), []

        def fails(_, patience, *more, **options):
            tries.append(patience.total_seconds())
            self.assertLessEqual(len(tries), 6, "it tries for ever")
            raise RuntimeError("no connection")

        with mock.patch.object(module.time, "monotonic", lambda: now + sum(tries)), mock.patch.object(module, "_store", fails):
            with self.assertRaisesRegex(RuntimeError, "no connection"):
                module.open_store(SimpleNamespace(rank=1, world=2), lambda _: False, timedelta(seconds=120))
            self.assertEqual(tries, [2, 4, 8, 16, 32, 60])
            # And where the world is over, with the first try.
            tries.clear()
            self.assertIsNone(module.open_store(SimpleNamespace(rank=1, world=2), lambda _: True, timedelta(seconds=120)))
        self.assertEqual(tries, [2])

    def test_a_node_waits_for_the_others_at_the_store_until_its_timeout_or_the_end_of_the_world(self):
        module, node, limit = importlib.import_module("mingle.torch"), SimpleNamespace(rank=1, world=2), timedelta(seconds=0.1)
        for fails in (None, OSError("rank 0 is gone")):
            store = mock.Mock(**{"add.return_value": 1, "add.side_effect": fails})
            with mock.patch.object(module, "_store", lambda *_, **__: store):
                with self.assertRaisesRegex(RuntimeError, f"{0 if fails else 1} of 2 nodes have reached the store"):
                    module.open_store(node, time.sleep, limit)
                # It is counted once.
                self.assertLessEqual({call.args[1] for call in store.add.call_args_list[1:]}, {0})
                self.assertIsNone(module.open_store(node, lambda _: True, limit))

    def test_if_no_world_forms_the_timeout_has_a_reason(self):
        with self.assertRaisesRegex(api.RendezvousError, "no world of 2"):
            create(f"{JOB}-alone", join_timeout=1).next_rendezvous()

    def test_a_silent_agent_is_gone_sooner_only_where_the_job_can_go_on_without_it(self):
        limits = [create(min_nodes=fewest)._options.get("gone_after") for fewest in (1, 2)]
        self.assertEqual(limits, [10, None])
        with mock.patch.dict(os.environ, MINGLE_GONE_AFTER="7s"):
            self.assertIsNone(create(min_nodes=1)._options["gone_after"])

    def test_what_torchrun_is_given_reaches_the_rendezvous(self):
        handler = create(min_nodes=1, endpoint=" 10.0.0.9 ", last_call_timeout=7, timeout=60)
        wanted = {"job_id": JOB, "world": "1:2", "seed": "10.0.0.9", "timeout": 30, "last_call": 7, "grow": True}
        self.assertEqual({name: handler._options.get(name) for name in wanted}, wanted)
        self.assertEqual((handler._timeout.total_seconds(), handler.get_run_id()), (60, JOB))

    def test_workers_inherit_nothing_that_an_earlier_mingle_has_set(self):
        node = SimpleNamespace(unset=["OLD", "NOT_THERE"], env={"NCCL_NEW": "1", "RANK": "1", "PET_RANK": "1"})
        with mock.patch.dict(os.environ, OLD="1"):
            node.export = lambda: mingle.Assignment.export(node)
            mingle._set(node, importlib.import_module("mingle_torchrun").AGENTS_OWN)
            self.assertEqual((os.environ.get("OLD"), os.environ.get("NCCL_NEW")), (None, "1"))
            self.assertFalse({"RANK", "PET_RANK"} & set(os.environ))

    def test_unsupported_options_are_refused_at_once(self):
        for wanted, arguments in [
            ("--rdzv-id", {"job": "none"}),
            ("is_host", {"is_host": "1"}),
        ]:
            with self.assertRaisesRegex(ValueError, wanted):
                create(**arguments)
        with self.assertRaisesRegex(ValueError, "job_id="):
            create("x" * 200).next_rendezvous()


if __name__ == "__main__":
    unittest.main()
