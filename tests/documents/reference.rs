//! docs/reference.md against the program: its lists of options and exit codes are generated from the help,
//! and everything else that it names is what the program prints or its source defines, no more and no less.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::LazyLock;

use serde_json::Value;

use super::markdown::{Document, Span, documents, root};
use super::messages::{literals, sources};
use super::{explained, help};
use crate::lab::machine::{fixture, scratch};
use crate::lab::world::line;
use crate::lab::{self, Lab, Options, plain};

const REFERENCE: &str = "docs/reference.md";

fn reference() -> Document {
    documents().into_iter().find(|document| document.path == REFERENCE).unwrap()
}

/// The code in one section, in one column of its tables.
fn cells<'a>(document: &'a Document, section: &'a str, column: usize) -> impl Iterator<Item = &'a Span> {
    let spans = document.spans.iter().filter(move |span| span.section == section && span.column == column);
    assert!(spans.clone().count() > 0, "{REFERENCE}#{section} has no column {column}");
    spans
}

fn texts(document: &Document, section: &str, column: usize) -> BTreeSet<String> {
    cells(document, section, column).map(|span| span.text.clone()).collect()
}

/// Compares what the reference lists with what the program has, and names what is only in one of them.
fn same(listed: &BTreeSet<String>, defined: &BTreeSet<String>, what: &str) {
    let undefined: Vec<_> = listed.difference(defined).collect();
    let unlisted: Vec<_> = defined.difference(listed).collect();
    assert!(
        undefined.is_empty() && unlisted.is_empty(),
        "{what}: {REFERENCE} lists {undefined:?}, which the program does not have, and lacks {unlisted:?}"
    );
}

/// The words that name each command that the help lists: none for the program itself, which is the first.
pub(crate) fn commands() -> Vec<Vec<&'static str>> {
    static OWN: LazyLock<String> = LazyLock::new(|| help(&[]));
    let lines = OWN.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    let commands: Vec<_> = [vec![]].into_iter().chain(names.map(|name| vec![name])).collect();
    assert!(commands.len() > 5, "{commands:?} are not all");
    commands
}

/// An option or argument as a help explains it.
struct Entry {
    heading: String,
    /// Such as `-w, --world <N>`.
    usage: String,
    /// Without their indentation.
    lines: Vec<String>,
}

/// All that a help explains below headings such as `This node:`.
fn entries(help: &str) -> Vec<Entry> {
    let (mut entries, mut heading): (Vec<Entry>, _) = (Vec::new(), "");
    for line in help.lines().skip_while(|line| !line.starts_with("Usage:")).skip(1) {
        let is_option = line.starts_with("  -") || line.starts_with("      --") || line.starts_with("  <");
        let is_argument = line.starts_with("  [");
        if let Some(title) = line.strip_suffix(':').filter(|title| !title.starts_with(' ')) {
            heading = title;
        } else if line.starts_with("Exit codes") || heading == "Environment" {
            break;
        } else if heading == "Commands" || heading.is_empty() {
        } else if is_option || is_argument {
            let usage = line.trim().to_owned();
            entries.push(Entry { heading: heading.to_owned(), usage, lines: Vec::new() });
        } else if let Some(entry) = entries.last_mut() {
            entry.lines.push(line.strip_prefix("          ").unwrap_or(line).trim_end().to_owned());
        }
    }
    for entry in &mut entries {
        while entry.lines.last().is_some_and(String::is_empty) {
            entry.lines.pop();
        }
    }
    entries
}

impl Entry {
    /// `world` of `-w, --world <N>`.
    fn long(&self) -> Option<&str> {
        let (_, long) = self.usage.split_once("--")?;
        long.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')).next()
    }

    /// The option's variable, by the rule that the help states; two options have none.
    fn variable(&self) -> Option<String> {
        let long = self.long().filter(|long| !["help", "version"].contains(long))?;
        Some(format!("MINGLE_{}", long.to_ascii_uppercase().replace('-', "_")))
    }

    /// The words of the explanation, without its lists of values.
    fn words(&self) -> usize {
        let lines = self.lines.iter().filter(|line| !line.starts_with("  "));
        lines.map(|line| line.split_whitespace().count()).sum()
    }

