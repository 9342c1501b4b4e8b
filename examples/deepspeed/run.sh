#!/usr/bin/env bash
# DeepSpeed's launcher without ssh: each node starts its own workers, one for each of its GPUs. Run the same line on
# every node:
#
#     deepspeed/run.sh foo 4 train.py --deepspeed_config ds.json
#
# It needs mingle and deepspeed in PATH. From the hostfile DeepSpeed reads the number of workers on each node, in the
# order of the ranks. Every node writes a hostfile of its own.

set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 JOB NODES [OPTION]... SCRIPT [ARGUMENT]..." >&2 && exit 2; }
job=$1 nodes=$2
shift 2

hostfile=$(mktemp)
variables=$(mktemp)
trap 'rm -f -- "$hostfile" "$variables"' EXIT
# Only mingle sets this variable. It is checked because eval of nothing succeeds if mingle is not in PATH.
eval "$(mingle --job-id "$job" --world "$nodes" --output "deepspeed=$hostfile" --output "sh=$variables")"
: "${MINGLE_ROSTER_DIGEST:?}"
# The devices and interfaces of this host, which deepspeed without --no_ssh would give to all hosts.
# shellcheck source=/dev/null
. "$variables"
deepspeed --hostfile "$hostfile" --no_ssh --node_rank "$RANK" \
    --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" "$@"
