//! The documents are right: their lines are run, their links followed, and their quotes looked up in the
//! code.

mod markdown;
mod messages;
mod reference;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

use crate::lab::world::{finish_all, line};
use crate::lab::{self, Options, plain, skip};
use markdown::{Block, Document, documents, root};

/// The kind of a block of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Shell,
    /// Options of mingle, a line for each example.
    Arguments,
    /// The output of the leader while its world forms.
    Progress,
    /// Other messages of mingle.
    Quoted,
    /// The files of the project.
    Tree,
    Yaml,
    /// Input or output of other programs.
    Other,
}

/// The blocks without a fence that are not shell: document, the block's beginning, its kind. The first entry
/// that fits counts. (mingle-core/src/wire/tests compares PROTOCOL.md with the code.)
const NOT_SHELL: [(&str, &str, Kind); 21] = [
    ("ARCHITECTURE.md", "mingle-rdma/src/  ", Kind::Tree),
    ("ARCHITECTURE.md", "model  <-", Kind::Other),
    ("ARCHITECTURE.md", "files -> read ", Kind::Other),
    ("CONTRIBUTING.md", "// mingle-core/src/env/launcher", Kind::Other),
    ("CONTRIBUTING.md", "pub gpus: ", Kind::Other),
    ("PROTOCOL.md", "", Kind::Other),
    ("README.md", "mingle: warning: ", Kind::Quoted),
    ("README.md", "mingle: ", Kind::Progress),
    ("README.md", "--seed ", Kind::Arguments),
    ("docs/launchers.md", "[c10d] The IPv6", Kind::Other),
    ("docs/launchers.md", "rank {rank} of", Kind::Other),
    ("docs/networks.md", "apiVersion: ", Kind::Yaml),
    ("docs/troubleshooting.md", "mingle: ", Kind::Quoted),
    ("docs/networks.md", "[wsl2]", Kind::Other),
    ("docs/networks.md", "Set-NetFirewallHyperVVMSetting", Kind::Other),
    ("docs/rdma.md", "mingle: warning: NCCL_NET=IB", Kind::Quoted),
    ("docs/rdma.md", "ports for RDMA", Kind::Other),
    ("docs/rdma.md", "rank 3 ", Kind::Quoted),
    ("docs/rdma.md", "mingle: RDMA: ", Kind::Quoted),
    ("docs/rdma.md", "DEVICE  PORT ", Kind::Other),
    ("docs/rdma.md", "NCCL_DEBUG=INFO ", Kind::Other),
];

fn kind(document: &Document, block: &Block) -> Kind {
    match block.language.as_str() {
        "" => {
            let is_it = |(path, begin, _): &&(&str, &str, Kind)| {
                document.path == *path && block.text.starts_with(begin)
            };
            NOT_SHELL.iter().find(is_it).map_or(Kind::Shell, |&(_, _, kind)| kind)
        }
        "sh" | "bash" => Kind::Shell,
        "yaml" => Kind::Yaml,
        "python" => Kind::Other,
        other => panic!("{}:{}: unknown language {other:?}", document.path, block.line),
    }
}

/// All blocks of this kind, each with its place.
fn blocks(documents: &[Document], wanted: Kind) -> Vec<(String, &Block)> {
    let all =
        documents.iter().flat_map(|document| document.blocks.iter().map(move |block| (document, block)));
    let found = all.filter(|(document, block)| kind(document, block) == wanted);
    let found: Vec<_> =
        found.map(|(document, block)| (format!("{}:{}", document.path, block.line), block)).collect();
    assert!(!found.is_empty(), "{wanted:?}: none");
    found
}

/// Fails with all findings at once.
fn assert_none(wrong: &[String], what: &str) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn every_entry_of_not_shell_has_a_block() {
    let documents = documents();
    for (path, begin, _) in NOT_SHELL {
        let mut blocks = documents.iter().filter(|document| document.path == path).flat_map(|d| &d.blocks);
        assert!(blocks.any(|block| block.text.starts_with(begin)), "{path} has no block {begin:?}");
    }
}

