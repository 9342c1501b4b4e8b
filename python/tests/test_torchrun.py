"""torchrun --rdzv-backend=mingle with the torch that is installed: agents and their workers, on loopback.

Each agent is a process of torchrun, with one worker that reduces numbers with the others until it is told to end. Run
`python -m unittest` here, with the module in the path.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from pathlib import Path

try:
    import torch
except ImportError:
    torch = None

# torch takes many seconds to load on a busy machine.
PATIENCE = 120

WORKER = """
import os, sys, time, torch, torch.distributed as dist
folder, name = sys.argv[1], os.environ["AGENT"]
# The address that was proved, and no name of the host.
assert os.environ["MASTER_ADDR"] == "127.0.0.1", os.environ["MASTER_ADDR"]
dist.init_process_group("gloo")
rank, number = dist.get_rank(), torch.ones(1)
dist.all_reduce(number)
restarts, port = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["MASTER_PORT"]
print(f"{name}: rank {rank} of {number.item():.0f} restarts {restarts} port {port};", flush=True)
while True:
    try:
        # A worker is told to fail once.
        os.rename(f"{folder}/fail-{name}", f"{folder}/failed-{name}")
        sys.exit(3)
    except FileNotFoundError:
        pass
    # Rank 0 decides for all, or the others would wait in a collective.
    end = torch.tensor([float(rank == 0 and os.path.exists(f"{folder}/end"))])
    dist.all_reduce(end)
    if end.item():
        break
    time.sleep(0.05)
while os.path.exists(f"{folder}/late-{name}"):
    time.sleep(0.05)
