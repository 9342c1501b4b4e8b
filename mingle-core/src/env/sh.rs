//! Statements for a shell, written for `eval "$(mingle ...)"` and for `eval $(mingle ...)`.
//!
//! The unquoted form splits the text into words at white space, expands what looks like a file name
//! pattern, and joins the words with spaces. So every statement ends in `;`, every value stands in
//! single quotes (zsh would expand a bare `=eth0`), and nothing that a shell could expand is printed
//! at all. This holds in bash, dash, busybox sh, zsh and ksh, with `set -e` and without. fish has statements of
//! its own; see `fish.rs`.
//!
//! Two sorts of values need more than quotes, for the unquoted form's sake:
//!
//! * `[fd00::1]:29500` would be a pattern. Its `[` is a statement by itself, since a lone bracket is none, and a
//!   second statement adds what follows.
//! * Of a value with several lines the line ends would become spaces. The shell writes the lines itself, by a
//!   command in `$(...)`, which cuts off the last line's end.

use std::fmt::Write as _;
use std::num::NonZeroU8;

use super::{Variables, fish};

/// The guard; see [`Script::guard`].
const GUARD: &str = "! true";

/// The shells that differ in what they evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shell {
    /// bash, dash, busybox sh, zsh, ksh, and whatever else is much like POSIX's.
    Posix,
    /// fish.
    Fish,
}

/// A text that a shell may evaluate. It exists only where every statement has passed one check, the
/// same for all, that knows nothing of how the text came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script(String);

impl Script {
    /// What is printed before anything else: `! true;`, or `false;` for fish. Alone, because the process was
    /// killed, it makes `eval` fail, which an empty text does not; followed by exports it changes nothing, and
    /// `set -e` lets it pass.
    ///
    /// # Errors
    /// None; see [`Script::exports`].
    pub fn guard(shell: Shell) -> Result<Self, UnsafeStatement> {
        match shell {
            Shell::Posix => Self::checked(shell, format!("{GUARD};\n")),
            Shell::Fish => Self::checked(shell, fish::guard()),
        }
    }

    /// The variables of a formed world, one statement a line.
    ///
    /// ```text
    /// export MASTER_ADDR='10.0.0.1';
    /// ```
    ///
    /// # Errors
    /// [`UnsafeStatement`] where a value has a character outside of `A-Z a-z 0-9 _ . , : = / @ % + -`, but for
    /// the brackets around an address of IPv6 at the beginning, and line ends.
    pub fn exports(shell: Shell, variables: &Variables) -> Result<Self, UnsafeStatement> {
        if shell == Shell::Fish {
            return Self::checked(shell, fish::exports(variables));
        }
        let mut text = String::new();
        // Removals first: the last statement's status is that of `eval`.
        for name in variables.unset() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "unset {name};");
        }
        for (name, value) in variables.set() {
            export(&mut text, name, value);
        }
        Self::checked(shell, text)
    }

    /// What makes `eval` fail with `code`: `(exit 3);`. A subshell, for `exit` alone would end the
    /// user's own.
    ///
    /// # Errors
    /// None; see [`Script::exports`].
    pub fn failure(shell: Shell, code: NonZeroU8) -> Result<Self, UnsafeStatement> {
        match shell {
            Shell::Posix => Self::checked(shell, format!("(exit {code});\n")),
            Shell::Fish => Self::checked(shell, fish::failure(code)),
        }
    }

    /// The text, which ends in a newline.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The only way to a script.
    fn checked(shell: Shell, text: String) -> Result<Self, UnsafeStatement> {
        let is_safe = match shell {
            Shell::Posix => is_safe,
            Shell::Fish => fish::is_safe,
        };
        match text.split_inclusive('\n').find(|line| !is_safe(line)) {
            Some(line) => Err(UnsafeStatement(line.to_owned())),
            None => Ok(Self(text)),
        }
    }
}

/// The statements that give `name` this value.
fn export(text: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = if let Some(rest) = value.strip_prefix('[') {
        writeln!(text, "export {name}='[';\nexport {name}=\"${name}\"'{rest}';")
    } else if value.contains('\n') {
        let lines: Vec<String> = value.lines().map(|line| format!("echo {line}")).collect();
        writeln!(text, "export {name}=\"$({})\";", lines.join("; "))
    } else {
        writeln!(text, "export {name}='{value}';")
    };
}

/// A statement that was refused, and never printed for a shell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused to print what a shell could misread: {0:?}")]
pub struct UnsafeStatement(pub(super) String);

