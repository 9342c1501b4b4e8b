#!/bin/sh
# Stands in for ssh between the nodes of a lab: mpirun calls it with a node's address and a command line, which runs in
# that node with nothing of this environment but PATH. A lab's node I is nodeI, has the address 10.77.0.(10 + I), and its
# processes are in the network namespace nI.

set -eu
host=$1
shift
case $host in
node*) node=${host#node} ;;
*) node=$((${host##*.} - 10)) ;;
esac
pid=$(ip netns pids "n$node" | head -n 1)
exec nsenter -t "$pid" -m -n -u -- env -i PATH="$PATH" HOME=/run TMPDIR=/run sh -c "$*"
