//! The options of the network, of all commands that have them.

use clap::{Args, ValueHint};

pub(super) const SAME: &str = "Must be the same on every node";
pub(super) const NODE: &str = "This node";

/// The options of a node: one that joins a world, and the doctor, which tries what such a node would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct NetworkArgs {
    #[command(flatten)]
    pub(crate) air: AirArgs,

    /// Prefer IPv6 where all nodes have both families [default: IPv4]
    ///
    /// A world uses a single address family, which all its nodes have. Where all have IPv6 alone, you do not
    /// need this option.
    #[arg(long, help_heading = SAME, hide_short_help = true)]
    pub(crate) ipv6: bool,

    /// MASTER_PORT, if this node becomes rank 0 [default: a free port]
    ///
    /// For firewalls that open a certain port to TCP and UDP: --master-port 29555 on every node. The default
    /// is the first free port of a sequence within 29500-29999 that follows from the job ID, so two jobs on
    /// the same hosts rarely collide.
    #[arg(short = 'p', long, value_name = "PORT", allow_negative_numbers = true, help_heading = NODE)]
    pub(crate) master_port: Option<String>,

    /// Other nodes, for networks without multicast; repeatable
    ///
    /// Addresses or names, separated by commas or spaces, or a list as Slurm writes it: --seed 'gpu[01-04]'.
    /// A single node that all other nodes can reach is enough. If you list all nodes, the message at the
    /// timeout names the missing nodes. mingle looks names up again and again.
    #[arg(short, long, value_name = "HOST[:PORT]", help_heading = NODE)]
    pub(crate) seed: Vec<String>,

    /// Shared folder in which the nodes find each other's addresses
    ///
    /// For clusters without multicast and with a shared file system: --seed-dir /shared/foo. Each node
    /// writes a small file there and removes it at the end; other nodes remove the file of a killed node
    /// after a minute.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = NODE)]
    pub(crate) seed_dir: Option<String>,
}

/// The options of all that send or listen, an observer among them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct AirArgs {
    /// Interface to use: a name, eth*, CIDR or ^not; repeatable [default: all]
    ///
    /// For hosts with several networks: --interface 10.1.0.0/16 where names differ between the nodes, or
    /// eth0, or 'eth*'; '^docker*' excludes. Repeat the option or give a list with commas; mingle prefers
    /// earlier entries. By default the interface of the default route comes first, and virtual bridges come
    /// last.
    #[arg(short, long, value_name = "IF", help_heading = NODE)]
    pub(crate) interface: Vec<String>,

    /// Multicast group, UDP port and TTL, or 'off' [default: by job ID, 29499, 1]
    ///
    /// GROUP:PORT/TTL, or a part: 239.1.2.3, :29498, /4. Choose a group where the network passes only
    /// registered groups, and a TTL, 1 to 255, where routers between the nodes forward multicast. 'off'
    /// neither joins groups nor sends to them, and needs --seed or --seed-dir.
    #[arg(long, value_name = "GROUP:PORT/TTL", help_heading = SAME, hide_short_help = true)]
    pub(crate) multicast: Option<String>,

    /// Send by IPv4 broadcast as well as by multicast
    ///
    /// For switches that drop multicast to unregistered groups. A broadcast stays on the local link.
    #[arg(long, help_heading = NODE, hide_short_help = true)]
    pub(crate) broadcast: bool,
}
