//! The arguments of each command that is more than a rendezvous.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{AirArgs, JoinArgs, NetworkArgs};

const COMMAND: &str = "The command";

/// Starts a command on every node once the world has formed, with the world's variables.
///
/// Run the same line on every node. mingle becomes the command, so signals, exit code and terminal are the
/// command's own, and nobody watches it. With --max-restarts or --workers mingle stays as its parent: if a
/// command fails or a node dies, all nodes stop their commands, and restart them or end. If no world forms,
/// mingle starts nothing, and its exit code says why. In the command, mingle fills in {rank}, {world},
/// {master_addr}, {endpoints} and the other placeholders of templates, and with --format vllm or sglang the
/// launcher's arguments for {args}.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(override_usage = "mingle run --job-id <ID> --world <N> [OPTIONS] -- <COMMAND>...")]
pub(crate) struct RunArgs {
    /// Restart all commands, up to N times in a row, if a command fails [default: 0]
    ///
    /// For jobs with snapshots. If a command fails or a node dies, all nodes restart their commands in a new
    /// world. After TIME without a failure, 1h by default, mingle counts from 0 again: 3/30m, or 3/0 for
    /// never. Must match on all nodes.
    #[arg(long, value_name = "N[/TIME]", allow_negative_numbers = true, help_heading = COMMAND)]
    pub(crate) max_restarts: Option<String>,

    /// Pause before the second restart in a row; doubles with each later one [default: 1s]
    ///
    /// For failures that need time to pass: --restart-delay 30s. The first restart is at once. The longest
    /// pause is 5 minutes, or the delay that you give if that is longer. 0 is no pause. The same on every
    /// node.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = COMMAND)]
    pub(crate) restart_delay: Option<String>,

    /// How long a node may stay silent before all commands restart without it [default: 30s]
    ///
    /// mingle names a silent node after about 12 s. It is dead after this time more, if most
    /// nodes answer and none reaches it. A killed mingle is dead within a second. --gone-after 2m survives
    /// longer outages; 0 waits forever.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = COMMAND)]
    pub(crate) gone_after: Option<String>,

    /// Allow a range in --world with MIN at most half of MAX
    ///
    /// For 2:4, say. If the network splits, each half may then go on as a world of its own, with the same
    /// snapshots. Needs --max-restarts.
    #[arg(long, help_heading = COMMAND)]
    pub(crate) allow_split: bool,

    /// Restart a world that has room once another node waits for a seat
    ///
    /// For a range in --world, if your program writes snapshots often. The leader ends the world once the
    /// node has waited for --last-call, at most every 5 minutes. This restart does not count. Without --grow,
    /// a late node waits until a member is gone. Needs --max-restarts.
    #[arg(long, help_heading = COMMAND)]
    pub(crate) grow: bool,

    /// Start the command N times here, once for each worker; 'auto' is once for each slot
    ///
    /// For programs without a launcher of their own. Each worker gets RANK, LOCAL_RANK, WORLD_SIZE and so on,
    /// as torchrun defines them, and its lines of output begin with its rank. If a worker fails, all stop.
    /// Give it on every node; N may differ.
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = COMMAND)]
    pub(crate) workers: Option<String>,

    /// How long a command may take to stop after SIGTERM [default: 30s]
    ///
    /// Then it gets SIGKILL, with 0 never. Give more if your program writes a snapshot on SIGTERM, such as
    /// --stop-timeout 5m.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, help_heading = COMMAND)]
    pub(crate) stop_timeout: Option<String>,

    #[command(flatten)]
    pub(crate) join: JoinArgs,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Shows the RDMA devices of this host, which ports and GIDs a job would use, and why not the others.
