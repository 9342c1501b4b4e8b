"""Tests of `mingle.torch.Group` with the torch that is installed: on loopback, and on nodes that are network namespaces.

`MINGLE_TEST_KILLS=50` prints the figures of CONTRIBUTING.md; `MINGLE_TEST_SEED` repeats a run.
"""

import contextlib
import errno
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

try:
    import torch
    import torch.distributed as dist

    import mingle.torch
except ImportError:
    dist = None

import mingle

# torch takes many seconds to load on a busy machine.
PATIENCE = 180
KILLS = int(os.environ.get("MINGLE_TEST_KILLS", "3"))
SEED = int(os.environ.get("MINGLE_TEST_SEED", time.time_ns() % 100000))
EXAMPLE = Path(__file__).parents[2] / "examples/survivors.py"

# In a world of four some have ended the step in which one dies, and others not. In the next one dies while another waits for
# a third, which lives and has no connection to the dead one to wait for.
SCRIPT = textwrap.dedent(
    """
    import os, signal, time, torch, torch.distributed as dist, mingle.torch
    done = torch.zeros(1)
    with mingle.torch.Group() as group:
        while group.goes_on(group.steps < 4):
            with group.step():
                if group.is_new:
                    print(f"world of {group.world} rank {group.rank} source {group.source} step {group.steps}", flush=True)
                    taken = [done]
                    dist.broadcast_object_list(taken, group.source)
                    done = taken[0]
                    continue
                one = torch.ones(1)
                dist.all_reduce(one)
                if (group.steps, group.world) in ((1, 4), (3, 3)) and group.rank == group.world - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                if (group.steps, group.world, group.rank) == (1, 4, 0):
                    raise RuntimeError("as a collective that fails")
                if (group.steps, group.world, group.rank) == (3, 3, 0):
                    time.sleep(5)
                    print("has slept", flush=True)
                if (group.steps, group.world, group.rank) == (3, 3, 1):
                    try:
                        dist.recv(one, 0)
                    finally:
                        print("waits no longer", flush=True)
                done += 1
    print(f"done {group.steps} {done.item():g}", flush=True)
    """
)

# Rank 0 is stopped while it receives, and each other node has closed its own direction of their connections before it sends.
STUCK = textwrap.dedent(
    """
    import os, signal, socket, threading, time, torch, torch.distributed as dist, mingle.torch
    from mingle._group import _peer, _sockets

    with mingle.torch.Group() as group:
        while group.goes_on(group.steps < 3):
            with group.step():
                if group.is_new:
                    print(f"world {group.generation} rank {group.rank} of {group.world} step {group.steps}", flush=True)
                    continue
                if (group.steps, group.world) == (1, 3):
                    if group.rank == 0:
                        threading.Timer(1, os.kill, (os.getpid(), signal.SIGSTOP)).start()
                    else:
                        time.sleep(2)
                        for fd in _sockets().values():
                            if _peer(fd) == os.environ["MASTER_ADDR"]:
                                with socket.socket(fileno=os.dup(fd)) as copy:
                                    copy.shutdown(socket.SHUT_WR)
                        print("sends", flush=True)
                try:
                    dist.all_reduce(torch.ones(1001))
                except RuntimeError as error:
                    print("raises", type(error).__name__, flush=True)
                    raise
    print(f"done {group.steps}", flush=True)
    """
)

