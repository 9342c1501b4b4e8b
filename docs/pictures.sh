#!/usr/bin/env bash
# Draws the pictures of the README: flow.svg from flow.puml, and session.svg from four nodes that really run, on a
# loopback of their own. Needs plantuml, python3-venv and util-linux; rich, which draws the terminal, comes from PyPI.
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

# Adds a background, for dark pages; removes the comment, which describes the machine that drew the picture.
plantuml -tsvg -pipe <"$docs/flow.puml" |
    sed -e '/<!--/,/-->/{s/<!--.*//; /-->/!{/<svg/!d}; s/.*-->//}' -e 's|<g>|<g><rect width="100%" height="100%" fill="#fff"/>|' \
        >"$scratch/flow.svg"

# The terminal of each node: the line that its user types, and the output.
cat >"$scratch/node" <<'END'
hostname "node-$1"
line='eval "$(mingle --job-id foo --world 4 --interface lo)" && echo "rank $RANK of $WORLD_SIZE"'
{
    echo "node-$1\$ $line"
    eval "$line"
} >"$1" 2>&1
END
cat >"$scratch/session" <<'END'
ip link set lo up
for node in a b c d; do
    unshare --uts bash node "$node" &
    # The nodes start in alphabetical order, so that node-a leads.
    until grep -q '^mingle: ' "$node" 2>/dev/null; do sleep 0.1; done
done
wait
END
(cd "$scratch" && env -i PATH="$scratch:$PATH" timeout 60 unshare --user --map-root-user --net bash -e session)

python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" --quiet install rich==15.0.0
(cd "$scratch" && venv/bin/python -) <<'END'
import pathlib, re
from rich.console import Console
from rich.text import Text

console = Console(record=True, width=102, file=open("/dev/null", "w"))
for node in "abcd":
    for line in pathlib.Path(node).read_text().splitlines():
        prompt = re.match(r"node-.\$ ", line)
        text = Text(line, style="bold" if prompt else "" if line.startswith("mingle: ") else "#98d87c")
        text.stylize("cyan", 0, prompt.end() if prompt else 0)
        console.print(text, soft_wrap=True)
picture = console.export_svg(title="four nodes", unique_id="session")
# No picture fetches fonts from another site; without them, the reader's own font is used.
pathlib.Path("session.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.S))
END
mv -- "$scratch/flow.svg" "$scratch/session.svg" "$docs/"
