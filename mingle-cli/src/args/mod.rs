//! The arguments as they were typed: the first of two steps, without any effect or check.
//!
//! Values stay text here. `config` reads them together with the environment, so that the same rules and
//! messages hold for both.

mod commands;
mod foreign;
mod formats;
mod network;

use clap::{Arg, ArgAction, Args, Parser, Subcommand, ValueHint};

use crate::completions::CompletionsArgs;
use crate::install::InstallArgs;
use crate::man::ManArgs;

pub(crate) use commands::{DoctorArgs, RdmaArgs, RunArgs, WatchArgs};
pub(crate) use foreign::{not_after_options, of_other_launchers};
pub(crate) use network::{AirArgs, NetworkArgs};

use network::{NODE, SAME};

const FABRIC: &str = "RDMA";
const SAMENESS: &str = "Sameness";
const OUTPUT: &str = "Output";

/// Nodes that know only a job ID find each other, agree on ranks, and prove that the job can connect.
///
/// Run the same line on every node. Each node waits until all have joined, and then prints variables for its
/// shell: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and those that torchrun, NCCL and Gloo read. Before it
/// prints anything, every node has had a TCP connection to that very address and port, and full-size TCP
/// segments have gone between the nodes on ports like those of NCCL and Gloo.
#[derive(Debug, Default, Parser)]
#[command(
    name = "mingle",
    version,
    override_usage = "eval \"$(mingle --job-id <ID> --world <N> [OPTIONS])\" && torchrun train.py",
    after_help = AFTER_HELP,
    after_long_help = AFTER_LONG_HELP,
    // The last one wins, so that the options of an alias or a wrapper can be overridden.
    args_override_self = true,
    max_term_width = 100,
    disable_help_flag = true,
    disable_help_subcommand = true,
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "COMMAND",
    disable_version_flag = true
)]
pub(crate) struct LowArgs {
    #[command(flatten)]
    pub(crate) join: JoinArgs,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = OUTPUT)]
    version: Option<bool>,

    #[command(subcommand)]
    pub(crate) command: Option<Action>,
}

