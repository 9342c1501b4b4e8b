//! `mingle man`: the manual page, from the same definition as the help.

use std::io;

use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args::LowArgs;
use crate::exit::Stop;
use crate::stdout::Stdout;

/// Prints the manual page of mingle, or of one of its commands.
///
/// To read it: mingle man | man -l -
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct ManArgs {
    /// The command [default: mingle itself]
    command: Option<String>,
}

/// Prints the page.
pub(crate) fn run(args: &ManArgs) -> Result<(), Stop> {
    let mut mingle = LowArgs::command();
    mingle.build();
    let command = match &args.command {
        None => mingle,
        Some(name) => mingle.find_subcommand(name).cloned().ok_or_else(|| unknown(&mingle, name))?,
    };
    let mut text = Vec::new();
    page(&command, &mut text).map_err(|error| Stop::System("write the manual page", error))?;
    Stdout::print(&String::from_utf8_lossy(&text))
}

fn unknown(mingle: &Command, name: &str) -> Stop {
    let names: Vec<&str> = mingle.get_subcommands().map(Command::get_name).collect();
    Stop::Usage(format!("{name:?} is not a command of mingle; the commands are {}", names.join(", ")))
}

/// The sections of one page. Where the help ends with a text of its own, as that of mingle itself does, the
/// headings of that text are the last sections.
fn page(command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    let version = concat!("mingle ", env!("CARGO_PKG_VERSION"));
    // `mingle rdma` has the page mingle-rdma(1), as git's commands have theirs.
    let title = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let man = Man::new(command.clone()).title(title.to_uppercase()).source(version).manual("User Commands");
    man.render_title(text)?;
    man.render_name_section(text)?;
    man.render_synopsis_section(text)?;
    man.render_description_section(text)?;
    man.render_options_section(text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(text)?;
    }
    if let Some(more) = command.get_after_long_help() {
        sections(&more.to_string()).to_writer(text)?;
    }
    Ok(())
}

/// A section for each paragraph, whose first line is the heading.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    for section in text.split("\n\n") {
        let (heading, lines) = section.split_once('\n').unwrap_or((section, ""));
        let heading = heading.split([',', ':']).next().unwrap_or(heading);
        roff.control("SH", [heading.to_uppercase().as_str()]);
        // EX, an example in man(7), keeps lines as they are.
        roff.control("EX", []);
        for line in lines.lines() {
            roff.text([roman(line)]);
        }
        roff.control("EE", []);
    }
    roff
}
