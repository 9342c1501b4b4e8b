#!/usr/bin/env bash
# Draws the pictures of the README from nodes that really run, on networks of their own: session.svg, four nodes that
# form a world; failure.svg, a firewall and its cure; restart.svg, a node that dies and is replaced. Needs python3-venv,
# util-linux, iproute2 and nftables; rich, which draws terminals, comes from PyPI.
#
#     docs/pictures.sh [MINGLE]

set -euo pipefail

docs=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
mingle=${1:-$docs/../target/release/mingle}
if [ ! -x "$mingle" ]; then
    echo "pictures: no program $mingle; build it, or name another" >&2
    exit 1
fi
cp -- "$mingle" "$scratch/mingle"

# The terminal of each node: the line that its user types, and the output.
cat >"$scratch/node" <<'END'
hostname "node-$1"
line='mingle run --job-id foo --world 4 --interface lo -- sh train.sh'
{
    echo "node-$1\$ $line"
    eval "$line"
} >"$1" 2>&1
END
# shellcheck disable=SC2016  # The command's own shell expands this.
echo 'echo "rank $RANK of $WORLD_SIZE"' >"$scratch/train.sh"
cat >"$scratch/session" <<'END'
ip link set lo up
for node in a b c d; do
    unshare --uts bash node "$node" &
    # The nodes start in alphabetical order, so that node-a leads.
    until grep -q '^mingle: ' "$node" 2>/dev/null; do sleep 0.1; done
done
wait
END
# Two nodes on a bridge. The second has a firewall that lets nothing in but mingle's own ports, until its user corrects
# it.
cat >"$scratch/firewalled" <<'END'
hostname "$1"
ip link set lo up
ip address add "$2" dev eth0
ip link set eth0 up
ip route add default dev eth0
line='eval "$(mingle --job-id foo --world 2)" && echo "rank $RANK of $WORLD_SIZE"'
[ "$1" = node-a ] || nft 'table inet filter {
    chain input {
        type filter hook input priority 0; policy drop;
        ct state established,related accept
        meta l4proto { icmp, igmp } accept
        udp dport { 29499, 29500-29999 } accept
        tcp dport 29500-29999 accept
    }
}'
for cure in : 'nft add rule inet filter input tcp dport 32768-60999 accept'; do
    [ "$cure" = : ] || [ "$1" = node-a ] || { echo "$1# $cure" && eval "$cure"; }
    echo "$1\$ $line"
    eval "$line" || :
done >"failure-$1" 2>&1
END
cat >"$scratch/failure" <<'END'
ip link add br0 type bridge mcast_snooping 0
ip link set br0 up
address=1
for node in a b; do
    mkfifo "go-$node"
    unshare --net --uts bash -c 'read -r _ <"$0" && . ./firewalled' "go-$node" "node-$node" "10.0.0.$address/24" &
    address=2
    until [ "$(readlink "/proc/$!/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
    ip link add "port-$node" type veth peer name eth0 netns "$!"
    ip link set "port-$node" master br0 up
    echo >"go-$node"
    sleep 0.5
done
wait
END
# Three nodes train, and a fourth waits. One is killed with its command.
cat >"$scratch/train.py" <<'END'
# Gradient descent on one weight, saved after each step.
import os, pathlib, time

snapshot = pathlib.Path("snapshot")
step, weight = eval(snapshot.read_text()) if snapshot.exists() else (0, 0.0)
rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
print(f"rank {rank} of {world} begins at step {step}", flush=True)
while step < 30:
    time.sleep(0.1)
    step, weight = step + 1, weight - 0.2 * (weight - 3)
    if rank == "0":
        snapshot.with_suffix(".new").write_text(repr((step, weight)))
        os.replace("snapshot.new", "snapshot")
        if step % 5 == 0:
            print(f"rank 0: step {step}, loss {(weight - 3) ** 2:.4f}", flush=True)
END
cat >"$scratch/restarted" <<'END'
hostname "node-$1"
line='mingle run --job-id foo --world 3 --max-restarts 3 --interface lo -- python3 train.py'
{
    echo "node-$1\$ $line"
    eval "$line"
} >"restart-$1" 2>&1
END
cat >"$scratch/restart" <<'END'
ip link set lo up
for node in a b c d; do
    setsid unshare --uts bash restarted "$node" &
    [ "$node" != b ] || killed=$!
    until grep -q '^mingle: ' "restart-$node" 2>/dev/null; do sleep 0.1; done
done
until grep -q 'waits' restart-d && grep -q 'step 10,' restart-a; do sleep 0.05; done
kill -KILL -- "-$killed"
wait
END
cd -- "$scratch"
for story in session failure restart; do
    env -i PATH="$scratch:$PATH" SHELL=/bin/bash TERM=xterm \
        timeout 60 unshare --user --map-root-user --net bash -e "$story" 2>"$story.log" || {
        cat "$story.log" >&2
        exit 1
    }
done

python3 -m venv venv
venv/bin/pip --quiet install rich==15.0.0
venv/bin/python - <<'END'
import pathlib, re
from rich.console import Console
from rich.text import Text


def draw(name, title, lines):
    console = Console(record=True, width=102, file=open("/dev/null", "w"))
    for line in lines:
        prompt = re.match(r"node-.[$#] ", line)
        text = Text(line, style="bold" if prompt else "#98d87c" if re.match(r"rank \d", line) else "")
        text.stylize("cyan", 0, prompt.end() if prompt else 0)
        console.print(text)
    picture = console.export_svg(title=title, unique_id=name)
    # No picture fetches fonts from another site; without them, the reader's own font is used.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.S)
    pathlib.Path(f"{name}.svg").write_text(picture)


def lines(file):
    return pathlib.Path(file).read_text().splitlines()


draw("session", "four nodes", [line for node in "abcd" for line in lines(node)])
# The first node's second try comes after the cure on the other one.
first = lines("failure-node-a")
again = max(number for number, line in enumerate(first) if line.startswith("node-a$ "))
draw("failure", "a firewall, and its cure", first[:again] + lines("failure-node-b") + first[again:])
killed = lines("restart-b") + ["node-b is killed, and its command with it"]
draw("restart", "a node dies, and a waiting node takes its rank", killed + lines("restart-d") + lines("restart-a"))
END
mv -- {session,failure,restart}.svg "$docs/"
