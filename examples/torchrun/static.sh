#!/usr/bin/env bash
# torchrun with static ranks: each node has its rank before torchrun starts, and torchrun uses mingle's ranks. Run the
# same line on every node, in any order:
#
#     torchrun/static.sh foo 4 train.py
#
# It needs mingle and torchrun in PATH. mingle prints a variable for each of torchrun's options: PET_NNODES for --nnodes
# and so on, and PET_NPROC_PER_NODE for the number of workers, one for each GPU of this node.

set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 JOB NODES SCRIPT [ARGUMENT]..." >&2 && exit 2; }
job=$1 nodes=$2
shift 2

# Only mingle sets this variable. It is checked because eval of nothing succeeds if mingle is not in PATH.
eval "$(mingle --job-id "$job" --world "$nodes")" && : "${MINGLE_ROSTER_DIGEST:?}" && exec torchrun "$@"
