//! `NAME=VALUE` lines, for `docker run --env-file` and systemd's `EnvironmentFile=`.
//!
//! The two treat quotes differently (Docker keeps them; for systemd see systemd.exec(5)), so there are none,
//! and a value may only have characters that both read as themselves. Such a file cannot remove a variable.

use std::fmt::Write as _;

use super::{Input, Launcher, Syntax, Unfit, UnsafeStatement, Variables};
use crate::env::shell::{is_name, is_plain};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "dotenv",
    about: "an environment file for Docker or systemd",
    syntax: Syntax::Text(text),
    ..Launcher::PLAIN
};

fn text(_: Input<'_>, variables: &Variables) -> Result<String, Unfit> {
    let mut text = String::new();
    for (name, value) in variables.set() {
        if !is_name(name) || !variables.is_setting(name) && !value.chars().all(is_plain) {
            return Err(UnsafeStatement(format!("{name}={value}")).into());
        }
        if let Some(c) = refused(value) {
            return Err(Unfit::Value(name.clone().into_owned(), c));
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}={value}");
    }
    Ok(text)
}

/// The first character of a value that Docker, Compose and systemd do not all read as itself.
pub(super) fn refused(value: &str) -> Option<char> {
    // systemd removes white space at both ends; Compose reads # behind a space as a comment.
    let is_trimmed = |at: usize| at == 0 || at + 1 == value.len();
    let reads =
        |at: usize, c: char| is_plain(c) || "^*?[]{}()<>|&;!~".contains(c) || c == ' ' && !is_trimmed(at);
    value.char_indices().find(|(at, c)| !reads(*at, *c)).map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::refused;

    #[test]
    fn a_value_that_docker_and_systemd_read_differently_is_refused() {
        for value in ["", "^mlx5_0", "a b", "http://[fd00::1]:3128", "(a|b)*"] {
            assert_eq!(refused(value), None, "{value}");
        }
        for (value, c) in [
            (" a", ' '),
            ("a ", ' '),
            ("'a'", '\''),
            ("a\\b", '\\'),
            ("$a", '$'),
            ("a\nb", '\n'),
            ("a #b", '#'),
            ("é", 'é'),
        ] {
            assert_eq!(refused(value), Some(c), "{value}");
        }
    }
}
