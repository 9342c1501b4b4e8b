//! Statements for fish, written for `eval (mingle --format fish ...)` and
//! `mingle --format fish ... | source`.
//!
//! fish expands nothing in the output of a command substitution, and joins its lines with spaces, so every
//! statement ends in `;`. `set` keeps the status of the statement before it, and `set -e` has a status of its
//! own, so the last statement is `true;`. A text that breaks off earlier fails, with the status of the guard.

use std::fmt::Write as _;
use std::num::NonZeroU8;

use super::alphabet::is_name;
use crate::env::Variables;

/// The guard; see [`Script::guard`](super::Script::guard). Alone it makes `eval` and `source` fail.
pub(super) const GUARD: &str = "false";
/// The last statement of a result.
const DONE: &str = "true";

pub(super) fn exports(variables: &Variables) -> String {
    let mut text = String::new();
    for name in variables.unset() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "set -e {name};");
    }
    for (name, value) in variables.set() {
        let _ = writeln!(text, "set -gx {name} '{value}';");
    }
    text + DONE + ";\n"
}

/// Runs a process that fails: `exit` would end the user's shell, and `return` the user's script.
pub(super) fn failure(code: NonZeroU8) -> String {
    format!("command sh -c 'exit {code}';\n")
}

/// Whether a text is one value in single quotes.
fn is_quoted(text: &str) -> bool {
    let value = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    value.is_some_and(|value| !value.contains(['\'', '\\', '\n', '\0']))
}

/// Whether a line is exactly one of the statements that this file writes.
pub(super) fn is_safe(line: &str) -> bool {
    let Some(statement) = line.strip_suffix(";\n") else { return false };
    if let Some(assignment) = statement.strip_prefix("set -gx ") {
        assignment.split_once(' ').is_some_and(|(name, value)| is_name(name) && is_quoted(value))
    } else if let Some(name) = statement.strip_prefix("set -e ") {
        is_name(name)
    } else if let Some(exit) = statement.strip_prefix("command sh -c 'exit ") {
        let code = exit.strip_suffix('\'').filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()));
        code.is_some_and(|code| code.parse::<NonZeroU8>().is_ok())
    } else {
        statement == GUARD || statement == DONE
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Script, Shell};
    use super::*;

    #[test]
    fn only_statements_that_mingle_prints_pass_the_check() {
        for line in [
            "true",
            "true; reboot;\n",
            "! true;\n",
            "set -gx A b;\n",
            "set -gx A 'b'; reboot; set -gx C 'd';\n",
            "set -gx A '\\';\n",
            "set -gx A 'a\\nb';\n",
            "set -gx A 'a'\\n;\n",
            "set -gx A 'a'\\nb;\n",
            "set -gx A 'a'(reboot)'b';\n",
            "set -gx A 'a' 'b';\n",
            "set -gx A 'a\0';\n",
            "set -gx A '';'';\n",
            "set -gx 1a 'b';\n",
            "set -Ux A 'b';\n",
            "set -e -g A;\n",
            "set -e ;\n",
            "command sh -c 'exit 0';\n",
            "command sh -c 'exit 1; reboot';\n",
            "\n",
        ] {
            assert!(!is_safe(line), "{line:?}");
        }
        assert_eq!(Script::guard(Shell::Fish).unwrap().as_str(), "false;\n");
        let failure = Script::failure(Shell::Fish, NonZeroU8::MIN).unwrap();
        assert_eq!(failure.as_str(), "command sh -c 'exit 1';\n");
    }
}