#[test]
fn every_block_of_shell_is_shell() {
    let mut wrong = Vec::new();
    for (place, block) in blocks(&documents(), Kind::Shell) {
        let mut command = plain("bash");
        command.arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut bash = command.spawn().unwrap();
        bash.stdin.take().unwrap().write_all(block.text.as_bytes()).unwrap();
        let output = bash.wait_with_output().unwrap();
        if !output.status.success() {
            wrong.push(format!("{place}: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    assert_none(&wrong, "not shell");
}

/// The beginning of each piece of shell. The shell runs the real mingle and no other program; `...` stands
/// for the options that every job needs.
const PRELUDE: &str = r#"
PATH=/nowhere
mingle() {
    local words=() word status
    for word; do
        if [ "$word" = ... ]; then words+=(--job-id foo --world 4); else words+=("$word"); fi
    done
    if [ "${words[*]}" = 'rdma --watch' ]; then
        # This command ends only when its reader does.
        "$MINGLE" "${words[@]}" | /usr/bin/head -c 1 >/dev/null
        status=${PIPESTATUS[0]}
    else
        "$MINGLE" "${words[@]}"
        status=$?
    fi
    echo "ended: $status: mingle ${words[*]}" >&2
}
# Where another program would start mingle, only mingle is run.
command_not_found_handle() {
    while [ "$#" -gt 0 ] && [ "$1" != mingle ]; do shift; done
    [ "$#" = 0 ] || "$@"
}
tar() { [ "$1" = -xzf ] && (cd "$ROOT" && PATH=/usr/bin:/bin && command tar "$@"); }
scontrol() { echo gpu01; echo gpu02; }
head() { /usr/bin/head "$@"; }
paste() { /usr/bin/paste "$@"; }
"#;

/// The number of calls of mingle in this text.
fn count(text: &str) -> usize {
    let words: Vec<_> = text.split([' ', '\n', '"', '(', ')']).chain([""]).collect();
    let after = ["", "...", "run", "rdma", "doctor", "watch", "secret", "install", "completions", "man"];
    let is_call =
        |pair: &&[&str]| pair[0] == "mingle" && (pair[1].starts_with('-') || after.contains(&pair[1]));
    words.windows(2).filter(is_call).count()
}

/// All shell that calls mingle, in blocks and in lines of tables, and all options that stand alone, with
/// their places.
fn calls(documents: &[Document]) -> Vec<(String, String)> {
    let shell = blocks(documents, Kind::Shell).into_iter().map(|(place, block)| (place, block.text.clone()));
    let mut calls: Vec<_> = shell.filter(|(_, text)| count(text) > 0).collect();
    for (place, block) in blocks(documents, Kind::Arguments) {
        let lines = block.text.lines().map(|line| format!("mingle ... {line}"));
        calls.extend(lines.map(|line| (place.clone(), line)));
    }
    for document in documents {
        for span in &document.spans {
            // fish has another `eval`.
            let text = span.text.replace("eval (mingle", "eval $(mingle").replace("); and ", ") && ");
            // Another test looks at code that only names a command or an option.
            if ["$(mingle", "mingle ...", "mingle --job-id", "mingle run --job-id"]
                .iter()
                .any(|it| text.contains(it))
            {
                calls.push((format!("{}:{}", document.path, span.line), text));
            }
        }
    }
    calls
}

#[test]
fn mingle_accepts_every_call_in_the_documents() {
    // Without an interface nothing can be sent: a call that mingle accepts ends with another code than 2.
    let Some(lab) = Options::nodes(1).start() else { return };
    lab.switch("ip -n n0 link set eth0 down; ip -n n0 link set lo down");
    let scratch =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("documents-{}", std::process::id()));
    let mut started = Vec::new();
    for (i, (place, text)) in calls(&documents()).into_iter().enumerate() {
        let folder = scratch.join(i.to_string());
        fs::create_dir_all(&folder).unwrap();
        for name in ["foo.secret", "FILE", "nccl.log", "peers.tmpl"] {
            fs::write(folder.join(name), "node-a:1:2 [0] NCCL INFO long enough for a secret too").unwrap();
        }
        let text = text.replace("/tmp", folder.to_str().unwrap());
        let mut command = lab.command(0, "bash");
        command.args(["--norc", "-c", &format!("{PRELUDE}cd \"$SCRATCH\" || exit\n{text}")]);
        command.env("MINGLE", lab::MINGLE).env("SCRATCH", &folder).env("ROOT", root());
        command.env("MINGLE_TIMEOUT", "1ms");
        if ["SLURM", "srun", "\"$(mingle)\""].iter().any(|word| text.contains(word)) {
            command.env("SLURM_JOB_ID", "7").env("SLURM_STEP_ID", "0").env("SLURM_NNODES", "4");
            command.env("SLURM_NODEID", "1").env("SLURM_JOB_NODELIST", "gpu[01-04,07]");
        }
        started.push((place, text, lab.start(0, command)));
    }
    // A failure shows the calls that are wrong, not all that were run.
    lab.forget();
    let mut wrong = Vec::new();
    for (place, text, proc) in started {
        let outcome = proc.finish();
        let ends: Vec<_> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("ended: ")).collect();
        if ends.len() < count(&text) || ends.iter().any(|end| end.starts_with("2: ")) {
            wrong.push(format!("{place}: {text}\n{}", outcome.stderr));
        }
    }
    fs::remove_dir_all(&scratch).unwrap();
    assert_none(&wrong, "not taken");
}

fn help(words: &[&str]) -> String {
    let output = plain(lab::MINGLE).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "mingle {words:?} --help");
    String::from_utf8(output.stdout).unwrap()
}

/// The long options in a text.
fn options(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.len() > 3 && word.starts_with("--")).collect()
}

