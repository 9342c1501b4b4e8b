//! A finding: what was looked at, what was seen, and what to do.

use std::fmt::{self, Write as _};

use serde::Serialize;

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Nothing to do.
    Ok,
    /// Worth knowing.
    Note,
    /// It may keep a world from forming, or harm the job later.
    Warning,
    /// It keeps a world from forming, or a node out of the world.
    Problem,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One finding. Every finding that is not ok has a cure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// A name for programs, which stays when the messages change.
    pub(super) check: &'static str,
    pub(super) status: Severity,
    /// The subject that was examined.
    pub(super) looked: String,
    /// The facts about the subject.
    pub(super) seen: String,
    /// The remedy, in one line.
    pub(super) cure: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, looked: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { check, status: Severity::Ok, looked: looked.into(), seen: seen.into(), cure: None }
    }

    pub(super) fn new(
        status: Severity,
        check: &'static str,
        looked: impl Into<String>,
        seen: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self { check, status, looked: looked.into(), seen: seen.into(), cure: Some(cure.into()) }
    }
}

/// The findings for people: a line each, and a line for the cure.
pub(super) fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let (status, looked, seen) = (finding.status, line(&finding.looked), line(&finding.seen));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{status:<8} {looked}: {seen}");
        if let Some(cure) = &finding.cure {
            let _ = writeln!(text, "         -> {}", line(cure));
        }
    }
    text
}

/// The text as one line: names from the kernel and from files can hold line breaks.
fn line(text: &str) -> String {
    text.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_is_a_line_and_its_cure_another() {
        let found = [
            Finding::ok("a", "port 1", "free"),
            Finding::new(Severity::Problem, "b", "eth0\nfake", "down", "plug it in"),
        ];
        let expected = "ok       port 1: free\nproblem  eth0\\nfake: down\n         -> plug it in\n";
        assert_eq!(text(&found), expected);
    }
}
