#!/usr/bin/env python3
"""The size of the whole, held to a budget.

    .ci/budget.py              prints each number beside its limit, and fails if one is above it; and if a document has
                               too many "one", or a document for users too few "you"
    .ci/budget.py --lower      writes each number that is below its limit into .ci/budget.txt
    .ci/budget.py --history    fails if a commit raised a limit and its message has no line "Budget: <reason>"

A line of code has something else than blanks, a comment or documentation, and is outside tests. To raise a limit, edit
.ci/budget.txt by hand, and say why in the same commit, in a line of its message that begins with "Budget:".
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / ".ci" / "budget.txt"

# Crates whose folders have a limit each.
CRATES = ["mingle-core/src", "mingle-rdma/src", "mingle-cli/src"]
# Folders with one limit for all that is in them.
WHOLE = ["mingle-python/src", "python/src", "mingle-bench/src"]
# Files in which a kind of thing is declared, with the beginning of the declaration.
ENUMS = {
    "warnings": ("mingle-core/src/proto/report/warning.rs", "pub enum Warning {"),
}
DOCUMENTS = ["PROTOCOL.md", "docs/reference.md", "README.md"]
# The documents for users, beside those in docs.
FOR_USERS = ["README.md", "SECURITY.md", "python/README.md", "examples/README.md"]
FOR_DEVELOPERS = ["PROTOCOL.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]


def is_test(path):
    """Whether a file of a source folder is a test.

    >>> [is_test(Path(p)) for p in ("proto/lead/tests/book.rs", "host/tests.rs", "proto/exhaustive.rs", "proto/lead/mod.rs")]
    [True, True, True, False]
    """
    return path.name in ("tests.rs", "exhaustive.rs") or path.name.endswith("_tests.rs") or "tests" in path.parts


def without_tests(text):
    """The lines of a Rust file without its items for tests, each of which ends where its indentation says.

    >>> without_tests("fn a() {}\\n#[cfg(test)]\\nmod tests {\\n    use c;\\n    fn b() {\\n    }\\n}\\nfn c() {}\\n")
    ['fn a() {}', 'fn c() {}']
    >>> without_tests("#[cfg(test)]\\nmod tests;\\nfn c() {}")
    ['fn c() {}']
    """
    kept, lines = [], iter(text.splitlines())
    for line in lines:
        if line.strip() != "#[cfg(test)]":
            kept.append(line)
            continue
        item = next(lines)
        while item.strip().startswith("#["):
            item = next(lines)
        if item.rstrip().endswith(";"):
            continue
        indent = item[: len(item) - len(item.lstrip())]
        while item.rstrip() not in (f"{indent}}}", f"{indent}}},", f"{indent}}};"):
            item = next(lines)
    return kept


def rust(text):
    """How many lines of code a Rust file has.

    >>> rust("//! Text.\\n\\n/// Text.\\nfn a() {\\n    // Why.\\n    b(); // why\\n}\\n/* a\\n b */\\n")
    3
    """
    text = re.sub(r"(?ms)^\s*/\*.*?\*/\s*$", "", text)
    return sum(1 for line in without_tests(text) if line.strip() and not line.strip().startswith("//"))


def python(text):
    """How many lines of code a Python file has.

    >>> python('# why\\n\"\"\"Text.\\n\\nMore.\\n\"\"\"\\n\\ndef a():\\n    \"\"\"Text.\"\"\"\\n    return 1\\n')
    2
    """
    text = re.sub(r'(?ms)^\s*""".*?"""\s*$', "", text)
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


def code(folder):
    """The lines of code below a folder, by its direct children; files have the name "."."""
    found = {}
    for path in sorted((ROOT / folder).rglob("*")):
        inside = path.relative_to(ROOT / folder)
        count = {".rs": rust, ".py": python, ".pyi": python}.get(path.suffix)
        if count and not is_test(inside):
            child = inside.parts[0] if len(inside.parts) > 1 else "."
            found[child] = found.get(child, 0) + count(path.read_text())
    return found


def lines(paths):
    return sum(len(path.read_text().splitlines()) for path in paths)


def tests():
    """The lines of all tests, benches and harnesses, blank lines and comments included."""
    folders = ["tests", "mingle-core/tests", "mingle-core/testing", "mingle-rdma/tests", "python/tests", "fuzz"]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    own = [path for path in files if path.suffix in (".rs", ".py", ".sh") and "target" not in path.parts]
    total = lines(own)
    for folder in CRATES + ["mingle-python/src"]:
        for path in (ROOT / folder).rglob("*.rs"):
            text = path.read_text()
            whole = len(text.splitlines())
            total += whole if is_test(path.relative_to(ROOT / folder)) else whole - len(without_tests(text))
    return total


def variants(text, begin):
    """How many variants an enum has.

    >>> variants("enum A {\\n    /// Text.\\n    B,\\n    C {\\n        d: u8,\\n    },\\n    #[x]\\n    E(u8),\\n}\\nF,", "enum A {")
    3
    """
    body = text.split(begin, 1)[1].split("\n}", 1)[0]
    return len(re.findall(r"(?m)^    [A-Z]\w*", body))


def options(command):
    """The options in the long help of a command, which the tests hold to the program."""
    text = (ROOT / "tests/help" / f"{command}.long").read_text()
    return len(re.findall(r"(?m)^  (?:    |-\w, )--[a-z]", text))


def public(folder):
    """The items that a crate declares public: an upper limit of what its users can name."""
    item = re.compile(r"^\s*pub (?:const fn|async fn|fn|struct|enum|trait|type|const|static|mod|use|union) ?")
    return sum(1 for path in (ROOT / folder).rglob("*.rs") if not is_test(path.relative_to(ROOT / folder))
               for line in without_tests(path.read_text()) if item.match(line))


def measure():
    """Every number of the budget, by its name."""
    found = {}
    for crate in CRATES:
        parts = code(crate)
        found[f"code {crate}"] = sum(parts.values())
        found.update({f"code {crate}/{part}": count for part, count in parts.items() if part != "."})
    found.update({f"code {folder}": sum(code(folder).values()) for folder in WHOLE})
    found["lines of tests"] = tests()
    kinds = [("message", "Message"), ("forming", "Said"), ("world", "WorldSaid")]
    kinds = [((ROOT / f"mingle-core/src/wire/{file}.rs").read_text(), enum) for file, enum in kinds]
    found["kinds of messages"] = sum(variants(text, f"pub(crate) enum {enum} {{") for text, enum in kinds)
    timers = [path.read_text() for path in (ROOT / "mingle-core/src/proto").rglob("*.rs")]
    found["timers"] = sum(variants(text, begin) for text in timers
                          for begin in re.findall(r"enum \w*Timer\w* \{", text))
    for name, (file, begin) in ENUMS.items():
        found[name] = variants((ROOT / file).read_text(), begin)
    found["options of mingle"] = options("mingle")
    found["options of mingle run"] = options("run")
    found["public items of mingle-core"] = public("mingle-core/src")
    found["public items of mingle-rdma"] = public("mingle-rdma/src")
    found.update({f"lines of {name}": lines([ROOT / name]) for name in DOCUMENTS})
    return found


def frequency(text, *wanted):
    """How often these words are in 1,000 of a text, without its blocks of code.

    >>> frequency("You see one.\\n\\n    one\\n\\n```\\none\\n```\\nIt is yours.", "one", "you")
    333.3
    """
    text = re.sub(r"(?ms)^```.*?^```$|^    .*?$", "", text)
    words = re.findall("[a-z']+", text.lower())
    return round(1000 * sum(word in wanted for word in words) / len(words), 1)


def unclear():
    """The documents whose sentences name things by "one", and those for users that do not speak to their reader."""
    users = [*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in FOR_USERS)]
    wrong = []
    for path in [*users, *(ROOT / name for name in FOR_DEVELOPERS)]:
        name, text = path.relative_to(ROOT), path.read_text()
        one, you = frequency(text, "one"), frequency(text, "you", "your")
        if one >= 4:
            wrong.append(f'{name} has {one} "one" in 1,000 words (limit: 4): name things')
        if path in users and you <= 3:
            wrong.append(f'{name} has {you} "you" in 1,000 words (at least 3): say what you do with it')
    return wrong


def parse(text):
    """The limits in a table, by their names.

    >>> parse("# Text.\\n\\n   12 code a\\n    3 timers\\n")
    {'code a': 12, 'timers': 3}
    """
    rows = (line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {name.strip(): int(limit) for limit, name in rows}


def compare(found, limits):
    """Prints the table, and returns what is wrong with it."""
    wrong = []
    for name, number in found.items():
        limit = limits.get(name)
        print(f"{number:7} of {'none' if limit is None else limit:>7}  {name}")
        if limit is None:
            wrong.append(f"{name} has no limit")
        elif number > limit:
            wrong.append(f"{name} is {number}, {number - limit} above its limit")
    wrong += [f"{name} has a limit, and is nowhere" for name in limits.keys() - found.keys()]
    return wrong


def lower(found, limits):
    """Writes numbers below their limits into the table, and leaves out rows of what is gone."""
    rows = [f"{min(number, limits.get(name, number)):7} {name}" for name, number in found.items()]
    head = [line for line in TABLE.read_text().splitlines() if line.startswith("#")] if TABLE.exists() else []
    TABLE.write_text("\n".join([*head, *rows]) + "\n")


def git(*arguments):
    run = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    return run.stdout if run.returncode == 0 else ""


def raised(before, after):
    """The limits that are higher than before, and those that are new.

    >>> raised({"a": 1, "b": 2}, {"a": 2, "b": 1, "c": 3})
    ['a', 'c']
    """
    return [name for name, limit in after.items() if limit > before.get(name, 0)]


def history():
    """The commits that raised a limit without a reason. A merge has the limits of its parents, or raises one."""
    wrong, path = [], str(TABLE.relative_to(ROOT))
    for commit in git("log", "--format=%H", "--", path).split():
        parents = [parse(git("show", f"{parent}:{path}")) for parent in git("log", "-1", "--format=%P", commit).split()]
        if not any(parents):
            continue
        before = {name: max(table.get(name, 0) for table in parents) for table in parents for name in table}
        names = raised(before, parse(git("show", f"{commit}:{path}")))
        if names and not re.search(r"(?m)^Budget: \S", git("log", "-1", "--format=%B", commit)):
            wrong.append(f"{commit[:12]} raises {', '.join(names)} without a line \"Budget: <reason>\"")
    return wrong


def main(arguments):
    if arguments not in ([], ["--lower"], ["--history"]):
        return [__doc__.strip()]
    if arguments == ["--history"]:
        return history()
    found = measure()
    limits = parse(TABLE.read_text()) if TABLE.exists() else {}
    if arguments == ["--lower"]:
        lower(found, limits)
        limits = parse(TABLE.read_text())
    return compare(found, limits) + unclear()


if __name__ == "__main__":
    failures = main(sys.argv[1:])
    for failure in failures:
        print(f"budget: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)
