#!/usr/bin/env bash
# Four containers of the image in the Dockerfile form a world on one Docker network: all that they share is the job's
# name. Four more, which cannot hear each other's multicast, form one by a seed: a container's name.
#
# Needs the static program that the Dockerfile names, or program=FILE.

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

if ! docker version >/dev/null 2>&1; then
    echo 'skipped: no Docker engine'
    exit 0
fi

name=mingle-test-$$
context=$(mktemp -d)
containers=()

clean_up() {
    [ "${#containers[@]}" = 0 ] || docker rm --force "${containers[@]}" >/dev/null 2>&1 || :
    docker network rm "$name" >/dev/null 2>&1 || :
    docker image rm --force "$name" >/dev/null 2>&1 || :
    rm -rf -- "$context"
}
trap clean_up EXIT

fail() {
    printf -- '%s\n' "$*" >&2
    for container in "${containers[@]}"; do
        docker logs "$container" >&2 || :
    done
    exit 1
}

cp -- "${program:-target/static/x86_64-unknown-linux-gnu/release/mingle}" "$context/mingle"
if ! said=$(docker build --tag "$name" --file Dockerfile --build-arg program=mingle "$context" 2>&1); then
    fail "$said"
fi
size=$(docker image inspect --format '{{.Size}}' "$name")
[ "$size" -lt 10000000 ] || fail "the image has $size bytes"

# Not --internal: where the bridge's packets pass iptables, Docker would drop all packets that are not for an address of
# the network, and so all multicast.
docker network create "$name" >/dev/null

# Starts four containers with these arguments, in which I is the container's number, and checks their output.
world() {
    local job=$1 more=("${@:2}")
    containers=()
    for i in 0 1 2 3; do
        containers+=("$(docker run --detach --network "$name" --network-alias "node-$i" "$name" \
            --job-id "$job" --world 4 --timeout 60s --format json "${more[@]//I/$i}")")
    done
    ranks=
    masters=
    for container in "${containers[@]}"; do
        [ "$(docker wait "$container")" = 0 ] || fail "a container has failed"
        said=$(docker logs "$container" 2>/dev/null)
        ranks+=$(jq -r .rank <<<"$said")$'\n'
        masters+=$(jq -r '"\(.world) \(.master.address) \(.master.port) \(.digest)"' <<<"$said")$'\n'
    done
    [ "$(sort <<<"${ranks%$'\n'}" | xargs)" = '0 1 2 3' ] || fail "the ranks are: $ranks"
    [ "$(sort -u <<<"${masters%$'\n'}" | wc -l)" = 1 ] || fail "the worlds are: $masters"
    docker rm "${containers[@]}" >/dev/null
    containers=()
}

world multicast
# Each container has a multicast group of its own, so it finds the others by the name alone. The program must look the
# name up in Docker's name service without the files of the C library beside it.
world names --multicast 239.255.1.I --seed node-0

printf -- 'Four containers of an image of %d bytes formed a world, by multicast and by a name.\n' "$size"
