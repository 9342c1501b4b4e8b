#!/usr/bin/env bash
# Makes the documents a site with search, in target/site/book: a page for each Markdown file of the project, except those
# about its tests, the files that they link to, and the library's documentation in api. Fails if a page is missing in the
# contents below, or if a link or an anchor leads nowhere. Needs python3, and mdBook in PATH or from `.ci/tools mdbook`.

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
PATH=$PWD/target/tools/bin:$PATH
site=$target/site
rm -rf -- "$site"
mkdir -p -- "$site/src"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
url=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)

cat >"$site/book.toml" <<END
[book]
title = "mingle $version"
description = "The nodes of a training job find each other from a job ID and the number of nodes"
[build]
create-missing = false
[output.html]
default-theme = "light"
preferred-dark-theme = "navy"
# Options in plain text begin with two hyphens.
smart-punctuation = false
git-repository-url = "$url"
additional-css = ["narrow.css"]
[output.html.print]
enable = false
END

# On a phone, long lines of shell wrap, and pictures keep a legible size and scroll sideways.
cat >"$site/narrow.css" <<'END'
@media (max-width: 700px) {
    pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }
    .content td, .content th { padding: 3px 4px; font-size: 0.9em; }
    :is(.content td, .content th) code { font-size: 0.8em; padding: 0; white-space: normal; overflow-wrap: anywhere; }
    .content p:has(img) { overflow-x: auto; }
    .content p img { max-width: none; width: 700px; }
}
END

cat >"$site/src/SUMMARY.md" <<'END'
# mingle

[mingle](README.md)

# For users

- [Reference](docs/reference.md)
- [Troubleshooting](docs/troubleshooting.md)
- [Restarts and elastic worlds](docs/restarts.md)
- [Launchers](docs/launchers.md)
- [Networks](docs/networks.md)
- [RDMA](docs/rdma.md)
- [Security](SECURITY.md)
- [What a world costs](docs/performance.md)
- [Examples](examples/README.md)
- [The Python package](python/README.md)
- [The library](library.md)
- [Changelog](CHANGELOG.md)

# For developers

- [Protocol](PROTOCOL.md)
- [Architecture](ARCHITECTURE.md)
- [Contributing](CONTRIBUTING.md)
- [The RDMA crate](mingle-rdma/README.md)
END

cat >"$site/src/library.md" <<'END'
# The library

`mingle-core` is the rendezvous as a Rust library, on tokio. Its documentation is
[here](api/mingle_core/index.html); begin with
[`Rendezvous`](api/mingle_core/struct.Rendezvous.html). [workers.rs](examples/workers.rs),
[barrier.rs](examples/barrier.rs) and [c10d.rs](examples/c10d.rs) are launchers built on it.
END

# mdBook copies each file beside the pages that is no page itself, so only the project's documents may be there.
find . \( -name '.?*' -o -name target -o -name tests \) -prune -o -type f -name '*.md' -exec cp --parents -t "$site/src" -- {} +
find "$site/src" -name '*.md' -exec sed -i "s#](\(\.\./\)*tests/#]($url/blob/HEAD/tests/#g" {} +
# mdBook makes index.html of README.md, but leaves links to it alone.
find "$site/src" -name '*.md' ! -name SUMMARY.md -exec sed -i 's/\(](\([^):]*\/\)\?\)README\.md/\1index.md/g' {} +
sed -i "1a\\\nVersion $version, [repository]($url)" "$site/src/README.md"
cp -r -- examples LICENSE-APACHE LICENSE-MIT "$site/src/"
cp -- docs/*.svg "$site/src/docs/"

mdbook build "$site"
cargo doc --quiet --locked --no-deps --package mingle-core
cp -r -- "$target/doc" "$site/book/api"

python3 - "$site" <<'END'
import html.parser, pathlib, re, sys, urllib.parse

src, book = (pathlib.Path(sys.argv[1], name) for name in ("src", "book"))
summary = set(re.findall(r"\]\((.*?)\)", (src / "SUMMARY.md").read_text()))
pages = {str(page.relative_to(src)) for page in src.rglob("*.md")} - {"SUMMARY.md"}
wrong = [f"{page}: not in the contents of docs/site.sh" for page in sorted(pages - summary)]


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        self.links += [values[name] for name in ("href", "src") if values.get(name)]


# A list of its files for each folder that a page may link to.
for folder in [path for path in (book / "examples").rglob("*") if path.is_dir()]:
    files = sorted(path.name for path in folder.iterdir())
    lines = [f'<p><a href="{name}">{name}</a>' for name in files]
    (folder / "index.html").write_text("\n".join(["<!DOCTYPE html>", f"<title>{folder.name}</title>", *lines, ""]))

# The pages of rustdoc are rustdoc's business.
read = {path.resolve(): Page(path) for path in book.rglob("*.html") if book / "api" not in path.parents}
followed = 0
for path, page in read.items():
    # Made by mdBook for a web server, with links from the root; and the contents for readers without scripts.
    if path.name in ("404.html", "toc.html"):
        continue
    for link in page.links:
        url = urllib.parse.urlsplit(link)
        if url.scheme or url.netloc:
            continue
        place = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
        place = place / "index.html" if place.is_dir() else place
        anchor = urllib.parse.unquote(url.fragment)
        if not place.exists() or anchor and place in read and anchor not in read[place].ids:
            wrong.append(f"{path.relative_to(book.resolve())}: {link} leads nowhere")
        followed += 1
if not list(book.glob("searchindex*.js")):
    wrong.append("no index for the search")
sys.exit("\n".join(wrong) if wrong else print(f"{len(pages)} pages, {followed} links"))
END
