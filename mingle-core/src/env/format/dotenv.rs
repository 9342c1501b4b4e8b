//! Lines `NAME=VALUE`, for `docker run --env-file` and systemd's `EnvironmentFile=`.
//!
//! Neither takes quotes away in the same way (docker: none; systemd: systemd.exec(5)), so there are none, and every
//! value must be of the safe alphabet. Such a file cannot remove a variable.

use std::fmt::Write as _;

use super::{UnsafeStatement, Variables};
use crate::env::sh::{is_name, is_plain};

pub(super) fn text(variables: &Variables) -> Result<String, UnsafeStatement> {
    let mut text = String::new();
    for (name, value) in variables.set() {
        if !is_name(name) || !value.chars().all(is_plain) {
            return Err(UnsafeStatement(format!("{name}={value}")));
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}={value}");
    }
    Ok(text)
}