# Trains until a file is there. What is trained depends on each step that was done, and on how often.
WORKER = textwrap.dedent(
    """
    import os, sys, time, torch, torch.distributed as dist, mingle.torch
    state = {"weights": torch.randn(1000), "ends": 0}

    if os.environ.get("DIES_AT"):
        # Ends itself at this function, in the world of that number.
        import mingle._group, signal
        worlds = []
        def count(world, next=mingle.RunningWorld.next, **more):
            worlds.append(world)
            return next(world, **more)
        mingle.RunningWorld.next = count
        places = {"connected": mingle._group._Watch, "TCPStore": mingle.torch}
        place = places.get(os.environ["DIES_AT"], dist)
        function = getattr(place, os.environ["DIES_AT"])
        def dies(*args, **more):
            if len(worlds) == int(os.environ["DIES_IN"]):
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **more)
        setattr(place, os.environ["DIES_AT"], dies)

    def tell(event):
        if event["event"] in ("waiting", "over"):
            print(f"{event['event']} {event.get('nodes', event.get('message'))}\\n", end="", flush=True)

    with mingle.torch.Group(on_event=tell) as group:
        while group.goes_on(not state["ends"]):
            with group.step():
                if group.is_new:
                    print(f"world {group.generation} rank {group.rank} of {group.world} step {group.steps}\\n", end="", flush=True)
                    taken = [state]
                    dist.broadcast_object_list(taken, group.source)
                    state = taken[0]
                else:
                    print(f"begins {group.steps + 1}\\n", end="", flush=True)
                    numbers = torch.ones(1001) * (group.rank + 1)
                    numbers[1000] = os.path.exists(sys.argv[1])
                    if group.steps % group.world == group.rank:
                        time.sleep(0.02)  # while the others are in the collective
                    dist.all_reduce(numbers)
                    state["weights"] = state["weights"] * 0.99 + numbers[:1000] / group.world
                    state["ends"] = int(numbers[1000])
                    print(f"step {group.steps + 1}\\n", end="", flush=True)
    print(f"done {group.steps} {state['weights'].double().sum().item().hex()}", flush=True)
    """
)


class Node:
    """A program, and each line that it prints, with the time."""

    def __init__(self, command, name, **environ):
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "MINGLE_JOB_ID": f"group-{name}-{os.getpid()}", **environ}
        # A node that hangs says where.
        environ["PYTHONFAULTHANDLER"] = "1"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environ, **pipes)
        self.lines, self.errors = [], []
        readers = [(self.process.stdout, self.lines), (self.process.stderr, self.errors)]
        self.readers = [threading.Thread(target=self.read, args=reader) for reader in readers]
        for reader in self.readers:
            reader.start()

    def read(self, pipe, lines):
        with pipe:
            for line in pipe:
                lines.append((time.monotonic(), line.strip()))

    def said(self, word, since=0.0):
        """The lines that begin with this word, each with its time."""
        return [(at, line) for at, line in list(self.lines) if at >= since and line.startswith(word)]

    def wait_for(self, done):
        end = time.monotonic() + PATIENCE
        while not done(self):
            if time.monotonic() > end:
                self.process.send_signal(signal.SIGABRT)
                self.end()
            assert self.process.poll() is None, self.render()
            time.sleep(0.005)

    def world(self, since=0.0):
        """The last world since then in which this node has done a step: its generation, this node's rank and its size."""
        worlds = self.said("world", since)
        if not worlds or not self.said("step", worlds[-1][0]):
            return -1, -1, 0
        _, generation, _, rank, _, size, *_ = worlds[-1][1].split()
        return int(generation), int(rank), int(size)

    def waiting(self):
        """How many nodes wait for a seat, as this one has heard since the last world was over."""
        last = [at for at, _ in self.said("over")][-1:]
        waiting = self.said("waiting", *last)
        return int(waiting[-1][1].split()[1]) if waiting else 0

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        self.process.wait(PATIENCE)
        for reader in self.readers:
            reader.join()

    def render(self):
        return "\n".join([f"exit code {self.process.poll()}", *(f"{at:.3f} {line}" for at, line in self.lines + self.errors)])


def render(nodes):
    return "\n\n".join(node.render() for node in nodes)


class Lab:
    """Network namespaces on a bridge, which end with their holders."""

    def __init__(self, nodes):
        self.holders = [self.hold()]
        self.at(0, "ip link set lo up && ip link add br0 type bridge mcast_snooping 0 && ip link set br0 up")
        for node in range(1, nodes + 1):
            self.holders.append(self.hold())
            self.at(0, f"ip link add p{node} type veth peer name eth0 netns {self.holders[node].pid}")
            self.at(0, f"ip link set p{node} master br0 up")
            self.at(node, f"ip addr add 10.78.0.{node}/24 dev eth0 && ip link set lo up && ip link set eth0 up")

    def hold(self):
        command = ["unshare", "--net", "sh", "-c", "echo; exec cat"]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if holder.stdout.read(1) != b"\n":
            raise unittest.SkipTest("skipped: this machine makes no network namespaces")
        return holder

    def inside(self, node, command):
        return ["nsenter", f"--net=/proc/{self.holders[node].pid}/ns/net", *command]

    def at(self, node, script):
        subprocess.run(self.inside(node, ["sh", "-ec", script]), check=True)

    def close(self):
        for holder in self.holders:
            holder.stdin.close()
            holder.stdout.close()
            holder.wait(PATIENCE)


