#!/usr/bin/env bash
# DeepSpeed's launcher without ssh: each node starts its own workers, one for each of its GPUs. The same line on every
# node:
#
#     deepspeed/run.sh foo 4 train.py --deepspeed_config ds.json
#
# Needs mingle and deepspeed in PATH. The hostfile tells DeepSpeed how many workers run on which node; its order is that
# of the ranks. Every node has its own.

set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 JOB NODES [OPTION]... SCRIPT [ARGUMENT]..." >&2 && exit 2; }
job=$1 nodes=$2
shift 2

hostfile=$(mktemp)
trap 'rm -f -- "$hostfile"' EXIT
# The variable is one that only mingle sets: without mingle in PATH, eval has nothing to do, and succeeds.
eval "$(mingle --job-id "$job" --world "$nodes" --output "deepspeed=$hostfile")"
: "${MINGLE_ROSTER_DIGEST:?}"
deepspeed --hostfile "$hostfile" --no_ssh --node_rank "$RANK" \
    --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" "$@"
