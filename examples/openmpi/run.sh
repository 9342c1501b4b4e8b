#!/usr/bin/env bash
# Open MPI: rank 0 starts the program on all nodes, once for each GPU of a node. Run the same line on every node:
#
#     openmpi/run.sh foo 4 ./program
#
# It needs mingle and mpirun in PATH, the program at the same path on every node, and ssh without a password from rank 0
# to the other nodes, by which mpirun starts its daemons. (To use another agent than ssh, set OMPI_MCA_plm_rsh_agent, in
# version 5 PRTE_MCA_plm_ssh_agent.) On the other nodes this script ends at once. A container must stay up, for example
# with `exec sshd -D` instead of `exit`, and its sshd must run before mingle starts.

set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 JOB NODES PROGRAM [ARGUMENT]..." >&2 && exit 2; }
job=$1 nodes=$2
shift 2

hostfile=$(mktemp)
trap 'rm -f -- "$hostfile"' EXIT
# Only mingle sets this variable. It is checked because eval of nothing succeeds if mingle is not in PATH.
eval "$(mingle --job-id "$job" --world "$nodes" --output "hostfile=$hostfile")"
: "${MINGLE_ROSTER_DIGEST:?}"
[ "$RANK" = 0 ] || exit 0
mpirun --hostfile "$hostfile" "$@"
