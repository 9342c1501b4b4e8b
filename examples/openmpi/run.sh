#!/usr/bin/env bash
# Open MPI: rank 0 starts the program on all nodes, as many times on each as it has GPUs. The same line on every node:
#
#     openmpi/run.sh foo 4 ./program
#
# Needs mingle and mpirun in PATH, the program at the same path on every node, and ssh without a password from rank 0
# to the others, by which mpirun starts its daemons. (Or another agent: OMPI_MCA_plm_rsh_agent, in version 5
# PRTE_MCA_plm_ssh_agent.) On the others this ends at once; a container must live on, for example with
# `exec sshd -D` in place of `exit`, and its sshd must run before mingle starts.

set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 JOB NODES PROGRAM [ARGUMENT]..." >&2 && exit 2; }
job=$1 nodes=$2
shift 2

hostfile=$(mktemp)
trap 'rm -f -- "$hostfile"' EXIT
# The variable is one that only mingle sets: without mingle in PATH, eval has nothing to do, and succeeds.
eval "$(mingle --job-id "$job" --world "$nodes" --output "hostfile=$hostfile")"
: "${MINGLE_ROSTER_DIGEST:?}"
[ "$RANK" = 0 ] || exit 0
mpirun --hostfile "$hostfile" "$@"