def group(name, world=1, **options):
    return mingle.torch.Group(f"group-{name}-{os.getpid()}", world, interface="lo", timeout=PATIENCE, **options)


@unittest.skipUnless(dist, "skipped: this Python has no torch")
class Use(unittest.TestCase):
    """In this process, on loopback."""

    def setUp(self):
        patch = mock.patch("mingle._group.HEARS", 0.1)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_block_that_ends_counts_and_the_first_of_a_world_does_not(self):
        blocks, hook = [], sys.excepthook
        with group("counts") as one:
            while one.goes_on(one.steps < 3):
                with one.step():
                    blocks.append((one.is_new, one.steps))
                    one.check()
                    number = torch.ones(1)
                    dist.all_reduce(number)
            self.assertFalse(one.goes_on())
        self.assertEqual(blocks, [(True, 0), (False, 0), (False, 1), (False, 2)])
        self.assertEqual((one.rank, one.world, one.source, one.generation, one.steps), (0, 1, 0, 0, 3))
        self.assertFalse(dist.is_initialized())
        self.assertIs(sys.excepthook, hook)

    def test_an_exception_of_yours_comes_out_and_its_block_does_not_count(self):
        for error in (RuntimeError("mine"), ValueError("mine"), KeyboardInterrupt()):
            told = mock.patch.object(mingle.RunningWorld, "__exit__", autospec=True, side_effect=mingle.RunningWorld.__exit__)
            with told as leaves, self.assertRaises(type(error)), group("yours") as one:
                for is_new in (True, False):
                    one.goes_on()
                    with one.step():
                        self.assertEqual(one.is_new, is_new)
                        if not is_new:
                            raise error
            self.assertEqual(one.steps, 0)
            self.assertFalse(dist.is_initialized())
            # The other nodes hear that this one has failed.
            self.assertIs(leaves.call_args.args[2], error)

    def test_an_exception_of_on_event_comes_out_however_the_block_ends(self):
        def raises(event):
            if event["event"] == "waiting":
                raise ValueError("of on_event")

        for end in ("in the next call", "with what the watch has heard", "with what nobody has heard"):
            with self.assertRaisesRegex(ValueError, "of on_event"), group("event", on_event=raises) as one:
                one.goes_on()
                if end == "with what nobody has heard":
                    one._watch.stop()
                one._world._pending.append(("event", '{"event": "waiting", "nodes": 1}', None))
                while end == "in the next call" and one.goes_on():
                    with one.step():
                        one._watch.is_over.wait(PATIENCE)
                one._watch.is_over.wait(end == "with what the watch has heard" and PATIENCE)
            self.assertFalse(dist.is_initialized())

    def test_a_process_that_ends_in_a_world_that_is_over_ends_with_its_own_code(self):
        script = f"""
            import sys, mingle.torch
            with mingle.torch.Group("group-code-{os.getpid()}", 1, interface="lo") as group:
                over = '{{"event": "over", "rank": 0, "node": null, "end": "gone", "code": null, "message": "gone"}}'
                group._world._pending.append(("event", over, None))
                group._watch.is_cut.wait()
                sys.exit(3)
            """
        run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
        self.assertEqual(run.returncode, 3, run.stderr)

    def test_connections_end_as_soon_as_a_descriptor_is_free(self):
        def sockets(real=mingle._group._sockets):
            tries.append(True)
            if len(tries) == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            is_free.set()
            return real()

        is_free, tries = threading.Event(), []
        over = '{"event": "over", "rank": 0, "node": null, "end": "gone", "code": null, "message": "gone"}'
        with group("descriptors") as one, mock.patch("mingle._group._sockets", sockets):
            one.goes_on()
            one._world._pending.append(("event", over, None))
            self.assertTrue(is_free.wait(20))

    def test_a_state_that_was_taken_over_counts_with_the_steps_of_its_source(self):
        with group("own") as one:
            one.goes_on()
            # This node came later than the state that it takes.
            one.steps = 7
            with one.step():
                pass
            one._meet()
            self.assertEqual((one.is_new, one.steps), (True, 7))

    def test_a_child_that_leaves_the_block_leaves_the_group_of_its_parent_alone(self):
        with group("fork") as one:
            one.goes_on()
            with mock.patch.object(one._watch, "cut") as cut, mock.patch("os.getpid", lambda: 0):
                one.__exit__(None, None, None)
                with self.assertRaisesRegex(RuntimeError, "the thread that has made it"):
                    one.goes_on()
            self.assertFalse(cut.called)
            self.assertTrue(dist.is_initialized())

    def test_wrong_use_is_told_at_once(self):
        def starts_inside(one):
            with one.step():
                one.goes_on()

        def checks_outside(one):
            one.check()

        def goes_on_twice(one):
            for _ in range(2):
                with one.step():
                    pass

        def uses_a_thread(one):
            raised = []
            thread = threading.Thread(target=lambda: raised.append(self.error(one.goes_on)))
            thread.start()
            thread.join()
            raise raised[0]

        for use, wanted in [
            (starts_inside, "outside of a block"),
            (checks_outside, "in a block"),
            (goes_on_twice, "before each block"),
            (uses_a_thread, "the thread that has made it"),
        ]:
            with self.assertRaisesRegex(RuntimeError, wanted), group("wrong") as one:
                self.assertTrue(one.goes_on())
                use(one)
        one = group("unentered")
        self.assertIn("write `with", str(self.error(one.goes_on)))

    def error(self, call):
        try:
            call()
        except RuntimeError as error:
            return error

    def test_what_torch_cannot_do_and_wrong_arguments_are_told_at_once(self):
        nccl = mock.patch("torch.distributed.is_nccl_available", lambda: False)
        torchrun = mock.patch.dict(os.environ, {"TORCHELASTIC_RUN_ID": "foo"})
        started = mock.patch("torch.distributed.is_initialized", lambda: True)
        nothing = contextlib.nullcontext()
        for wanted, around, arguments in [
            ("backend='mpi': mingle can end the collectives of 'gloo', 'nccl'", nothing, {"backend": "mpi"}),
            (r"has no NCCL with ProcessGroup.abort\(\)", nccl, {"backend": "nccl"}),
            ("a worker of torchrun", torchrun, {}),
            ("initialized already", started, {}),
        ]:
            with around, self.assertRaisesRegex(mingle.UsageError, wanted):
                group("arguments", **arguments)
        for wanted, arguments in [("4:3", {"world": "4:3"}), ("room to grow", {"world": 3, "grow": True})]:
            with self.assertRaisesRegex(mingle.UsageError, wanted), group("arguments", **arguments):
                self.fail("a world has formed")
        with self.assertRaisesRegex(TypeError, "Did you mean 'gone_after'"):
            group("arguments", gone_aftr=1)

    def test_a_spare_that_was_not_needed_ends_without_a_rank(self):
        with mock.patch.object(mingle.RunningWorld, "next", lambda *_, **__: None), group("spare") as one:
            self.assertFalse(one.goes_on())
        self.assertIsNone(one.rank)

    def test_check_and_abort_end_what_a_gpu_does(self):
        groups = SimpleNamespace(pg_map=[mock.Mock(), mock.Mock()])
        with group("check") as one:
            one.goes_on()
            # What a GPU still does is done before its numbers count.
            gpu = {"is_available": lambda: True, "is_initialized": lambda: True}
            with mock.patch.multiple(torch.cuda, **gpu, synchronize=mock.DEFAULT) as mocks, one.step():
                one.check()
            self.assertEqual(mocks["synchronize"].call_count, 1)
            one.goes_on()
            with one.step():
                one._watch.is_over.set()
                one._watch.is_cut.set()
                one.check()
                self.fail("the numbers may be wrong")
            with mock.patch("mingle._group.distributed_c10d._world", groups, create=True):
                one._watch._backend = "nccl"
                for _ in range(2):
                    one._watch._abort()
        self.assertEqual([group.abort.call_count for group in groups.pg_map], [1, 1])
        self.assertEqual(one.steps, 0)

    def test_torch_leaves_a_process_whose_collective_of_nccl_failed_alive(self):
        with mock.patch.dict(os.environ), mock.patch.object(dist.ProcessGroup, "abort", None, create=True):
            os.environ.pop("TORCH_NCCL_ASYNC_ERROR_HANDLING", None)
            with mock.patch.object(dist, "is_nccl_available", lambda: True):
                self.assertEqual(mingle._group._backend("cpu:gloo,cuda:nccl"), "cpu:gloo,cuda:nccl")
            self.assertEqual(os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"], "0")

    def test_connections_to_a_host_end_whatever_its_family_and_others_stay(self):
        for family, here in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with socket.create_server((here, 0), family=family) as server:
                with socket.create_connection(server.getsockname()[:2]) as one, server.accept()[0]:
                    self.assertEqual(mingle._group._peer(one.fileno()), here)
                    self.assertEqual(mingle._group._peer(one.fileno(), {"10.0.0.1"}), here)
                    one.sendall(b"stays")
                    mingle._group._peer(one.fileno(), {here})
                    with self.assertRaises(OSError):
                        one.sendall(b"ends")

    def test_where_torch_cannot_connect_in_world_after_world_the_error_comes_out(self):
        fails = mock.Mock(side_effect=RuntimeError("of torch"))
        with mock.patch.object(mingle._group, "HEARS", 0), mock.patch.object(mingle._group.Group, "_connect", fails):
            with self.assertRaisesRegex(RuntimeError, "of torch"), group("connects"):
                pass
        self.assertEqual(fails.call_count, mingle._group.TRIES)

    def test_nodes_wait_at_a_boundary_for_a_time_only(self):
        with group("patience") as one:
            one.goes_on()
            watch = one._watch
            with mock.patch.object(mingle._group, "BOUNDARY", 0.2), mock.patch.object(watch, "_grows", lambda: True):
                started = time.monotonic()
                watch._wait_for_boundary(dist.HashStore(), 0, 2, 5)
            self.assertLess(time.monotonic() - started, 10)

    def test_a_node_whose_collective_failed_begins_no_block_more_in_its_world(self):
        with group("failed") as one:
            one.goes_on()
            with one.step():
                # The world ends for newcomers, and this node loses a connection before all are at the boundary.
                one._watch.is_over.set()
                raise RuntimeError("as a collective that fails")
            # If it were not, the next call would wait for a boundary to which the others do not come.
            self.assertTrue(one._watch.is_cut.is_set())
            self.assertFalse(one._watch.begins())

    def test_before_newcomers_come_in_all_nodes_end_the_same_blocks(self):
        with group("boundary") as one:
            one.goes_on()
            watch, store = one._watch, dist.HashStore()
            watch._members, watch._begun = (store, 0, 2), 5
            watch.is_over.set()
            watch._wait_for_boundary(store, 0, 2, 5)
            self.assertEqual(store.get("mingle/begun/0"), b"5")
            # Another node has begun one more.
            store.set("mingle/begun/1", "6")
            store.add("mingle/boundary", 1)
            self.assertEqual([watch.begins(), watch.begins()], [True, False])

    def test_fewer_nodes_than_the_fewest_form_no_world(self):
        with self.assertRaises(mingle.DeadlineError), mingle.torch.Group("group-few", "2:3", interface="lo", timeout=0.5):
            self.fail("a world has formed")
        self.assertFalse(dist.is_initialized())


@unittest.skipUnless(dist, "skipped: this Python has no torch")
class Training(unittest.TestCase):
    def lab(self, nodes):
        lab = Lab(nodes)
        self.addCleanup(lab.close)
        return lab

    def start(self, lab, node, name, *command, world="3:4", **environ):
        environ = {"MINGLE_INTERFACE": "eth0", "MINGLE_WORLD": world, **environ}
        node = Node(lab.inside(node, [sys.executable, *command]), name, **environ)
        self.addCleanup(lambda: node.process.poll() is None and node.kill())
        return node

    def end(self, nodes):
        """Checks that all have ended well, with the same state."""
        for node in nodes:
            node.end()
            self.assertEqual(node.process.returncode, 0, node.render())
        states = {node.lines[-1][1] for node in nodes}
        self.assertEqual(len(states), 1, states)

    def test_the_example_ends_with_the_same_weights_on_all_nodes(self):
        lab = self.lab(2)
        command = [str(EXAMPLE), "--steps", "5", "--pause", "0"]
        nodes = [self.start(lab, place, "example", *command, world="2") for place in (1, 2)]
        self.end(nodes)
        for node in nodes:
            self.assertEqual([line for _, line in node.said("has")], [f"has done step {step}" for step in range(5)])

    def test_all_take_the_state_of_a_node_that_has_ended_the_step_and_nobody_waits_for_a_live_node(self):
        lab = self.lab(4)
        nodes = [self.start(lab, place, "script", "-c", SCRIPT, world="2:4", MINGLE_ALLOW_SPLIT="true") for place in range(1, 5)]
        for node in nodes:
            node.end()
        said = {world: {} for world in "432"}
        for node in nodes:
            for _, line in node.said("world"):
                _, _, world, _, rank, _, source, _, step = line.split()
                said[world][int(rank)] = node, int(source), int(step)
        text = render(nodes)
        # Rank 0 has lost the step that the others have ended. Survivors keep their ranks.
        self.assertEqual({(source, step) for _, source, step in said["3"].values()}, {(1, 2)}, text)
        # Rank 0 has ended the step, and rank 1 has waited for it in vain.
        self.assertEqual({(source, step) for _, source, step in said["2"].values()}, {(0, 4)}, text)
        (slept, _), = said["3"][0][0].said("has slept")
        (ended, _), = said["3"][1][0].said("waits no longer")
        self.assertLess(ended, slept - 1, text)
        self.assertEqual([node.lines[-1][1] for node, _, _ in said["2"].values()], ["done 4 4"] * 2, text)

    def test_a_node_that_sends_to_a_dead_node_goes_on_though_gloo_waits_for_that_send_for_ever(self):
        lab = self.lab(3)
        nodes = [self.start(lab, place, "stuck", "-c", STUCK, world="2:3") for place in (1, 2, 3)]
        for node in nodes:
            node.wait_for(lambda node: node.said("world"))
        nodes.sort(key=lambda node: int(node.said("world")[0][1].split()[3]))
        for node in nodes[1:]:
            node.wait_for(lambda node: node.said("sends"))
        # It is in the collective.
        time.sleep(0.5)
        nodes[0].kill()
        killed = time.monotonic()
        self.end(nodes[1:])
        # Gloo has told rank 1 nothing.
        self.assertEqual([line for _, line in nodes[1].said("raises")], ["raises _Over"], nodes[1].render())
        self.assertEqual(nodes[1].lines[-1][1], "done 3")
        self.assertLess(nodes[1].lines[-1][0] - killed, 15)

    def test_a_death_at_any_point_of_the_next_world_costs_the_others_no_process(self):
        """In each world another node ends itself where a world connects: each time the others form the next."""
        if KILLS < 10:
            self.skipTest("skipped: it starts eight processes; MINGLE_TEST_KILLS=10 runs it")
        points = {
            "TCPStore": 1,
            "init_process_group": 2,
            "connected": 3,
            "broadcast_object_list": 4,
            "destroy_process_group": 4,
        }
        lab = self.lab(3 + len(points))
        with tempfile.TemporaryDirectory() as folder:
            stop = os.path.join(folder, "stop")
            world = f"3:{3 + len(points)}"
            deaths = [{}, {}, {}, *({"DIES_AT": point, "DIES_IN": str(number)} for point, number in points.items())]
            nodes = [
                self.start(lab, place, "points", "-c", WORKER, stop, world=world, MINGLE_ALLOW_SPLIT="true", **death)
                for place, death in enumerate(deaths, 1)
            ]
            for node in nodes[3:]:
                node.end()
                self.assertEqual(node.process.returncode, -9, node.render())
            at = time.monotonic()
            for node in nodes[:3]:
                node.wait_for(lambda node: node.world()[2] == 3)
            print(f"after the last of {len(points)} deaths {time.monotonic() - at:.2f} s", file=sys.stderr)
            Path(stop).touch()
            self.end(nodes[:3])

    def test_newcomers_cost_no_step_and_killed_nodes_the_running_step_and_no_process(self):
        """From three nodes to four and a spare. At random moments one node is killed, or two at once, and another comes for
        each. In the end three are left."""
        lab, chance = self.lab(5), random.Random(SEED)
        print(f"MINGLE_TEST_SEED={SEED}, {KILLS} kills", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            stop = os.path.join(folder, "stop")

            def start(*places):
                for place in places:
                    nodes[place] = self.start(lab, place, "storm", "-c", WORKER, stop, MINGLE_LAST_CALL="1s")

            nodes = {}
            start(1, 2, 3)
            first = [nodes[place] for place in self.members(nodes, fewest=3)]
            start(4, 5)
            self.members(nodes, size=4)
            for node in first:
                begun = [int(line.split()[1]) for _, line in node.said("begins")]
                self.assertEqual(begun, list(range(1, len(begun) + 1)))
            times = []
            for kill in range(KILLS):
                members = self.members(nodes)
                time.sleep(chance.uniform(0, 1))
                # The first kill hits rank 0, and so does one of four after it.
                zero = min(members, key=lambda place: nodes[place].world()[1])
                killed = {zero if kill % 4 == 0 else chance.choice(members)}
                if kill % 5 == 4:
                    killed.add(chance.choice(members))
                kinds = {"kills"} | ({"of rank 0"} if zero in killed else set()) | ({"of two nodes"} if len(killed) > 1 else set())
                times.append((kinds, self.kill(nodes, members, killed)))
                start(*killed)
            while len(nodes) > 3:
                members = self.members(nodes, fewest=len(nodes))
                self.kill(nodes, members, {chance.choice(members)})
            self.members(nodes, fewest=3)
            Path(stop).touch()
            self.end(nodes.values())
        for kind in ("kills", "of rank 0", "of two nodes"):
            some = sorted(seconds for kinds, seconds in times if kind in kinds)
            if some:
                print(
                    f"{len(some)} {kind}: from the kill to the next step of all survivors median {statistics.median(some):.2f} s, "
                    f"worst {some[-1]:.2f} s: {' '.join(f'{seconds:.2f}' for seconds in some)}",
                    file=sys.stderr,
                )

    def kill(self, nodes, members, killed):
        """Kills these members, and returns how long it takes until the others have done the next step."""
        at = time.monotonic()
        for place in killed:
            nodes[place].process.kill()
        try:
            took = max(self.next_step(nodes[place], at) for place in members if place not in killed) - at
        except AssertionError as error:
            raise AssertionError(render(nodes.values())) from error
        for place in killed:
            nodes.pop(place).end()
        return took

    def test_a_node_that_falls_silent_is_left_behind_though_no_connection_ends(self):
        if KILLS < 10:
            self.skipTest("skipped: it takes half a minute; MINGLE_TEST_KILLS=10 runs it")
        lab = self.lab(5)
        with tempfile.TemporaryDirectory() as folder:
            stop = os.path.join(folder, "stop")
            command = ["-c", WORKER, stop]
            nodes = {n: self.start(lab, n, "silent", *command, MINGLE_GONE_AFTER="1s") for n in range(1, 6)}
            members = self.members(nodes)
            silent = max(members, key=lambda place: nodes[place].world()[1])
            at = time.monotonic()
            lab.at(0, f"ip link set p{silent} down")
            members.remove(silent)
            took = max(self.next_step(nodes[place], at) for place in members) - at
            told = max(nodes[place].said("over", at)[0][0] for place in members) - at
            print(f"silent: the others are told after {told:.2f} s and go on after {took:.2f} s", file=sys.stderr)
            self.assertLess(took - told, 3)
            Path(stop).touch()
            self.end([nodes[place] for place in self.members(nodes, fewest=4)])

    def members(self, nodes, fewest=5, size=3):
        """The places of the nodes that train, once they are so many, and with those that wait as many as `fewest`."""
        end = time.monotonic() + PATIENCE
        while True:
            worlds = {place: node.world() for place, node in nodes.items()}
            newest, _, number = max(worlds.values())
            members = [place for place, world in worlds.items() if world[0] == newest]
            if len(members) == number >= size and number + max(nodes[place].waiting() for place in members) >= fewest:
                return members
            self.assertLess(time.monotonic(), end, render(nodes.values()))
            for node in nodes.values():
                self.assertIsNone(node.process.poll(), node.render())
            time.sleep(0.01)

    def next_step(self, node, at):
        """When this survivor has done the next step, in the next world; before it no step was lost."""
        node.wait_for(lambda node: node.world(at)[0] >= 0)
        # Of two that die at once, the second may end the world that forms after the first.
        worlds = node.said("world", at)
        for world, line in worlds:
            steps = [int(said.split()[1]) for when, said in node.said("step") if when < world]
            self.assertGreaterEqual(int(line.split()[-1]), max(steps, default=0), node.render())
        return node.said("step", worlds[0][0])[0][0]


if __name__ == "__main__":
    unittest.main()
