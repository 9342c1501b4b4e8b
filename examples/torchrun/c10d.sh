#!/usr/bin/env bash
# torchrun with its own rendezvous, which starts the workers of all nodes again where one has failed, and which numbers
# the nodes by itself. The same line on every node, in any order:
#
#     torchrun/c10d.sh foo 4 --max-restarts=3 train.py
#
# Needs mingle and torchrun in PATH, torch 2.0 or later. Without mingle torchrun guesses by host names which node is
# the host, and what the host is called; where those do not resolve it waits in vain. mingle says both. An older torch
# cannot be told the second: there, all names must resolve.

set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 JOB NODES [OPTION]... SCRIPT [ARGUMENT]..." >&2 && exit 2; }
job=$1 nodes=$2
shift 2

# The variable is one that only mingle sets: without mingle in PATH, eval has nothing to do, and succeeds.
eval "$(mingle --job-id "$job" --world "$nodes" --format c10d)" && : "${PET_RDZV_ENDPOINT:?}" && exec torchrun "$@"
