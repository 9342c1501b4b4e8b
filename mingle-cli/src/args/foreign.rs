//! Options of other launchers, and what mingle calls them; and words that are no option at all.

use clap::CommandFactory as _;

use super::LowArgs;

/// The option of mingle for one that torchrun, srun, mpirun, accelerate or DeepSpeed have, with `-` or `_`.
pub(crate) fn of_other_launchers(word: &str) -> Option<&'static str> {
    let word = word.split('=').next().unwrap_or(word).replace('_', "-");
    Some(match word.as_str() {
        "--nnodes" | "--num-nodes" | "--num-machines" | "--nodes" | "--world-size" | "--np" | "-np"
        | "-n" | "-N" => "--world",
        "--nproc-per-node" | "--ntasks-per-node" | "--num-gpus" | "--gpus-per-node" => "--slots",
        "--node-rank" | "--machine-rank" | "--nodeid" => "--rank",
        "--rdzv-id" | "--job-name" => "--job-id",
        "--rdzv-endpoint" | "--master-addr" | "--main-process-ip" => "--seed",
        "--main-process-port" => "--master-port",
        _ => return None,
    })
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

    #[test]
    fn words_of_other_launchers_have_an_option_whether_or_not_with_a_value() {
        for (word, option) in [
            ("--nnodes", "--world"),
            ("--nnodes=2:4", "--world"),
            ("--nproc_per_node", "--slots"),
            ("--node-rank=1", "--rank"),
            ("-n", "--world"),
        ] {
            assert_eq!(of_other_launchers(word), Some(option), "{word}");
        }
        assert_eq!(of_other_launchers("--unheard-of"), None);
    }
    #[test]
    fn a_word_after_options_is_said_to_be_no_command_or_to_come_first() {
        for (line, text) in [
            ("mingle --job-id foo foo", "'foo' is neither an option nor a command of mingle; "),
            ("mingle python3 train.py", "'python3' is neither an option nor a command of mingle; "),
            (
                "mingle docter",
                "unrecognized subcommand 'docter'\n\n  tip: a similar subcommand exists: 'doctor'",
            ),
            ("mingle --job-id foo run", "give the command run first, "),
        ] {
            let error = LowArgs::try_parse_from(line.split(' ')).unwrap_err();
            let stop = crate::usage(error, true).to_string();
            assert!(stop.starts_with(text), "{line}: {stop}");
        }
    }
}
