//! Problems that do not end a rendezvous.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::deadline::{lacking, other_version, unreached};
use super::{Failure, Report};
use crate::model::{Elsewhere, Misfit, Peer, Unfit, WorldSize};

/// A problem that does not end the rendezvous. Its text states only the fact.
///
/// A field `error` holds the operating system's error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// No world has formed after this long. If the report shows no fault, its cause is
    /// [`Cause::Incomplete`](super::Cause::Incomplete).
    Waiting {
        /// How long this node has waited.
        after: Duration,
        /// What this node knows.
        report: Box<Report>,
    },
    /// This node hears a leader, but cannot reach it over TCP. Reported once for each leader.
    Unreached {
        /// The leader.
        leader: Peer,
        /// The leader's endpoints.
        endpoints: Vec<SocketAddr>,
        /// The leader's address, if it is in none of this host's networks.
        elsewhere: Option<Elsewhere>,
    },
    /// Other nodes want to join this node, but none can connect, so this node steps down.
    Unconnectable {
        /// This node's preferred endpoint.
        endpoint: SocketAddr,
        /// The address of a node that wants to join, if the address is in none of this host's networks.
        elsewhere: Option<Elsewhere>,
    },
    /// The job already runs, so this node can only take the seat of a node that fails.
    AlreadyRunning {
        /// The node that said so.
        from: SocketAddr,
    },
    /// The job has another world beside the world that this node leads: as they formed neither knew of the
    /// other. Reported once.
    AnotherWorld {
        /// The node that said so.
        from: SocketAddr,
    },
    /// A node cannot be seated beside this node. Reported for at most 16 nodes.
    Misfit {
        /// The node that cannot be seated.
        node: Misfit,
        /// The size that this node expects.
        ours: WorldSize,
        /// The address of a node that does not join, if the address is in none of this host's networks.
        elsewhere: Option<Elsewhere>,
    },
    /// A node speaks another version of the protocol. Reported once for each version.
    VersionDiffers {
        /// The other version.
        version: u8,
        /// The node's source address.
        from: SocketAddr,
    },
    /// A node has another secret than this node, or only the node or only this node has a secret. Reported
    /// once for each address.
    SecretDiffers {
        /// The other node's address.
        from: IpAddr,
        /// Whether this node has a secret.
        has_secret: bool,
    },
    /// The world forms without a node that has a seat, since it cannot form with this node.
    LeftOut {
        /// The node that is left out.
        node: Peer,
        /// Why the world cannot form with the node.
        failure: Box<Failure>,
    },
    /// This host has no usable network interface so far.
    NoInterface {
        /// The host's interfaces, and why each interface is not used.
        reasons: String,
        /// Whether the caller's filters leave interfaces out.
        is_filtered: bool,
    },
    /// This node uses only loopback, since these interfaces lack multicast and this node has no other way to
    /// find nodes.
    WithoutMulticast {
        /// The names of the interfaces.
        interfaces: Vec<String>,
    },
    /// No world could form, and the nodes try again. For a broken path, reported once for each pair of hosts.
    TryAgain {
        /// Why no world could form: broken paths, no RDMA, no common address family, or different traits.
        failure: Box<Failure>,
    },
    /// The interfaces have changed, and some of the new interfaces cannot be used.
    Interfaces {
        /// What failed.
        error: String,
    },
    /// The host's preferred address has changed, so this node starts again.
    AddressesChanged,
    /// An interface could not join the multicast group.
    NotJoined {
        /// The interface's name.
        interface: String,
        /// The operating system's error.
        error: String,
    },
    /// No interface has joined the multicast group.
    NoneJoined,
    /// An interface cannot send to the group. Reported once for each interface and family.
    NotSent {
        /// The group.
        group: IpAddr,
        /// The interface's name.
        interface: String,
        /// The operating system's error.
        error: String,
    },
    /// A connection could not be accepted. Reported once.
    NotAccepted {
        /// The operating system's error.
        error: String,
    },
    /// A seed's name resolves to an address that identifies no host.
    SeedMisleads {
        /// The seed.
        seed: String,
        /// The address.
        address: IpAddr,
        /// What is wrong with the address.
        reason: &'static str,
    },
    /// The names of some seeds do not resolve so far.
    SeedUnresolved {
        /// The first of these seeds, and how many further seeds there are.
        seed: String,
        /// The resolver's error for the first of these seeds.
        error: String,
    },
    /// The shared folder of addresses does not answer.
    SeedDirSilent,
    /// The shared folder of addresses cannot be written to.
    SeedDirUnwritable {
        /// The folder.
        folder: PathBuf,
        /// The operating system's error.
        error: String,
    },
}