/// The options of a rendezvous.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct JoinArgs {
    /// The job's name: 1 to 128 printable characters
    ///
    /// Needed, unless a scheduler gives it: --job-id alice-train. Jobs with different names do not meet. The
    /// name is no secret: anyone who knows it can take part. In MINGLE_JOB_ID, which is percent-encoded,
    /// write %25 for a %.
    #[arg(short, long, value_name = "ID", help_heading = SAME)]
    pub(crate) job_id: Option<String>,

    /// The number of nodes, or a range MIN:MAX: 4, or 3:4
    ///
    /// Required, unless a scheduler sets it. With a range mingle starts as soon as MAX nodes have joined, or,
    /// once MIN have joined, when --last-call passes without another node; never with fewer than MIN. A range
    /// excludes --rank. Without --max-restarts MIN must be more than half of MAX.
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, help_heading = SAME)]
    pub(crate) world: Option<String>,

    /// With a range in --world, how long to wait for another node [default: 15s]
    ///
    /// The wait begins when MIN nodes have joined, and restarts with each further node, up to four times TIME
    /// in total. It lasts longer while mingle hears a node that has not joined. Give --last-call 2m where
    /// nodes start minutes apart; 0 waits until --timeout.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = SAME, hide_short_help = true)]
    pub(crate) last_call: Option<String>,

    #[command(flatten)]
    pub(crate) network: NetworkArgs,

    /// Paths to prove before a world forms: auto, all, ring or master [default: auto]
    ///
    /// 'all' sends long TCP segments between all nodes; 'ring' only to rank 0, to NCCL's roots, and 1, 2, 4
    /// and so on ranks away. 'auto' is 'all' up to 64 nodes, then 'ring'. --paths master proves only
    /// MASTER_ADDR and MASTER_PORT, for jobs without other ports.
    #[arg(long, value_name = "PATHS", help_heading = SAME, hide_short_help = true)]
    pub(crate) paths: Option<String>,

    /// File with the job's secret [default: none; the job ID is enough]
    ///
    /// For networks on which you do not trust everybody. Every datagram is encrypted, and nobody without the
    /// secret can take a rank or learn which nodes there are. 'mingle secret' generates a secret.
    /// MINGLE_SECRET can hold the secret itself; an argument cannot, since all users can see arguments.
    #[arg(long, value_name = "FILE", help_heading = SAME)]
    pub(crate) secret_file: Option<String>,

    /// Keep the job out of the list of 'mingle watch'
    ///
    /// For job names that others on the link should not read. Without it, the leader advertises the job once
    /// a second, with its name and the number of nodes that have joined; of a job with a secret, only that
    /// it exists.
    #[arg(long, help_heading = SAME, hide_short_help = true)]
    pub(crate) private: bool,

    /// Assign ranks in the order of this text [default: by address]
    ///
    /// For pods that keep their names, --rank-key "$(hostname)"; to keep neighbours together,
    /// block-1/rack-7/host. The order is natural, node-9 before node-10, and then by address; nodes without
    /// a key come last. With a key mingle takes no rank from a scheduler. At most 128 characters.
    #[arg(long, value_name = "TEXT", help_heading = NODE, hide_short_help = true)]
    pub(crate) rank_key: Option<String>,

    /// This node's rank, 0 to N-1 [default: assigned]
    ///
    /// For hosts that must have a certain rank: --rank 2, or --rank hostname for the number after the last
    /// '-' of the host name. You need not give every node a rank, but at least one node must have rank 0 or
    /// none. By default mingle takes a scheduler's rank.
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, help_heading = NODE)]
    pub(crate) rank: Option<String>,

    /// How long to wait for all nodes, such as 90s; 0 is forever [default: 10m]
    ///
    /// A number with ms, s, m or h; without a unit, seconds. Give --timeout 1h where nodes start far apart,
    /// as pods do. If nodes are missing at the end, a message names the nodes that were here, and the exit
    /// code is 3.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = NODE)]
    pub(crate) timeout: Option<String>,

    /// Use RDMA: auto, require or off [default: auto]
    ///
    /// 'auto' uses RDMA if all ranks can use it together. If a rank cannot, all ranks use sockets, and a
    /// warning names that rank; NCCL by itself would hang. For jobs that need RDMA, --rdma require on any
    /// rank ends all ranks with code 4 instead. 'off' ignores RDMA devices.
    #[arg(long, value_name = "USE", help_heading = FABRIC)]
    pub(crate) rdma: Option<String>,

    /// Compare KEY=VALUE with the other nodes; repeatable
    ///
    /// mingle compares drivers, GPUs and variables for NCCL. Add what else your job may hang on, such as
    /// --same image=v7 or --same "code=$(git rev-parse HEAD)". In MINGLE_SAME, separate several with commas.
    #[arg(long, value_name = "KEY=VALUE", help_heading = SAMENESS, hide_short_help = true)]
    pub(crate) same: Vec<String>,

    /// End all ranks with code 4 unless all that is compared is the same
    ///
    /// For jobs that should not start on different drivers or images. It is enough on a single node. Without
    /// it, a warning on every rank names up to three keys, their values and the ranks.
    #[arg(long, help_heading = SAMENESS, hide_short_help = true)]
    pub(crate) require_same: bool,

    /// How many workers run here [default: the GPUs of this host, or 1]
    ///
    /// For hosts that should run more or fewer workers than they have GPUs: --slots 4. Nodes may differ.
    /// torchrun reads the number in PET_NPROC_PER_NODE. --slots replaces a number that you have set in that
    /// variable; the default does not.
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = NODE)]
    pub(crate) slots: Option<String>,

    /// Hold N more ports on this host for the job's own use, 1 to 64 [default: 0]
    ///
    /// For servers beside MASTER_PORT. With --ports 2 mingle holds two TCP ports of 20000-29399, and passes
    /// them to the command of 'mingle run' as {port1} and {port2} and in MINGLE_PORT_LIST. Each node has its
    /// own. Without 'run', mingle releases the ports.
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = NODE, hide_short_help = true)]
    pub(crate) ports: Option<String>,

    /// Format of the result; --help lists all [default: sh]
    #[arg(long, value_name = "FORMAT", long_help = formats::help(), help_heading = OUTPUT)]
    pub(crate) format: Option<String>,

    /// Write this format to a file as well; repeatable
    ///
    /// For programs that read a file: --output hostfile=/tmp/hostfile, or template=TEMPLATE=FILE. mingle
    /// writes each file as a whole, once the world has formed and before it prints anything. In
    /// hosts=/etc/hosts it changes only the job's own block. MINGLE_OUTPUT takes a list with commas.
    #[arg(short, long, value_name = "FORMAT=FILE", help_heading = OUTPUT)]
    pub(crate) output: Vec<String>,

    /// Append each event to this file, as a line of JSON
    ///
    /// For launchers that follow the rendezvous, such as --events /tmp/foo.events: started, leading, joined,
    /// left, formed, failed and so on, each with its time. mingle writes each line at once. The file may be
    /// a pipe that has a reader.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT, hide_short_help = true)]
    pub(crate) events: Option<String>,

    /// Print only errors on stderr
    #[arg(short, long, help_heading = OUTPUT)]
    pub(crate) quiet: bool,

    /// Log to stderr; -vv for more
    #[arg(short, long, action = ArgAction::Count, help_heading = OUTPUT)]
    pub(crate) verbose: u8,

    /// Print help; --help explains more than -h
    #[arg(short, long, action = ArgAction::Help, help_heading = OUTPUT)]
    pub(crate) help: Option<bool>,
}

