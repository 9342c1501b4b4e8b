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
use std::num::NonZeroU8;

use super::alphabet::{is_bracketed, is_name, is_plain};
use crate::env::Variables;

/// The guard; see [`Script::guard`](super::Script::guard).
pub(super) const GUARD: &str = "! true";

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

pub(super) fn failure(code: NonZeroU8) -> String {
    format!("(exit {code});\n")
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

/// Whether a line is exactly one of the statements that this file writes.
pub(super) fn is_safe(line: &str) -> bool {
    let Some(statement) = line.strip_suffix(";\n") else { return false };
    if let Some(assignment) = statement.strip_prefix("export ") {
        let Some((name, value)) = assignment.split_once('=') else { return false };
        is_name(name) && is_safe_value(name, value)
    } else if let Some(name) = statement.strip_prefix("unset ") {
        is_name(name)
    } else if let Some(exit) = statement.strip_prefix("(exit ") {
        let code = exit.strip_suffix(')').filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()));
        code.is_some_and(|code| code.parse::<NonZeroU8>().is_ok())
    } else {
        statement == GUARD
    }
}

/// Whether a text may follow `NAME=`: a value in single quotes; a lone bracket in single quotes; the variable
/// itself and the rest of a bracketed address; or `echo` commands that write lines.
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

#[cfg(test)]
mod tests {
    use super::super::{Script, Shell};
    use super::*;
    use crate::env::tests::{formed, variables};

    fn exports(variables: &Variables) -> String {
        Script::exports(Shell::Posix, variables).unwrap().as_str().to_owned()
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
    fn every_job_id_and_interface_is_printed_in_the_safe_alphabet() {
        // Each character once at the start, in the middle and at the end of a value.
        for c in (0..0x250_u32).filter_map(char::from_u32) {
            for text in [format!("{c}x"), format!("x{c}x"), format!("x{c}")] {
                let job = if text.parse::<crate::model::JobId>().is_ok() { text.as_str() } else { "foo" };
                let script = exports(&variables(job, Some(&text), &[]));
                for line in script.lines() {
                    let value = line.split_once("='").unwrap().1.strip_suffix("';").unwrap();
                    assert!(value.chars().all(is_plain), "{line}");
                }
            }
        }
    }

    #[test]
    fn a_value_outside_of_the_safe_alphabet_is_refused() {
        for c in "'\"`$\\ \n\t\r\0;&|<>()*?[]{}~#!^\u{7f}\u{a0}\u{202e}é".chars() {
            let mut variables = variables("foo", Some("eth0"), &[]);
            variables.replace_first(format!("a{c}b"));
            assert!(Script::exports(Shell::Fish, &variables).is_err(), "{c:?}");
            if c == '\n' {
                // A line end between two lines is allowed.
                continue;
            }
            assert!(Script::exports(Shell::Posix, &variables).is_err(), "{c:?}");
            for value in [format!("[a{c}b]:1"), format!("a\n{c}b"), format!("a\nb{c}"), format!("[a]{c}")] {
                variables.replace_first(value);
                assert!(Script::exports(Shell::Posix, &variables).is_err(), "{c:?}");
            }
        }
    }

    #[test]
    fn only_statements_that_mingle_prints_pass_the_check() {
        for line in [
            "true;\n",
            "! true",
            "! true; reboot;\n",
            "export A='b'\n",
            "export A=b;\n",
            "export A='b'; reboot; export C='d';\n",
            "export 1a='b';\n",
            "export A B='c';\n",
            "export ='c';\n",
            "unset A B;\n",
            "unset -f;\n",
            "unset ;\n",
            "(exit 0);\n",
            "(exit 256);\n",
            "(exit +1);\n",
            "(exit );\n",
            "(exit 1); reboot;\n",
            "\n",
            "export A='b]';\n",
            "export A='[b]';\n",
            "export A='[[';\n",
            "export A=\"$B\"'x]';\n",
            "export A=\"$A\"'x';\n",
            "export A=\"$A\"'x]]';\n",
            "export A=\"$A\"'x]'; reboot; B='';\n",
            "export A=\"$(reboot)\";\n",
            "export A=\"$(echo -n)\";\n",
            "export A=\"$(echo a; reboot)\";\n",
            "export A=\"$(echo a b)\";\n",
            "export A=\"$(echo a)\"; reboot; B=\"$(echo b)\";\n",
            "export A=\"$()\";\n",
        ] {
            assert!(Script::checked(Shell::Posix, line.to_owned()).is_err(), "{line:?}");
        }
        assert_eq!(Script::guard(Shell::Posix).unwrap().as_str(), "! true;\n");
        for code in 1..=255 {
            let script = Script::failure(Shell::Posix, NonZeroU8::new(code).unwrap()).unwrap();
            assert_eq!(script.as_str(), format!("(exit {code});\n"));
        }
    }

    #[test]
    fn the_longest_result_fits_one_atomic_write_to_a_pipe() {
        // A write of up to PIPE_BUF (4096) bytes is atomic (pipe(7)), so a shell never sees half of a result.
        let stale = [("NCCL_SOCKET_IFNAME", "=eth0"), ("MINGLE_SET", "NCCL_SOCKET_IFNAME:2c357982")];
        let text = exports(&variables(&" ".repeat(128), Some("interface-of-15"), &stale));
        assert!(text.len() < 4096, "{}", text.len());
    }
}
