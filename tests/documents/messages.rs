//! The texts that the code can print, to compare with what documents say that it prints.

use std::fs;
use std::path::Path;

/// All literal texts in the sources of library and program, without those of tests. Where a value is put in, there is
/// a zero byte.
pub(crate) fn texts(root: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    let mut folders = vec![root.join("mingle-core/src"), root.join("mingle-cli/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("tests.rs")
            {
                let source = fs::read_to_string(&path).unwrap();
                let code = source.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
                texts.extend(literals(code));
            }
        }
    }
    assert!(texts.len() > 1000, "{} texts are not all", texts.len());
    texts
}

/// The string literals of a piece of Rust. Raw ones are taken as others are: they hold no messages.
fn literals(code: &str) -> Vec<String> {
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
            '{' => {
                while chars.next().is_some_and(|c| c != '}') {}
                text.push('\0');
            }
            other => text.push(other),
        }
    }
    text
}

/// What of a quoted line no literal has. The line is cut where a value stands (a word with a digit in it, or one of
/// `names`), and further where one literal may end and another begin.
pub(crate) fn unknown(line: &str, names: &[&str], texts: &[String]) -> Vec<String> {
    let is_known = |part: &str| texts.iter().any(|text| text.contains(part));
    let mut parts = vec![String::new()];
    for word in line.split(' ') {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        if word.contains(|c: char| c.is_ascii_digit()) || names.contains(&bare) {
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