    fn row(&self, has_variable: bool) -> String {
        let mut names: Vec<_> = self.usage.split(", ").map(|name| format!("`{name}`")).collect();
        names.extend(self.variable().filter(|_| has_variable).map(|name| format!("`{name}`")));
        format!("| {} | {} |", names.join(", "), escaped(&self.lines[0]))
    }
}

/// A line of plain text as Markdown that reads the same.
fn escaped(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        let is_mark =
            matches!(c, '*' | '<' | '\\' | '`') || text.is_empty() && matches!(c, '-' | '+' | '#' | '>');
        if is_mark {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// Whether the options of this command are variables too.
fn has_variables(command: &[&str]) -> bool {
    [&[][..], &["run"]].contains(&command)
}

/// The first lines of the help of all options, with their variables: a table for `mingle`, for what `mingle
/// run` has beside that, and for all other commands.
fn tables_of_options() -> String {
    let own = entries(&help(&[]));
    let mut tables: Vec<(String, Vec<String>)> = Vec::new();
    for command in commands() {
        let help = help(&command);
        let about = escaped(&help.split("\n\n").next().unwrap().replace('\n', " "));
        let name = [&["mingle"], &command[..]].concat().join(" ");
        let file = format!("../tests/help/{}.long", command.first().unwrap_or(&"mingle"));
        let is_table = has_variables(&command);
        if is_table {
            let text = format!("### Options of {name}\n\n{about}\n`{name} --help` [says more]({file}).");
            tables.push((text, Vec::new()));
        }
        let is_own = |entry: &Entry| own.iter().any(|o| o.usage == entry.usage && o.lines == entry.lines);
        let entries = entries(&help).into_iter().filter(|entry| {
            // Every command explains its help.
            command.is_empty() || entry.long() != Some("help")
        });
        let (shared, entries): (Vec<_>, Vec<_>) =
            entries.partition(|entry| !command.is_empty() && is_own(entry));
        if !is_table {
            if tables.len() == 2 {
                tables.push(("### Other commands".to_owned(), Vec::new()));
            }
            let shared: Vec<_> = shared.iter().filter_map(Entry::long).map(|l| format!("`--{l}`")).collect();
            let as_own = if shared.is_empty() { "" } else { " Also, as for `mingle`: " };
            let row = format!("| **[{name}]({file})** | {about}{as_own}{} |", shared.join(", "));
            tables.last_mut().unwrap().1.push(row);
        }
        let (rows, mut heading) = (&mut tables.last_mut().unwrap().1, String::new());
        for entry in entries {
            if is_table && heading != entry.heading {
                rows.push(format!("| **{}** | |", entry.heading));
                heading.clone_from(&entry.heading);
            }
            rows.push(entry.row(is_table));
        }
    }
    let table = |(text, rows): &(String, Vec<String>)| {
        format!("\n{text}\n\n| option | what it does |\n| --- | --- |\n{}\n", rows.join("\n"))
    };
    tables.iter().map(table).collect::<String>() + "\n"
}

/// The exit codes, as the help explains them.
fn table_of_exit_codes() -> String {
    let help = help(&[]);
    let lines = help.lines().skip_while(|line| !line.starts_with("Exit codes")).skip(1);
    let mut rows: Vec<String> = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()).map(str::trim) {
        match line.split_once("  ") {
            Some((code, meaning)) => rows.push(format!("| {code} | {}", meaning.trim_start())),
            None => rows.last_mut().unwrap().extend([" ", line]),
        }
    }
    format!("\n| code | meaning |\n| --- | --- |\n{} |\n\n", rows.join(" |\n"))
}

#[test]
fn the_lists_of_options_and_exit_codes_are_those_of_the_help() {
    let path = root().join(REFERENCE);
    let mut text = fs::read_to_string(&path).unwrap();
    for (name, list) in [("options", tables_of_options()), ("exit codes", table_of_exit_codes())] {
        let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->\n"));
        let from = text.find(&begin).unwrap_or_else(|| panic!("no {begin}")) + begin.len();
        let to = text.find(&end).unwrap_or_else(|| panic!("no {end}"));
        text.replace_range(from..to, &list);
    }
    if std::env::var_os("MINGLE_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, &text).unwrap();
    }
    let now = fs::read_to_string(&path).unwrap();
    let other = now.lines().zip(text.lines()).find(|(now, wanted)| now != wanted);
    assert!(now == text, "{REFERENCE}: MINGLE_BLESS=1 writes it anew; the first difference is {other:?}");
}

#[test]
fn the_help_explains_each_option_in_at_most_sixty_words() {
    let mut wrong = Vec::new();
    for command in commands() {
        let entries = entries(&help(&command)).into_iter();
        let long = entries.filter(|entry| entry.words() > 60);
        wrong.extend(long.map(|entry| format!("mingle {command:?}: {}: {}", entry.usage, entry.words())));
    }
    super::assert_none(
        &wrong,
        "too many words: name what it does, the default, when you need it, an example",
    );
}

#[test]
fn mingle_run_has_every_option_of_mingle() {
    let (own, run) = (help(&[]), help(&["run"]));
    assert_eq!(explained(&own).difference(&explained(&run)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn every_option_has_its_variable() {
    let [own, run] = [help(&[]), help(&["run"])].map(|help| entries(&help));
    let (own, run) =
        (own.iter().map(|entry| (&[][..], entry)), run.iter().map(|entry| (&["run"][..], entry)));
    let mut wrong = Vec::new();
    for (command, entry) in own.chain(run) {
        let Some(variable) = entry.variable() else { continue };
        // A value that is no text at all is refused by name, whatever the option takes.
        let mut mingle = plain(lab::MINGLE);
        mingle.args(command).env("MINGLE_JOB_ID", "foo").env("MINGLE_WORLD", "1");
        mingle.env(&variable, OsStr::from_bytes(b"\xff"));
        mingle.args(if command.is_empty() { &[][..] } else { &["--", "true"] });
        let output = mingle.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(2) || !said.contains(&variable) {
            wrong.push(format!("{variable}: {:?}: {said}", output.status));
        }
    }
    super::assert_none(&wrong, "not read");
}

/// Whether this can be the name of a variable: capitals, with an underscore unless it is a known name.
fn is_variable(text: &str) -> bool {
    let is_name = text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    is_name && (text.contains('_') && !text.ends_with('_') || ["RANK", "INDEX"].contains(&text))
}

/// The names of variables among the literals of the code below a path.
fn variables_in(path: &str) -> BTreeSet<String> {
    let code = sources(&root());
    let texts = code.iter().filter(|(name, _)| name.starts_with(path)).flat_map(|(_, code)| literals(code));
    // Values, not names; and variables that are not printed, but read.
    let others = "ACTIVE_DEFER RAY_AUTH_TOKEN_PATH NCCL_IB_DISABLE NCCL_VERSION UCX_TLS UCX_IB_ROCE_SUBNETS \
                  NVSHMEM_HCA_PE_MAPPING";
    let is_none = |text: &str| text.starts_with("AF_INET") || others.split(' ').any(|other| other == text);
    texts.filter(|text| is_variable(text) && !is_none(text)).collect()
}

#[test]
fn every_variable_of_mingles_own_is_in_the_reference() {
    let is_own = |name: &String| name.starts_with("MINGLE_") && is_variable(name);
    let mut defined: BTreeSet<_> = variables_in("mingle-").into_iter().filter(is_own).collect();
    for command in commands().iter().filter(|command| has_variables(command)) {
        defined.extend(entries(&help(command)).iter().filter_map(Entry::variable));
    }
    let reference = reference();
    let names = reference.spans.iter().map(|span| span.text.split('=').next().unwrap().to_owned());
    same(&names.filter(is_own).collect(), &defined, "MINGLE_ variables");
}

#[test]
fn every_variable_that_is_printed_is_in_the_reference() {
    let is_others = |name: &String| is_variable(name) && !name.starts_with("MINGLE_");
    let mut defined = variables_in("mingle-core/src/env/");
    defined.extend(variables_in("mingle-rdma/src/"));
    // What workers get beside that.
    defined.extend(variables_in("mingle-cli/src/run/command.rs"));
    let defined: BTreeSet<_> = defined.into_iter().filter(is_others).collect();
    let reference = reference();
    let mut listed = texts(&reference, "variables-that-are-printed", 1);
    listed.extend(texts(&reference, "formats", 4));
    same(&listed.into_iter().filter(is_others).collect(), &defined, "printed variables");
}

#[test]
fn every_variable_of_a_scheduler_is_in_the_reference() {
    let reference = reference();
    // The columns of the table, and the text below it, which says of two that they are not read.
    let listed = (2..=5).chain([0]).flat_map(|column| texts(&reference, "schedulers", column));
    let is_read = |name: &String| is_variable(name) && name != "RANK" && name != "WORLD_SIZE";
    let listed = listed.filter(is_read).collect();
    let defined = variables_in("mingle-cli/src/scheduler");
    let is_theirs = |name: &String| !name.starts_with("MINGLE_");
    same(&listed, &defined.into_iter().filter(is_theirs).collect(), "schedulers");
}

/// The bodies of all functions of this name.
fn bodies(code: &[(String, String)], function: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    for (_, code) in code {
        for (at, _) in code.match_indices(&format!("fn {function}(")) {
            let line = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let indent = code[line..].len() - code[line..].trim_start_matches(' ').len();
            let end = format!("\n{}}}\n", " ".repeat(indent));
            bodies.push(code[at..].split(&end).next().unwrap().to_owned());
        }
    }
    bodies
}

#[test]
fn every_exit_code_is_in_the_reference() {
    let text = fs::read_to_string(root().join(REFERENCE)).unwrap();
    let section = text.split("\n## Exit codes\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let numbers = cells.flat_map(|cell| cell.split(", ")).filter(|cell| cell.parse::<u8>().is_ok());
    let listed = numbers.map(str::to_owned).collect();
    let code = sources(&root());
    let bodies = bodies(&code, "class");
    let arms = bodies.iter().flat_map(|body| body.split("=> (").skip(1));
    let arms = arms.filter_map(|arm| arm.split(',').next()?.parse().ok());
    let mut defined: BTreeSet<u8> = arms.chain([0]).collect();
    let (_, advice) = code.iter().find(|(path, _)| path == "mingle-cli/src/advice.rs").unwrap();
    let constants = advice.split(": u8 = ").skip(1).map(|rest| rest.split(';').next().unwrap());
    defined.extend(constants.map(|constant| constant.parse::<u8>().unwrap()));
    // Those of the signals that ask for an end: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
    defined.extend([1, 2, 3, 15].map(|signal| 128 + signal));
    same(&listed, &defined.iter().map(u8::to_string).collect(), "exit codes");
}

#[test]
fn every_kind_of_failure_is_in_the_reference() {
    let reference = reference();
    let kinds = cells(&reference, "no-world", 1).map(|span| span.text.clone());
    let listed = kinds.filter(|text| !text.starts_with("error.")).collect();
    let mut code = sources(&root());
    code.retain(|(path, _)| path.starts_with("mingle-cli/"));
    let bodies = bodies(&code, "class");
    let mut defined: BTreeSet<_> = bodies.iter().flat_map(|body| literals(body)).collect();
    // The first argument is the kind.
    let others = code.iter().flat_map(|(_, text)| text.split("::Other(\"").skip(1));
    defined.extend(others.map(|rest| rest.split('"').next().unwrap().to_owned()));
    same(&listed, &defined, "kinds");
}

#[test]
fn every_event_is_in_the_reference() {
    let mut defined = BTreeSet::new();
    for (path, code) in sources(&root()) {
        if path.starts_with("mingle-cli/src/events") {
            for call in code.split(".write(").skip(1) {
                if let Some(text) = call.trim_start().strip_prefix('"') {
                    defined.insert(text.split('"').next().unwrap().to_owned());
                }
            }
        }
    }
    assert!(defined.len() > 10, "{defined:?} are not all");
    same(&texts(&reference(), "events", 1), &defined, "events");
}

/// The paths of all fields in a document, such as `roster[].rank`. The search does not go below a `listed`
/// path.
fn fields(value: &Value, path: &str, listed: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields_of) if !fields_of.is_empty() && !listed.contains(path) => {
            let dot = if path.is_empty() { "" } else { "." };
            for (name, value) in fields_of {
                fields(value, &format!("{path}{dot}{name}"), listed, found);
            }
        }
        Value::Array(entries) if !entries.is_empty() && !listed.contains(path) => {
            for entry in entries {
                fields(entry, &format!("{path}[]"), listed, found);
            }
        }
        _ => drop(found.insert(path.to_owned())),
    }
}

fn same_fields(printed: &[&str], section: &str) {
    let reference = reference();
    let listed = texts(&reference, section, 1);
    let mut found = BTreeSet::new();
    for text in printed {
        let document = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        fields(&document, "", &listed, &mut found);
    }
    // What is null in one document has fields in another.
    let all = found.clone();
    found.retain(|path| !all.iter().any(|other| other.starts_with(&format!("{path}."))));
    same(&listed, &found, section);
}

/// The JSON that mingle prints on a node.
fn json(lab: &Lab, node: usize, args: &[&str]) -> String {
    let args = [args, &["--format", "json"]].concat();
    lab.spawn(node, &args).finish().stdout
}

/// A log of NCCL, shortened: most channels use RDMA with GPUDirect, one without, and a host lacks the module.
const LOG: &str = "\
a:1:2 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB bond0:10.10.10.5<0>
a:1:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [send] via NET/IB/0/GDRDMA
a:1:2 [1] NCCL INFO Channel 02/0 : 1[1] -> 3[1] [send] via NET/IB/0/GDRDMA
b:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'
b:1:2 [5] NCCL INFO Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3
";

#[test]
fn every_field_of_the_log_check_is_in_the_reference() {
    let log = scratch("reference.log");
    fs::write(&log, LOG).unwrap();
    let output =
        plain(lab::MINGLE).args(["rdma", "--format", "json", "--check-log"]).arg(&log).output().unwrap();
    same_fields(&[&String::from_utf8(output.stdout).unwrap()], "the-log-check");
}

#[test]
fn every_field_of_json_is_in_the_reference() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let world = json(&lab, 0, &["--job-id", "alone", "--world", "1"]);
    same_fields(&[&world], "a-world");
    let failed: BTreeMap<String, Value> =
        serde_json::from_str(&json(&lab, 0, &["--job-id", "alone", "--world", "2", "--timeout", "1ms"]))
            .unwrap();
    let listed = texts(&reference(), "no-world", 1);
    let listed: BTreeSet<_> = listed.into_iter().filter(|text| text.starts_with("error.")).collect();
    let mut found = BTreeSet::new();
    fields(&failed.into_iter().collect(), "", &listed, &mut found);
    same(&listed, &found, "no world");

    let doctor = |node| {
        let mut command = lab.command(node, lab::MINGLE);
        command.args(["doctor", "--job-id", "look", "--world", "2", "--format", "json"]);
        // The interface of its port is eth0.
        command.env("MINGLE_SYSFS_ROOT", fixture("soft-roce-host"));
        lab.start(node, command)
    };
    let other = doctor(1);
    let both = doctor(0).finish().stdout;
    other.finish();
    same_fields(&[&both], "the-doctor");

    let mut leader = lab.command(0, lab::MINGLE);
    leader.args(line("seen", 3)).env("MINGLE_SYSFS_ROOT", fixture("one-roce"));
    let leader = lab.start(0, leader);
    leader.expect_stderr("seen");
    let one = json(&lab, 1, &["watch", "--job-id", "seen"]);
    let all = json(&lab, 1, &["watch"]);
    leader.signal("TERM");
    let run = "run --job-id ran --world 2 --max-restarts 1 -- sleep 1000";
    let run: Vec<&str> = run.split(' ').collect();
    let nodes = [0, 1].map(|node| lab.spawn(node, &run));
    nodes[0].expect_stderr("formed");
    let running = json(&lab, 1, &["watch", "--job-id", "ran"]);
    same_fields(&[&one, &all, &running], "the-watch");
}
