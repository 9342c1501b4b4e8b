#!/usr/bin/env bash
# mingle on a real kernel with Soft-RoCE. First three network namespaces of a virtual machine: each must get its own GID
# (`namespaces`). Then two virtual machines form a world, and send to each other by RDMA with exactly what mingle printed
# (`pair`). The kernel is Debian's. The test does not touch the network or the RDMA devices of this machine, and does not
# need root.
#
# MINGLE=file tests that program, which must be linked statically, instead of building one. KEEP=directory keeps the
# output of the virtual machine. MINGLE_REQUIRE_QEMU=1 makes the test fail where it would be skipped (exit status 77).
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# Debian has modprobe, ip and rdma there, and not every user's PATH includes it.
PATH=$PATH:/usr/sbin:/sbin
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
tree=$scratch/tree out=${KEEP:-$scratch/out}

skip() {
    if [ "${MINGLE_REQUIRE_QEMU:-}" = 1 ]; then
        printf 'soft-roce must not be skipped here (MINGLE_REQUIRE_QEMU=1), but: %s\n' "$1" >&2
        exit 1
    fi
    printf 'skipped: soft-roce: %s\n' "$1" >&2
    exit 77
}

fail() {
    printf 'soft-roce: %s\n' "$1" >&2
    exit 1
}

# needs COMMAND PACKAGE
needs() {
    command -v "$1" >/dev/null || skip "needs $1: apt-get install $2"
}

[ "$(uname -s -m)" = 'Linux x86_64' ] || skip "needs Linux on x86_64, not $(uname -s -m)"
needs qemu-system-x86_64 qemu-system-x86
needs busybox busybox-static
needs cpio cpio
needs ip iproute2
needs rdma iproute2
needs jq jq
needs modprobe kmod
needs ibv_rc_pingpong ibverbs-utils
drivers=$(find /usr/lib -name 'librxe-rdmav*.so' | head -n 1)
[ -n "$drivers" ] || skip 'needs the driver of Soft-RoCE: apt-get install ibverbs-providers'
# The guest has only the libraries of ip and rdma.
! ldd "$(command -v busybox)" >/dev/null 2>&1 || skip "needs a static busybox: apt-get install busybox-static"

# --- The kernel and its modules ---

# loads VERSION MODULE...: the modules that modprobe would load.
loads() {
    # Ignore /etc/modprobe.d: it is for this machine.
    modprobe --config /dev/null --show-depends --set-version "$@" 2>/dev/null
}

