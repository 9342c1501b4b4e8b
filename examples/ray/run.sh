#!/usr/bin/env bash
# A Ray cluster for one job: rank 0 is the head and runs the driver; the other nodes are workers until the driver ends.
# Run the same line on every node:
#
#     ray/run.sh foo 4 driver.py
#
# It needs mingle, Ray and python3 in PATH. Between the nodes, Ray's ports must be open as well as mingle's. At the end
# `ray stop` ends all Ray processes of this user on the node, so use hosts or containers that run nothing but this job.

set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 JOB NODES DRIVER [ARGUMENT]..." >&2 && exit 2; }
job=$1 nodes=$2
shift 2

# Only mingle sets this variable. It is checked because eval of nothing succeeds if mingle is not in PATH.
eval "$(mingle --job-id "$job" --world "$nodes" --format ray)"
: "${MINGLE_ROSTER_DIGEST:?}"

trap 'ray stop' EXIT
if [ "$RANK" != 0 ]; then
    # Ray waits until the head is up, and uses the address by which it reaches the head. With --block it would fail
    # a minute after the head has ended.
    ray start --address="$RAY_ADDRESS"
    # The head's port is open as long as the head runs. `ray status` would wait for a head that is gone for most of a
    # minute.
    head="exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT"
    while timeout 5 bash -c "$head" 2>/dev/null; do sleep 1; done
    exit
fi
# Without --node-ip-address the head uses the address by which it would reach the Internet.
ray start --head --node-ip-address="$MASTER_ADDR" --port="$MASTER_PORT"
python3 "$@"