/// Whether a line is exactly one of the few statements that are ever printed.
fn is_safe(line: &str) -> bool {
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

/// What may follow `NAME=`: a value in single quotes, a lone bracket in them, the rest of an address behind the
/// variable itself, or lines that the shell writes.
fn is_safe_value(name: &str, value: &str) -> bool {
    let quoted = |text: &str| -> Option<String> {
        Some(text.strip_prefix('\'')?.strip_suffix('\'')?.to_owned()).filter(|text| !text.contains('\''))
    };
    if let Some(lines) = value.strip_prefix("\"$(").and_then(|rest| rest.strip_suffix(")\"")) {
        // An `echo` of what begins with - could take it for an option.
        let is_line = |line: &str| {
            line.strip_prefix("echo ").is_some_and(|text| {
                text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == ':')
                    && text.chars().all(is_plain)
            })
        };
        return lines.split("; ").all(is_line);
    }
    if let Some(rest) = value.strip_prefix(&format!("\"${name}\"")) {
        return quoted(rest).is_some_and(|rest| is_bracketed(&format!("[{rest}")));
    }
    quoted(value).is_some_and(|value| value == "[" || value.chars().all(is_plain))
}

/// Whether a value is an address of IPv6 in brackets, and what follows it.
pub(super) fn is_bracketed(value: &str) -> bool {
    let parts = value.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    parts.is_some_and(|(address, rest)| address.chars().chain(rest.chars()).all(is_plain))
}

/// The safe alphabet: no shell gives any of these a meaning within single quotes, nor, where an `eval`
/// without quotes has split them, as a pattern. Not `~`, which zsh with EXTENDED_GLOB reads as one.
pub(super) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ',' | ':' | '=' | '/' | '@' | '%' | '+' | '-')
}

pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::super::tests::{facts, formed, variables};
    use super::*;

    fn exports(variables: &Variables) -> String {
        Script::exports(Shell::Posix, variables).unwrap().as_str().to_owned()
    }

    #[test]
    fn a_world_of_four_is_printed_like_this() {
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
export GLOO_SOCKET_IFNAME='eth0';
export MINGLE_SET='PET_NPROC_PER_NODE,NCCL_SOCKET_IFNAME,GLOO_SOCKET_IFNAME';
";
        assert_eq!(exports(&variables("my job", Some("eth0"), &[])), expected);
    }

    #[test]
    fn what_is_removed_is_removed_first() {
        let stale = [("GLOO_SOCKET_IFNAME", "eth0"), ("MINGLE_SET", "GLOO_SOCKET_IFNAME")];
        let text = exports(&variables("foo", None, &stale));
        assert!(text.starts_with("unset GLOO_SOCKET_IFNAME;\nexport MASTER_ADDR="), "{text}");
        assert!(text.ends_with("export MINGLE_SET='PET_NPROC_PER_NODE';\n"), "{text}");
    }

    #[test]
    fn an_ipv6_master_has_no_brackets_and_no_scope() {
        let (job, formed) = ("foo".parse().unwrap(), formed("[fd00::1%7]:29500"));
        assert!(
            exports(&Variables::new(facts(&job, &formed), |_| None))
                .contains("export MASTER_ADDR='fd00::1';")
        );
    }

    #[test]
    fn no_job_id_and_no_interface_can_leave_the_alphabet() {
        // Every printable character in turn, at the start, in the middle and at the end of a value.
        for c in (0..0x250_u32).filter_map(char::from_u32) {
            for text in [format!("{c}x"), format!("x{c}x"), format!("x{c}")] {
                let job = if text.parse::<crate::JobId>().is_ok() { text.as_str() } else { "foo" };
                let script = exports(&variables(job, Some(&text), &[]));
                for line in script.lines() {
                    let value = line.split_once("='").unwrap().1.strip_suffix("';").unwrap();
                    assert!(value.chars().all(is_plain), "{line}");
                }
            }
        }
    }

    #[test]
    fn a_value_outside_of_the_alphabet_is_refused_whatever_it_is() {
        for c in "'\"`$\\ \n\t\r\0;&|<>()*?[]{}~#!^\u{7f}\u{a0}\u{202e}é".chars() {
            let mut variables = variables("foo", Some("eth0"), &[]);
            variables.set[0].1 = format!("a{c}b");
            assert!(Script::exports(Shell::Fish, &variables).is_err(), "{c:?}");
            if c == '\n' {
                // Between lines it is a line's end.
                continue;
            }
            assert!(Script::exports(Shell::Posix, &variables).is_err(), "{c:?}");
            for value in [format!("[a{c}b]:1"), format!("a\n{c}b"), format!("a\nb{c}"), format!("[a]{c}")] {
                variables.set[0].1 = value;
                assert!(Script::exports(Shell::Posix, &variables).is_err(), "{c:?}");
            }
        }
    }

    #[test]
    fn only_the_known_statements_pass() {
        for line in [
            "true;\n",
            "! true",
            "! true; reboot;\n",
            "export A='b'\n",
            "export A=b;\n",
            "export A='b'; reboot; export C='d';\n",
            "export a='b';\n",
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
    fn the_longest_result_fits_a_pipe_at_once() {
        // Up to PIPE_BUF bytes a pipe takes all or nothing, so a shell never sees half of a result.
        let stale = [("MINGLE_SET", "NCCL_SOCKET_IFNAME")];
        let text = exports(&variables(&" ".repeat(128), Some("interface-of-15"), &stale));
        assert!(text.len() < 4096, "{}", text.len());
    }
}
