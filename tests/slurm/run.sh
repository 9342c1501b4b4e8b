#!/usr/bin/env bash
# Real Slurm: one slurmctld and four slurmd of Debian's slurm-wlm, each in a network namespace with its own host name,
# run examples/slurm. Needs root, munge, slurm-wlm, iproute2 and a built mingle: tests/slurm/run.sh [MINGLE]
#
# Four things are checked: a job of four nodes; several tasks a node, whose message must name the option that mends it;
# examples/slurm/mingle.sh as TaskProlog; and a job of which a node is killed, which ends and names it.

set -euo pipefail
shopt -s inherit_errexit

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
mingle=$(realpath -- "${1:-$here/target/release/mingle}")

skip() {
    echo "skipped: $1"
    [ "${MINGLE_REQUIRE_SLURM:-0}" != 1 ]
    exit
}
for program in ip munged slurmctld slurmd sbatch srun unshare; do
    command -v "$program" >/dev/null || skip "no $program: apt-get install slurm-wlm munge iproute2"
done
[ "$(id -u)" = 0 ] || skip "needs root"

# Everything happens in namespaces of this script: the end of the first process in them ends all others.
if [ "${MINGLE_SLURM_INNER:-}" != 1 ]; then
    work=$(mktemp -d)
    trap 'rm -rf -- "$work"' EXIT
    export MINGLE_SLURM_INNER=1 WORK=$work
    unshare --mount --net --uts --pid --ipc --fork --kill-child --mount-proc "$0" "$mingle" && exit
    code=$?
    echo "--- logs"
    tail -n 20 "$work"/*.log || true
    exit "$code"
fi

cd "$WORK"
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
nodes=(gpu1 gpu2 gpu3 gpu4)

# The network: a bridge, and each node behind it. The controller is on the bridge itself.
hostname control
ip link set lo up
ip link add br0 type bridge mcast_snooping 0
ip link set br0 up
ip address add 10.78.0.1/24 dev br0
mount -t tmpfs tmpfs /run
# The state of Slurm, of munge and the names are of this script alone.
mkdir -p /run/munge /run/netns etc/slurm spool log
ln -s "$mingle" mingle
cp /etc/passwd /etc/group etc
{
    echo '127.0.0.1 localhost'
    echo '10.78.0.1 control'
    for i in "${!nodes[@]}"; do
        echo "10.78.0.1$i ${nodes[i]}"
    done
} >hosts
mount --bind hosts /etc/hosts
[ ! -e /etc/resolv.conf ] || { : >resolv && mount --bind resolv /etc/resolv.conf; }

# The processors, as slurmd counts them.
hardware=$(slurmd -C | grep -o 'CPUs=.*ThreadsPerCore=[0-9]*')
cat >slurm.conf <<END
ClusterName=lab
SlurmctldHost=control(10.78.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=$here/examples/slurm/mingle.sh
SelectType=select/linear
SchedulerType=sched/backfill
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
InactiveLimit=0
KillWait=2
StateSaveLocation=$WORK/spool/control
SlurmdSpoolDir=$WORK/spool/%n
SlurmctldPidFile=$WORK/control.pid
SlurmdPidFile=$WORK/%n.pid
SlurmctldLogFile=$WORK/control.log
SlurmdLogFile=$WORK/%n.log
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
NodeName=gpu[1-4] $hardware State=UNKNOWN
PartitionName=lab Nodes=gpu[1-4] Default=YES MaxTime=10 State=UP
END
printf 'CgroupPlugin=cgroup/v1\n' >cgroup.conf
export SLURM_CONF=$WORK/slurm.conf PATH=$WORK:$PATH
mkdir -p spool/control

# One key for all. Each host has a munged of its own, as it refuses a credential that it has seen, and Slurm sends one
# message to all nodes.
head -c 1024 /dev/urandom >munge.key
chmod 0400 munge.key
chmod 0711 "$WORK"
cat >start-munged <<END
set -e
mount -t tmpfs -o mode=0711 tmpfs /run/munge
munged --force --key-file=$WORK/munge.key --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munge.pid \\
    --log-file=/run/munge/munge.log --seed-file=/run/munge/munge.seed
END
sh start-munged

declare -A holder
for i in "${!nodes[@]}"; do
    node=${nodes[i]}
    ip netns add "$node"
    ip link add "p$i" type veth peer name eth0 netns "$node"
    ip link set "p$i" master br0 up
    ip -n "$node" link set lo up
    ip -n "$node" link set eth0 up
    ip -n "$node" address add "10.78.0.1$i/24" dev eth0
    ip -n "$node" route add default via 10.78.0.1
done

slurmctld -D >control.out 2>&1 &
for node in "${nodes[@]}"; do
    mkdir -p "spool/$node"
    # A PID namespace for each node, so that killing the first process of it kills all of a node, as a power cut does.
    nsenter --net="/run/netns/$node" unshare --uts --pid --fork --kill-child --mount --mount-proc \
        sh -c "hostname $node && sh start-munged && exec slurmd -D -N $node" >"$node.out" 2>&1 &
    holder[$node]=$!
done

# Waits until a command succeeds.
await() {
    local what=$1 end=$((SECONDS + ${PATIENCE:-60}))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { echo "FAILED: $what"; sinfo -Nl || true; scontrol show job || true; tail -n 40 ./*.txt; exit 1; }
        sleep 0.2
    done
}
up() { [ "$(sinfo -h -N -t idle -o %N | wc -l)" = "$1" ]; }
state() { scontrol show job "$1" | grep "JobState=$2" >/dev/null; }
await "four nodes are up" up 4
echo "Slurm $(slurmctld -V | cut -d ' ' -f 2) runs on four nodes"

# The example, with a torchrun that says what it was given instead of training.
cat >torchrun <<'END'
#!/bin/sh
echo "$(hostname) rank ${RANK:-} of ${WORLD_SIZE:-} at ${MASTER_ADDR:-}"
[ "${1}" != sleep ] || exec sleep 120
END
chmod +x torchrun
cp "$here/examples/slurm/train.sbatch" .
# There is no GPU here.
sed -i '/--gpus-per-node/d' train.sbatch

expected=$(for i in 0 1 2 3; do echo "gpu$((i + 1)) rank $i of 4 at 10.78.0.10"; done)
check() {
    local said
    said=$(grep -h '^gpu. rank ' "$2" | sort)
    [ "$said" = "$expected" ] || { echo "FAILED: $1 says:"; cat "$2"; exit 1; }
    echo "ok: $1"
}

begun=$(date +%s%N)
job=$(sbatch --parsable --output=first.txt train.sbatch)
await "the example completes" state "$job" COMPLETED
check "the example of examples/slurm, $((($(date +%s%N) - begun) / 1000000)) ms from sbatch to its end" first.txt
grep -q "rank 0 from SLURM_NODEID, world 4 from SLURM_NNODES, job slurm-$job.0 from SLURM_JOB_ID" first.txt

# Several tasks a node: two of them have one rank, and the message names the option.
srun --nodes=4 --ntasks-per-node=2 --overcommit --kill-on-bad-exit=1 mingle run --timeout 30s -- torchrun >many.txt 2>&1 &&
    { echo "FAILED: several tasks a node form a world"; exit 1; }
grep -q -e '--ntasks-per-node=1' many.txt || { echo "FAILED: several tasks a node:"; cat many.txt; exit 1; }
echo "ok: several tasks a node are told to give --ntasks-per-node=1"

# The TaskProlog: a step that asks has variables, and no other step has.
steps() { MINGLE_SLURM=${asks-1} srun --overcommit "$@" torchrun >prolog.txt 2>&1; }
begun=$(date +%s%N)
steps --nodes=4
check "srun --nodes=4 torchrun alone, $((($(date +%s%N) - begun) / 1000000)) ms" prolog.txt
four=$expected
expected=$(for i in 0 1 2 3 4 5 6 7; do echo "gpu$((i / 2 + 1)) rank $i of 8 at 10.78.0.10"; done)
steps --nodes=4 --ntasks-per-node=2
check "several tasks a node are ranks of their own" prolog.txt
expected='gpu1 rank  of  at '
steps --nodes=1 --nodelist=gpu1
check "a step of one node is left alone" prolog.txt
expected=$(for i in 1 2 3 4; do echo "gpu$i rank  of  at "; done)
asks='' steps --nodes=4
check "a step that does not ask is left alone" prolog.txt
expected=$four

# No world: nothing starts, the user reads why, and all nodes are there for the next job.
if MINGLE_WORLD=5 MINGLE_TIMEOUT=2s steps --nodes=4; then echo "FAILED: torchrun starts without a world"; exit 1; fi
if ! grep -q '^mingle: ' prolog.txt || grep -q ' rank ' prolog.txt; then echo "FAILED: no world:"; cat prolog.txt; exit 1; fi
await "four nodes are up after a step without a world" up 4
echo "ok: without a world nothing starts, and the message arrives: $(grep -m 1 '^mingle: ' prolog.txt)"

# As a hook of enroot, which gives it the environment of the host and the file from which the container has its own.
cat >hook <<END
#!/bin/sh
ENROOT_ENVIRON=\$(mktemp) && export ENROOT_ENVIRON && MINGLE_SLURM=1 $here/examples/slurm/mingle.sh &&
    exec env -i \$(grep -v ' ' "\$ENROOT_ENVIRON") $WORK/torchrun
END
chmod +x hook
srun --nodes=4 ./hook >hook.txt 2>&1
check "the hook of enroot" hook.txt

# A node that is killed while the job runs: mingle names it on all others and ends there, and Slurm ends the job.
sed 's/mingle run/mingle run --max-restarts 0 --workers 1/; s/torchrun train.py/torchrun sleep/' train.sbatch >killed.sbatch
job=$(sbatch --parsable --no-requeue --output=killed.txt killed.sbatch)
await "all ranks of the second job run" sh -c "[ \$(grep -c 'rank . of 4 at' $WORK/killed.txt) = 4 ]"
begun=$(date +%s%N)
kill -KILL "$(pgrep -P "${holder[gpu3]}")"
since() { echo "$((($(date +%s%N) - begun) / 1000000)) ms"; }
await "the killed node is named" grep -q 'gpu3 .* failed: the node is gone' killed.txt
echo "ok: mingle names a killed node within $(since)"
await "the job of a killed node ends" sh -c "! scontrol show job $job | grep -q JobState=RUNNING"
echo "ok: the job ends within $(since), when Slurm has given the node up as well"