/// The long options that a help explains.
fn explained(help: &str) -> BTreeSet<&str> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let mut explained: BTreeSet<_> = lines.flat_map(options).collect();
    // These two are about the help itself.
    explained.remove("--help");
    explained.remove("--version");
    explained
}

#[test]
fn every_command_and_option_that_is_named_exists() {
    let own = help(&[]);
    let mut wrong = Vec::new();
    for document in documents() {
        for span in document.spans.iter().filter(|span| span.text.starts_with("mingle ")) {
            let words: Vec<_> = span.text.split_whitespace().skip(1).collect();
            let command = words.first().filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
            let is_there = command.is_none_or(|command| own.contains(&format!("\n  {command} ")));
            let help = if is_there { help(&command.map_or(vec![], |c| vec![*c])) } else { String::new() };
            let known = &explained(&help) | &options("--help --version");
            // The words after `--` are another program's.
            let ours = span.text.split(" -- ").next().unwrap();
            let unknown: Vec<_> = options(ours).difference(&known).copied().collect();
            if !is_there || !unknown.is_empty() {
                wrong.push(format!("{}:{}: {} {unknown:?}", document.path, span.line, span.text));
            }
        }
    }
    assert_none(&wrong, "unknown to mingle");
}

#[test]
fn every_option_in_the_readme_and_the_reference_exists() {
    let helps: Vec<_> = reference::commands().iter().map(|command| help(command)).collect();
    let known = helps.iter().fold(options("--help --version"), |all, help| &all | &explained(help));
    let mut wrong = Vec::new();
    let mut documents = documents();
    documents.retain(|document| ["README.md", "docs/reference.md"].contains(&document.path.as_str()));
    for document in &documents {
        for span in document.spans.iter().filter(|span| span.text.starts_with("--")) {
            let unknown: Vec<_> = options(&span.text).difference(&known).copied().collect();
            if !unknown.is_empty() {
                wrong.push(format!("{}:{}: {}", document.path, span.line, span.text));
            }
        }
    }
    assert_none(&wrong, "no options of mingle");
}

