#!/usr/bin/env bash
# torchrun with its own c10d rendezvous, which restarts the workers of all nodes if one fails, and which numbers the
# nodes itself. Run the same line on every node, in any order:
#
#     torchrun/c10d.sh foo 4 --max-restarts=3 train.py
#
# It needs mingle and torchrun in PATH, and torch 2.0 or later. Without mingle, torchrun guesses from host names which
# node hosts the store, and under which name the others reach it; if the names do not resolve, it waits until its
# timeout. mingle sets both. An older torch has no variable for the second, so there all host names must resolve.

set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 JOB NODES [OPTION]... SCRIPT [ARGUMENT]..." >&2 && exit 2; }
job=$1 nodes=$2
shift 2

# Only mingle sets this variable. It is checked because eval of nothing succeeds if mingle is not in PATH.
eval "$(mingle --job-id "$job" --world "$nodes" --format c10d)" && : "${PET_RDZV_ENDPOINT:?}" && exec torchrun "$@"
