//! The format and command that the arguments will ask for, found without parsing them.

use std::ffi::{OsStr, OsString};

use mingle_core::env::Format;

/// The subcommands whose result is never for `eval`.
const COMMANDS: [&str; 6] = ["rdma", "doctor", "watch", "install", "completions", "man"];

/// Whether to print the guard, and how to print a failure.
///
/// The guard protects only what happens after it, the parser included, so it cannot wait for the parser. This
/// look at the raw arguments takes a microsecond and need not be perfect. Where the parser accepts the
/// arguments, both agree (a test checks that). Where it refuses them, a failure follows, which makes `eval`
/// fail without the guard as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intent {
    /// The form of the result, and of a failure.
    pub(crate) format: Format,
    /// Help, the version or a subcommand's own result will be printed, and no script for `eval`.
    pub(crate) plain: bool,
    /// The result of this subcommand is never for `eval`, so a failure prints no script either.
    pub(crate) command: bool,
}

impl Intent {
    /// Whether the command takes part in a world: a rendezvous or `run`.
    pub(crate) fn joins(args: &[OsString]) -> bool {
        !args.first().is_some_and(|arg| arg == "secret" || COMMANDS.iter().any(|command| arg == command))
    }

    /// The intent of these arguments (without the program's name) and of the variable MINGLE_FORMAT.
    pub(crate) fn of(args: &[OsString], variable: Option<&OsStr>) -> Self {
        // Subcommands come first, since options conflict with them. The variable counts only for the
        // rendezvous.
        if args.first().is_some_and(|arg| arg == "run") {
            // Stdout belongs to the command.
            return Self { format: Format::SH, plain: true, command: true };
        }
        let command = args.first().is_some_and(|arg| COMMANDS.iter().any(|command| arg == command));
        let mut format = variable.filter(|text| !text.is_empty() && !command);
        let mut plain = !Self::joins(args);
        let mut rest = args.iter().map(OsString::as_os_str).take_while(|arg| *arg != "--").peekable();
        while let Some(arg) = rest.next() {
            let text = arg.to_str().unwrap_or_default();
            if let Some(value) = text.strip_prefix("--format=") {
                format = Some(OsStr::new(value));
            } else if text == "--format" {
                // The loop sees the value again as an argument, which does no harm.
                format = rest.peek().copied();
            } else {
                plain |= asks_for_help(text);
            }
        }
        // Behind the name may be a file: template=FILE.
        let name = format.and_then(OsStr::to_str).and_then(|text| text.split('=').next());
        let format = name.and_then(|name| name.parse().ok()).unwrap_or(Format::SH);
        Self { format, plain, command }
    }
}

/// Whether this is `--help`, `-V`, or `-h` within a group such as `-qh`. The rest after a letter that takes a
/// value is that value: `-jh` is the job "h".
fn asks_for_help(arg: &str) -> bool {
    match arg.strip_prefix('-') {
        Some("-help" | "-version") => true,
        Some(letters) => letters.trim_start_matches(['q', 'v']).starts_with(['h', 'V']),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::LowArgs;
    use crate::config::Settings;

    fn intent(line: &str, variable: Option<&str>) -> Intent {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Intent::of(&args, variable.map(OsStr::new))
    }

    #[test]
    fn the_guess_agrees_with_the_parser_wherever_the_parser_accepts() {
        let lines = [
            "-j foo -w 4",
            "-j foo -w 4 --format json",
            "-j foo -w 4 --format=json",
            "-j foo -w 4 --format template=/dev/null",
            "-j foo -w 4 --format=template=/dev/null",
            "-j foo -w 4 --format json --format sh",
            "-j foo -w 4 --format fish --output json=/tmp/x",
            "-j foo -w 4 -ojson=/tmp/x",
            "-j foo -w 4 --output=hosts=/tmp/--format=json --format tf-config",
            "-j foo -w 4 --format sh --format=json -q",
            "-jh -w4",
            "-jV -w4 -vvq",
            "-j json -w 4",
            "--job-id=--help -w 4",
            "--job-id=--format=json -w 4",
            "-qh",
            "-vvV",
            "-j foo --help",
            "--version --format json",
            "-h -w 4",
            "watch",
            "watch -j foo --format json",
            "doctor --format json",
            "rdma --watch",
            "run -j foo -w 4 -- echo --format json",
            "secret",
            "install /opt",
        ];
        for line in lines {
            // Of these, one needs a file.
            let names = Format::all().map(Format::name);
            let names = names.map(|name| if name == "template" { "template=/dev/null" } else { name });
            for variable in [None, Some("")].into_iter().chain(names.map(Some)) {
                let guess = intent(line, variable);
                match LowArgs::try_parse_from(["mingle"].into_iter().chain(line.split_whitespace())) {
                    Ok(low) if low.command.is_some() => {
                        // A secret may well be for eval, as in SECRET=$(mingle secret).
                        assert_eq!((guess.plain, guess.command), (true, line != "secret"), "{line}");
                    }
                    Ok(low) => {
                        let environment = |name: &str| {
                            let value = if name == "MINGLE_FORMAT" { variable } else { None };
                            value.map(OsString::from)
                        };
                        let config = Settings::scheduled(low.join, &environment).unwrap();
                        assert_eq!(
                            guess,
                            Intent { format: config.format, plain: false, command: false },
                            "{line} {variable:?}"
                        );
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), DisplayHelp | DisplayVersion), "{line}: {error}");
                        assert!(guess.plain, "{line}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_subcommand_begins_with_a_guard() {
        for command in LowArgs::command().get_subcommands() {
            let name = command.get_name();
            assert!(
                intent(name, None).plain && intent(&format!("{name} --help"), Some("json")).plain,
                "{name}"
            );
        }
    }

    #[test]
    fn invalid_arguments_are_answered_for_a_shell() {
        for line in ["", "--format", "--format xml", "--formatjson", "--", "-- --help", "-- --format json"] {
            assert_eq!(
                intent(line, None),
                Intent { format: Format::SH, plain: false, command: false },
                "{line}"
            );
        }
        assert_eq!(intent("--bogus", Some("json")).format, Format::JSON);
        assert_eq!(intent("--format xml", Some("json")).format, Format::SH);
    }
}
