//! POSIX shells: `eval "$(mingle ...)"`. The statements are in env/shell/posix.rs.

use super::Launcher;

pub(super) const LAUNCHER: Launcher =
    Launcher { name: "sh", about: "variables for sh, bash, dash, zsh and ksh", ..Launcher::PLAIN };
