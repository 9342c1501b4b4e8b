//! Words that are no mistake for the parser, and most likely are for the user.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use clap::{ArgAction, CommandFactory as _};

use super::LowArgs;

/// For each option that is given several times with different values, of which the last counts, a warning.
pub(crate) fn overridden(words: &[OsString]) -> Vec<String> {
    let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).take_while(|word| *word != "--").collect();
    // Few lines have two options of one initial, and each other is not parsed twice.
    let initial = |word: &&OsStr| {
        let bytes = word.as_encoded_bytes();
        let rest = bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-"))?;
        rest.first().copied()
    };
    let mut seen = BTreeSet::new();
    if words.iter().filter_map(initial).all(|initial| seen.insert(initial)) {
        return Vec::new();
    }
    let all = |arg: clap::Arg| {
        if matches!(arg.get_action(), ArgAction::Set) { arg.action(ArgAction::Append) } else { arg }
    };
    let command = LowArgs::command().mut_args(all).mut_subcommand("run", |run| run.mut_args(all));
    let named = ["mingle".as_ref()].into_iter().chain(words.iter().copied());
    let Ok(matches) = command.clone().ignore_errors(true).try_get_matches_from(named) else {
        return Vec::new();
    };
    let (command, matches) = match matches.subcommand() {
        Some((name, of)) => (command.find_subcommand(name).unwrap_or(&command), of),
        None => (&command, &matches),
    };
    let singles = LowArgs::command();
    let singles = singles.find_subcommand(command.get_name()).unwrap_or(&singles);
    let singles = singles.get_arguments().filter(|arg| matches!(arg.get_action(), ArgAction::Set));
    let twice = singles.filter_map(|arg| {
        let values: Vec<&OsStr> = matches.get_raw(arg.get_id().as_str())?.collect();
        let (last, others) = values.split_last()?;
        let long = arg.get_long().filter(|_| others.iter().any(|value| value != last))?;
        let first = others.first()?.display();
        Some(format!("--{long} is given more than once: {} is used, and {first} is ignored", last.display()))
    });
    twice.collect()
}

/// What is wrong where this word, which is not an option, follows options of `mingle` itself.
pub(crate) fn not_after_options(word: &str) -> String {
    let commands = LowArgs::command();
    if commands.get_subcommands().any(|command| command.get_name() == word) {
        return format!("give the command {word} first, and then its options: mingle {word} [OPTIONS]");
    }
    format!(
        "'{word}' is neither an option nor a command of mingle; if it is the command to start, write: mingle run \
         [OPTIONS] -- {word}"
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn of(line: &str) -> Vec<String> {
        overridden(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn an_option_with_two_values_is_named_wherever_it_stands_and_one_that_is_repeated_as_it_was_is_not() {
        let rank = "--rank is given more than once: 1 is used, and 0 is ignored";
        for line in ["--rank 0 --rank 1", "-r 0 -j x --rank=1", "-r0 -r1 -w 2", "run --rank 0 -r 1 -- cat"] {
            assert_eq!(of(line), [rank], "{line}");
        }
        for line in
            ["-r 1 --rank 1", "-i eth0 -i eth1", "-v -v", "-r 1 -w 2", "run -r 1 -- -r 0 -r 1", "x -r 1"]
        {
            assert_eq!(of(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn a_word_after_options_is_said_to_be_no_command_or_to_come_first() {
        for (line, text) in [
            ("mingle --job-id foo foo", "'foo' is neither an option nor a command of mingle; "),
            ("mingle --job-id foo run", "give the command run first, "),
        ] {
            let error = LowArgs::try_parse_from(line.split(' ')).unwrap_err();
            let stop = crate::usage(error, true).to_string();
            assert!(stop.starts_with(text), "{line}: {stop}");
        }
    }
}
