"""The same random faults in a job under `mingle run`, under torchrun with mingle's backend, and under torchrun with c10d.

Three nodes, which are network namespaces on a bridge, train and save a snapshot after each step. In turn a worker is
killed, a node with all its processes is killed and comes back after a second, a node is stopped for 20 s, or cut off for
20 s. Run it with the torch that is installed and the module in the path:

    python tests/faults.py target/release/mingle 20 [SEED]

It prints each fault, and for each system and kind of fault the longest time without a new step, and the steps that were
done again.
"""

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from test_group import Lab

# In seconds: how long a node is stopped or cut off, until it comes back, and until the job counts as ended.
OUTAGE, BACK, PATIENCE = 20, 1, 180
# How many new steps show that the job goes on.
STEPS = 3
NODES = (1, 2, 3)
KINDS = ("worker killed", "node killed", "node stopped", "node cut off")

WORKER = textwrap.dedent(
    """
    import os, sys, time, torch, torch.distributed as dist
    snapshot, steps = f"{sys.argv[1]}/snapshot", f"{sys.argv[1]}/steps"
    dist.init_process_group("gloo")
    rank, step = dist.get_rank(), torch.zeros(1)
    if rank == 0 and os.path.exists(snapshot):
        step = torch.load(snapshot)
    dist.broadcast(step, 0)
    while True:
        time.sleep(0.1)
        one = torch.ones(1)
        dist.all_reduce(one)
        step += 1
        if rank == 0:
            torch.save(step, snapshot + ".new")
            os.replace(snapshot + ".new", snapshot)
            with open(steps, "a") as file:
                file.write(f"{time.monotonic()} {step.item():.0f}\\n")
    """
)


def commands(mingle, job):
    """For each system the command of a node."""
    torchrun = ["--nnodes=3", "--nproc-per-node=1", "--max-restarts=1000", "--monitor-interval=0.1", f"--rdzv-id={job}"]
    run = ["run", f"--job-id={job}", "--world=3", "--max-restarts=1000", "--restart-delay=0", "--", sys.executable]
    c10d = ["-m", "torch.distributed.run", *torchrun, "--rdzv-backend=c10d", "--rdzv-endpoint=10.78.0.1:29400"]
    return {
        "mingle run": lambda _: [mingle, *run],
        "torchrun, mingle": lambda _: [sys.executable, "-m", "mingle_torchrun", *torchrun, "--rdzv-backend=mingle"],
        "torchrun, c10d": lambda node: [sys.executable, *c10d, f"--local-addr=10.78.0.{node}", f"--rdzv-conf=is_host={node == 1}"],
    }


class Job:
    def __init__(self, lab, folder, command):
        self.lab, self.folder, self.command = lab, folder, command
        self.script = str(Path(folder, "worker.py"))
        Path(self.script).write_text(WORKER)
        self.log = open(Path(folder, "log"), "ab")
        self.running = []

    def start(self, *nodes):
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
        for node in nodes:
            command = self.lab.inside(node, [*self.command(node), self.script, self.folder])
            self.running.append(subprocess.Popen(command, env=environ, stdout=self.log, stderr=self.log))

    def processes(self, node):
        """The processes of a node: for each PID its command."""
        holder = self.lab.holders[node].pid
        space, found = os.stat(f"/proc/{holder}/ns/net").st_ino, {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.stat(path / "ns/net").st_ino == space and int(path.name) != holder:
                    found[int(path.name)] = (path / "cmdline").read_text().split("\0")
            except OSError:
                pass  # It has ended meanwhile.
        return found

    def signal(self, number, processes):
        for process in processes:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def steps(self):
        try:
            lines = Path(self.folder, "steps").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(float(at), int(step)) for at, step in (line.split() for line in lines)]

    def wait_for(self, beyond):
        """Waits for steps beyond this number. False if the job has ended, or takes too long."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if max((step for _, step in self.steps()), default=0) >= beyond + STEPS:
                return True
            if not all(self.processes(node) for node in NODES) and all(one.poll() is not None for one in self.running[-3:]):
                return False
            time.sleep(0.05)
        return False

    def disturb(self, kind, node):
        """Brings the fault about, and ends it."""
        processes = self.processes(node)
        if kind == "worker killed":
            self.signal(signal.SIGKILL, [one for one, command in processes.items() if self.script in command[1:3]])
        elif kind == "node killed":
            self.signal(signal.SIGKILL, processes)
            time.sleep(BACK)
            self.start(node)
        elif kind == "node stopped":
            self.signal(signal.SIGSTOP, processes)
            time.sleep(OUTAGE)
            self.signal(signal.SIGCONT, processes)
        else:
            self.lab.at(0, f"ip link set p{node} down")
            time.sleep(OUTAGE)
            self.lab.at(0, f"ip link set p{node} up")

    def stop(self):
        for node in NODES:
            self.signal(signal.SIGCONT, self.processes(node))
            self.signal(signal.SIGKILL, self.processes(node))
        for one in self.running:
            one.wait()
        self.running.clear()


def fault(job, kind, node):
    """The longest time without a new step, and how many steps were done again. None if the job has ended."""
    before = max(step for _, step in job.steps())
    count = len(job.steps())
    job.disturb(kind, node)
    if not job.wait_for(before):
        return None
    done, best, again, longest = job.steps(), before, 0, 0.0
    last = done[count - 1][0]
    for at, step in done[count:]:
        if step <= best:
            again += 1
            continue
        best, longest, last = step, max(longest, at - last), at
    return longest, again


def main():
    program, count = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else time.time_ns() % 100000
    chance = random.Random(seed)
    faults = [(KINDS[number % len(KINDS)], chance.choice(NODES), chance.uniform(0, 1)) for number in range(count)]
    chance.shuffle(faults)
    print(f"seed {seed}, {count} faults", flush=True)
    found = {}
    for system, command in commands(program, f"faults-{os.getpid()}").items():
        lab = Lab(len(NODES))
        with tempfile.TemporaryDirectory() as folder:
            job = Job(lab, folder, command)
            try:
                job.start(*NODES)
                assert job.wait_for(0), Path(folder, "log").read_text()
                for kind, node, pause in faults:
                    time.sleep(pause)
                    result = fault(job, kind, node)
                    found.setdefault((system, kind), []).append(result)
                    print(f"{system}: {kind} {node}: {result}", flush=True)
                    if result is None:
                        job.stop()
                        job.start(*NODES)
                        assert job.wait_for(max(step for _, step in job.steps())), Path(folder, "log").read_text()
            finally:
                job.stop()
                lab.close()
    for (system, kind), results in found.items():
        there = sorted(result for result in results if result)
        times = [seconds for seconds, _ in there]
        text = f"median {statistics.median(times):.1f} s, worst {times[-1]:.1f} s" if there else "-"
        again = sum(again for _, again in there)
        print(f"{system}: {kind}: {text}; {again} steps done again; {len(results) - len(there)} of {len(results)} ended the job")


if __name__ == "__main__":
    main()
