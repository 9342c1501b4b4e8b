//! Statements for fish, written for `eval (mingle --format fish ...)` and `mingle --format fish ... | source`.
//!
//! fish expands nothing in what a command substitution returns, and joins its lines with spaces: every statement
//! ends in `;`. `set` leaves the status of whatever came before it, and `set -e` has one of its own, so the last
//! statement is `true;`; it also makes half a text fail, since the guard's status would be the last.

use std::fmt::Write as _;
use std::num::NonZeroU8;

use super::Variables;
use super::sh::{is_bracketed, is_name, is_plain};

/// Alone it makes `eval` and `source` fail.
const GUARD: &str = "false";
/// The end of a result.
const DONE: &str = "true";

pub(super) fn guard() -> String {
    format!("{GUARD};\n")
}

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

/// A process of its own: `exit` would end the user's shell, and `return` his script.
pub(super) fn failure(code: NonZeroU8) -> String {
    format!("command sh -c 'exit {code}';\n")
}

/// Whether a line is exactly one of the few statements that are ever printed.
pub(super) fn is_safe(line: &str) -> bool {
    let Some(statement) = line.strip_suffix(";\n") else { return false };
    if let Some(assignment) = statement.strip_prefix("set -gx ") {
        let quoted = assignment.strip_suffix('\'').and_then(|text| text.split_once(" '"));
        // Within single quotes only they themselves and the backslash mean anything.
        quoted.is_some_and(|(name, value)| {
            is_name(name) && (value.chars().all(is_plain) || is_bracketed(value))
        })
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
    use super::super::tests::variables;
    use super::super::{Script, Shell};
    use super::*;

    #[test]
    fn what_was_set_before_is_removed_and_the_end_is_true() {
        let stale = [("GLOO_SOCKET_IFNAME", "eth0"), ("MINGLE_SET", "GLOO_SOCKET_IFNAME")];
        let script = Script::exports(Shell::Fish, &variables("a b", None, &stale)).unwrap();
        let text = script.as_str();
        assert!(text.starts_with("set -e GLOO_SOCKET_IFNAME;\nset -gx MASTER_ADDR '10.0.0.1';\n"), "{text}");
        assert!(text.contains("\nset -gx MINGLE_JOB_ID 'a%20b';\n"), "{text}");
        assert!(text.ends_with("\ntrue;\n"), "{text}");
    }

    #[test]
    fn only_the_known_statements_pass() {
        for line in [
            "true",
            "true; reboot;\n",
            "! true;\n",
            "set -gx A b;\n",
            "set -gx A 'b'; reboot; set -gx C 'd';\n",
            "set -gx A '$(reboot)';\n",
            "set -gx A '(reboot)';\n",
            "set -gx A '\\';\n",
            "set -gx A 'a' 'b';\n",
            "set -gx A 'a[b]';\n",
            "set -gx a 'b';\n",
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
