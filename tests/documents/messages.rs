//! The texts that the code can print, to compare with the quotes in documents.

use std::fs;
use std::path::Path;

/// The code of library and program, without that of tests: each file's path below `root`, and its text.
pub(crate) fn sources(root: &Path) -> Vec<(String, String)> {
    let mut sources = Vec::new();
    let mut folders: Vec<_> = ["mingle-rdma/src", "mingle-core/src", "mingle-cli/src"]
        .iter()
        .map(|folder| root.join(folder))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"))
            {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                sources.push((name, code.to_owned()));
            }
        }
    }
    assert!(sources.len() > 100, "{} files are not all", sources.len());
    sources
}

/// All literal texts in the code of library and program. A zero byte stands for a value that is put in.
pub(crate) fn texts(root: &Path) -> Vec<String> {
    let texts: Vec<_> = sources(root).iter().flat_map(|(_, code)| literals(code)).collect();
    assert!(texts.len() > 1000, "{} texts are not all", texts.len());
    texts
}

/// The string literals of a piece of Rust. Raw literals are read as others are: they hold no messages.
pub(crate) fn literals(code: &str) -> Vec<String> {
    let (mut found, mut chars) = (Vec::new(), code.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => while chars.next().is_some_and(|c| c != '\n') {},
            // A quotation mark as a character, which begins nothing.
            '\'' if chars.peek() == Some(&'"') => drop(chars.next()),
            '"' => found.push(literal(&mut chars)),
            _ => {}
        }
    }
    found
}

fn literal(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => {}
            },
            '{' if chars.next_if_eq(&'{').is_some() => text.push('{'),
            // A brace alone is no place for a value.
            '{' if chars.clone().take_while(|c| *c != '"').any(|c| c == '}') => {
                while chars.next().is_some_and(|c| c != '}') {}
                text.push('\0');
            }
            other => text.push(other),
        }
    }
    text
}

/// The parts of a quoted line that are in no literal. The line is cut at each value (a word with a digit in
/// it, or one of `names`), and further where one literal may end and another begin.
pub(crate) fn unknown(line: &str, names: &[&str], texts: &[String]) -> Vec<String> {
    let is_in = |part: &str| texts.iter().any(|text| text.contains(part));
    // The value that is put in may be a literal as well.
    let is_put_together = |part: &str| {
        let mut ways = part.match_indices(' ').map(|(at, _)| (&part[..=at], &part[at + 1..]));
        ways.any(|(text, value)| {
            is_in(&format!("{text}\0")) && texts.iter().any(|text| text.starts_with(value))
        })
    };
    let is_known = |part: &str| is_in(part) || is_put_together(part);
    let (mut parts, mut is_number) = (vec![String::new()], false);
    for word in line.split(' ') {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        // A unit belongs to the number before it.
        let is_unit = std::mem::take(&mut is_number) && ["s", "ms"].contains(&bare);
        if word.contains(|c: char| c.is_ascii_digit())
            || names.contains(&bare)
            || names.contains(&word)
            || is_unit
        {
            is_number = word.parse::<f64>().is_ok();
            parts.push(String::new());
        } else {
            let part = parts.last_mut().unwrap();
            *part += if part.is_empty() { "" } else { " " };
            *part += word;
        }
    }
    let mut unknown = Vec::new();
    for part in parts.iter().filter(|part| !is_known(part)) {
        let clauses = part.split_inclusive([';', ':', ',', '(', ')']);
        let clauses = clauses.map(|clause| clause.trim_matches(|c: char| " ;:,()".contains(c)));
        unknown.extend(clauses.filter(|clause| !is_known(clause)).map(str::to_owned));
    }
    unknown
}
