//! Why a port, a group of ports or a GID is not used.

use std::fmt;

use super::gid::Addressing;
use super::machine::{NodeType, PortState, Standing, Verbs};

/// Why a job should not use a port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortReason {
    /// The port's state is not ACTIVE, or could not be read.
    State(Option<PortState>),
    /// The port's link layer is neither InfiniBand nor Ethernet.
    LinkLayer,
    /// The port's device supports neither InfiniBand nor RoCE, or its type could not be read.
    NodeType(Option<NodeType>),
    /// No program can use the device.
    Verbs(Verbs),
    /// NCCL's list of devices cannot carry the device's name.
    Name,
    /// None of the port's GIDs is an address that the port's interface has in this network namespace.
    NoOwnGid,
    /// The port's device is made by software, and the host also has hardware devices.
    Soft,
    /// The port's group has another rate, card or network than the group that a job should use.
    Group(GroupReason),
    /// The port's interface has the default route, as a front-end interface has, and the interfaces of most
    /// other ports of the group do not.
    FrontEnd,
    /// The user has chosen the port's interface for the rendezvous, and most other ports of the group have
    /// another interface.
    Rendezvous,
    /// No GPU is near the port, while most other ports of the group have a GPU nearby.
    Far,
    /// The port has no GID of the addressing that the other ports use.
    Addressing(Addressing),
    /// NCCL takes a single GID index for all ports, and without an index it chooses another GID than this
    /// port needs.
    Index {
        /// The index of the GID that this port needs.
        own: u32,
        /// The GID index of the ports that a job should use.
        used: u32,
    },
}

/// Why a job should use another group of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupReason {
    /// The other group has more bandwidth.
    Bandwidth {
        /// The bandwidth of this group, in Mb/s.
        own: u32,
        /// The bandwidth of the other group, in Mb/s.
        best: u32,
    },
    /// More GPUs have a port of the other group nearby.
    Gpus {
        /// How many GPUs have a port of this group nearby.
        own: usize,
        /// How many GPUs have a port of the other group nearby.
        best: usize,
    },
    /// An interface of this group has the default route.
    DefaultRoute,
    /// The other group is InfiniBand, or RoCE beside EFA.
    Kind,
    /// The ports of the other group are faster.
    Rate {
        /// The rate of this group's ports, in Mb/s.
        own: u32,
        /// The rate of the other group's ports, in Mb/s.
        best: u32,
    },
    /// The groups are equal in everything else, and the other group has the lower PCI address.
    PciAddress,
    /// The world uses another kind of RDMA, which every rank has.
    World,
}

/// Why a job should not use a GID.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidReason {
    /// A job should not use the GID's port.
    Port,
    /// InfiniBand ports are addressed by LID, so NCCL needs no GID index for the port.
    InfiniBand,
    /// The GID is a link-local address.
    LinkLocal,
    /// The GID's type could not be read.
    Type,
    /// The GID belongs to no network interface.
    NoInterface,
    /// No interface of this network namespace has the GID's address.
    Foreign,
    /// The GID belongs to another interface than this interface, which has the GID's address in this network
    /// namespace.
    HeldBy(String),
    /// The ports use this addressing, which is not the GID's.
    Addressing(Addressing),
    /// All ranks have agreed on the network of another GID of the port.
    Network,
    /// The user has chosen another address for the rendezvous, and that address has a suitable GID.
    NotChosen,
    /// The GID's address is a second choice, and the interface has a first choice.
    Standing(Standing),
    /// The GID's address is a network of its own (/32 or /128), as addresses of services are, and another
    /// GID's is not.
    Alone,
    /// The GID belongs to a tunnel, and another interface has a suitable GID.
    Tunnel,
    /// The GID belongs to another interface, and the port's own interface has a suitable GID.
    OtherInterface,
    /// The GID with this lower index is equally suitable.
    Higher(u32),
}

