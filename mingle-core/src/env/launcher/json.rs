//! Programs that read JSON. The program writes the document (mingle-cli/src/stdout.rs).

use super::{Launcher, Syntax};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "json",
    about: "variables, facts and all nodes, as one JSON object",
    syntax: Syntax::Json,
    needs_roster: true,
    ..Launcher::PLAIN
};