#[test]
fn every_link_within_the_project_leads_somewhere() {
    let (root, documents) = (root(), documents());
    let (mut wrong, mut followed) = (Vec::new(), 0);
    for document in &documents {
        for (line, link) in document.links.iter().filter(|(_, link)| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').map_or((link.as_str(), None), |(a, b)| (a, Some(b)));
            let folder = root.join(&document.path).parent().unwrap().to_owned();
            let target = if path.is_empty() { root.join(&document.path) } else { folder.join(path) };
            let target = fs::canonicalize(target).ok();
            let has_anchor = |anchor: &str| {
                let is_target = |other: &&Document| fs::canonicalize(root.join(&other.path)).ok() == target;
                documents.iter().find(is_target).is_some_and(|other| other.anchors.contains(anchor))
            };
            if target.is_none() || !anchor.is_none_or(has_anchor) {
                wrong.push(format!("{}:{line}: {link}", document.path));
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "only {followed} links");
    assert_none(&wrong, "links to nothing");
}

#[test]
fn every_file_of_the_project_that_is_named_exists() {
    let (root, documents) = (root(), documents());
    let mut wrong = Vec::new();
    for document in &documents {
        for span in &document.spans {
            let begins = [
                "mingle-rdma/",
                "mingle-core/",
                "mingle-cli/",
                "mingle-bench/",
                "tests/",
                "examples/",
                "docs/",
                ".ci/",
            ];
            let is_path = begins.iter().any(|begin| span.text.starts_with(begin));
            let is_plain = !span.text.contains([' ', '*', '{', '$', '<']);
            // A path may be relative to a crate.
            let places = ["", "mingle-rdma", "mingle-core", "mingle-cli", "mingle-bench"];
            if is_path && is_plain && !places.iter().any(|place| root.join(place).join(&span.text).exists()) {
                wrong.push(format!("{}:{}: {}", document.path, span.line, span.text));
            }
        }
    }
    for (place, block) in blocks(&documents, Kind::Tree) {
        let mut folder = "";
        for line in block.text.lines() {
            let inside = line.starts_with("  ");
            let mut names = Vec::new();
            for word in line.split_whitespace() {
                names.push(word.trim_end_matches(','));
                if !word.ends_with(',') {
                    break;
                }
            }
            folder = if inside { folder } else { names[0] };
            for name in names {
                let path = if inside { root.join(folder).join(name) } else { root.join(name) };
                if !path.exists() {
                    wrong.push(format!("{place}: {}", path.strip_prefix(&root).unwrap().display()));
                }
            }
        }
    }
    assert_none(&wrong, "no such file");
}

#[test]
fn at_least_thirty_ways_to_fail_have_their_message_code_and_cure() {
    let path = "docs/troubleshooting.md";
    let text = fs::read_to_string(root().join(path)).unwrap();
    let sections: Vec<&str> = text.split("\n### ").skip(1).collect();
    let mut wrong = Vec::new();
    for section in &sections {
        let title = section.lines().next().unwrap();
        let has_message = section.lines().any(|line| line.starts_with("    mingle: "));
        if !has_message || !section.contains("code ") || !section.contains("**Do:** ") {
            wrong.push(title.to_owned());
        }
    }
    assert_none(&wrong, "no message, code or cure");
    assert!(sections.len() >= 30, "{}", sections.len());
}

#[test]
fn every_quoted_message_is_in_the_code() {
    let texts = messages::texts(&root());
    // The words that stand for values in the quotes.
    let names = [
        "foo",
        "node-b",
        "node-c",
        "node-d",
        "InfiniBand",
        "RoCE",
        "Ethernet",
        "NCCL_NET=IB",
        "Socket",
        "alice",
        "bob",
        "image",
        "--rank",
        "are",
    ];
    let mut wrong = Vec::new();
    for (place, block) in blocks(&documents(), Kind::Quoted) {
        for line in block.text.lines() {
            let text = line.trim_start_matches("mingle: ").trim_start_matches("warning: ");
            let unknown = messages::unknown(text, &names, &texts);
            if !unknown.is_empty() {
                wrong.push(format!("{place}: {line}: not in the code: {unknown:?}"));
            }
        }
    }
    assert_none(&wrong, "quoted, but not said");
}

/// A line without the words that differ from run to run.
fn shape(line: &str) -> String {
    let mut shape = Vec::new();
    for word in line.split(' ') {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let is_host = bare.starts_with("node") && !["node", "nodes"].contains(&bare);
        // A unit follows a number.
        if !["s", "ms"].contains(&bare) {
            shape.push(if is_host || word.contains(|c: char| c.is_ascii_digit()) { "*" } else { word });
        }
    }
    shape.join(" ")
}

#[test]
fn the_readme_shows_what_the_leader_says() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let args = line("foo", 4);
    let mut procs = vec![lab.spawn(0, &args)];
    for node in 1..4 {
        // The lowest address leads, so the first node stays the leader. It names the job first.
        procs[0].expect_stderr(if node == 1 { "job foo" } else { ["2 of 4", "3 of 4"][node - 2] });
        procs.push(lab.spawn(node, &args));
    }
    let outcomes = finish_all(procs);
    let said: Vec<_> = outcomes[0].stderr.lines().map(shape).collect();
    let documents = documents();
    for (place, block) in blocks(&documents, Kind::Progress) {
        let shown: Vec<_> = block.text.lines().map(shape).collect();
        assert_eq!(shown, said, "{place}: {}", outcomes[0].render());
    }
}

#[test]
fn every_block_of_yaml_can_be_read() {
    let load = "import sys, yaml; assert isinstance(yaml.safe_load(sys.stdin), dict)";
    if !plain("python3").args(["-c", "import yaml"]).output().is_ok_and(|output| output.status.success()) {
        return skip("no python3 with yaml");
    }
    for (place, block) in blocks(&documents(), Kind::Yaml) {
        let mut python = plain("python3").args(["-c", load]).stdin(Stdio::piped()).spawn().unwrap();
        python.stdin.take().unwrap().write_all(block.text.as_bytes()).unwrap();
        assert!(python.wait().unwrap().success(), "{place}");
    }
}
