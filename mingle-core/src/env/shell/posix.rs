//! Statements for POSIX shells, written for `eval "$(mingle ...)"` and for `eval $(mingle ...)`.
//!
//! The unquoted form splits the text into words at white space, expands words that look like file name
//! patterns, and joins the words with spaces. So every statement ends in `;`, every value is in single quotes
//! (zsh would expand a bare `=eth0`), and the text holds nothing that a shell could expand. This is true in
//! bash, dash, busybox sh, zsh and ksh, with `set -e` and without.
//!
//! In the unquoted form, two kinds of values need more than quotes:
//!
//! * `[fd00::1]:29500` would be a pattern. Its `[` has a statement of its own, since a lone bracket is no
//!   pattern, and a second statement appends the rest.
//! * The line ends of a list of hosts would become spaces. The shell writes the lines itself, by `echo`
//!   commands in `$(...)`, which removes the last line's end.

use std::fmt::Write as _;

use super::alphabet::{is_bracketed, is_plain};
use crate::env::Variables;

pub(super) fn exports(variables: &Variables) -> String {
    let mut text = String::new();
    // Removals come first, because the status of the last statement is the status of `eval`.
    for name in variables.unset() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "unset {name};");
    }
    for (name, value) in variables.set() {
        export(&mut text, name, value);
    }
    text
}

/// Appends the statements that set `name` to `value`. A list of hosts may lose its last line's end.
fn export(text: &mut String, name: &str, value: &str) {
    let rest = value.strip_prefix('[').filter(|_| is_bracketed(value));
    // Writing to a string cannot fail.
    let _ = if let Some(rest) = rest {
        writeln!(text, "export {name}='[';\nexport {name}=\"${name}\"'{rest}';")
    } else if value.contains('\n') {
        let lines: Vec<String> = value.lines().map(|line| format!("echo {line}")).collect();
        writeln!(text, "export {name}=\"$({})\";", lines.join("; "))
    } else {
        writeln!(text, "export {name}='{value}';")
    };
}

/// Whether `echo` writes a text as it is: one that begins with - could be an option.
pub(super) fn is_line(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_alphanumeric() || c == ':') && line.chars().all(is_plain)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Shell, is_name, tests};
    use super::*;
    use crate::env::tests::{formed, variables};

    /// Whether a line is exactly one of the statements that this file writes.
    pub(in super::super) fn is_safe(line: &str) -> bool {
        let Some(statement) = line.strip_suffix(";\n") else { return false };
        if let Some(assignment) = statement.strip_prefix("export ") {
            let Some((name, value)) = assignment.split_once('=') else { return false };
            is_name(name) && is_safe_value(name, value)
        } else {
            statement.strip_prefix("unset ").is_some_and(is_name)
        }
    }

    /// Whether a text may follow `NAME=`: a value in single quotes; a lone bracket in single quotes; the
    /// variable itself and the rest of a bracketed address; or `echo` commands that write lines.
    fn is_safe_value(name: &str, value: &str) -> bool {
        let quoted = |text: &str| -> Option<String> {
            Some(text.strip_prefix('\'')?.strip_suffix('\'')?.to_owned()).filter(|text| !text.contains('\''))
        };
        let command = value.strip_prefix("\"$(").and_then(|rest| rest.strip_suffix(")\""));
        if let Some(lines) = command {
            return lines.split("; ").all(|line| line.strip_prefix("echo ").is_some_and(is_line));
        }
        if let Some(rest) = value.strip_prefix(&format!("\"${name}\"")) {
            return quoted(rest).is_some_and(|rest| is_bracketed(&format!("[{rest}")));
        }
        quoted(value).is_some_and(|value| value == "[" || value.chars().all(is_plain))
    }

    fn exports(variables: &Variables) -> String {
        tests::exports(Shell::Posix, variables)
    }

    #[test]
    fn a_world_of_four_is_printed_word_for_word() {
        let expected = "\
export MASTER_ADDR='10.0.0.1';
export MASTER_PORT='29503';
export RANK='2';
export WORLD_SIZE='4';
export NODE_RANK='2';
export PET_NNODES='4';
export PET_NODE_RANK='2';
export PET_MASTER_ADDR='10.0.0.1';
export PET_MASTER_PORT='29503';
export MINGLE_JOB_ID='my%20job';
export MINGLE_ROSTER_DIGEST='abababababababababababababababab';
export MINGLE_RANK_OFFSET='16';
export MINGLE_TOTAL_SLOTS='32';
export PET_NPROC_PER_NODE='8';
export NCCL_SOCKET_IFNAME='=eth0';
export NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME='=eth0';
export GLOO_SOCKET_IFNAME='eth0';
export TORCHCOMM_GLOO_INTERFACE='eth0';
export TP_SOCKET_IFNAME='eth0';
export NCCL_RAS_ADDR='localhost:28375';
export MINGLE_SET='PET_NPROC_PER_NODE:24fab59a,NCCL_SOCKET_IFNAME:2c357982,\
NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME:2c357982,GLOO_SOCKET_IFNAME:c3e607cf,TORCHCOMM_GLOO_INTERFACE:c3e607cf,\
TP_SOCKET_IFNAME:c3e607cf,NCCL_RAS_ADDR:96d7df56';
";
        assert_eq!(exports(&variables("my job", Some("eth0"), &[])), expected);
    }

    #[test]
    fn an_ipv6_master_address_has_no_brackets_and_no_scope() {
        let (job, formed) = ("foo".parse().unwrap(), formed("[fd00::1%7]:29500"));
        assert!(
            exports(&Variables::new(crate::env::Facts::new(&job, &formed), |_| None))
                .contains("export MASTER_ADDR='fd00::1';")
        );
    }

    #[test]
    fn the_longest_result_fits_one_atomic_write_to_a_pipe() {
        // A write of up to PIPE_BUF (4096) bytes is atomic (pipe(7)), so a shell never sees half of a result.
        let stale = [("NCCL_SOCKET_IFNAME", "=eth0"), ("MINGLE_SET", "NCCL_SOCKET_IFNAME:2c357982")];
        let text = exports(&variables(&" ".repeat(128), Some("interface-of-15"), &stale));
        assert!(text.len() < 4096, "{}", text.len());
    }
}
