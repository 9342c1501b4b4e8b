//! The arguments as they were typed: the first of two steps, without any effect or judgement.
//!
//! Values stay text here. `config` reads them together with the environment, so that both are
//! judged by the same rules and in the same words.

mod commands;

use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};

use crate::completions::CompletionsArgs;
use crate::man::ManArgs;

pub(crate) use commands::{DoctorArgs, RdmaArgs, RunArgs, SecretArgs, WatchArgs};

const SAME: &str = "Must be the same on every node";
const NODE: &str = "This node";
const FABRIC: &str = "RDMA";
const OUTPUT: &str = "Output";

/// Nodes that know only a job ID find each other, agree on ranks, and prove the master's address.
///
/// Run the same line on every node. Each waits until all have come, and then prints variables for its
/// shell: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and what torchrun, NCCL and Gloo read. Every node
/// has had a TCP connection to that very address and port before anything is printed.
#[derive(Debug, Default, Parser)]
#[command(
    name = "mingle",
    version,
    override_usage = "eval \"$(mingle --job-id <ID> --world <N> [OPTIONS])\" && torchrun train.py",
    after_help = AFTER_HELP,
    after_long_help = AFTER_LONG_HELP,
    // The last one counts, so that an alias or a wrapper's options can be overridden.
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

    /// Print help; --help explains more than -h
    #[arg(short, long, action = ArgAction::Help, help_heading = OUTPUT)]
    help: Option<bool>,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = OUTPUT)]
    version: Option<bool>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What a node brings to a rendezvous, and what it wants of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[expect(clippy::struct_excessive_bools, reason = "a flag each")]
pub(crate) struct JoinArgs {
    /// The job's name: 1 to 128 printable characters
    ///
    /// Multicast group, ports and the tag in every datagram follow from it, so jobs of different names do
    /// not meet. It separates jobs; it is no password. MINGLE_JOB_ID is percent-encoded, as it is printed
    /// too: only a % must be written as %25 there.
    #[arg(short, long, value_name = "ID", help_heading = SAME)]
    pub(crate) job_id: Option<String>,

