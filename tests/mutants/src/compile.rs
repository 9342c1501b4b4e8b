//! Builds the copy, and takes out the mutants that do not compile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::mutant::{Edit, Mutant};
use crate::tree::{Places, Sources, Tree};

/// A test program, with the name of its target.
pub struct Program {
    pub name: String,
    pub path: PathBuf,
}

/// Removes mutants until the library compiles. Returns how many were removed, those included that did not
/// compile before.
///
/// # Errors
/// If an error of the compiler concerns no mutant.
pub fn keep_viable(
    tree: &mut Tree,
    sources: &Sources,
    target: &Path,
    mutants: &mut BTreeMap<usize, Mutant>,
) -> Result<usize, String> {
    let drawn = mutants.len();
    // Without those that did not compile before, the build may be the one of the last time.
    let file = target.join("mutants/unviable.txt");
    let mut names: BTreeSet<String> =
        fs::read_to_string(&file).unwrap_or_default().lines().map(str::to_owned).collect();
    mutants.retain(|_, mutant| !names.contains(&mutant.key()));
    loop {
        tree.write(sources, mutants).map_err(|error| error.to_string())?;
        let messages = cargo(&tree.folder, target, &["check", "--lib"])?;
        let errors: Vec<&Value> = messages
            .iter()
            .map(|line| &line["message"])
            .filter(|message| message["level"] == "error")
            .collect();
        if errors.is_empty() {
            let lines: String = names.iter().flat_map(|name| [name, "\n"]).collect();
            fs::write(&file, lines).map_err(|error| error.to_string())?;
            return Ok(drawn - mutants.len());
        }
        let blamed: BTreeSet<usize> = errors.iter().flat_map(|error| blamed(error, tree, mutants)).collect();
        if blamed.is_empty() {
            let texts = errors.iter().filter_map(|error| error["rendered"].as_str());
            return Err(format!("no mutant is to blame for these errors:\n{}", texts.collect::<String>()));
        }
        names.extend(blamed.iter().map(|number| mutants[number].key()));
        mutants.retain(|number, _| !blamed.contains(number));
    }
}

/// Builds the tests of the library.
pub fn tests(tree: &Tree, target: &Path) -> Result<Vec<Program>, String> {
    let messages = cargo(&tree.folder, target, &["test", "--no-run", "--tests"])?;
    let errors: String = messages.iter().filter_map(|line| error_text(&line["message"])).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let program = |line: &Value| {
        let path = PathBuf::from(line["executable"].as_str()?);
        let name = line["target"]["name"].as_str()?.to_owned();
        Some(Program { name, path })
    };
    Ok(messages.iter().filter_map(program).collect())
}

fn error_text(message: &Value) -> Option<&str> {
    if message["level"] == "error" { message["rendered"].as_str() } else { None }
}

/// Runs cargo. Returns its messages, which it prints as a JSON object a line.
fn cargo(folder: &Path, target: &Path, arguments: &[&str]) -> Result<Vec<Value>, String> {
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--quiet", "--package", "mingle-core", "--no-default-features", "--message-format", "json"])
        // The options of the mutants' own build, if cargo runs this program, are not those of the copy.
        .env_remove("CARGO_MANIFEST_DIR")
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .current_dir(folder)
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let has_errors = messages.iter().any(|line| line["message"]["level"] == "error");
    if output.status.success() || has_errors {
        Ok(messages)
    } else {
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("cargo {} ended with {}:\n{errors}", arguments.join(" "), output.status))
    }
}

/// The mutants that cause an error: the innermost one around a place that the compiler points to; where there
/// is none, those within such a place.
fn blamed(error: &Value, tree: &Tree, mutants: &BTreeMap<usize, Mutant>) -> Vec<usize> {
    let mut spans = Vec::new();
    collect_spans(error, &mut spans);
    spans.sort_by_key(|span| !span["is_primary"].as_bool().unwrap_or(false));
    let places: Vec<(&Places, Range<usize>)> = spans
        .iter()
        .filter_map(|span| {
            let number = |name: &str| usize::try_from(span[name].as_u64()?).ok();
            let places = tree.places.get(span["file_name"].as_str()?)?;
            Some((places, number("byte_start")?..number("byte_end")?))
        })
        .collect();
    for (places, span) in &places {
        let around = places.iter().filter(|(place, number)| is_inside(span, place, &mutants[number].edit));
        if let Some((_, number)) = around.min_by_key(|(place, _)| place.len()) {
            return vec![*number];
        }
    }
    for (places, span) in &places {
        let within = places.iter().filter(|(place, _)| span.start <= place.start && place.end <= span.end);
        let within: Vec<usize> = within.map(|(_, number)| *number).collect();
        if !within.is_empty() {
            return within;
        }
    }
    // Without a `return` two borrows meet: the missing statement is between the places.
    let Some((file, _)) = places.first() else { return Vec::new() };
    let same = || places.iter().filter(|(other, _)| std::ptr::eq(*other, *file)).map(|(_, span)| span);
    let first = same().map(|span| span.start).min().unwrap_or(0);
    let last = same().map(|span| span.end).max().unwrap_or(0);
    let between = file.iter().filter(|(place, number)| {
        matches!(mutants[number].edit, Edit::Delete) && first <= place.start && place.end <= last
    });
    between.map(|(_, number)| *number).collect()
}

/// Whether a place that the compiler points to is inside of a mutant. The whole `if` of a replaced expression
/// is what the code around it complains of.
fn is_inside(span: &Range<usize>, place: &Range<usize>, edit: &Edit) -> bool {
    match edit {
        Edit::Replace(_) => place.start + 1 < span.start && span.end < place.end - 1,
        _ => place.start <= span.start && span.end <= place.end,
    }
}

/// All places in a message and its notes. What a macro makes has the place of its call.
fn collect_spans<'a>(message: &'a Value, found: &mut Vec<&'a Value>) {
    for span in message["spans"].as_array().into_iter().flatten() {
        found.push(span);
        let mut expansion = &span["expansion"]["span"];
        while expansion.is_object() {
            found.push(expansion);
            expansion = &expansion["expansion"]["span"];
        }
    }
    for child in message["children"].as_array().into_iter().flatten() {
        collect_spans(child, found);
    }
}
