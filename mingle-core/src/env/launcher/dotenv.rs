//! `NAME=VALUE` lines, for `docker run --env-file` and systemd's `EnvironmentFile=`.
//!
//! The two treat quotes differently (Docker keeps them; for systemd see systemd.exec(5)), so there are none:
//! both read the characters of the safe alphabet as themselves. Such a file cannot remove a variable.

use super::{Input, Launcher, Syntax, Unfit, UnsafeStatement, Variables};
use crate::env::shell::is_plain;

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "dotenv",
    about: "an environment file for Docker or systemd",
    syntax: Syntax::Text(text),
    ..Launcher::PLAIN
};

fn text(_: Input<'_>, variables: &Variables) -> Result<String, Unfit> {
    let lines = variables.set().iter().map(|(name, value)| {
        let line = format!("{name}={value}");
        if value.chars().all(is_plain) { Ok(line + "\n") } else { Err(UnsafeStatement(line).into()) }
    });
    lines.collect()
}
