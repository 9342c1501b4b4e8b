#!/usr/bin/env bash
# Plants one bug after another in a copy of the tree and checks that the tests of mingle-core or mingle-rdma fail: the
# simulator, then the unit tests with the exhaustive search. Takes a few minutes.
#
#   tests/planted/run.sh            all bugs
#   tests/planted/run.sh 07 12      some bugs
#
# LIMIT: seconds for each command (300). KEEP: a directory for the output of each run.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(git -C "$here" rev-parse --show-toplevel)
limit=${LIMIT:-300}
copy=$(mktemp -d)
trap 'rm -rf -- "$copy"' EXIT
tree=$copy/tree logs=${KEEP:-$copy/logs}
mkdir -p -- "$tree" "$logs"

# Copies the tracked and the new files as they are now. Cargo does not rebuild a file that is older than the
# last build, so touch all files: a bug of an earlier copy would stay in the build otherwise.
(cd -- "$root" && git ls-files -z --cached --others --exclude-standard -- ':!fuzz/corpus' |
    while IFS= read -r -d '' file; do if [[ -e $file ]]; then printf '%s\0' "$file"; fi; done |
    tar --create --null --files-from=- --file=-) | tar --extract --touch --directory="$tree" --file=-

# Only mingle-core is rebuilt for each bug: build it fast, not small.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/planted}
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_INCREMENTAL=1
# The copy may lie inside another repository, which git must not find.
export GIT_CEILING_DIRECTORIES=$copy
cargo_test=(cargo test --release --quiet -p mingle-rdma -p mingle-core)

# Prints the failed tests of an output, those with random worlds first, and the first seeds.
caught_by() {
    local tests seeds more
    tests=$(sed -n 's/^---- \(.*::\)\?\(.*\) stdout ----$/\2/p' "$1" | sort -u)
    tests=$({ grep keep_every_promise <<<"$tests"; grep -v keep_every_promise <<<"$tests"; } || true)
    more=$(($(wc -l <<<"$tests") - 3))
    head -n 3 <<<"$tests" | paste -sd' ' | sed 's/ /, /g' | tr -d '\n'
    if ((more > 0)); then printf ' and %s more' "$more"; fi
    seeds=$({
        grep -oE 'repeat it with MINGLE_SEED=[0-9]+' "$1" | head -n 1 | sed 's/.* //'
        grep -oE 'MINGLE_TROUBLE=[A-Za-z]+ MINGLE_SEED=[0-9]+' "$1" | head -n 1
    } || true)
    if [[ $seeds ]]; then printf ' (%s)' "${seeds//$'\n'/, }"; fi
}

# Runs a command in the copy.
in_copy() {
    # A bug can make the exhaustive search endless: limit its time and its memory.
    (cd -- "$tree" && ulimit -v 8000000 && RUSTFLAGS=-Awarnings timeout -k 5 "$limit" "$@")
}

# Builds and runs the simulator in the copy, then the unit tests if the simulator passes. Returns 0 if all
# pass, 1 if a test fails, 2 if the build fails, 3 if the time limit is over.
try() {
    local status=0 tests
    for tests in '--test sim' --lib; do
        # shellcheck disable=SC2086
        in_copy "${cargo_test[@]}" $tests --no-run >"$1" 2>&1 || return 2
        # shellcheck disable=SC2086
        in_copy "${cargo_test[@]}" $tests >"$1" 2>&1 || status=$?
        if ((status)); then break; fi
    done
    case $status in 0) return 0 ;; 124 | 137) return 3 ;; *) return 1 ;; esac
}

status=0
try "$logs/none" || status=$?
if ((status)); then
    tail -n 40 "$logs/none" >&2
    echo "without any bug, the tests fail or take longer than $limit s; fix that first" >&2
    exit 1
fi

missed=0 planted=0
printf '%s\n' '| bug | caught by | seconds |' '| --- | --- | --- |'
for patch in "$here"/*.patch; do
    name=$(basename -- "$patch" .patch)
    if (($#)); then
        wanted=
        for prefix; do if [[ $name == "$prefix"* ]]; then wanted=1; fi; done
        if [[ -z $wanted ]]; then continue; fi
    fi
    planted=$((planted + 1))
    if ! git -C "$tree" apply -C1 -- "$patch" 2>"$logs/$name"; then
        printf '| %s | NOT PLANTED: %s | |\n' "$name" "$(head -n 1 "$logs/$name")"
        missed=$((missed + 1))
        continue
    fi
    began=$SECONDS status=0
    try "$logs/$name" || status=$?
    case $status in
    0) verdict='NOT CAUGHT' missed=$((missed + 1)) ;;
    1) verdict=$(caught_by "$logs/$name") ;;
    2) verdict="NOT BUILT: $(grep -m 1 -E '^error' "$logs/$name" || true)" missed=$((missed + 1)) ;;
    *) verdict="NOT FINISHED within $limit s" missed=$((missed + 1)) ;;
    esac
    printf '| %s | %s | %s |\n' "$name" "$verdict" "$((SECONDS - began))"
    git -C "$tree" apply -R -C1 -- "$patch"
done

if ((planted == 0)); then
    echo "no patch begins with: $*" >&2
    exit 1
fi
echo "$planted planted, $((planted - missed)) caught"
((missed == 0))