dist.destroy_process_group()
print(f"{name}: ended", flush=True)
"""


class Agent:
    """A process of torchrun."""

    def __init__(self, test, name, nodes, *options):
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "MINGLE_INTERFACE": "lo", "AGENT": name}
        if torch.__version__.startswith("1."):
            # torch 1.13 cannot parse its own default of these under Python 3.11.
            environ.update(PET_REDIRECTS="0:1", PET_TEE="0:1")
        command = [sys.executable, "-m", "mingle_torchrun", "--rdzv_backend=mingle", f"--rdzv_id={test.job}", f"--nnodes={nodes}"]
        command += ["--monitor_interval=0.1", *options, test.script, test.folder]
        self.name, self.text, self.changed = name, "", threading.Condition()
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        test.agents.append(self)

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.text += line
                self.changed.notify_all()

    def expect(self, pattern, after=0):
        """Waits for this, behind the first `after` characters; returns the match."""
        with self.changed:
            wanted = re.compile(pattern)
            if not self.changed.wait_for(lambda: wanted.search(self.text, after), PATIENCE):
                raise AssertionError(f"no {pattern!r} of agent {self.name}:\n{self.text}")
            return wanted.search(self.text, after)

    def runs(self, world, after=0):
        """Waits until the worker has reduced with so many; returns the restarts that the agent has counted, and the port."""
        match = self.expect(rf"{self.name}: rank \d+ of {world} restarts (\d+) port (\d+);", after)
        return int(match[1]), int(match[2])

    def mark(self):
        with self.changed:
            return len(self.text)

    def children(self):
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid:
                found.append(int(stat.parent.name))
        return found

    def kill(self):
        """As if the host had crashed: the agent and its worker."""
        for process in [*self.children(), self.process.pid]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass  # A worker that has failed because of the other.

    def ends(self, code):
        try:
            found = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"agent {self.name} goes on:\n{self.text}") from None
        self.reader.join(PATIENCE)
        assert found == code, f"agent {self.name} ended with {found}:\n{self.text}"


@unittest.skipUnless(torch, "skipped: this Python has no torch")
class Torchrun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.script = folder.name, str(Path(folder.name, "worker.py"))
        Path(self.script).write_text(textwrap.dedent(WORKER))
        self.job = f"torchrun-{self.id().rsplit('.', 1)[1]}-{os.getpid()}"
        self.agents = []
        self.addCleanup(self.stop)

    def stop(self):
        for agent in self.agents:
            agent.kill()
            agent.process.wait()
            agent.reader.join()
            agent.process.stdout.close()

    def start(self, names, nodes, *options):
        return [Agent(self, name, nodes, *options) for name in names]

    def tell(self, what):
        Path(self.folder, what).touch()

    def test_agents_whose_workers_end_at_different_times_all_end_well(self):
        agents = self.start("abc", 3)
        for agent in agents:
            self.assertEqual(agent.runs(3)[0], 0)
        self.tell("late-b")
        self.tell("end")
        # Its worker has ended, and the agent waits for that of b.
        agents[0].expect("a: ended")
        Path(self.folder, "late-b").unlink()
        for agent in agents:
            agent.ends(0)

    def test_a_worker_that_fails_makes_all_start_again_with_another_port(self):
        agents = self.start("abc", 3, "--max_restarts=2")
        ports = {agent.runs(3)[1] for agent in agents}
        marks = [agent.mark() for agent in agents]
        self.tell("fail-b")
        again = [agent.runs(3, mark) for agent, mark in zip(agents, marks)]
        self.assertEqual(again[1][0], 1, "its own restart counts")
        self.assertNotEqual({port for _, port in again}, ports)
        self.assertEqual(len({port for _, port in again}), 1)
        self.tell("end")
        for agent in agents:
            agent.ends(0)

    def test_a_killed_agent_is_replaced(self):
        agents = self.start("abc", 3, "--max_restarts=2")
        for agent in agents:
            agent.runs(3)
        marks = [agent.mark() for agent in agents]
        agents[2].kill()
        since = time.monotonic()
        (newcomer,) = self.start("d", 3, "--max_restarts=2")
        for agent, mark in zip(agents[:2], marks):
            agent.runs(3, mark)
        print(f"replaced after {time.monotonic() - since:.1f} s, torch's start included", file=sys.stderr)
        newcomer.runs(3)
        self.tell("end")
        for agent in [*agents[:2], newcomer]:
            agent.ends(0)

    def test_an_agent_that_is_asked_to_end_says_farewell_and_is_replaced(self):
        agents = self.start("ab", 2, "--max_restarts=2")
        for agent in agents:
            agent.runs(2)
        mark = agents[0].mark()
        agents[1].process.send_signal(signal.SIGTERM)
        agents[0].expect("leaves", mark)
        (newcomer,) = self.start("c", 2, "--max_restarts=2")
        agents[0].runs(2, mark)
        newcomer.runs(2)
        self.tell("end")
        for agent in [agents[0], newcomer]:
            agent.ends(0)

    def test_a_world_of_a_range_grows_without_a_restart_and_goes_on_without_a_killed_agent(self):
        options = ["--max_restarts=2", "--rdzv_conf=last_call_timeout=3"]
        agents = self.start("ab", "2:4", *options)
        for agent in agents:
            agent.runs(2)
        marks = [agent.mark() for agent in agents]
        agents += self.start("c", "2:4", *options)
        # Its workers were well, so no restart is used up.
        self.assertEqual([agent.runs(3, mark)[0] for agent, mark in zip(agents, marks)], [0, 0])
        agents[2].runs(3)
        marks = [agent.mark() for agent in agents]
        agents.pop(0).kill()
        for agent, mark in zip(agents, marks[1:]):
            agent.runs(2, mark)
        self.tell("end")
        for agent in agents:
            agent.ends(0)

    def test_an_agent_without_a_seat_ends_well_once_the_others_have(self):
        agents = self.start("ab", 2)
        for agent in agents:
            agent.runs(2)
        (spare,) = self.start("s", 2)
        spare.expect("already runs")
        self.tell("end")
        for agent in [*agents, spare]:
            agent.ends(0)
        self.assertIn("was not needed", spare.text)

    def test_an_agent_without_a_seat_takes_that_of_one_that_is_killed(self):
        agents = self.start("ab", 2, "--max_restarts=2")
        for agent in agents:
            agent.runs(2)
        (spare,) = self.start("s", 2, "--max_restarts=2")
        spare.expect("already runs")
        mark = agents[1].mark()
        agents[0].kill()
        agents[1].runs(2, mark)
        spare.runs(2)
        self.tell("end")
        for agent in [agents[1], spare]:
            agent.ends(0)

    # An agent of torch 1.13 that has failed waits up to 300 s for the others before it closes (_exit_barrier in
    # elastic/agent/server/api.py).
    if torch and not torch.__version__.startswith("1."):

        def test_an_agent_without_restarts_closes_for_agents_that_have_some_left(self):
            agents = [*self.start("a", 3, "--max_restarts=0"), *self.start("bc", 3, "--max_restarts=5")]
            for agent in agents:
                agent.runs(3)
            self.tell("fail-a")
            for agent in agents:
                agent.ends(1)
            for agent in agents[1:]:
                self.assertIn("is closed", agent.text)

    def test_a_rendezvous_that_times_out_says_who_was_there(self):
        (agent,) = self.start("a", 2, "--rdzv_conf=join_timeout=2")
        agent.expect("no world of 2")
        agent.ends(1)

    def test_wrong_options_end_at_once(self):
        for options, message in [
            (["--rdzv_conf=is_host=1"], "is_host"),
            (["--rdzv_endpoint=a/b"], "seed="),
        ]:
            (agent,) = self.start("w", 2, *options)
            agent.expect(message)
            agent.ends(1)


if __name__ == "__main__":
    unittest.main()