/// The subcommands.
///
/// Each line of the list of commands is an attribute here: a doc comment would also replace the explanation,
/// which is on the struct, in the command's own `--help`. The settings of mingle itself hold for them too.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub(crate) enum Action {
    #[command(about = "Start a command in the world, or workers; restart all where one fails")]
    Run(Box<RunArgs>),
    #[command(about = "Show RDMA ports and GIDs, which of them a job uses, and why not the others", arg = help())]
    Rdma(RdmaArgs),
    #[command(about = "Check whether a world can form here; on several hosts, who reaches whom", arg = help())]
    Doctor(DoctorArgs),
    #[command(about = "Show which nodes of a job are here and missing, or the jobs on this link", arg = help())]
    Watch(WatchArgs),
    /// Prints a new secret for --secret-file: 256 random bits.
    ///
    /// Make it once, in a file that only you can read, as after umask 077, and copy it to every node over a
    /// channel that you trust. The job's own processes can read a secret that is in a variable.
    #[command(about = "Print a new secret for --secret-file: 256 random bits", arg = help())]
    Secret,
    #[command(about = "Copy this program into a folder, for an init container", arg = help())]
    Install(InstallArgs),
    #[command(about = "Print a script that completes mingle's options in a shell", arg = help())]
    Completions(CompletionsArgs),
    #[command(about = "Print the manual page of mingle, or of one of these commands", arg = help())]
    Man(ManArgs),
}

/// The option of each command that does not join a world.
fn help() -> Arg {
    Arg::new("help").short('h').long("help").help("Print help").action(ArgAction::Help)
}

const AFTER_HELP: &str = "\
Every option can be a variable too: MINGLE_WORLD=4. More options, exit codes and details: --help";

