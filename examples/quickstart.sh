#!/usr/bin/env bash
# Four nodes on this machine, each with the line that a real node runs. In a checkout it needs only a Rust toolchain. If
# Python can import torch, each node also runs a torchrun job.

set -euo pipefail
# Gives every node its own process group, so that clean_up can end all its processes.
set -m

world=4
examples=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
groups=()

clean_up() {
    local status=$?
    trap - EXIT
    trap '' INT TERM HUP
    # Keeps bash from reporting each process that ends here.
    exec 2>/dev/null
    local signal group try
    # TERM first: on TERM torchrun ends its workers, which may be in other process groups.
    for signal in TERM KILL; do
        for group in "${groups[@]}"; do
            kill -s "$signal" -- "-$group" || true
        done
        for ((try = 0; try < 50; try++)); do
            [ -n "$(jobs -r)" ] || break
            sleep 0.1
        done
    done
    rm -rf -- "$scratch"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Finds a Python with torch. Debian installs torch for /usr/bin/python3, which may not be the first python3 in PATH. In
# Debian 13 torchrun asks for a store that this torch does not have (libuv), whatever USE_LIBUV says.
find_torch() {
    for python in python3 /usr/bin/python3; do
        if version=$("$python" -c 'import torch, torch.distributed as d
assert d.is_available() and d.is_gloo_available()
d.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(torch.__version__)' 2>/dev/null); then
            return
        fi
    done
    python=
}

# One node. It knows nothing about the others except the job ID and the number of nodes.
# shellcheck disable=SC2016  # The node's own shell expands this.
node='
    eval "$(mingle --job-id "$job" --world "$world" --interface lo --timeout 30s)" && : "${RANK:?}" &&
        echo "MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT RANK=$RANK WORLD_SIZE=$WORLD_SIZE" &&
        if [ -n "$python" ]; then
            exec timeout --foreground 120 "$python" -m torch.distributed.run "$examples/allreduce.py" "$world"
        fi
'

run_node() {
    local status=0
    bash -c "$node" 2>&1 </dev/null | sed -u "s/^/$1: /" || status=$?
    [ "$status" = 0 ] || echo "quickstart: $1 failed" >&2
    return "$status"
}

# Builds the program of this checkout. Beside an installed package, which has no source, the installed one is used.
build() {
    echo "quickstart: building mingle (some minutes the first time)"
    local quiet=--quiet
    # On a terminal cargo shows how far it is.
    [ ! -t 2 ] || quiet=
    # In the background, because bash handles no traps while a foreground command runs.
    cargo build --release ${quiet:+"$quiet"} --manifest-path "$1" --package mingle-cli \
        --message-format json-render-diagnostics >"$scratch/build" &
    groups+=("$!")
    wait "$!"
    groups=()
    mingle=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$scratch/build")
    PATH=$(dirname -- "$mingle"):$PATH
}
manifest=$examples/../Cargo.toml
if [ -f "$manifest" ]; then
    build "$manifest"
else
    command -v mingle >/dev/null || {
        echo "quickstart: there is neither a checkout beside this script nor an installed mingle" >&2
        exit 1
    }
fi

# Variables for a job of the caller's must not reach these nodes.
unset "${!MINGLE_@}" "${!PET_@}" NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME
find_torch
if [ -n "$python" ]; then
    export OMP_NUM_THREADS=1 # otherwise torchrun sets this itself, with a warning
    case $version in
        # torch 1 cannot parse its own defaults for these under Python 3.11.
        1.*) export PET_REDIRECTS=0:1 PET_TEE=0:1 ;;
    esac
fi
# A new job ID for each run, so that two users can run this on one machine.
job=quickstart-$(date +%s)-$$
export job world python examples TMPDIR="$scratch"

echo "quickstart: starting $world nodes of job $job"
for name in node-{a,b,c,d}; do
    run_node "$name" &
    groups+=("$!")
done
failed=
for pid in "${groups[@]}"; do
    wait "$pid" || failed=1
done
groups=()
[ -z "$failed" ] || exit 1
if [ -n "$python" ]; then
    echo "quickstart: all $world nodes have formed a world, and torchrun an all-reduce across them"
else
    echo "quickstart: all $world nodes have formed a world; no all-reduce, because no python3 here has a torch that torchrun can use"
fi
