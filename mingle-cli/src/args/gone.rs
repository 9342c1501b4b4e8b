//! Options that mingle had once, and what to do instead.
//!
//! An option that is ignored would take away, without a word, what it protected from. So an option of this
//! table is an error on the command line of each command, as a keyword of the Python module and as a
//! variable.

use std::ffi::{OsStr, OsString};

use crate::exit::Stop;

/// Each option that is gone, and what the user does instead.
const GONE: [(&str, &str); 19] = [
    ("check", CHECK),
    ("check-timeout", CHECK),
    ("discovery-port", "give the port by --multicast, such as --multicast :29498, on every node"),
    (
        "expect",
        "list all nodes by --seed: the message of the leader at the timeout names those that are missing",
    ),
    ("forget-restarts", "give the time behind the number of restarts, such as --max-restarts 3/30m"),
    ("group", "give the group by --multicast, such as --multicast 239.1.2.3, on every node"),
    (
        "log-format",
        "the log that -v asks for is text; give --events FILE for lines of JSON, such as --events /dev/stderr",
    ),
    ("no-multicast", "give --multicast off"),
    (
        "place",
        "give the place and the host by --rank-key, such as --rank-key \"block-1/rack-7/$(hostname)\", or \
         --rank-key \"$SLURM_TOPOLOGY_ADDR\" in the shell that srun starts",
    ),
    (
        "rank-by",
        "give --rank-key with the text to order by, such as --rank-key \"$(hostname)\"; without it the order is that of \
         addresses",
    ),
    (
        "no-gid-pin",
        "set NCCL_IB_ROCE_VERSION_NUM=2 yourself, or NCCL_IB_ADDR_FAMILY or NCCL_IB_ADDR_RANGE: where you say of which \
         kind the GIDs are, mingle prints no index, and NCCL (2.21 or later) chooses",
    ),
    ("no-rdma", "give --rdma off"),
    ("require-rdma", "give --rdma require"),
    (
        "same-cmd",
        "let the shell run the command, as in --same \"key=$(command)\", or --same \"key=$(command | sha256sum)\" if it \
         prints more than 256 characters or a secret",
    ),
    (
        "seed-exec",
        "let the shell run the command once, as in --seed \"$(command)\"; for a list that changes, give a folder to \
         --seed-dir, or a name to --seed: mingle looks names up again and again",
    ),
    ("tune-sockets", "give --set NCCL_SOCKET_NTHREADS=4 --set NCCL_NSOCKS_PERTHREAD=8"),
    ("tf-ps", "write TF_CONFIG with parameter servers from the roster of --format json"),
    ("ttl", "give the TTL by --multicast, such as --multicast /4, on every node"),
    (
        "world-step",
        "give one size that suits the job, such as --world 8; with a range let the command leave nodes idle: {world} is \
         their number in mingle run",
    ),
];
const CHECK: &str = "run the check before mingle and join only if it succeeds, as in: timeout 60 your-check && eval \"$(mingle ...)\", \
                     or timeout 60 your-check && mingle run ...";

/// What to do instead of this word, where it is an option that is gone, with or without a value.
pub(crate) fn instead_of(word: &str) -> Option<String> {
    let name = word.split('=').next().unwrap_or(word).strip_prefix("--")?.replace('_', "-");
    GONE.iter().find(|(gone, _)| *gone == name).map(|(gone, instead)| format!("--{gone} is gone: {instead}"))
}

/// Refuses the variables of options that are gone. An empty variable counts as not set, as everywhere.
pub(crate) fn check_variables(environment: impl Fn(&str) -> Option<OsString>) -> Result<(), Stop> {
    for (gone, instead) in GONE {
        let variable = format!("MINGLE_{}", gone.to_ascii_uppercase().replace('-', "_"));
        if environment(&variable).as_deref().is_some_and(|value| value != OsStr::new("")) {
            return Err(Stop::Usage(format!("{variable} is set, and --{gone} is gone: {instead}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::args::LowArgs;

    /// The commands with the options of a network.
    const COMMANDS: [&[&str]; 4] =
        [&["mingle"], &["mingle", "run"], &["mingle", "doctor"], &["mingle", "watch"]];

    #[test]
    fn each_option_that_is_gone_says_in_each_command_what_to_do_instead() {
        for (gone, instead) in GONE {
            for words in [vec![format!("--{gone}"), "1".to_owned()], vec![format!("--{gone}=1")]] {
                for command in COMMANDS {
                    let all = command.iter().map(|&word| word.to_owned()).chain(words.clone());
                    let Stop::Usage(text) = crate::usage(LowArgs::try_parse_from(all).unwrap_err(), true)
                    else {
                        panic!("no error of usage")
                    };
                    assert!(text.starts_with(&format!("--{gone} is gone: ")), "{command:?}: {text}");
                    assert!(text.contains(instead), "{command:?}: {text}");
                }
            }
        }
    }

    #[test]
    fn each_variable_of_an_option_that_is_gone_is_an_error_unless_it_is_empty() {
        for (gone, instead) in GONE {
            let name = format!("MINGLE_{}", gone.to_uppercase().replace('-', "_"));
            let with = |value: &'static str| {
                check_variables(|variable| (variable == name).then(|| value.into()))
                    .map_err(|stop| stop.to_string())
            };
            let error = with("0").unwrap_err();
            assert!(error.starts_with(&name) && error.contains(instead), "{error}");
            assert_eq!(with(""), Ok(()));
        }
        assert!(check_variables(|_| None).is_ok());
    }

    #[test]
    fn what_to_do_instead_names_options_that_there_are() {
        let command = LowArgs::command();
        let of_run = command.find_subcommand("run").unwrap().get_arguments();
        let there: Vec<String> = command
            .get_arguments()
            .chain(of_run)
            .filter_map(|argument| argument.get_long().map(str::to_owned))
            .collect();
        for (gone, instead) in GONE {
            let named = instead.split(|c: char| c != '-' && !c.is_ascii_alphanumeric());
            for option in named.filter_map(|word| word.strip_prefix("--")) {
                assert!(there.iter().any(|name| name == option), "--{gone}: {instead}");
            }
        }
    }
}