///
/// Nothing is sent, and no job is needed. The variables for NCCL are those that suit this host alone; in a
/// world they also depend on the other hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct RdmaArgs {
    /// What is printed: table, env or json [default: table]
    ///
    /// 'env' has a line NAME=VALUE for each variable, in alphabetical order, for env files and not for eval.
    /// 'json' has everything that was found, with a reason for each port and GID that is not used.
    #[arg(long, value_name = "FORMAT", value_parser = ["table", "env", "json"], hide_possible_values = true)]
    pub(crate) format: Option<String>,

    /// Show the host that was saved in this folder
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) from: Option<PathBuf>,

    /// Save the data about this host in a new folder
    ///
    /// For bug reports and tests: --from shows it on any host. It holds the host's addresses, RDMA devices,
    /// network interfaces and GPUs, and nothing else.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["from", "format"])]
    pub(crate) save: Option<PathBuf>,

    /// Show the traffic of RDMA ports and network interfaces, every second or so
    ///
    /// Shows at a glance whether a running job really uses RDMA. Ends with Ctrl-C.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        conflicts_with_all = ["from", "format", "save"])]
    pub(crate) watch: Option<String>,

    /// Say which transports an NCCL log mentions; - is stdin
    ///
    /// Says whether the channels between nodes use RDMA, with GPUDirect or without, or sockets, and which
    /// ranks differ. To get a log, run the job with NCCL_DEBUG=INFO, and perhaps
    /// NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        conflicts_with_all = ["from", "save", "watch"])]
    pub(crate) check_log: Option<PathBuf>,
}

/// Looks at this host and its network, and says what would keep a world from forming, and what helps.
///
/// If it runs with --job-id and --world on several hosts at the same time, they form a world as the job
/// would, in which nothing starts. The report then says which host reaches which, by multicast and by the
/// paths that a rendezvous proves, or why no world forms; and which cables or switches join their Ethernet
/// ports for RDMA. It needs no root; without root it lists what it could not read. Exit codes: 0 a world can
/// form, others as of mingle itself: 3 some hosts did not come, 4 they ask for different things, 5 the
/// network, 6 the secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct DoctorArgs {
    /// The job's name; the check uses its group and ports
    #[arg(short, long, value_name = "ID")]
    pub(crate) job_id: Option<String>,

    /// How many hosts run the doctor at once, 2 to 32; or a range, such as 3:4
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) world: Option<String>,

    #[command(flatten)]
    pub(crate) network: NetworkArgs,

    /// File with the job's secret, as for mingle itself
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) secret_file: Option<String>,

    /// Also measure transfers between all hosts, and name slow hosts; give it on all hosts
    ///
    /// Each host sends to each other host over a TCP connection, at most 0.3 s and 64 MiB. N hosts take about
    /// N seconds. A host is slow if the median of its transfers is below half of the median of all hosts.
    #[arg(long)]
    pub(crate) bandwidth: bool,

    /// How long to wait for the other hosts [default: 30s]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) timeout: Option<String>,

    /// What is printed: text or json [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], hide_possible_values = true)]
    pub(crate) format: Option<String>,
}

/// Shows which nodes of a job are here, which leads, and how many are missing; without --job-id, all jobs on
/// the link.
///
/// It takes no part in the job and none of its ports. Under 'mingle run' with --max-restarts or --workers it
/// also shows which nodes run, how often they have started again and why, and the nodes that are suspected
/// to be gone. On a terminal it redraws its lines; elsewhere each change is a line. It ends with Ctrl-C, or
/// after --timeout; the exit code is then 3 if nothing was heard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct WatchArgs {
    /// The job's name [default: all jobs that are not private]
    #[arg(short, long, value_name = "ID")]
    pub(crate) job_id: Option<String>,

    /// File with the job's secret, to see its nodes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) secret_file: Option<String>,

    #[command(flatten)]
    pub(crate) air: AirArgs,

    /// How long to listen [default: until Ctrl-C; with --format json 2s]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) timeout: Option<String>,

    /// What is printed: text as it goes, or json at the end [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], hide_possible_values = true)]
    pub(crate) format: Option<String>,
}
