//! fish: `eval (mingle --format fish ...)`. The statements are in env/shell/fish.rs.

use super::{Launcher, Shell, Syntax};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "fish",
    about: "variables for fish",
    syntax: Syntax::Script(Shell::Fish),
    ..Launcher::PLAIN
};
