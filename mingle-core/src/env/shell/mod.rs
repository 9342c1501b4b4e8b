//! Scripts for a shell to evaluate. `posix.rs` and `fish.rs` write the statements.
//!
//! [`Shell::exports`] refuses every value that is not of the safe alphabet in `alphabet.rs`, except an
//! address in brackets and, for POSIX shells, a list of lines.

mod alphabet;
mod fish;
mod posix;

use std::num::NonZeroU8;

use super::Variables;

pub(super) use alphabet::{is_bracketed, is_name, is_plain};

/// The shells, grouped by the syntax of their statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shell {
    /// Shells with POSIX syntax: bash, dash, busybox sh, zsh, ksh.
    Posix,
    /// The shell fish.
    Fish,
}

impl Shell {
    /// The statement that mingle prints before anything else: `! true;`, or `false;` for fish.
    ///
    /// If mingle is killed before it prints more, the guard makes `eval` fail; `eval` of an empty text would
    /// succeed. The statements after the guard replace the guard's status, and `set -e` does not stop at the
    /// guard.
    pub const fn guard(self) -> &'static str {
        match self {
            Self::Posix => "! true;\n",
            Self::Fish => "false;\n",
        }
    }

    /// The statements that set and remove the variables of a formed world, one statement a line.
    ///
    /// ```text
    /// export MASTER_ADDR='10.0.0.1';
    /// ```
    ///
    /// # Errors
    /// [`UnsafeStatement`] if a value has a character outside of `A-Z a-z 0-9 _ . , : = / @ % + -`. Two
    /// exceptions pass: brackets around an IPv6 address at the beginning of the value and, for POSIX shells,
    /// line ends.
    pub fn exports(self, variables: &Variables) -> Result<String, UnsafeStatement> {
        let is_safe = |value: &str| {
            value.chars().all(is_plain) || is_bracketed(value) || self == Self::Posix && posix::is_list(value)
        };
        if let Some((name, value)) = variables.set().iter().find(|(_, value)| !is_safe(value)) {
            return Err(UnsafeStatement(format!("{name}={value}")));
        }
        Ok(match self {
            Self::Posix => posix::exports(variables),
            Self::Fish => fish::exports(variables),
        })
    }

    /// A statement that makes `eval` fail with `code`. `exit` itself would end the user's shell, and `return`
    /// the user's script.
    pub fn failure(self, code: NonZeroU8) -> String {
        match self {
            Self::Posix => format!("(exit {code});\n"),
            Self::Fish => format!("command sh -c 'exit {code}';\n"),
        }
    }
}

/// A value that a shell could misread, so mingle has not printed it. This is a bug in mingle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused to print a statement that a shell could misread: {0:?}")]
pub struct UnsafeStatement(pub(super) String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::tests::variables;

    /// The script, each line of which is exactly one of the statements that mingle prints.
    pub(super) fn exports(shell: Shell, variables: &Variables) -> String {
        let script = shell.exports(variables).unwrap();
        let is_safe = match shell {
            Shell::Posix => posix::tests::is_safe,
            Shell::Fish => fish::tests::is_safe,
        };
        assert!(script.split_inclusive('\n').all(is_safe), "{script}");
        script
    }

    #[test]
    fn every_job_id_and_interface_is_printed_in_the_safe_alphabet() {
        // Each character once at the start, in the middle and at the end of a value.
        for c in (0..0x250_u32).filter_map(char::from_u32) {
            for text in [format!("{c}x"), format!("x{c}x"), format!("x{c}")] {
                let job = if text.parse::<crate::model::JobId>().is_ok() { text.as_str() } else { "foo" };
                let (stale, set) = (format!("NCCL_{c}"), format!("NCCL_{c}:24fab59a"));
                let variables = variables(job, Some(&text), &[(&stale, "8"), ("MINGLE_SET", &set)]);
                for shell in [Shell::Posix, Shell::Fish] {
                    exports(shell, &variables);
                }
                assert!(variables.set().iter().all(|(_, value)| value.chars().all(is_plain)), "{c:?}");
            }
        }
    }

    #[test]
    fn a_value_outside_of_the_safe_alphabet_is_refused() {
        for c in "'\"`$\\ \n\t\r\0;&|<>()*?[]{}~#!^\u{7f}\u{a0}\u{202e}é".chars() {
            let mut variables = variables("foo", Some("eth0"), &[]);
            variables.replace_first(format!("a{c}b"));
            assert!(Shell::Fish.exports(&variables).is_err(), "{c:?}");
            if c == '\n' {
                // A line end between two lines is allowed.
                continue;
            }
            assert!(Shell::Posix.exports(&variables).is_err(), "{c:?}");
            for value in [format!("[a{c}b]:1"), format!("a\n{c}b"), format!("a\nb{c}"), format!("[a]{c}")] {
                variables.replace_first(value);
                assert!(Shell::Posix.exports(&variables).is_err(), "{c:?}");
            }
        }
    }
}