# The newest kernel with all. Others (linux-image-cloud-amd64, this machine's own) may lack Soft-RoCE.
kernel=
while IFS= read -r candidate; do
    version=${candidate#/boot/vmlinuz-}
    if [ -r "$candidate" ] && loads "$version" --all ib_uverbs rdma_rxe veth macvlan virtio_pci virtio_net >"$scratch/modules"; then
        # rdma_rxe makes the kernel request it by another name. Later kernels have no such module.
        loads "$version" crc32_generic >>"$scratch/modules" || true
        kernel=$candidate
        break
    fi
done < <(printf '%s\n' /boot/vmlinuz-* | sort --version-sort --reverse)
[ -n "$kernel" ] ||
    skip "needs a kernel with Soft-RoCE in /boot that $(id -un) can read: apt-get install linux-image-amd64"

# --- The program ---

if [ -z "${MINGLE:-}" ]; then
    target=$(realpath -m -- "${CARGO_TARGET_DIR:-$root/target}/static")
    # Because of the flags the build has its own folder and a --target: without one, the flags would also apply to
    # macros, which are shared libraries. Debug information would use the virtual machine's memory.
    (cd -- "$root" && CARGO_PROFILE_DEV_DEBUG=none RUSTFLAGS='-C target-feature=+crt-static' cargo build --locked \
        --quiet --package mingle-cli --target x86_64-unknown-linux-gnu --target-dir "$target")
    MINGLE=$target/x86_64-unknown-linux-gnu/debug/mingle
fi

# --- The first file system ---

mkdir -p -- "$tree"/{bin,dev,iproute2,modules,proc,run,sys,var}
ln -s ../run "$tree/var/run"
ln -s busybox "$tree/bin/sh"
cp -L -- "$(command -v busybox)" "$tree/bin/busybox"
cp -- "$here"/{init,namespaces,pair} "$tree"
cp -L -- "$MINGLE" "$tree/mingle"
chmod +x "$tree/init" "$tree/mingle"
# with_libraries FILE: copies the libraries of a program or of a library.
with_libraries() {
    ldd "$1" | grep -oE '/[^ ]+' | while IFS= read -r library; do cp -L --parents -- "$library" "$tree"; done
}
for tool in ip rdma; do
    cp -L -- "$(command -v "$tool")" "$tree/iproute2/$tool"
    with_libraries "$(command -v "$tool")"
done
for tool in ibv_rc_pingpong ib_write_bw; do
    program=$(command -v "$tool") || continue
    cp -L --parents -- "$program" "$tree"
    with_libraries "$program"
done
cp -L --parents -- "$drivers" /etc/libibverbs.d/rxe.driver "$tree"
with_libraries "$drivers"
# In load order. A module that is part of the kernel is listed as `builtin`.
while read -r action file; do
    [ "$action" = insmod ] || continue
    name=$(basename -- "$file")
    plain=${name%.xz} plain=${plain%.zst}
    [ ! -e "$tree/modules/$plain" ] || continue
    case $name in
    *.xz) needs xz xz-utils && xz --decompress --stdout -- "$file" ;;
    *.zst) needs zstd zstd && zstd --quiet --decompress --stdout -- "$file" ;;
    *) cat -- "$file" ;;
    esac >"$tree/modules/$plain"
    printf '%s\n' "$plain" >>"$tree/modules/order"
done <"$scratch/modules"
# Not compressed: an emulated processor takes longer to unpack it than to read it.
(cd -- "$tree" && find . -print0 | cpio --quiet --null --create --format=newc --owner=0:0) >"$scratch/initramfs"

# --- The virtual machines ---

# boots NAME ENVIRONMENT OPTION...: a virtual machine, from which $scratch/NAME.tar.gz comes.
#
# Not KVM, although it is seconds faster: inside another virtual machine qemu may abort or the kernel may hang.
# Emulation is the same everywhere.
boots() {
    local name=$1 environment=$2
    shift 2
    timeout --foreground --kill-after=5 180 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 512 \
        -nodefaults -display none -monitor none -no-reboot "$@" \
        -serial "file:$scratch/$name.console" -serial "file:$scratch/$name.tar.gz" \
        -kernel "$kernel" -initrd "$scratch/initramfs" -append "console=ttyS0 panic=1 $environment" \
        </dev/null >"$scratch/$name.qemu" 2>&1
}

