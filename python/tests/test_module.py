"""Tests of the module, on loopback. Run `python -m unittest` here, with the module in the path."""

import asyncio
import contextlib
import copy
import fcntl
import io
import json
import logging
import os
import pickle
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from unittest import mock

import mingle

# Longer than anything here takes on a busy machine.
PATIENCE = 60
HELP = Path(__file__).parents[2] / "tests/help/mingle.long"
TYPES = Path(mingle.__file__).with_name("_options.py")


def job(name):
    """A job ID that no other run of these tests has."""
    return f"module-{name}-{os.getpid()}"


def join(name, world, **options):
    return mingle.join(job(name), world, timeout=PATIENCE, **options)


def meet(name, world, **options):
    """A world whose nodes are threads of this process; by rank."""
    with ThreadPoolExecutor(world) as pool:
        nodes = [pool.submit(join, name, world, **options) for _ in range(world)]
        return sorted((node.result() for node in nodes), key=lambda node: node.rank)


def python(code, stderr=None):
    """Another Python that runs this code."""
    code = "import mingle, sys\n" + textwrap.dedent(code)
    path = os.pathsep.join([str(Path(mingle.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, stderr=stderr, text=True)


def waits(name):
    """Another Python in a world of two that nobody else joins; it says `leads` once it waits."""
    return python(
        f"""
        def say(event):
            if event["event"] == "leading":
                print("leads", flush=True)
        try:
            mingle.join({job(name)!r}, 2, timeout={PATIENCE}, on_event=say)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )


def runs(name, then):
    """Another Python in a world of two that stays; it says `runs` once it has the world, and then does this."""
    return python(
        f"""
        world = mingle.RunningWorld({job(name)!r}, 2, timeout={PATIENCE})
        world.next()
        print("runs", flush=True)
        {then}
        """
    )


class Module(unittest.TestCase):
    def setUp(self):
        os.environ["MINGLE_INTERFACE"] = "lo"

    def test_nodes_meet_and_each_has_what_the_program_prints(self):
        nodes = meet("meet", 4)
        self.assertEqual([(node.rank, node.world, node.generation) for node in nodes], [(rank, 4, 0) for rank in range(4)])
        first, second, *_ = nodes
        self.assertEqual(len({node.master for node in nodes}), 1)
        self.assertEqual(first.env["MASTER_ADDR"], first.master[0])
        self.assertEqual(second.env["RANK"], "1")
        self.assertEqual(first.local, "127.0.0.1")
        self.assertEqual([member.rank for member in second.roster], [0, 1, 2, 3])
        self.assertEqual(second.roster[0].port, first.master[1])
        environ = {"RANK": "7", "HOME": "/", "PET_RDZV_BACKEND": "c10d"}
        # What an earlier mingle has set for another launcher.
        second.unset = ["PET_RDZV_BACKEND", "NOT_THERE"]
        second.export(environ)
        self.assertEqual((environ["RANK"], environ["HOME"], "PET_RDZV_BACKEND" in environ), ("1", "/", False))
        self.assertEqual([node.listener is None for node in nodes], [False, True, True, True])
        for node in nodes:
            node.close()

    def test_the_listener_of_rank_0_answers_and_with_closes_it(self):
        with meet("listener", 2)[0] as first:
            # Nobody accepts, but the kernel does.
            socket.create_connection(first.master, timeout=PATIENCE).close()
            self.assertFalse(os.get_inheritable(first.listener))
        self.assertIsNone(first.listener)
        self.assertEqual([node.listener for node in meet("listener", 2, listener=False)], [None, None])
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(first.master, timeout=PATIENCE)

    def test_a_copy_has_no_listener_and_closes_nobodys_file(self):
        with meet("copy", 1)[0] as node:
            copies = [copy.copy(node), copy.deepcopy(node), *(pickle.loads(pickle.dumps(node, n)) for n in range(6))]
            for other in copies:
                self.assertEqual((other.listener, other.take_listener()), (None, None))
                self.assertEqual((other.rank, other.master, other.roster), (node.rank, node.master, node.roster))
            del copies, other
            # The listener is still there, so all that were copied have closed nothing.
            socket.create_connection(node.master, timeout=PATIENCE).close()
            os.fstat(node.listener)

    def test_the_fields_have_words_and_are_a_dictionary(self):
        with meet("fields", 1)[0] as node:
            fields = vars(node)
            self.assertEqual([name for name in fields if f"``{name}``" not in mingle.Assignment.__doc__], [])
            self.assertEqual([name for name in fields if name not in mingle.Assignment.__annotations__], [])
            again = json.loads(json.dumps(node.to_dict()))
            self.assertEqual(again, node.to_dict())
            self.assertEqual(set(again), set(fields) - {"listener"})
            self.assertEqual(again["master"], {"address": node.master[0], "port": node.master[1]})
            self.assertEqual(again["roster"][0]["address"], node.roster[0].address)

    def test_python_m_mingle_is_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "mingle")
            program.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
            program.chmod(0o755)
            source = str(Path(mingle.__file__).parent.parent)
            path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
            command = [sys.executable, "-c", "import runpy, sysconfig; sysconfig.get_path = lambda *_: '/none'; "]
            command[-1] += "runpy.run_module('mingle', run_name='__main__')"

            def run(folder):
                environ = {**os.environ, "PYTHONPATH": path, "PATH": folder}
                return subprocess.run([*command, "run", "-j", "x"], env=environ, capture_output=True, text=True)

            ran = run(folder)
            self.assertEqual((ran.stdout, ran.returncode), ("run -j x\n", 7), ran.stderr)
            # The program beside this Python comes before another in PATH.
            other = Path(folder, "other")
            other.mkdir()
            other.joinpath("mingle").symlink_to("/bin/false")
            command[-1] = command[-1].replace("/none", folder)
            self.assertEqual(run(str(other)).returncode, 7)
            command[-1] = command[-1].replace(folder, "/none")
            # `pip install --user` puts it elsewhere.
            user = f"lambda name, *scheme: {folder!r} if scheme else '/none'"
            command[-1] = command[-1].replace("lambda *_: '/none'", user)
            self.assertEqual(run(str(other)).returncode, 7)
            command[-1] = command[-1].replace(user, "lambda *_: '/none'")
            ran = run("/none")
            self.assertEqual(ran.returncode, 1)
            self.assertIn("neither beside this Python nor in PATH", ran.stderr)

    def test_a_timeout_names_what_is_missing(self):
        with self.assertRaises(mingle.DeadlineError) as raised:
            mingle.join(job("alone"), 2, rank=0, timeout="300ms", quiet=True)
        error = raised.exception
        self.assertIsInstance(error, TimeoutError)
        self.assertIn("nobody else was heard", str(error))
        facts = {"joined": 1, "world": "2", "heard": [], "missing": [[1, 1]], "absent": []}
        self.assertEqual((error.code, error.kind, error.facts), (3, "deadline", facts))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.code, again.facts), (str(error), 3, error.facts))

    def test_wrong_options_and_variables_are_refused_at_once(self):
        for wanted, options in [
            ("rank=7: rank 7 does not exist", {"rank": 7}),
            ("interface=1.2.3.4/99: ", {"interface": "1.2.3.4/99"}),
            ("such as world=4", {"world": 0}),
            ("such as job_id=foo", {"job_id": "x" * 200}),
            ("master_port=no: ", {"master_port": "no"}),
            ("timeout=nan: ", {"timeout": float("nan")}),
            ("job_id= is missing", {"job_id": None}),
            ("see help(mingle.join)", {"world": None}),
            ("rdma=maybe: ", {"rdma": "maybe"}),
            ("give more than half of 4 as the fewest nodes", {"world": "2:4", "timeout": 1}),
            ("multicast=off (or MINGLE_MULTICAST): ", {"multicast": "off"}),
            ("such as by multicast=:29498", {"master_port": 29499}),
        ]:
            with self.assertRaises(mingle.UsageError, msg=options) as raised:
                mingle.join(**{"job_id": job("wrong"), "world": 2, **options})
            self.assertIn(wanted, str(raised.exception))
            self.assertNotIn("--", str(raised.exception))
            self.assertEqual(raised.exception.code, 2)
        os.environ["MINGLE_RANK"] = "many"
        try:
            with self.assertRaisesRegex(ValueError, "MINGLE_RANK=many"):
                mingle.join(job("wrong"), 2)
        finally:
            del os.environ["MINGLE_RANK"]

    def test_unknown_keywords_and_wrong_types_are_type_errors(self):
        for wanted, options in [
            ("unexpected keyword argument 'ifc'", {"ifc": "eth0"}),
            ("Did you mean 'timeout'?", {"timout": 3}),
            ("'help'", {"help": True}),
            ("'format'", {"format": "json"}),
            ("'grow'", {"grow": True}),
            ("world= takes no bool", {"world": True}),
            ("job_id= must be a str, not bytes", {"job_id": b"foo"}),
            ("job_id= must be a str, not int", {"job_id": 7}),
            ("rank= takes no list", {"rank": [1]}),
            ("seed= takes no bytes", {"seed": ["a", b"b"]}),
            ("quiet= must be True or False", {"quiet": "yes"}),
        ]:
            with self.assertRaises(TypeError, msg=options) as raised:
                mingle.join(**{"job_id": job("wrong"), "world": 2, **options})
            self.assertIn(wanted, str(raised.exception))
            self.assertNotIn("--", str(raised.exception))
            if options != {"grow": True}:
                with self.assertRaises(TypeError, msg=options):
                    mingle.RunningWorld(**{"job_id": job("wrong"), "world": 2, **options})

    def test_times_and_paths_may_be_objects(self):
        with tempfile.TemporaryDirectory() as folder:
            events = Path(folder, "events")
            with self.assertRaises(mingle.DeadlineError):
                mingle.join(job("times"), 2, timeout=timedelta(milliseconds=300), events=events, seed_dir=Path(folder))
            self.assertIn("deadline", events.read_text())
        self.assertEqual(mingle._text("timeout", timedelta(days=1, seconds=1)), "86401.0")

    def test_nodes_of_another_secret_have_their_exception(self):
        def ends(letter):
            with self.assertRaises(mingle.SecretError) as raised:
                mingle.join(job("secret"), 2, timeout=1.5, secret_file=Path(folder, letter))
            self.assertEqual(raised.exception.code, 6)

        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
            for letter in "ab":
                Path(folder, letter).write_text(letter * 32)
                Path(folder, letter).chmod(0o600)
            list(pool.map(ends, "ab"))

    def test_an_option_that_can_be_repeated_takes_a_list(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in ("json", "hostfile")]
            join("list", 1, output=[f"{file.name}={file}" for file in files]).close()
            self.assertEqual([file.exists() for file in files], [True, True])
            join("list", 1, output=f"dotenv={folder}/one").close()
            self.assertTrue(Path(folder, "one").exists())

    def test_variables_and_schedulers_count_as_for_the_program(self):
        os.environ.update(MINGLE_JOB_ID=job("variables").replace("-", "%2D"), MINGLE_WORLD="1", MINGLE_FORMAT="hostfile")
        try:
            self.assertEqual(mingle.join().job, job("variables"))
            del os.environ["MINGLE_WORLD"]
            os.environ.update(SLURM_NODEID="0", SLURM_NNODES="1", SLURM_JOB_ID="7")
            self.assertEqual(mingle.join().world, 1)
            # The options of another program are not those of the module.
            os.environ.update(SLURM_STEP_NUM_TASKS="2", SLURM_STEP_NUM_NODES="1")
            with self.assertRaisesRegex(mingle.UsageError, "srun --ntasks-per-node=1, .* mingle run --workers$"):
                mingle.join()
        finally:
            for name in list(os.environ):
                if name.startswith(("MINGLE_", "SLURM_")):
                    del os.environ[name]

    def test_a_conflict_and_a_taken_port_have_their_exceptions(self):
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(join, "conflict", 2, rank=0)
            with self.assertRaises(mingle.ConflictError) as raised:
                join("conflict", 3, rank=1)
            self.assertEqual((raised.exception.code, raised.exception.kind), (4, "world_differs"))
            join("conflict", 2, rank=1)
            first.result().close()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with self.assertRaises(mingle.NetworkError) as raised:
                mingle.join(job("port"), 2, master_port=port)
        error = raised.exception
        self.assertEqual((error.code, error.kind, error.facts), (5, "port_taken", {"port": port}))

    def test_ctrl_c_ends_a_join_and_other_nodes_get_the_place(self):
        with waits("interrupt") as other:
            self.assertEqual(other.stdout.readline(), "leads\n")
            other.send_signal(signal.SIGINT)
            self.assertEqual(other.stdout.readline(), "interrupted\n")
            self.assertEqual(other.wait(PATIENCE), 0)
        self.assertEqual([node.rank for node in meet("interrupt", 2)], [0, 1])

    def test_what_a_callback_raises_ends_a_join(self):
        def fail(event):
            raise KeyError(event["event"])

        with self.assertRaisesRegex(KeyError, "started"):
            mingle.join(job("callback"), 2, on_event=fail)

    def test_the_logger_gets_what_the_program_prints(self):
        with self.assertLogs("mingle", logging.INFO) as logs:
            mingle.join(job("log"), 1)
        self.assertRegex(logs.output[-1], "INFO:mingle:world of 1 formed in .* rank 0, master 127.0.0.1:")
        self.assertNotIn("mingle: ", logs.output[-1])
        with self.assertLogs("mingle", logging.WARNING) as logs:
            mingle.join(job("log"), 1, last_call="1s")
        self.assertRegex(logs.output[0], "^WARNING:mingle:warning: last_call=1s is ignored: ")

    def test_a_warning_without_logging_names_mingle_and_speaks_python(self):
        said = io.StringIO()
        logger, root = logging.getLogger("mingle"), logging.getLogger()
        with contextlib.redirect_stderr(said), mock.patch.object(root, "handlers", []):
            with ThreadPoolExecutor(1) as pool, mingle.RunningWorld(job("warns"), 2, timeout=PATIENCE) as world:
                leaves = pool.submit(join, "warns", 2)
                world.next()
                leaves.result().close()
        self.assertEqual(logger.handlers, [])
        (line, *_) = lines = [line for line in said.getvalue().splitlines() if "given" in line]
        self.assertEqual(len(lines), 2, said.getvalue())
        self.assertRegex(line, '^mingle: warning: RunningWorld differs: .*"not given"')
        self.assertNotIn("--", said.getvalue())

    def test_a_forked_child_has_no_socket_of_a_join_and_no_listener(self):
        seen = []

        def fork(event):
            if event["event"] == "leading":
                # The thread that joins has sockets, and the child none of them.
                threads = Path("/proc/self/task").iterdir()
                seen.append(any(sockets(thread) for thread in threads))
                seen.append(in_child(lambda: sockets("/proc/self")))
                raise InterruptedError

        with self.assertRaises(InterruptedError):
            mingle.join(job("fork"), 2, on_event=fork)
        with mingle.join(job("fork"), 1) as node:
            seen.append(bool(sockets("/proc/self")))
            seen.append(in_child(lambda: sockets("/proc/self")))
            # The object is of no use there, and does no harm either.
            seen.append(in_child(node.close))
        self.assertEqual(seen, [True, False, True, False, False])

    def test_no_descriptor_is_left_behind(self):
        mingle.join(job("left"), 1).close()
        before = os.listdir("/proc/self/fd")
        for _ in range(20):
            mingle.join(job("left"), 1)
            with self.assertRaises(mingle.UsageError):
                mingle.join(job("left"), 1, rank=7)
        self.assertEqual(os.listdir("/proc/self/fd"), before)

    def test_the_types_have_the_options_of_the_program(self):
        if not HELP.exists():
            self.skipTest("only in the project")
        options = set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", HELP.read_text(), re.M))
        # The program alone holds ports, for the command that it starts.
        options -= {"help", "version", "format", "ports"}
        of_run = set(re.findall(r"^ +--([a-z-]+)", HELP.with_name("run.long").read_text(), re.M))
        stays = {"gone-after", "grow", "allow-split", "stop-timeout"}
        self.assertLessEqual(stays, of_run)
        for kind, wanted in [("Options(TypedDict", options - {"job-id", "world"}), ("StayOptions(Options", stays)]:
            fields = TYPES.read_text().split(f"class {kind}, ")[1].split("\nclass ")[0]
            self.assertEqual({name.replace("_", "-") for name in re.findall(r"^ +(\w+): ", fields, re.M)}, wanted)
        for function, kind in [(mingle.join, ""), (mingle.RunningWorld.__init__, "Stay")]:
            given = function.__annotations__
            self.assertEqual(given["options"], f"Unpack[{kind}Options]")
            self.assertLessEqual({"job_id", "world", "listener", "on_event"}, set(given))


class Running(unittest.TestCase):
    """Worlds that stay."""

    def setUp(self):
        os.environ["MINGLE_INTERFACE"] = "lo"
        self.worlds = []
        self.addCleanup(lambda: [world.close() for world in self.worlds])

    def worlds_of(self, name, count, world=None, **options):
        options = {"timeout": PATIENCE, "quiet": True, **options}
        new = [mingle.RunningWorld(job(name), world or count, **options) for _ in range(count)]
        self.worlds += new
        return new

    def all(self, worlds, work):
        """Does this with all worlds at once; the results in their order."""
        with ThreadPoolExecutor(len(worlds)) as pool:
            return list(pool.map(work, worlds))

    def test_a_world_starts_again_where_one_node_says_so_and_all_finish(self):
        worlds = self.worlds_of("again", 3)
        nodes = self.all(worlds, lambda world: world.next())
        self.assertEqual(sorted(node.rank for node in nodes), [0, 1, 2])
        self.assertEqual({node.generation for node in nodes}, {0})
        self.assertEqual([world.state for world in worlds], ["running"] * 3)
        self.assertFalse(worlds[1].wait(0))
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(worlds[0].next, code=7)
            self.assertTrue(worlds[1].wait(PATIENCE) and worlds[2].wait(PATIENCE))
            over = worlds[1].over
            self.assertEqual((over.how, over.code, over.rank, worlds[1].state), ("exited", 7, nodes[0].rank, "over"))
            nodes = [*self.all(worlds[1:], lambda world: world.next()), first.result()]
        self.assertEqual({(node.generation, node.world) for node in nodes}, {(1, 3)})
        self.assertIsNone(worlds[1].over)
        self.assertEqual(self.all(worlds, lambda world: world.finish(PATIENCE)), [True] * 3)
        self.assertEqual([(world.state, world.next()) for world in worlds], [("finished", None)] * 3)

    def test_what_a_world_was_told_is_forgotten_in_the_next_and_limits_of_time_hold(self):
        told = []
        (first,) = self.worlds_of("told", 1, 2, on_event=told.append)
        started = time.monotonic()
        self.assertIsNone(first.next(timeout=0.2))
        self.assertEqual(first.state, "forming")
        (second,) = self.worlds_of("told", 1, 2)
        # The world that has formed since is the one that the next call returns.
        while first.state == "forming":
            select.select([first], [], [], PATIENCE)
        nodes = self.all([first, second], lambda world: world.next())
        self.assertFalse(first.finish(timeout=0.2))
        self.assertFalse(first.wait(timeout=0.1))
        self.assertLess(time.monotonic() - started, PATIENCE)
        (newcomer,) = self.worlds_of("told", 1, 2)
        while second.waiting == 0:
            second.wait(0.05)
        with ThreadPoolExecutor(1) as pool:
            node = pool.submit(second.next, code=9)
            self.assertTrue(first.wait(PATIENCE))
            self.assertEqual((first.over.how, first.over.code), ("exited", 9))
            newcomer.close()
            first.next()
            self.assertEqual(node.result().rank, nodes[1].rank)
            self.assertEqual([old.listener for old in nodes], [None, None])
        while first.waiting + second.waiting > 0:
            self.assertFalse(first.wait(0.05) or second.wait(0.05))
        kinds = [event["event"] for event in told]
        self.assertEqual([kinds.count(kind) for kind in ("formed", "over", "restart")], [2, 1, 1])

    def test_what_is_heard_of_the_world_is_up_to_date(self):
        (world,) = self.worlds_of("heard", 1, 1)
        world.next()
        peer = {"host": "a", "address": "10.0.0.1", "port": 1}
        over = {"event": "over", "rank": 0, "node": peer, "end": "exited", "code": 3, "message": "exit code 3"}
        for event, waiting, how in [
            ({"event": "waiting", "nodes": 3}, 3, None),
            ({"event": "suspected", "rank": 0, "node": peer}, 3, None),
            ({"event": "cut_off"}, 3, None),
            (over, 3, "exited"),
            ({**over, "event": "cause", "end": "left", "code": None}, 3, "left"),
        ]:
            world._hear(event)
            self.assertEqual((world.waiting, world.over and world.over.how), (waiting, how), event)
        self.assertEqual((world.over.rank, world.over.host), (0, "a"))
        # And nothing of that in the next world.
        world.next()
        self.assertEqual((world.waiting, world.over), (0, None))

    def test_the_next_world_takes_another_port_at_once_where_the_program_holds_the_last(self):
        worlds = self.worlds_of("port", 2)
        nodes = self.all(worlds, lambda world: world.next())
        listener = next(node for node in nodes if node.rank == 0).take_listener()
        with socket.socket(fileno=listener):
            started = time.monotonic()
            again = self.all(worlds, lambda world: world.next())
            self.assertLess(time.monotonic() - started, 4)
        self.assertNotEqual(again[0].master, nodes[0].master)

    def test_a_node_that_leaves_says_farewell_and_a_newcomer_takes_its_place(self):
        first, second = self.worlds_of("leave", 2)
        second_rank = self.all([first, second], lambda world: world.next().rank)[1]
        second.close()
        self.assertTrue(first.wait(PATIENCE))
        self.assertEqual((first.over.how, first.over.rank), ("left", second_rank))
        self.assertEqual((second.state, second.next()), ("left", None))
        worlds = [first, *self.worlds_of("leave", 1, 2)]
        self.assertEqual({node.generation for node in self.all(worlds, lambda world: world.next())}, {1})

    def test_a_process_that_is_killed_is_gone_and_one_that_stalls_is_not(self):
        # This holds Python's lock all the time.
        other = runs("kill", "sum(range(10**15))")
        told = []
        (world,) = self.worlds_of("kill", 1, 2, on_event=lambda event: told.append(event["event"]))
        with other:
            rank = world.next().rank
            self.assertEqual(other.stdout.readline(), "runs\n")
            # A newcomer makes the world look whether its members answer, and one is silent for 8 s if it is gone.
            (newcomer,) = self.worlds_of("kill", 1, 2)
            self.assertFalse(world.wait(10))
            self.assertEqual(newcomer.state, "forming")
            self.assertNotIn("suspected", told)
            other.kill()
            self.assertTrue(world.wait(PATIENCE))
        self.assertEqual((world.over.how, world.over.rank), ("gone", 1 - rank))
        self.assertEqual({node.world for node in self.all([world, newcomer], lambda world: world.next())}, {2})

    def test_a_world_with_room_takes_a_newcomer_in(self):
        worlds = self.worlds_of("grow", 2, "2:3", grow=True, last_call="2s")
        ranks = [node.rank for node in self.all(worlds, lambda world: world.next())]
        (newcomer,) = self.worlds_of("grow", 1, "2:3", grow=True, last_call="2s")
        first = worlds[ranks.index(0)]
        for world in worlds:
            while world.waiting == 0 and world.state == "running":
                world.wait(0.05)
            self.assertEqual(world.waiting, 1)
        self.assertTrue(first.wait(PATIENCE))
        self.assertEqual(first.over.how, "grows")
        nodes = self.all([*worlds, newcomer], lambda world: world.next())
        self.assertEqual({node.world for node in nodes}, {3})

    def test_a_failure_for_good_ends_newcomers_of_rank_0_as_well(self):
        worlds = self.worlds_of("fail", 2)
        ranks = [node.rank for node in self.all(worlds, lambda world: world.next())]
        first, second = (worlds[ranks.index(rank)] for rank in (0, 1))
        (newcomer,) = self.worlds_of("fail", 1, 2)
        while first.waiting == 0:
            first.wait(0.05)
        # A newcomer of this very moment may miss the end.
        self.assertFalse(first.wait(1))
        first.fail(9)
        self.assertTrue(second.wait(PATIENCE))
        self.assertEqual((second.over.how, second.over.code, first.state), ("exited", 9, "left"))
        self.assertIsNone(newcomer.next(timeout=PATIENCE))
        self.assertEqual(newcomer.state, "finished")

    def test_a_program_that_fails_before_a_world_has_formed_leaves_its_seat_to_others(self):
        (first,) = self.worlds_of("no seat", 1, 2)
        self.assertIsNone(first.next(timeout=0.2))
        first.fail(9)
        self.assertEqual((first.state, first.next()), ("left", None))
        self.all(self.worlds_of("no seat", 2), lambda world: world.next())

    def test_a_program_that_has_finished_and_then_fails_ends_the_world_with_its_code(self):
        first, second = worlds = self.worlds_of("regrets", 2)
        self.all(worlds, lambda world: world.next())
        self.assertFalse(first.finish(timeout=0.2))
        started = time.monotonic()
        first.fail(7)
        self.assertLess(time.monotonic() - started, 5)
        self.assertTrue(second.wait(PATIENCE))
        self.assertEqual((second.over.how, second.over.code), ("exited", 7))

    @contextlib.contextmanager
    def one_held_up(self, name, on_event):
        """A world of two: one node has it, and the other waits for a file's lock, which another program holds, before.

        It waits for at most a second.
        """
        with tempfile.NamedTemporaryFile() as hosts, ThreadPoolExecutor(2) as pool:
            fcntl.flock(hosts, fcntl.LOCK_EX)
            (slow,) = self.worlds_of(name, 1, 2, output=f"hosts={hosts.name}", on_event=on_event)
            (quick,) = self.worlds_of(name, 1, 2)
            late = pool.submit(slow.next)
            quick.next()
            yield slow, pool, late, quick

    def test_a_world_that_is_over_before_the_program_has_it_is_told_as_well(self):
        events = []
        with self.one_held_up("unheard", lambda event: events.append(event["event"])) as (slow, pool, late, quick):
            again = pool.submit(quick.next, code=7)
            self.assertEqual(late.result().generation, 0)
            self.assertTrue(slow.wait(PATIENCE))
            self.assertEqual((slow.next().generation, again.result().generation), (1, 1))
        self.assertEqual([event for event in events if event in ("formed", "over")], ["formed", "over", "formed"])

    def test_an_exception_before_the_program_has_the_world_that_has_formed_ends_it_with_its_code(self):
        have_met = threading.Event()

        def raises(event):
            if event["event"] == "formed":
                have_met.wait(PATIENCE)
                raise ValueError("of on_event")

        with self.one_held_up("early", raises) as (_, _, late, quick):
            # The nodes know each other once they know of a third.
            self.worlds_of("early", 1, 2)
            while not quick.waiting:
                self.assertFalse(quick.wait(0.02))
            have_met.set()
            self.assertTrue(quick.wait(PATIENCE))
            self.assertEqual((quick.over.how, quick.over.code), ("exited", 1))
            with self.assertRaisesRegex(ValueError, "of on_event"):
                late.result()

    def test_what_has_happened_is_not_lost_where_on_event_raises(self):
        def raises(event):
            if event["event"] == "cut_off":
                raise ValueError("of on_event")

        (world,) = self.worlds_of("raises", 1, 1, on_event=raises)
        world.next()
        world._pending += [("event", json.dumps(what), None) for what in [{"event": "cut_off"}, {"event": "waiting", "nodes": 3}]]
        with self.assertRaises(ValueError):
            world.waiting
        self.assertEqual(world.waiting, 3)
        # But where it ends this node's part, the listener of a world that the program has not got is closed.
        listener = os.open("/dev/null", os.O_RDONLY)
        world._pending += [("event", json.dumps({"event": "cut_off"}), None), ("formed", "{}", listener)]
        with self.assertRaises(ValueError):
            world.wait()
        self.assertEqual(world.state, "left")
        self.assertRaises(OSError, os.fstat, listener)

    def test_what_on_event_raises_in_a_method_ends_this_nodes_part(self):
        def raises(event):
            if event["event"] == "cut_off":
                raise ValueError("of on_event")

        calls = {"next": (), "finish": (), "fail": (), "close": (), "__exit__": (None, None, None)}
        for name, arguments in calls.items():
            (world,) = self.worlds_of("method", 1, on_event=raises)
            world.next()
            world._pending.append(("event", json.dumps({"event": "cut_off"}), None))
            with self.assertRaisesRegex(ValueError, "of on_event"):
                getattr(world, name)(*arguments)
            self.assertEqual((world.state, world.fileno()), ("left", -1), name)

    def test_an_event_loop_joins_in_threads_and_hears_of_its_world_by_the_descriptor(self):
        first, second = self.worlds_of("loop", 2)

        async def both():
            await asyncio.gather(*(asyncio.to_thread(world.next) for world in (first, second)))
            is_over, loop, fd = asyncio.Event(), asyncio.get_running_loop(), first.fileno()
            loop.add_reader(fd, lambda: first.state != "running" and is_over.set())
            again = asyncio.ensure_future(asyncio.to_thread(second.next, code=7))
            await asyncio.wait_for(is_over.wait(), PATIENCE)
            loop.remove_reader(fd)
            self.assertEqual((first.over.how, first.over.code), ("exited", 7))
            return await asyncio.gather(asyncio.to_thread(first.next), again)

        self.assertEqual([node.generation for node in asyncio.run(both())], [1, 1])

        self.assertEqual(asyncio.run(asyncio.to_thread(join, "to thread", 1)).rank, 0)

    def test_a_loop_over_the_world_ends_with_the_job(self):
        # A world that is over before a node has asked for it is left out.
        both_are_here = threading.Barrier(2)

        def train(world):
            generations = []
            for node in world:
                generations.append(node.generation)
                # The first world fails.
                if node.generation > 0:
                    world.finish()
                else:
                    both_are_here.wait(PATIENCE)
                    if node.rank == 1:
                        world.wait(PATIENCE)
            return generations

        self.assertEqual(self.all(self.worlds_of("for", 2), train), [[0, 1]] * 2)

    def test_what_ends_a_process_is_heard_with_its_code(self):
        begin = f"world = mingle.RunningWorld({job('ends')!r}, 2, timeout={PATIENCE}); world.next()\n"
        inside = f"with mingle.RunningWorld({job('ends')!r}, 2, timeout={PATIENCE}) as world:\n    world.next()\n"
        function = f"def main():\n    {begin}"
        hears = f"mingle.RunningWorld({job('ends')!r}, 2, on_event=lambda event: event['event'] == 'cut_off' and sys.exit(5))"
        cut_off = """world.next()\nworld._pending.append(("event", '{"event": "cut_off"}', None))\n"""
        signals = "import signal\nsignal.signal(signal.SIGALRM, lambda *_: sys.exit(2))\nsignal.alarm(1)\nworld.wait()"
        for how, code, rest in [
            ("exited", 1, inside + "    raise KeyError"),
            ("exited", 3, inside + "    sys.exit(3)"),
            ("exited", 1, inside + "    sys.exit('text')"),
            ("exited", 5, f"world = {hears}\n{cut_off}world.wait()"),
            ("left", None, inside + "    sys.exit()"),
            ("left", None, inside + "    raise KeyboardInterrupt"),
            ("exited", 1, begin + "raise KeyError"),
            ("exited", 2, begin + signals),
            ("left", None, function + "main()"),
            ("left", None, begin + "raise KeyboardInterrupt"),
            ("left", None, begin + "sys.exit(0)"),
            ("left", None, begin),
            ("left", None, begin + "world.close()\nsys.exit(3)"),
            ("exited", 6, inside + "    import os\n    if os.fork() == 0: sys.exit(9)\n    os.wait()\n    sys.exit(6)"),
        ]:
            with self.subTest(rest), mingle.RunningWorld(job("ends"), 2, timeout=PATIENCE, quiet=True) as world:
                with python(rest, subprocess.DEVNULL) as other:
                    rank = world.next().rank
                    self.assertTrue(world.wait(PATIENCE))
                    # The end of the process says the same as its world.
                    self.assertEqual((world.over.how, world.over.code, world.over.rank), (how, code, 1 - rank))
                    ended = other.wait(PATIENCE)
                    self.assertTrue(ended in (code, 0, -signal.SIGINT) or "close" in rest, ended)

    def test_other_threads_run_while_this_node_waits_until_the_others_know_that_it_leaves(self):
        other = runs("stops", "world.wait()")
        (world,) = self.worlds_of("stops", 1, 2)
        with other:
            world.next()
            self.assertEqual(other.stdout.readline(), "runs\n")
            # It reads nothing any more, so that the farewell takes its 3 s.
            other.send_signal(signal.SIGSTOP)
            leaves = threading.Thread(target=world.close)
            begun = last = time.monotonic()
            longest = 0
            leaves.start()
            while leaves.is_alive():
                leaves.join(0.05)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
            other.kill()
        self.assertGreater(time.monotonic() - begun, 2)
        self.assertLess(longest, 2.5)

    def test_an_object_that_is_dropped_leaves(self):
        first, second = self.worlds_of("dropped", 2)
        self.all([first, second], lambda world: world.next())
        self.worlds.remove(second)
        del second
        self.assertTrue(first.wait(PATIENCE))
        self.assertEqual(first.over.how, "left")
        self.assertFalse(first.finish())
        first.fail(9)
        self.assertEqual(first.state, "left")

    def test_ctrl_c_in_a_world_is_a_farewell(self):
        other = python(
            f"""
            import os
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            try:
                with mingle.RunningWorld({job("ctrl")!r}, 2, timeout={PATIENCE}) as world:
                    world.next()
                    os.close(writer)
                    assert os.read(reader, 1) == b"", "mingle's thread has a copy of the other end"
                    print("runs", flush=True)
                    world.wait()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            """
        )
        (world,) = self.worlds_of("ctrl", 1, 2)
        with other:
            world.next()
            self.assertEqual(other.stdout.readline(), "runs\n")
            other.send_signal(signal.SIGINT)
            self.assertEqual(other.stdout.readline(), "interrupted\n")
            self.assertEqual(other.wait(PATIENCE), 0)
        self.assertTrue(world.wait(PATIENCE))
        self.assertEqual(world.over.how, "left")

    def test_a_survivor_names_the_rank_that_has_failed_and_no_network(self):
        (first,) = self.worlds_of("survivor", 1, 2, timeout="3s")
        (second,) = self.worlds_of("survivor", 1, 2, timeout="3s")
        rank = self.all([first, second], lambda world: world.next())[1].rank
        with self.assertRaises(KeyError), second:
            raise KeyError
        self.assertTrue(first.wait(PATIENCE))
        with self.assertRaises(mingle.DeadlineError) as raised:
            first.next()
        self.assertRegex(str(raised.exception), f"^rank {rank}, .* failed: exit code 1; since then no world of 2 in time: ")
        self.assertNotIn("multicast", str(raised.exception))

    def test_a_forked_child_has_no_socket_of_a_world(self):
        (world,) = self.worlds_of("fork", 1)
        node = world.next()
        seen = [bool(sockets("/proc/self")), in_child(lambda: sockets("/proc/self")), in_child(lambda: world.state != "left")]
        self.assertEqual((seen, node.listener is None), ([True, False, False], False))
        self.assertEqual(world.state, "running")
        # A child's end is no farewell of the parent.
        self.assertFalse(in_child(world.close))
        self.assertEqual(world.state, "running")

    def test_wrong_options_are_refused(self):
        for name in ("max_restarts", "workers", "nothing"):
            with self.assertRaisesRegex(TypeError, rf"RunningWorld\(\) got an unexpected keyword argument '{name}'"):
                mingle.RunningWorld(job("wrong"), 2, **{name: 3})
        for wanted, options in [
            ("gone_after=soon: ", {"gone_after": "soon"}),
            ("allow_split=", {"world": "2:4"}),
            ("grow= (or MINGLE_GROW)", {"grow": True}),
        ]:
            world = mingle.RunningWorld(**{"job_id": job("wrong"), "world": 2, **options})
            for _ in range(2):
                with self.assertRaises(mingle.UsageError, msg=options) as raised:
                    world.next()
                self.assertIn(wanted, str(raised.exception))
            self.assertEqual((world.state, raised.exception.code), ("failed", 2))
            world.close()
        (world,) = self.worlds_of("wrong", 1)
        for code in (0, 256, "1", None):
            with self.assertRaisesRegex(mingle.UsageError, "1 to 255"):
                world.next(code=code)
        self.assertEqual(world.next().rank, 0)

    def test_a_world_that_does_not_form_says_why(self):
        (world,) = self.worlds_of("alone", 1, 2, timeout="300ms")
        with self.assertRaises(mingle.DeadlineError) as raised:
            world.next()
        self.assertEqual((raised.exception.code, raised.exception.facts["joined"]), (3, 1))
        world.fail()
        self.assertEqual(world.state, "failed")

    def test_no_descriptor_is_left_behind(self):
        def once():
            (world,) = self.worlds_of("left", 1)
            world.next()
            world.next()
            world.close()

        once()
        before = os.listdir("/proc/self/fd")
        for _ in range(10):
            once()
        self.assertEqual(os.listdir("/proc/self/fd"), before)


def sockets(process):
    """The internet sockets of a process or thread, by inode."""
    internet = set()
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        path = Path("/proc/net", kind)
        internet |= {line.split()[9] for line in path.read_text().splitlines()[1:]} if path.exists() else set()
    links = []
    with contextlib.suppress(FileNotFoundError):  # The thread has ended.
        for fd in Path(process, "fd").iterdir():
            with contextlib.suppress(OSError):  # That of the folder itself.
                links.append(os.readlink(fd))
    return internet & {link[8:-1] for link in links if link.startswith("socket:[")}


def in_child(work):
    """Whether this gives anything in a child; an error is something."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(bool(work()))
        except BaseException:
            os._exit(2)
    return bool(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    unittest.main()