impl fmt::Display for PortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(Some(state)) => write!(f, "{state}, not ACTIVE"),
            Self::State(None) => f.write_str("its state cannot be read"),
            Self::LinkLayer => f.write_str("its link layer is neither InfiniBand nor Ethernet"),
            Self::NodeType(Some(NodeType::RNIC)) => f.write_str("iWARP, which NCCL cannot use"),
            Self::NodeType(Some(_)) => f.write_str("its device is neither InfiniBand nor RoCE"),
            Self::NodeType(None) => f.write_str("its node type cannot be read"),
            Self::Verbs(Verbs::Refused { name, reason }) => {
                write!(f, "/dev/infiniband/{name} cannot be opened: {reason}")
            }
            Self::Verbs(_) => f.write_str("no uverbs device: the module ib_uverbs is not loaded"),
            Self::Name => f.write_str("NCCL's list of devices cannot carry its name"),
            Self::NoOwnGid => f.write_str("no GID is an address of its interface in this network namespace"),
            Self::Soft => f.write_str("a software device is not used beside hardware"),
            Self::Group(reason) => reason.fmt(f),
            Self::FrontEnd => {
                f.write_str("its interface has the default route, those of most others have not")
            }
            Self::Rendezvous => f.write_str("the rendezvous uses its interface, most others have another"),
            Self::Far => f.write_str("no GPU is near (PIX or PXB), most others have one"),
            Self::Addressing(addressing) => write!(f, "no GID for {addressing}, which the other ports use"),
            Self::Index { own, used } => {
                write!(f, "its GID has index {own}, NCCL can only use index {used} for all ports")
            }
        }
    }
}

impl fmt::Display for GroupReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bandwidth { own, best } => {
                let (own, best) = (Rate(*own), Rate(*best));
                write!(f, "its group carries {own}, the one that is used {best}")
            }
            Self::Gpus { own, best } => {
                write!(f, "its group is near to {own} GPUs (PIX or PXB), the one that is used to {best}")
            }
            Self::DefaultRoute => {
                f.write_str("its group has the default route, the one that is used has not")
            }
            Self::Kind => f.write_str("another kind of RDMA is used"),
            Self::Rate { own, best } => write!(f, "{} is slower than {}", Rate(*own), Rate(*best)),
            Self::PciAddress => f.write_str("the group that is used has the lower PCI address"),
            Self::World => f.write_str("all ranks use another kind of RDMA"),
        }
    }
}

impl fmt::Display for GidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port => f.write_str("the port is not used"),
            Self::InfiniBand => f.write_str("InfiniBand needs no GID index"),
            Self::LinkLocal => f.write_str("link-local"),
            Self::Type => f.write_str("its type cannot be read"),
            Self::NoInterface => f.write_str("it belongs to no network interface"),
            Self::Foreign => f.write_str("its address belongs to another network namespace"),
            Self::HeldBy(interface) => {
                write!(f, "its address is on {interface}, so it belongs to another network namespace")
            }
            Self::Addressing(addressing) => write!(f, "{addressing} is used"),
            Self::Network => f.write_str("all ranks use the network of another GID"),
            Self::NotChosen => f.write_str("the interface of the rendezvous has a suitable GID"),
            Self::Standing(standing) => {
                let word = Standing::ALL.iter().find(|(own, _)| own == standing).map_or("", |(_, word)| word);
                write!(f, "its address is {word}, that of another GID is not")
            }
            Self::Alone => f.write_str("its address is a network of its own, that of another GID is not"),
            Self::Tunnel => f.write_str("it belongs to a tunnel, another GID does not"),
            Self::OtherInterface => f.write_str("the port's own interface has a suitable GID"),
            Self::Higher(index) => write!(f, "index {index} is equally suitable and lower"),
        }
    }
}

/// A rate in Mb/s, which is displayed in Gb/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(
    /// The rate in Mb/s.
    pub u32,
);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{} Gb/s", self.0 / 1000),
            rest => write!(f, "{}.{} Gb/s", self.0 / 1000, rest / 100),
        }
    }
}
