//! Statements for fish, written for `eval (mingle --format fish ...)` and
//! `mingle --format fish ... | source`.
//!
//! fish expands nothing in the output of a command substitution, and joins its lines with spaces, so every
//! statement ends in `;`. `set` keeps the status of the statement before it, and `set -e` has a status of its
//! own, so the last statement is `true;`. A text that breaks off earlier fails, with the status of the guard.

use crate::env::Variables;

pub(super) fn exports(variables: &Variables) -> String {
    let removals = variables.unset().iter().map(|name| format!("set -e {name};\n"));
    let exports = variables.set().iter().map(|(name, value)| format!("set -gx {name} '{value}';\n"));
    removals.chain(exports).collect::<String>() + "true;\n"
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{is_name, is_plain};

    /// Whether a line is exactly one of the statements that this file writes.
    pub(in super::super) fn is_safe(line: &str) -> bool {
        let Some(statement) = line.strip_suffix(";\n") else { return false };
        if let Some(assignment) = statement.strip_prefix("set -gx ") {
            let Some((name, value)) = assignment.split_once(' ') else { return false };
            let value = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
            is_name(name) && value.is_some_and(|value| value.chars().all(is_plain))
        } else {
            statement == "true" || statement.strip_prefix("set -e ").is_some_and(is_name)
        }
    }
}