    /// How many nodes there are; nobody goes on with fewer
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, help_heading = SAME)]
    pub(crate) world: Option<String>,

    /// Order of ranks that are not given: address or host [default: address]
    ///
    /// The same hosts get the same ranks at the next start, whoever comes first. 'address' orders by
    /// number; 'host' by host name, node-9 before node-10, for pods whose names stay and addresses do not.
    #[arg(long, value_name = "ORDER", help_heading = SAME, hide_short_help = true)]
    pub(crate) rank_by: Option<String>,

    /// UDP port on which the nodes find each other [default: 29499]
    #[arg(long, value_name = "PORT", allow_negative_numbers = true, help_heading = SAME, hide_short_help = true)]
    pub(crate) discovery_port: Option<String>,

    /// IPv4 multicast group [default: from the job ID]
    ///
    /// The default lies in 239.192.0.0/14. Give one where the network passes only groups that were
    /// registered before, as clouds and some Kubernetes networks do.
    #[arg(long, value_name = "ADDRESS", help_heading = SAME, hide_short_help = true)]
    pub(crate) group: Option<String>,

    /// IPv6 where all nodes have both families [default: IPv4]
    ///
    /// A world has one family: the one that all nodes have. This says which it is where that is true of both.
    #[arg(long, help_heading = SAME)]
    pub(crate) ipv6: bool,

    /// File with the job's secret [default: none; the job ID is enough]
    ///
    /// With a secret every datagram is encrypted, and nobody without it can take a rank or learn who is
    /// there. 16 bytes at least; 'mingle secret' makes one. The secret itself may be in MINGLE_SECRET, but
    /// is never an argument, since those are seen by every user of the host.
    #[arg(long, value_name = "FILE", help_heading = SAME)]
    pub(crate) secret_file: Option<String>,

    /// Keep the job out of the list of 'mingle watch'
    ///
    /// Without it, whoever gathers tells the link once a second what the job is called and how many nodes are there;
    /// of a job with a secret, only that there is one.
    #[arg(long, help_heading = SAME, hide_short_help = true)]
    pub(crate) private: bool,

    /// This node's rank, 0 to N-1 [default: assigned]
    ///
    /// Nodes with a rank and nodes without one can be mixed. A node of rank 1 or more waits for others to
    /// gather, so one node at least must have rank 0 or none. 'hostname' takes the number after the last '-' of
    /// the host's name, as StatefulSets give it to their pods. Where a scheduler knows the rank, that is the
    /// default; see below.
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, help_heading = NODE)]
    pub(crate) rank: Option<String>,

    /// Use this only: name, eth*, CIDR, ^not; repeatable [default: all]
    ///
    /// For example eth0, 'eth*', or 10.1.0.0/16 where names differ between the nodes; ^ before one excludes it,
    /// and only it: '^docker*,^10.7.0.0/16'. Quote what has * or ?. Several can be given, or one list with
    /// commas; the first is preferred. By default the interface of the default route comes first, then others,
    /// virtual bridges last, and loopback only where nothing else exists.
    #[arg(short, long, value_name = "IF", help_heading = NODE)]
    pub(crate) interface: Vec<String>,

    /// MASTER_PORT, where this node is rank 0 [default: a free one]
    ///
    /// The default is the first free one of a sequence within 29500-29999 that follows from the job ID, so
    /// two jobs on the same hosts rarely meet. TCP and UDP must pass between the nodes on this port.
    #[arg(short = 'p', long, value_name = "PORT", allow_negative_numbers = true, help_heading = NODE)]
    pub(crate) master_port: Option<String>,

    /// Where another node may be, without multicast; repeatable
    ///
    /// A name or an address, with a port or without; several with commas, or as Slurm writes them:
    /// gpu[01-04]. All addresses of a name are tried and looked up again, as for a Kubernetes headless
    /// service. Multicast goes on beside it. One node that any other can reach is enough.
    #[arg(short, long, value_name = "HOST[:PORT]", help_heading = NODE)]
    pub(crate) seed: Vec<String>,

    /// Shared folder in which the nodes find each other's addresses
    ///
    /// For clusters with a shared file system. Each node leaves a small file there and removes it at the end;
    /// those of nodes that were killed are removed by others after a minute.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = NODE)]
    pub(crate) seed_dir: Option<String>,

    /// Speak by IPv4 broadcast as well as by multicast
    ///
    /// For switches that drop groups which nobody has registered. It reaches the own link alone.
    #[arg(long, help_heading = NODE, hide_short_help = true)]
    pub(crate) broadcast: bool,

    /// Multicast TTL, 1 to 255; 1 stays on the link [default: 1]
    ///
    /// Every router on the way takes one off, where it passes multicast on at all.
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = NODE, hide_short_help = true)]
    pub(crate) ttl: Option<String>,

    /// How long to wait for all, such as 90s; 0 is for ever [default: 10m]
    ///
    /// A number with ms, s, m or h; a number alone is seconds. What was missing then is said, and the exit code is 3.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = NODE)]
    pub(crate) timeout: Option<String>,

    /// End all ranks with code 4 unless all can use RDMA together
    ///
    /// Without it, a world in which one rank lacks RDMA, or has RoCE where others have InfiniBand, uses
    /// sockets on all ranks, with a warning that names the rank. NCCL by itself would hang.
    #[arg(long, help_heading = FABRIC, conflicts_with = "no_rdma")]
    pub(crate) require_rdma: bool,

    /// Leave RDMA alone: look at no device, and print no variable for it
    #[arg(long, help_heading = FABRIC, hide_short_help = true)]
    pub(crate) no_rdma: bool,

    /// Leave the choice of the GID index to NCCL (2.21 or later)
    ///
    /// NCCL_IB_GID_INDEX and its like are not printed then, but the address family and RoCE version by which
    /// NCCL chooses.
    #[arg(long, help_heading = FABRIC, hide_short_help = true)]
    pub(crate) no_gid_pin: bool,

    /// More socket threads for NCCL where there is no RDMA
    ///
    /// NCCL_SOCKET_NTHREADS=4 and NCCL_NSOCKS_PERTHREAD=8, as for fast networks of clouds. They are not printed
    /// where RDMA is used.
    #[arg(long, help_heading = FABRIC, hide_short_help = true)]
    pub(crate) tune_sockets: bool,

    /// Print this variable as well, such as NCCL_IB_SL=1; repeatable
    ///
    /// For what a platform's guide asks for and no probe can know. It wins over what mingle would print and
    /// over the environment. Ranks that are given others are named in a warning. Has no variable of its own.
    #[arg(long = "set", value_name = "NAME=VALUE", help_heading = FABRIC, hide_short_help = true)]
    pub(crate) set: Vec<String>,

    /// How many workers run here [default: the GPUs of this host, or 1]
    ///
    /// Nodes may differ. Printed as PET_NPROC_PER_NODE, where it wins over your own only if it is given here; the
    /// default yields to a number that you have set.
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = NODE)]
    pub(crate) slots: Option<String>,

    /// What is printed: sh, fish, json, c10d, ray, hostfile ... [default: sh]
    ///
    /// For eval: sh, and with variables of one launcher more c10d (torchrun), ray, jax, slots, ti-one and
    /// skypilot; fish for fish. For other programs: json, dotenv, hostfile (Open MPI), deepspeed, horovod,
    /// hosts (a block for /etc/hosts) and tf-config. 'json' has all variables, the facts behind them and the whole
    /// roster; a failure is an object with an "error" of code, kind and message. The others for programs print
    /// nothing where no world has formed.
    #[arg(long, value_name = "FORMAT", help_heading = OUTPUT)]
    pub(crate) format: Option<String>,

    /// Write this format to a file as well; repeatable
    ///
    /// Such as hostfile=/tmp/hostfile. Files are written once the world has formed, before anything is printed,
    /// and each at once: a reader sees none or all of it. hosts=/etc/hosts changes only the lines between mingle's
    /// own marks. In MINGLE_OUTPUT, several are separated by commas.
    #[arg(short, long, value_name = "FORMAT=FILE", help_heading = OUTPUT)]
    pub(crate) output: Vec<String>,

    /// How many of the first ranks are parameter servers in 'tf-config' [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = OUTPUT, hide_short_help = true)]
    pub(crate) tf_ps: Option<String>,

    /// Append what happens to this file, a line of JSON for each event
    ///
    /// For launchers that follow: started, leading, leader_changed, joined, left, preparing, formed, failed and
    /// so on, each with its time. Each line is written at once. It may be a pipe that is read.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT, hide_short_help = true)]
    pub(crate) events: Option<String>,

    /// Say nothing on stderr but errors
    #[arg(short, long, help_heading = OUTPUT)]
    pub(crate) quiet: bool,

    /// Form of the log that -v asks for: text or json [default: text]
    ///
    /// With 'json' each line of the log is an object. What stderr says to people without -v stays text, and
    /// --quiet leaves it away.
    #[arg(long, value_name = "FORMAT", help_heading = OUTPUT, hide_short_help = true)]
    pub(crate) log_format: Option<String>,

    /// Log to stderr what happens; -vv for more
    #[arg(short, long, action = ArgAction::Count, help_heading = OUTPUT)]
    pub(crate) verbose: u8,
}

