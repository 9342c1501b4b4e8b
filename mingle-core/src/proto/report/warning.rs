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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// No world has formed after this long. If the report shows no fault, its cause is
    /// [`Cause::Incomplete`](super::Cause::Incomplete).
    #[error("still waiting after {} s: {}", .after.as_secs(), .report.known("are"))]
    Waiting {
        /// How long this node has waited.
        after: Duration,
        /// What this node knows.
        report: Box<Report>,
    },
    /// This node hears a leader, but cannot reach it over TCP. Reported once for each leader.
    #[error("{}{}", unreached(.leader, .endpoints), behind(.elsewhere.as_ref()))]
    Unreached {
        /// The leader.
        leader: Peer,
        /// The leader's endpoints.
        endpoints: Vec<SocketAddr>,
        /// The leader's address, if it is in none of this host's networks.
        elsewhere: Option<Elsewhere>,
    },
    /// Other nodes want to join this node, but none can connect, so this node steps down.
    #[error(
        "others join, but none of them can connect to {endpoint} over TCP, so this node does not lead{}",
        behind(.elsewhere.as_ref())
    )]
    Unconnectable {
        /// This node's preferred endpoint.
        endpoint: SocketAddr,
        /// The address of a node that wants to join, if the address is in none of this host's networks.
        elsewhere: Option<Elsewhere>,
    },
    /// The job already runs, so this node can only take the seat of a node that fails.
    #[error(
        "this job already runs, says {from}: this node waits until one of the job's nodes fails or is gone, or the job \
         grows"
    )]
    AlreadyRunning {
        /// The node that said so.
        from: SocketAddr,
    },
    /// The job has another world beside the world that this node leads: as they formed neither knew of the
    /// other. Reported once.
    #[error("this job has another world, says {from}: commands of both may have the same ranks")]
    AnotherWorld {
        /// The node that said so.
        from: SocketAddr,
    },
    /// A node cannot be seated beside this node. Reported for at most 16 nodes.
    #[error("{}{}", misfit(.node, *.ours), behind(.elsewhere.as_ref()))]
    Misfit {
        /// The node that cannot be seated.
        node: Misfit,
        /// The size that this node expects.
        ours: WorldSize,
        /// The address of a node that does not join, if the address is in none of this host's networks.
        elsewhere: Option<Elsewhere>,
    },
    /// A node speaks another version of the protocol. Reported once for each version.
    #[error("{}", other_version(*.version, *.from))]
    VersionDiffers {
        /// The other version.
        version: u8,
        /// The node's source address.
        from: SocketAddr,
    },
    /// A node has another secret than this node, or only the node or only this node has a secret. Reported
    /// once for each address.
    #[error("{}", secret(*.from, *.has_secret))]
    SecretDiffers {
        /// The other node's address.
        from: IpAddr,
        /// Whether this node has a secret.
        has_secret: bool,
    },
    /// The world forms without a node that has a seat, since it cannot form with this node.
    #[error("the others go on without {node}: {failure}")]
    LeftOut {
        /// The node that is left out.
        node: Peer,
        /// Why the world cannot form with the node.
        failure: Box<Failure>,
    },
    /// This host has no usable network interface so far.
    #[error("no usable network interface yet: {reasons}")]
    NoInterface {
        /// The host's interfaces, and why each interface is not used.
        reasons: String,
        /// Whether the caller's filters leave interfaces out.
        is_filtered: bool,
    },
    /// This node uses only loopback, since these interfaces lack multicast and this node has no other way to
    /// find nodes.
    #[error("this node hears only nodes on this host: {}", lacking(.interfaces))]
    WithoutMulticast {
        /// The names of the interfaces.
        interfaces: Vec<String>,
    },
    /// No world could form, and the nodes try again. For a broken path, reported once for each pair of hosts.
    #[error("{failure}; the nodes try again")]
    TryAgain {
        /// Why no world could form: broken paths, no RDMA, no common address family, or different traits.
        failure: Box<Failure>,
    },
    /// The interfaces have changed, and some of the new interfaces cannot be used.
    #[error("{error}")]
    Interfaces {
        /// What failed.
        error: String,
    },
    /// The host's preferred address has changed, so this node starts again.
    #[error("the addresses of this host have changed, so this node starts again")]
    AddressesChanged,
    /// An interface could not join the multicast group.
    // The name of an interface may hold escape sequences, and this text may go to a terminal.
    #[error("cannot join the multicast group on {}: {error}", .interface.escape_debug())]
    NotJoined {
        /// The interface's name.
        interface: String,
        /// The operating system's error.
        error: String,
    },
    /// No interface has joined the multicast group.
    #[error("no interface has joined the multicast group: this node hears only nodes that answer it")]
    NoneJoined,
    /// An interface cannot send to the group. Reported once for each interface and family.
    #[error("cannot send to group {group} on {}: {error}", .interface.escape_debug())]
    NotSent {
        /// The group.
        group: IpAddr,
        /// The interface's name.
        interface: String,
        /// The operating system's error.
        error: String,
    },
    /// A connection could not be accepted. Reported once.
    #[error("cannot accept a connection: {error}")]
    NotAccepted {
        /// The operating system's error.
        error: String,
    },
    /// A seed's name resolves to an address that identifies no host.
    #[error("seed {seed} resolves to {address}, which {reason}: it is left out")]
    SeedMisleads {
        /// The seed.
        seed: String,
        /// The address.
        address: IpAddr,
        /// What is wrong with the address.
        reason: &'static str,
    },
    /// The names of some seeds do not resolve so far.
    #[error("seed {seed} does not resolve yet: {error}")]
    SeedUnresolved {
        /// The first of these seeds, and how many further seeds there are.
        seed: String,
        /// The resolver's error for the first of these seeds.
        error: String,
    },
    /// The shared folder of addresses does not answer.
    #[error("the seed folder does not answer: other nodes are looked for without it")]
    SeedDirSilent,
    /// The shared folder of addresses cannot be written to.
    #[error("cannot write to the seed folder {}: {error}", .folder.display())]
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

/// Behind what cannot be reached: its address, where that is in no network of this host.
fn behind(elsewhere: Option<&Elsewhere>) -> String {
    elsewhere.map(|address| format!("; {address}")).unwrap_or_default()
}

fn misfit(node: &Misfit, ours: WorldSize) -> String {
    match node.reason {
        Unfit::World(_) => format!("{node} under this job ID, not {ours}"),
        _ => node.to_string(),
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
