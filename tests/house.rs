//! Rules of the house that a compiler does not hold: which folder imports which, and where flags are named.
//! CONTRIBUTING.md gives their reasons.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of mingle-core/src, each with the folders whose items it may use.
/// Everything is listed after what it uses, so data flows one way.
const FOLDERS: [(&str, &[&str]); 6] = [
    ("model", &[]),
    ("host", &["model"]),
    ("wire", &["model"]),
    ("proto", &["model", "wire"]),
    ("env", &["model", "proto"]),
    ("net", &["model", "host", "wire", "proto"]),
];

/// The most columns of a line, comments included; rustfmt.toml has the same number for code.
const COLUMNS: usize = 110;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Rust files below a folder, by their path from it.
fn sources(folder: &str) -> BTreeMap<String, String> {
    fn visit(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("a folder of the project") {
            let path = entry.expect("an entry of a folder").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
            if path.is_dir() {
                visit(&path, &format!("{prefix}{name}/"), found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.insert(format!("{prefix}{name}"), fs::read_to_string(&path).expect("a source file"));
            }
        }
    }
    let mut found = BTreeMap::new();
    visit(&root().join(folder), "", &mut found);
    assert!(!found.is_empty(), "{folder} has no source file");
    found
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("tests/") || path.ends_with("exhaustive.rs")
}

/// A file without the tests at its end.
fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {").map_or(text, |at| &text[..at])
}

/// A line without its comment.
fn code(line: &str) -> &str {
    line.find("//").map_or(line, |at| &line[..at])
}

/// Every use of another folder that [`FOLDERS`] does not allow, in a file of mingle-core/src.
fn forbidden_imports(path: &str, text: &str) -> Vec<String> {
    let folder = path.split('/').next().unwrap_or(path);
    let Some((_, allowed)) = FOLDERS.iter().find(|(name, _)| *name == folder) else { return Vec::new() };
    // mod.rs is the folder itself, so one `super` leads out of it; in x.rs beside it two do.
    let depth = path.matches('/').count() - usize::from(path.ends_with("/mod.rs"));
    let climbs_out = "super::".repeat(depth + 1);
    let mut found = Vec::new();
    for (number, line) in without_tests(text).lines().enumerate() {
        for rest in code(line).split("crate::").skip(1) {
            let used = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let is_folder = FOLDERS.iter().any(|(name, _)| *name == used);
            if !is_folder || used != folder && !allowed.contains(&used) {
                found.push(format!("{path}:{}: {folder} uses crate::{used}", number + 1));
            }
        }
        if code(line).contains(&climbs_out) {
            found.push(format!("{path}:{}: {climbs_out} leads out of {folder}", number + 1));
        }
    }
    found
}

#[test]
fn imports_between_the_folders_of_the_core_go_in_one_direction() {
    for (at, (folder, allowed)) in FOLDERS.iter().enumerate() {
        let earlier = &FOLDERS[..at];
        let is_earlier = |name: &&str| earlier.iter().any(|(earlier, _)| earlier == name);
        assert!(allowed.iter().all(is_earlier), "{folder} may use what comes after it");
    }
    let sources = sources("mingle-core/src");
    let found: Vec<_> = sources
        .iter()
        .filter(|(path, _)| !is_test(path))
        .flat_map(|(path, text)| forbidden_imports(path, text))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_planted_import_is_found() {
    for (path, line) in [
        ("model/id.rs", "use crate::wire::Message;"),
        ("host/system.rs", "    let end = crate::proto::End::Gone;"),
        ("proto/lead/round.rs", "use super::super::super::net::Driver;"),
        ("wire/mod.rs", "use super::net::Driver;"),
        ("env/shell/sh.rs", "use crate::Assignment;"),
    ] {
        assert_eq!(forbidden_imports(path, line).len(), 1, "{path}: {line}");
    }
    for (path, line) in [
        ("net/driver.rs", "use crate::proto::Node;"),
        ("proto/lead/round.rs", "use super::super::shared::Shared;"),
        ("model/id.rs", "//! As in crate::wire::Message."),
    ] {
        assert!(forbidden_imports(path, line).is_empty(), "{path}: {line}");
    }
}

#[test]
fn no_line_is_wider_than_the_page() {
    let folders = [
        "mingle-rdma",
        "mingle-core",
        "mingle-cli",
        "mingle-bench/src",
        "mingle-python",
        "tests",
        "examples",
    ];
    let wide = folders.iter().flat_map(|folder| {
        let sources = sources(folder).into_iter().filter(|(path, _)| !path.starts_with("target/"));
        sources.flat_map(move |(path, text)| {
            let wide = text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS);
            let is_comment = |line: &str| {
                line.trim_start().starts_with("//") && !line.contains("http") && !line.contains(" | ")
            };
            wide.filter(|(_, line)| is_comment(line))
                .map(|(at, _)| format!("{folder}/{path}:{}", at + 1))
                .collect::<Vec<_>>()
        })
    });
    let wide: Vec<_> = wide.collect();
    assert!(wide.is_empty(), "comments wider than {COLUMNS} columns:\n{}", wide.join("\n"));
}

#[test]
fn flags_and_commands_are_named_by_the_command_line_alone() {
    let commands =
        ["doctor", "watch", "rdma", "run", "secret", "install"].map(|command| format!("mingle {command}"));
    let mut found = Vec::new();
    for (path, text) in sources("mingle-core/src").iter().filter(|(path, _)| !is_test(path)) {
        for (number, line) in without_tests(text).lines().enumerate() {
            // What is between quotation marks.
            for text in code(line).split('"').skip(1).step_by(2) {
                let flag =
                    text.split("--").skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
                // Arguments of the programs for which a format is.
                let flag = flag && !path.starts_with("env/launcher/");
                if flag || commands.iter().any(|command| text.contains(command.as_str())) {
                    found.push(format!("{path}:{}: {text:?}", number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "advice belongs in mingle-cli/src/advice.rs:\n{}", found.join("\n"));
}