/// What else the program does.
///
/// Each has a line for the list of commands here, as an attribute: a comment in its place would also take that of its
/// struct, which explains, from the command's own `--help`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub(crate) enum Command {
    #[command(about = "Start a command in the world; with --max-restarts, all again where one fails")]
    Run(Box<RunArgs>),
    #[command(about = "Show RDMA ports and GIDs, which of them a job uses, and why not the others")]
    Rdma(RdmaArgs),
    #[command(about = "Say why a world can form here or not; on several hosts at once, who reaches whom")]
    Doctor(DoctorArgs),
    #[command(about = "Show who is there of a job and who is missing, or which jobs gather on this link")]
    Watch(WatchArgs),
    #[command(about = "Print a new secret for --secret-file: 256 random bits")]
    Secret(SecretArgs),
    #[command(about = "Print a script that completes mingle's options in a shell")]
    Completions(CompletionsArgs),
    #[command(about = "Print the manual page of mingle, or of one of these commands")]
    Man(ManArgs),
}

const AFTER_HELP: &str = "\
Every option can be a variable too: MINGLE_WORLD=4. More options, exit codes and reasons: --help";

// Kept to 80 columns, since wrapping would break the lists.
const AFTER_LONG_HELP: &str = "\
Environment:
  Every option can be given as a variable instead: MINGLE_ and its name in
  capitals, such as MINGLE_JOB_ID, MINGLE_WORLD, MINGLE_MASTER_PORT,
  MINGLE_QUIET=1, MINGLE_VERBOSE=2. An option on the command line wins. An
  empty variable counts as not set.
  NCCL_*, GLOO_*, UCX_*, NVSHMEM_*, FI_* and PET_NPROC_PER_NODE are left alone
  where you have set them. MINGLE_SET lists those that mingle has set, so that
  a second eval in the same shell may replace them.
  What is given neither way is taken from a scheduler, and said on stderr:
    rank   SLURM_NODEID, JOB_COMPLETION_INDEX, LWS_WORKER_INDEX,
           SKYPILOT_NODE_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK
    world  SLURM_NNODES, LWS_GROUP_SIZE, SKYPILOT_NUM_NODES,
           OMPI_COMM_WORLD_SIZE, PMI_SIZE
    job    SLURM_JOB_ID with SLURM_STEP_ID, SKYPILOT_TASK_ID
    seed   LWS_LEADER_ADDRESS

Exit codes, which eval \"$(mingle ...)\" returns as well:
  0    the world has formed
  1    anything else, such as a full disk behind stdout
  2    a wrong argument or variable
  3    the time was up; the message says who was here and who was missing
  4    a conflict: rank taken, another world size, one node too many, or RDMA
       is required and not all ranks have it
  5    the network: no usable interface, port taken, no master that all can
       reach, outcome unknown
  6    as 3, and something was heard that the job's secret does not open
  130  interrupted (SIGINT)
  143  terminated (SIGTERM)

Firewall:
  UDP 29499, and TCP and UDP 29500-29999, or what --discovery-port and
  --master-port say.

Examples:
  Four nodes, this line on each:
    eval \"$(mingle --job-id foo --world 4)\" && torchrun train.py
  Within srun, which tells the rest, over one network only:
    eval \"$(mingle -i 10.1.0.0/16)\" || exit
  The same without eval, and again where a node fails:
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
    fn the_help_names_the_defaults_that_hold() {
        let help = help(true, 100);
        assert!(help.contains(&format!("[default: {}]", mingle_core::Network::DISCOVERY_PORT)), "{help}");
    }

    #[test]
    fn the_last_of_a_repeated_option_counts_but_every_interface_does() {
        let typed = ["mingle", "-w", "4", "-i", "eth0", "-w5", "--interface=ib0", "-vv"];
        let low = LowArgs::try_parse_from(typed).unwrap();
        assert_eq!(low.join.world.as_deref(), Some("5"));
        assert_eq!(low.join.interface, ["eth0", "ib0"]);
        assert_eq!(low.join.verbose, 2);
    }
}
