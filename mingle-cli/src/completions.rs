//! `mingle completions`: the arguments, for a shell.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::LowArgs;
use crate::exit::Stop;
use crate::stdout::Stdout;

/// Prints a script that completes mingle's commands and options in a shell.
///
/// For the current shell: source <(mingle completions bash), or for fish mingle completions fish | source.
/// For all later shells, write it to a file that your shell reads: bash
/// ~/.local/share/bash-completion/completions/mingle, zsh _mingle in a folder of $fpath, fish
/// ~/.config/fish/completions/mingle.fish, PowerShell your $PROFILE.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Stop> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut LowArgs::command(), "mingle", &mut script);
    Stdout::print(&String::from_utf8_lossy(&script))
}
