//! The arguments of each command that is more than a rendezvous.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueHint};

use super::{JoinArgs, OUTPUT};

const COMMAND: &str = "The command";

/// Starts a command on every node once the world has formed, with the world's variables.
///
/// The same line on every node. mingle becomes the command, so that signals, exit code and terminal are the
/// command's own; where no world forms, nothing is started and mingle's own exit code says why. In the command,
/// {rank}, {world}, {master_addr}, {master_port} and {hostfile} (a file for mpirun) are filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(
    disable_help_flag = true,
    args_override_self = true,
    override_usage = "mingle run --job-id <ID> --world <N> [OPTIONS] -- <COMMAND>..."
)]
pub(crate) struct RunArgs {
    /// Start all again, up to N times in all, where a command fails [default: 0]
    ///
    /// Then mingle stays as the command's parent. Where a command fails, or a node is gone whose place another
    /// one wants to take, all others' are stopped, all nodes form a new world, and all start again;
    /// MINGLE_GENERATION counts. Must be the same on every node. A command that has ended well waits for the others'.
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = COMMAND)]
    pub(crate) max_restarts: Option<String>,

    /// How long a command that is to stop has for it, after SIGTERM [default: 30s]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = COMMAND)]
    pub(crate) stop_timeout: Option<String>,

    #[command(flatten)]
    pub(crate) join: JoinArgs,

    /// Print help; --help explains more than -h
    #[arg(short, long, action = ArgAction::Help, help_heading = OUTPUT)]
    help: Option<bool>,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Shows the RDMA devices of this host, which ports and GIDs a job would use, and why not the others.
///
/// Nothing is sent, and no job is needed. What is printed for NCCL is what this host needs by itself; in a
/// world, the others have a say too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct RdmaArgs {
    /// What is printed: table, env or json [default: table]
    ///
    /// 'env' has a line NAME=VALUE for each variable, in alphabetical order, for env files and not for eval.
    /// 'json' has everything that was found, with a reason for each port and GID that is not used.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,

    /// Show the machine that was saved in this folder
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) from: Option<PathBuf>,

    /// Save what is read from this machine in a new folder
    ///
    /// For reports and tests: --from shows it anywhere. It holds the host's addresses, but nothing else of it
    /// beside RDMA devices, network interfaces and GPUs.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["from", "format", "no_gid_pin"])]
    pub(crate) save: Option<PathBuf>,

    /// Show the traffic of RDMA ports and network interfaces, every second or so
    ///
    /// Whether a running job really uses RDMA is visible at a glance. Ends with Ctrl-C.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        conflicts_with_all = ["from", "format", "no_gid_pin", "save"])]
    pub(crate) watch: Option<String>,

    /// Say which transports an NCCL log tells of; - is stdin
    ///
    /// Run the job with NCCL_DEBUG=INFO, and perhaps NCCL_DEBUG_FILE=/tmp/nccl.%h.%p, to have one. Says what is
    /// missing for GPUDirect RDMA, too.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        conflicts_with_all = ["from", "no_gid_pin", "save", "watch"])]
    pub(crate) check_log: Option<PathBuf>,

    /// Leave the choice of the GID index to NCCL
    #[arg(long)]
    pub(crate) no_gid_pin: bool,

    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Where a command that looks at a network finds the job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct AirArgs {
    /// Use these interfaces only: names, globs, CIDRs, or ^ and what to leave out; repeatable
    #[arg(short, long, value_name = "IF")]
    pub(crate) interface: Vec<String>,

    /// UDP port of the group [default: 29499]
    #[arg(long, value_name = "PORT", allow_negative_numbers = true)]
    pub(crate) discovery_port: Option<String>,

    /// IPv4 multicast group [default: from the job ID]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) group: Option<String>,
}

/// Looks at this host and its network, and says what would keep a world from forming, and what helps.
///
/// With --job-id and --world, run on several hosts at once, it also finds out who hears whom by multicast, by
/// UDP and by TCP on the master's port. No root is needed; what only root can read is said to be so. Exit codes:
/// 0 a world can form, 3 not all hosts came, 5 the network is in the way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct DoctorArgs {
    /// The job's name; its group and ports are looked at
    #[arg(short, long, value_name = "ID")]
    pub(crate) job_id: Option<String>,

    /// How many hosts run this at once, 2 to 32
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) world: Option<String>,

    #[command(flatten)]
    pub(crate) air: AirArgs,

    /// Look at this MASTER_PORT [default: the job's first free one]
    #[arg(short = 'p', long, value_name = "PORT", allow_negative_numbers = true)]
    pub(crate) master_port: Option<String>,

    /// Multicast TTL, 1 to 255 [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) ttl: Option<String>,

    /// Prefer IPv6 where the hosts have both
    #[arg(long)]
    pub(crate) ipv6: bool,

    /// Find the other hosts here too, as mingle does; repeatable
    ///
    /// A name or an address, with a port or without; several with commas, or as Slurm writes them: gpu[01-04].
    /// Without a port the first eight of the job's are tried.
    #[arg(short, long, value_name = "HOST[:PORT]")]
    pub(crate) seed: Vec<String>,

    /// Find the other hosts in this shared folder too
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) seed_dir: Option<String>,

    /// Speak by IPv4 broadcast too, and look whether it comes back and who hears it
    #[arg(long)]
    pub(crate) broadcast: bool,

    /// How long to wait for the other hosts [default: 30s]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) timeout: Option<String>,

    /// What is printed: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,

    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Prints a new secret for --secret-file: 256 random bits.
///
/// Make one once, in a file that only you can read, as after umask 077, and copy it to every node by a way that you
/// trust. A secret in a variable is there for the job as well.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct SecretArgs {
    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Shows who is there of a job, who gathers, and who is missing; without --job-id, all jobs that gather on the link.
///
/// It only listens: nothing is sent, no port of the job's is taken, and no node hears of it. On a terminal a table is
/// drawn again and again; elsewhere each change is a line. Ends with Ctrl-C, or with --timeout; then the exit code
/// is 3 if nothing was heard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct WatchArgs {
    /// The job's name [default: all jobs that are not private]
    #[arg(short, long, value_name = "ID")]
    pub(crate) job_id: Option<String>,

    /// File with the job's secret, to see who is there
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) secret_file: Option<String>,

    #[command(flatten)]
    pub(crate) air: AirArgs,

    /// Hear the job's broadcasts too
    #[arg(long)]
    pub(crate) broadcast: bool,

    /// How long to listen [default: until Ctrl-C; with --format json 2s]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) timeout: Option<String>,

    /// What is printed: text as it goes, or json at the end [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,

    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}
