#!/usr/bin/env bash
# torchrun where each node has its rank before torchrun starts, and mingle's ranks are torchrun's. The same line on
# every node, in any order:
#
#     torchrun/static.sh foo 4 train.py
#
# Needs mingle and torchrun in PATH. The variables that mingle prints stand for torchrun's options: PET_NNODES for
# --nnodes and so on, and PET_NPROC_PER_NODE for the workers, one for each GPU of this node.

set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 JOB NODES SCRIPT [ARGUMENT]..." >&2 && exit 2; }
job=$1 nodes=$2
shift 2

# The variable is one that only mingle sets: without mingle in PATH, eval has nothing to do, and succeeds.
eval "$(mingle --job-id "$job" --world "$nodes")" && : "${MINGLE_ROSTER_DIGEST:?}" && exec torchrun "$@"