/// How a node has looked for other nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tried {
    /// By multicast only.
    #[default]
    Multicast,
    /// By multicast and broadcast.
    Broadcast,
    /// By multicast only: seeds or a shared folder were given, but have yielded no address.
    NoSeedKnown,
    /// By multicast and by UDP to the seeds' addresses.
    Seeds,
    /// By UDP to the seeds' addresses only.
    SeedsAlone,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Multicast => "by multicast",
            Self::Broadcast => "by multicast or broadcast",
            Self::NoSeedKnown => "by multicast, and no address of a seed is known so far",
            Self::Seeds => "by multicast or from the seeds",
            Self::SeedsAlone => "from the seeds, without multicast",
        })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_fact(f)?;
        match self {
            Self::Misfit { elsewhere: Some(address), .. }
            | Self::Unreached { elsewhere: Some(address), .. }
            | Self::Unconnectable { elsewhere: Some(address), .. } => write!(f, "; {address}"),
            _ => Ok(()),
        }
    }
}

impl Warning {
    fn write_fact(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { after, report } => {
                write!(f, "still waiting after {} s: {}", after.as_secs(), report.known("are"))
            }
            Self::Unreached { leader, endpoints, .. } => f.write_str(&unreached(leader, endpoints)),
            Self::Unconnectable { endpoint, .. } => write!(
                f,
                "others join, but none of them can connect to {endpoint} over TCP, so this node does not lead"
            ),
            Self::AlreadyRunning { from } => write!(
                f,
                "this job already runs, says {from}: this node waits until one of the job's nodes fails or is gone, or the job \
                 grows"
            ),
            Self::AnotherWorld { from } => {
                write!(f, "this job has another world, says {from}: commands of both may have the same ranks")
            }
            Self::Misfit { node, ours, .. } => match node.reason {
                Unfit::World(_) => write!(f, "{node} under this job ID, not {ours:#}"),
                _ => write!(f, "{node}"),
            },
            Self::VersionDiffers { version, from } => f.write_str(&other_version(*version, *from)),
            Self::SecretDiffers { from, has_secret } => f.write_str(&secret(*from, *has_secret)),
            Self::LeftOut { node, failure } => write!(f, "the others go on without {node}: {failure}"),
            Self::NoInterface { reasons, .. } => write!(f, "no usable network interface yet: {reasons}"),
            Self::WithoutMulticast { interfaces } => {
                write!(f, "this node hears only nodes on this host: {}", lacking(interfaces))
            }
            Self::TryAgain { failure } => write!(f, "{failure}; the nodes try again"),
            Self::Interfaces { error } => f.write_str(error),
            Self::AddressesChanged => {
                f.write_str("the addresses of this host have changed, so this node starts again")
            }
            // The name of an interface may hold escape sequences, and this text may go to a terminal.
            Self::NotJoined { interface, error } => {
                write!(f, "cannot join the multicast group on {}: {error}", interface.escape_debug())
            }
            Self::NoneJoined => f.write_str(
                "no interface has joined the multicast group: this node hears only nodes that answer it",
            ),
            Self::NotSent { group, interface, error } => {
                write!(f, "cannot send to group {group} on {}: {error}", interface.escape_debug())
            }
            Self::NotAccepted { error } => write!(f, "cannot accept a connection: {error}"),
            Self::SeedMisleads { seed, address, reason } => {
                write!(f, "seed {seed} resolves to {address}, which {reason}: it is left out")
            }
            Self::SeedUnresolved { seed, error } => write!(f, "seed {seed} does not resolve yet: {error}"),
            Self::SeedDirSilent => {
                f.write_str("the seed folder does not answer: other nodes are looked for without it")
            }
            Self::SeedDirUnwritable { folder, error } => {
                write!(f, "cannot write to the seed folder {}: {error}", folder.display())
            }
        }
    }
}

/// How the secret of the node at this address differs from this node's.
fn secret(from: IpAddr, has_secret: bool) -> String {
    if has_secret {
        format!("{from} has another secret for this job than this node, or none")
    } else {
        format!("{from} has a secret for this job, and this node has none")
    }
}
