//! A file of the user's, for a launcher that has no format here. The placeholders are in env/template.

use super::{Launcher, Syntax, Unfit};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "template",
    about: "your own file, as template=FILE, with {rank} and so on",
    syntax: Syntax::Text(|input, _| {
        let template = input.facts.template.ok_or(Unfit::NoTemplate)?;
        template.fill(input.facts, &|_| None)
    }),
    needs_roster: true,
    ..Launcher::PLAIN
};
