//! How a failure of these arguments is printed on stdout, found without parsing them: the parser may refuse
//! them.

use std::ffi::{OsStr, OsString};

use clap::CommandFactory as _;
use mingle_core::env::Format;

use crate::args::LowArgs;

/// What the arguments ask for. Where the parser accepts them, both agree; a test checks that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intent {
    /// The form of the result, and of a failure.
    pub(crate) format: Format,
    /// The result of this subcommand is never for `eval`, so a failure prints no script either.
    pub(crate) is_command: bool,
    /// Whether this process takes part in a world: by itself, or by `run`.
    pub(crate) joins: bool,
}

impl Intent {
    /// The intent of these arguments (without the program's name) and of the variable MINGLE_FORMAT, which
    /// counts only for the rendezvous itself.
    pub(crate) fn of(args: &[OsString], variable: Option<&OsStr>) -> Self {
        // Subcommands come first, since options conflict with them.
        let first = args.first().map(OsString::as_os_str);
        let is_run = first.is_some_and(|arg| arg == "run");
        // The parser's description is not made for nothing.
        let names_a_command = |arg: &OsStr| LowArgs::command().find_subcommand(arg).is_some();
        let is_option = |arg: &OsStr| arg.as_encoded_bytes().starts_with(b"-");
        let is_command = first.is_some_and(|arg| !is_option(arg) && names_a_command(arg));
        let mut format = variable.filter(|text| !text.is_empty() && !is_command);
        // Stdout of `run` belongs to the command that it starts.
        let mut rest = args.iter().take_while(|arg| *arg != "--" && !is_run);
        while let Some(arg) = rest.next() {
            if arg == "--format" {
                format = rest.next().map(OsString::as_os_str);
            } else if let Some(value) = arg.to_str().and_then(|text| text.strip_prefix("--format=")) {
                format = Some(OsStr::new(value));
            }
        }
        // Behind the name may be a file: template=FILE.
        let name = format.and_then(OsStr::to_str).and_then(|text| text.split('=').next());
        let format = name.and_then(|name| name.parse().ok()).unwrap_or(Format::SH);
        Self { format, is_command, joins: !is_command || is_run }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
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
            "-j json -w 4",
            "--job-id=--format=json -w 4",
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
                let low = LowArgs::try_parse_from(["mingle"].into_iter().chain(line.split_whitespace()));
                let low = low.unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_eq!(guess.is_command, low.command.is_some(), "{line}");
                assert_eq!(guess.joins, low.command.is_none() || line.starts_with("run"), "{line}");
                if low.command.is_none() {
                    let environment = |name: &str| {
                        let value = if name == "MINGLE_FORMAT" { variable } else { None };
                        value.map(OsString::from)
                    };
                    let config = Settings::scheduled(low.join, &environment).unwrap();
                    assert_eq!(guess.format, config.format, "{line} {variable:?}");
                }
            }
        }
    }

    #[test]
    fn invalid_arguments_are_answered_for_a_shell() {
        for line in ["", "--format", "--format xml", "--formatjson", "--", "-- --help", "-- --format json"] {
            let expected = Intent { format: Format::SH, is_command: false, joins: true };
            assert_eq!(intent(line, None), expected, "{line}");
        }
        assert_eq!(intent("--bogus", Some("json")).format, Format::JSON);
        assert_eq!(intent("--bogus --format json", None).format, Format::JSON);
        assert_eq!(intent("--format xml", Some("json")).format, Format::SH);
    }
}