# unpacks NAME: what a virtual machine has sent, in $out/NAME.
unpacks() {
    mkdir -p -- "$out/$1"
    # Remove the output of an earlier run.
    rm -rf -- "${out:?}/${1:?}"/*
    if ! tar --extract --gzip --directory="$out/$1" --file="$scratch/$1.tar.gz" 2>/dev/null; then
        cat -- "$scratch/$1.qemu" >&2
        tail -n 40 -- "$scratch/$1.console" >&2 || true
        fail "the virtual machine $1 has sent no results ($kernel)"
    fi
}

begun=$SECONDS
boots namespaces script=namespaces -nic none || true
unpacks namespaces
printf '%s, %s s in the virtual machine; RDMA %s\n' "$(basename -- "$kernel")" "$((SECONDS - begun))" \
    "$(cat -- "$out/namespaces/system.txt")"

begun=$SECONDS
# The wire is a socket in a file, so that no other program of this machine sees it.
wire=(-device 'virtio-net-pci,netdev=wire,mac=52:54:00:00:00:01,romfile=' -netdev)
boots machine0 'script=pair machine=0' "${wire[@]}" \
    "stream,id=wire,server=on,addr.type=unix,addr.path=$scratch/wire" &
tries=0
until [ -S "$scratch/wire" ] || [ "$tries" = 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
boots machine1 'script=pair machine=1' "${wire[@]/:01,/:02,}" \
    "stream,id=wire,server=off,addr.type=unix,addr.path=$scratch/wire" || true
wait || true
unpacks machine0
unpacks machine1
pair=$((SECONDS - begun))

# --- The expected results ---

# gid ADDRESS: an IPv4 address as a GID.
gid() {
    local -a part
    IFS=. read -ra part <<<"$1"
    printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "${part[@]}"
}

# value FILE PATH: a value in a JSON file.
value() {
    jq --raw-output --compact-output --sort-keys "$2" "$1" 2>&1 || true
}

wrong=0
# check WHAT WANTED GOT
check() {
    if [ "$2" = "$3" ]; then
        printf '%s: %s\n' "$1" "$3"
    else
        printf 'WRONG %s: %s, but must be %s\n' "$1" "$3" "$2"
        wrong=1
    fi
}

declare -A index
for name in host pod peer; do
    from=$out/namespaces/$name address=$(cat -- "$out/namespaces/$name/address.txt") device=rxe0
    [ "$name" != peer ] || device=rxe1
    printf -- '\n--- %s, %s, which sees these GIDs:\n' "$name" "$address"
    cat -- "$from/gids.txt"
    for file in table.txt rdma.json save.txt stderr.txt failed.txt; do
        [ ! -s "$from/$file" ] || { printf -- '-- %s\n' "$file" && cat -- "$from/$file"; }
    done
    if [ -e "$from/failed.txt" ]; then
        wrong=1
        continue
    fi
    printf -- '-- checks\n'
    own=$(awk -v device="$device" -v gid="$(gid "$address")" \
        '$1 == device && $3 == gid && $4 == "eth0" && $5 " " $6 == "RoCE v2" { print $2 }' "$from/gids.txt")
    [ -n "$own" ] || fail "$device has no GID for $address in $name"
    # The test would prove nothing if the namespace did not see the others' GIDs.
    for other in host pod peer; do
        grep -qF -- "$(gid "$(cat -- "$out/namespaces/$other/address.txt")")" "$from/gids.txt" ||
            fail "$name does not see the GID of $other: are RDMA devices not shared?"
    done
    index[$name]=$(value "$from/rdma.json" '.ports[] | select(.used) | .gid_index')
    check gid_index "$own" "${index[$name]}"
    check NCCL_IB_HCA "=$device:1" "$(value "$from/rdma.json" .env.NCCL_IB_HCA)"
    check 'after --save and --from, env' "$(value "$from/rdma.json" .env)" "$(value "$from/from.json" .env)"
done

printf '\n--- two machines, %s s\n' "$pair"
for number in 0 1; do
    from=$out/machine$number
    for file in stderr.txt used.txt pingpong.txt write.txt failed.txt; do
        [ ! -s "$from/$file" ] || { printf -- '-- machine%s %s\n' "$number" "$file" && cat -- "$from/$file"; }
    done
    read -r device port index used <"$from/used.txt" || true
    check "machine$number uses" "rxe0 1 $(gid "10.77.0.$((number + 1))")" "${device:-} ${port:-} ${used:-}"
    # Machine 1 has another namespace's GID first.
    printed=$(sed -n "s/^export NCCL_IB_GID_INDEX='\([0-9]*\)';$/\1/p" "$from/env.sh")
    check "machine$number prints the index" "$([ "$number" = 0 ] || echo "$index")" "$printed"
    check "machine$number has sent by RDMA" '100 iters' "$(grep -o '100 iters' "$from/pingpong.txt")"
    [ ! -e "$from/write.txt" ] || grep -q '^ 65536 ' "$from/write.txt" || check 'ib_write_bw' 'a rate' 'none'
    [ ! -e "$from/failed.txt" ] || wrong=1
done

[ "$wrong" = 0 ] || fail 'wrong results, see above'
# The test would prove nothing if one index were right for both.
[ "${index[host]}" != "${index[pod]}" ] || fail "host and pod have the same index, ${index[host]}"
printf 'Each gets its own GID: host %s, pod %s, peer %s.\n' "${index[host]}" "${index[pod]}" "${index[peer]}"
