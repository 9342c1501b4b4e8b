#!/bin/sh
# torchrun's own rendezvous, c10d, on one of several hosts:
#
#     unshare --uts --mount sh torchrun.sh JOB HOST ADDRESS...
#
# The first node tells the others its name, so each host needs one that all can resolve. Namespaces of one machine share
# its name and its /etc/hosts: here each gets its own of both.

set -e
job=$1 host=$2
shift 2

names=$(mktemp)
echo 127.0.0.1 localhost >"$names"
node=0
for address; do
    echo "$address node$node" >>"$names"
    node=$((node + 1))
done
mount --bind "$names" /etc/hosts
rm "$names"
hostname "node$host"

# torchrun would also guess by names whether this is the store's host. torch 1.13 cannot read the defaults of
# --redirects and --tee under Python 3.11; the values here are about a second worker, which does not exist. By default
# torchrun looks only every 5 s whether its worker has ended.
exec torchrun --rdzv_backend c10d --rdzv_endpoint "$1:29400" --rdzv_conf "is_host=$((host == 0))" --rdzv_id "$job" \
    --nnodes "$#" --nproc_per_node 1 --redirects 1:1 --tee 1:1 --monitor_interval 0.1 --no_python echo formed
