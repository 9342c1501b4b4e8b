//! Scripts for a shell to evaluate, and the check that every script passes.
//!
//! `posix.rs` and `fish.rs` each write statements and check them. The check reads the finished text, line by
//! line, and accepts only the few statements that mingle prints, with values that are quoted completely. All
//! values must be of the safe alphabet in `alphabet.rs`.

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

/// A text that is safe for a shell to evaluate. Every constructor runs the same check on the finished text,
/// however the text was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script(String);

impl Script {
    /// The statement that mingle prints before anything else: `! true;`, or `false;` for fish.
    ///
    /// If mingle is killed before it prints more, the guard makes `eval` fail; `eval` of an empty text would
    /// succeed. The statements after the guard replace the guard's status, and `set -e` does not stop at the
    /// guard.
    ///
    /// # Errors
    /// None in practice; the type is that of [`Script::exports`].
    pub fn guard(shell: Shell) -> Result<Self, UnsafeStatement> {
        let guard = match shell {
            Shell::Posix => posix::GUARD,
            Shell::Fish => fish::GUARD,
        };
        Self::checked(shell, format!("{guard};\n"))
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
    pub fn exports(shell: Shell, variables: &Variables) -> Result<Self, UnsafeStatement> {
        let is_ordinary = |value: &str| {
            value.chars().all(is_plain)
                || is_bracketed(value)
                || shell == Shell::Posix && value.lines().all(posix::is_line)
        };
        if let Some((name, value)) = variables.set().iter().find(|(_, value)| !is_ordinary(value)) {
            return Err(UnsafeStatement(format!("{name}={value}")));
        }
        let text = match shell {
            Shell::Posix => posix::exports(variables),
            Shell::Fish => fish::exports(variables),
        };
        Self::checked(shell, text)
    }

    /// A statement that makes `eval` fail with `code`: `(exit 3);`. It exits a subshell, since `exit` itself
    /// would end the user's shell.
    ///
    /// # Errors
    /// None in practice; the type is that of [`Script::exports`].
    pub fn failure(shell: Shell, code: NonZeroU8) -> Result<Self, UnsafeStatement> {
        let text = match shell {
            Shell::Posix => posix::failure(code),
            Shell::Fish => fish::failure(code),
        };
        Self::checked(shell, text)
    }

    /// The text, which ends in a newline.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The only constructor of a script.
    fn checked(shell: Shell, text: String) -> Result<Self, UnsafeStatement> {
        let is_safe = match shell {
            Shell::Posix => posix::is_safe,
            Shell::Fish => fish::is_safe,
        };
        match text.split_inclusive('\n').find(|line| !is_safe(line)) {
            Some(line) => Err(UnsafeStatement(line.to_owned())),
            None => Ok(Self(text)),
        }
    }
}

/// A statement that did not pass the check, so mingle has not printed it. This is a bug in mingle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused to print a statement that a shell could misread: {0:?}")]
pub struct UnsafeStatement(pub(super) String);
