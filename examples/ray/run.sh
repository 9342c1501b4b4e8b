#!/usr/bin/env bash
# Ray on a cluster of its own for one job: rank 0 is the head and runs the driver, the others are its workers until the
# driver has ended. The same line on every node:
#
#     ray/run.sh foo 4 driver.py
#
# Needs mingle, Ray and python3 in PATH, and between the nodes Ray's own ports beside those of mingle. On each
# node `ray stop` ends all of Ray that belongs to this user, so this is for hosts, or containers, of the job's own.

set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 JOB NODES DRIVER [ARGUMENT]..." >&2 && exit 2; }
job=$1 nodes=$2
shift 2

# The variable is one that only mingle sets: without mingle in PATH, eval has nothing to do, and succeeds.
eval "$(mingle --job-id "$job" --world "$nodes" --format ray)"
: "${MINGLE_ROSTER_DIGEST:?}"

trap 'ray stop' EXIT
if [ "$RANK" != 0 ]; then
    # Waits for a head that is not there yet, and takes the address by which it reaches it. With --block it would end
    # with an error, a minute after the head.
    ray start --address="$RAY_ADDRESS"
    while ray status --address="$RAY_ADDRESS" >/dev/null 2>&1; do sleep 5; done
    exit
fi
# Left to itself the head takes the address by which it would reach the Internet.
ray start --head --node-ip-address="$MASTER_ADDR" --port="$MASTER_PORT"
python3 "$@"