// Kept to 80 columns, since wrapping would break the lists.
const AFTER_LONG_HELP: &str = "\
Environment:
  Every option is a variable too, such as MINGLE_JOB_ID or MINGLE_QUIET=1. The
  option wins. An empty variable counts as not set.
  NCCL_*, GLOO_*, UCX_*, NVSHMEM_*, FI_* and PET_NPROC_PER_NODE stay as you have
  set them. MINGLE_SET lists what mingle has set, which a second eval in the
  same shell replaces, unless you have changed it since.
  Other values come from a scheduler, and stderr names them, such as the rank
  from SLURM_NODEID: of Slurm, Indexed Job, LeaderWorkerSet, Volcano, SkyPilot,
  AWS Batch, SageMaker, RunPod, Flux, PBS, LSF, Open MPI and PMI.

Exit codes, as of eval (docs/troubleshooting.md has each message, and what to do):
  0    the world has formed
  1    anything else, such as a full disk behind stdout
  2    a wrong argument or variable
  3    the timeout passed; the message says which nodes were here
  4    a conflict: rank taken, another world size or user, all seats taken, or
       RDMA or sameness is required and not all ranks have it
  5    the network: no usable interface, port taken, no master that all can
       reach, a node that is never ready, outcome unknown
  6    as 3, and datagrams were heard that the job's secret does not open
  130  interrupted (SIGINT)
  143  terminated (SIGTERM)
  126, 127  'mingle run': the command cannot be started, or does not exist
  129, 131  the terminal is gone (SIGHUP), or SIGQUIT

Firewall:
  UDP 29499, TCP and UDP 29500-29999 (or those of --multicast and
  --master-port), and TCP 32768-60999, the kernel's ports, for the job itself.

Examples:
  Four nodes, this line on each:
    eval \"$(mingle --job-id foo --world 4)\" && torchrun train.py
  Within srun, which provides the rest, over one network only:
    eval \"$(mingle -i 10.1.0.0/16)\" || exit
  The same without eval, restarted where a node fails:
    mingle run -j foo -w 4 --max-restarts 3 -- torchrun train.py
  The addresses of all nodes, by rank:
    mingle -j foo -w 4 --format json | jq -r '.roster[].address'";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn help(long: bool, width: usize) -> String {
        let mut command = LowArgs::command().term_width(width);
        if long { command.render_long_help() } else { command.render_help() }.to_string()
    }

    #[test]
    fn the_definition_is_consistent() {
        LowArgs::command().debug_assert();
    }

    #[test]
    fn the_short_help_fits_one_screen() {
        let help = help(false, 100);
        assert!(help.lines().count() <= 40, "{} lines:\n{help}", help.lines().count());
        let widest = help.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
        assert!(widest.chars().count() <= 100, "{widest}");
        let wrapped = help.lines().find(|line| line.starts_with("            "));
        assert_eq!(wrapped, None, "{help}");
    }

    #[test]
    fn the_long_help_has_exit_codes_an_example_and_every_option() {
        let help = help(true, 80);
        for wanted in [
            "  3    ",
            "  130  ",
            "SLURM_NODEID",
            "tf-config",
            "eval \"$(mingle",
            "MINGLE_SET",
            "29500-29999",
            "percent-encoded",
        ] {
            assert!(help.contains(wanted), "{wanted}:\n{help}");
        }
        for argument in LowArgs::command().get_arguments() {
            assert!(help.contains(&format!("--{}", argument.get_long().unwrap())), "{help}");
        }
    }

    #[test]
    fn the_help_names_the_default_port() {
        let help = help(true, 100);
        assert!(
            help.contains(&format!("[default: by job ID, {}, 1]", mingle_core::Network::DISCOVERY_PORT)),
            "{help}"
        );
    }

    #[test]
    fn the_last_of_a_repeated_option_wins_but_interfaces_add_up() {
        let typed = ["mingle", "-w", "4", "-i", "eth0", "-w5", "--interface=ib0", "-vv"];
        let low = LowArgs::try_parse_from(typed).unwrap();
        assert_eq!(low.join.world.as_deref(), Some("5"));
        assert_eq!(low.join.network.air.interface, ["eth0", "ib0"]);
        assert_eq!(low.join.verbose, 2);
    }
}
