#!/usr/bin/env bash
# Four nodes on this machine, each one the line that a real node runs. Needs only a Rust toolchain; where
# Python can import torch, a torchrun job follows on each node.

set -euo pipefail
# Every node gets a process group of its own, so that nothing of it is left behind.
set -m

world=4
examples=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
groups=()

clean_up() {
    local status=$?
    trap - EXIT
    trap '' INT TERM HUP
    # Else bash reports every one that it ends here.
    exec 2>/dev/null
    local signal group try
    # TERM first: torchrun then ends its workers, which may have left its process group.
    for signal in TERM KILL; do
        for group in "${groups[@]}"; do
            kill -s "$signal" -- "-$group" || true
        done
        for ((try = 0; try < 50; try++)); do
            [ -n "$(jobs -r)" ] || break
            sleep 0.1
        done
    done
    rm -rf -- "$scratch"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# A Python with torch: Debian's belongs to /usr/bin/python3, whatever comes first in PATH.
find_torch() {
    for python in python3 /usr/bin/python3; do
        if version=$("$python" -c 'import torch, torch.distributed as d
assert d.is_available() and d.is_gloo_available()
print(torch.__version__)' 2>/dev/null); then
            return
        fi
    done
    python=
}

# One node. Nothing in it knows of the others but the job's name and their number.
# shellcheck disable=SC2016  # The node's own shell expands this.
node='
    eval "$(mingle --job-id "$job" --world "$world" --interface lo --timeout 30s)" && : "${RANK:?}" &&
        echo "MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT RANK=$RANK WORLD_SIZE=$WORLD_SIZE" \
             "NODE_RANK=$NODE_RANK" &&
        echo "PET_NNODES=$PET_NNODES PET_NODE_RANK=$PET_NODE_RANK PET_MASTER_ADDR=$PET_MASTER_ADDR" \
             "PET_MASTER_PORT=$PET_MASTER_PORT" &&
        echo "NCCL_SOCKET_IFNAME=$NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME=$GLOO_SOCKET_IFNAME" &&
        echo "MINGLE_JOB_ID=$MINGLE_JOB_ID MINGLE_ROSTER_DIGEST=$MINGLE_ROSTER_DIGEST" \
             "MINGLE_SET=$MINGLE_SET" &&
        if [ -n "$python" ]; then
            exec timeout --foreground 120 "$python" -m torch.distributed.run "$examples/allreduce.py" "$world"
        fi
'

run_node() {
    local status=0
    bash -c "$node" 2>&1 </dev/null | sed -u "s/^/node $1: /" || status=$?
    [ "$status" = 0 ] || echo "quickstart: node $1 failed" >&2
    return "$status"
}

echo "quickstart: building mingle (some minutes the first time)"
# In the background, for bash takes no notice of signals while it runs something in the foreground.
cargo build --release --quiet --manifest-path "$examples/../Cargo.toml" --package mingle-cli \
    --message-format json-render-diagnostics >"$scratch/build" &
groups+=("$!")
wait "$!"
groups=()
mingle=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$scratch/build")
PATH=$(dirname -- "$mingle"):$PATH

# What the caller's shell holds for a job of its own must not reach these nodes.
unset "${!MINGLE_@}" "${!PET_@}" NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME
find_torch
if [ -n "$python" ]; then
    export OMP_NUM_THREADS=1 # else torchrun says that it has chosen that
    case $version in
        # The default of torch 1 for these is a text that it cannot read back under Python 3.11.
        1.*) export PET_REDIRECTS=0:1 PET_TEE=0:1 ;;
    esac
fi
# The job's name is new each time, so that two people can try this on one machine.
job=quickstart-$(date +%s)-$$
export job world python examples TMPDIR="$scratch"

echo "quickstart: starting $world nodes of job $job"
for ((i = 1; i <= world; i++)); do
    run_node "$i" &
    groups+=("$!")
done
failed=
for pid in "${groups[@]}"; do
    wait "$pid" || failed=1
done
groups=()
[ -z "$failed" ] || exit 1
if [ -n "$python" ]; then
    echo "quickstart: all $world nodes have formed a world, and torchrun an all-reduce across them"
else
    echo "quickstart: all $world nodes have formed a world; no all-reduce, for no python3 here can import torch"
fi
