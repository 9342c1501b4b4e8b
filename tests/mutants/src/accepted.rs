//! The mutants that are no bugs, each with its reason.

use std::collections::BTreeMap;

/// The reasons by the names of the mutants. In the text a name begins a line, and its reason is in the lines
/// after it, which begin with four blanks. Names with one reason follow one another.
///
/// # Errors
/// If a name has no reason.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut reasons = BTreeMap::new();
    let mut names: Vec<&str> = Vec::new();
    let mut reason = String::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).chain([""]) {
        if let Some(words) = line.strip_prefix("    ") {
            reason.push_str(if reason.is_empty() { "" } else { " " });
            reason.push_str(words);
            continue;
        }
        if !reason.is_empty() {
            reasons.extend(names.drain(..).map(|name| (name.to_owned(), reason.clone())));
            reason.clear();
        }
        names.push(line);
    }
    names.retain(|name| !name.is_empty());
    match names.first() {
        Some(name) => Err(format!("no reason is given for {name}")),
        None => Ok(reasons),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_follow_one_another_have_one_reason_and_a_name_without_one_is_an_error() {
        let reasons =
            parse("# Words.\na f: x\na g: y\n    Because of\n    this.\n\nb h: z\n    That.\n").unwrap();
        assert_eq!(reasons["a f: x"], "Because of this.");
        assert_eq!(reasons["a g: y"], "Because of this.");
        assert_eq!(reasons["b h: z"], "That.");
        assert!(parse("a f: x\n").is_err());
    }
}
