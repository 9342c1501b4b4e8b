//! The messages and their bodies.

use std::net::{IpAddr, SocketAddr};

use bincode::config::Config;
use mingle_rdma::Verdict;
use serde::{Deserialize, Serialize};

use super::{Encoding, NodeInfo};
use crate::model::{
    BrokenPath, Digest, End, Endpoints, Fault, HostName, List, Member, Misfit, NodeId, Peer, Rank, Roster,
    Sameness, User, World, WorldSize, deserialize_unicast, deserialize_unicast_ip,
};

/// The most host names in an announce.
pub(crate) const NEWEST: usize = 3;
/// The most ranges of missing ranks in an announce.
pub(crate) const RUNS: usize = 6;
/// The most ranks in a status that are suspected.
pub(crate) const SUSPECTED: usize = 16;
/// The most members in a refusal that were not ready.
pub(crate) const UNREADY: usize = 6;
/// The most partners in one prepare: each has 38 bytes at most.
pub(crate) const PARTNERS: usize = 16;
/// The most broken paths in a report to the leader.
pub(crate) const BROKEN: usize = 3;
/// The most broken paths in a refusal, which goes to nodes without a proof as well, and so is no longer
/// than a join.
pub(crate) const REFUSED: usize = 2;
/// The most addresses of the leader of a running world.
pub(crate) const LEADERS: usize = 8;
/// An upper limit of the length of one roster entry, in bytes.
#[cfg(any(feature = "net", test))]
pub(crate) const LONGEST_ENTRY: usize = 512;

/// To whom a kind of message may be addressed. Any other recipient makes a datagram malformed, so a message
/// to one node has no effect if it is sent to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recipients {
    all: bool,
    anyone: bool,
    one: bool,
}

const ONE: Recipients = Recipients { all: false, anyone: false, one: true };
const ALL: Recipients = Recipients { all: true, anyone: false, one: false };
const ONE_OR_ALL: Recipients = Recipients { all: true, anyone: false, one: true };
const EVERY_SORT: Recipients = Recipients { all: true, anyone: true, one: true };

impl Recipients {
    fn include(self, recipient: NodeId) -> bool {
        match recipient {
            NodeId::ALL => self.all,
            NodeId::ANYONE => self.anyone,
            _ => self.one,
        }
    }
}

/// Declares the messages: the number of the kind on the wire, the name, the type of the body, and the
/// recipients that it may have.
macro_rules! messages {
    ($($(#[$doc:meta])* $number:literal $name:ident $(($body:ty))? to $to:ident,)*) => {
        /// What the body of a datagram says.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) enum Message {
            $($(#[$doc])* $name $(($body))?,)*
        }

        impl Message {
            #[cfg(feature = "testing")]
            pub(super) const KINDS: &[(u8, &str)] = &[$(($number, stringify!($name))),*];

            /// A message of this kind with fields from any bytes.
            #[cfg(feature = "testing")]
            pub(super) fn draw(kind: u8, from: &mut super::testing::Source<'_>) -> Option<Self> {
                match kind {
                    $($number => Some(messages!(@draw from $name $(($body))?)),)*
                    _ => None,
                }
            }

            pub(super) fn kind(&self) -> u8 {
                match self {
                    $(messages!(@pattern $name $(($body))?) => $number,)*
                }
            }

            /// Whether the message may be addressed to this recipient.
            pub(crate) fn may_be_to(&self, recipient: NodeId) -> bool {
                let recipients = match self {
                    $(messages!(@pattern $name $(($body))?) => $to,)*
                };
                recipients.include(recipient)
            }

            pub(super) fn encode_body(&self, config: Encoding, bytes: &mut Vec<u8>) {
                match self {
                    $(messages!(@bind body $name $(($body))?) => messages!(@encode body config bytes $(($body))?),)*
                }
            }

            pub(super) fn decode_body(kind: u8, bytes: &[u8], config: Encoding) -> Option<Self> {
                match kind {
                    $($number => messages!(@decode bytes config $name $(($body))?),)*
                    _ => None,
                }
            }
        }
    };
    (@pattern $name:ident ($body:ty)) => { Self::$name(_) };
    (@pattern $name:ident) => { Self::$name };
    (@bind $var:ident $name:ident ($body:ty)) => { Self::$name($var) };
    (@bind $var:ident $name:ident) => { Self::$name };
    (@encode $var:ident $config:ident $bytes:ident ($body:ty)) => { put($var, $config, $bytes) };
    (@encode $var:ident $config:ident $bytes:ident) => { () };
    (@draw $from:ident $name:ident ($body:ty)) => { Self::$name(super::testing::Draw::draw($from)) };
    (@draw $from:ident $name:ident) => { Self::$name };
    (@decode $bytes:ident $config:ident $name:ident ($body:ty)) => { take($bytes, $config).map(Self::$name) };
    (@decode $bytes:ident $config:ident $name:ident) => { $bytes.is_empty().then_some(Self::$name) };
}

messages! {
    /// A candidate announces itself to all nodes; a leader also reports its progress to its members with it.
    1 Announce(Announce) to EVERY_SORT,
    /// A node without a leader asks all nodes who leads; a member asks its seeds.
    2 Solicit(Solicit) to EVERY_SORT,
    /// A node that knows two candidates introduces the better one to the worse one, and a member introduces
    /// its leader to a node that solicits. A leader that has itself joined a better one sends its members
    /// there.
    3 Hint(Introduction) to ONE_OR_ALL,
    /// A follower asks its leader for a seat; a member reports its new endpoints.
    4 Join(Join) to ONE,
    /// A leader answers a join.
    5 Welcome(Welcome) to ONE,
    /// A leader ends a node's join, and gives the reason.
    6 Refuse(Refusal) to ONE,
    /// A node asks another one whether it is there.
    7 Ping to ONE,
    /// The answer to a ping, and to a member that is ready before the others.
    8 Pong to ONE,
    /// A leader begins a round: it tells each member its rank, the master, and the paths that the member must
    /// prove.
    9 Prepare(Prepare) to ONE,
    /// A member reports to its leader that it has all it needs in the round of this number. It is bound to
    /// the round until commit or void.
    10 Ready(u64) to ONE,
    /// A member reports to its leader which paths it could not prove.
    11 Broken(Broken) to ONE,
    /// A leader ends the round of this number without a world.
    12 Void(u64) to ONE,
    /// A leader tells its members that all were ready: the world has formed.
    13 Commit(Commit) to ONE,
    /// A member acknowledges the commit of the round of this number to its leader.
    14 Done(u64) to ONE,
    /// A member of a running world tells a newcomer that the job runs already.
    15 Running(Running) to ONE,
    /// An observer, which is no node, asks the members of a running world for their status.
    16 Query to ALL,
    /// The answer to that.
    17 Status(Status) to ONE,
    /// A member whose time is up asks its leader to form the world with the nodes that are here.
    18 Enough to ONE,
}

impl Message {
    /// Whether the message is padded to [`PADDED`](super::PADDED) bytes: its recipient writes to an address
    /// that it does not know yet, the sender's or the one in the message.
    pub(super) fn is_padded(&self) -> bool {
        matches!(self, Self::Announce(_) | Self::Solicit(_) | Self::Hint(_) | Self::Join(_) | Self::Query)
    }
}

/// A node that leads, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) id: NodeId,
    /// Whether the user gave it rank 0.
    pub(crate) explicit: bool,
    /// The most members that it has ever had, itself included. Never decreases.
    pub(crate) members: u32,
    pub(crate) world: WorldSize,
    pub(crate) host: HostName,
    pub(crate) endpoints: Endpoints,
}

impl Candidate {
    /// The node as messages to the user name it.
    pub(crate) fn peer(&self) -> Peer {
        Peer { host: self.host.clone(), address: self.endpoints.preferred() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Announce {
    pub(crate) candidate: Candidate,
    /// How many members it has now, itself included.
    pub(crate) joined: u32,
    /// The hosts of the members that joined last, newest first.
    pub(crate) newest: List<HostName, NEWEST>,
    /// The missing ranks, where all are given: the first and the last rank of each range.
    pub(crate) missing: List<(u32, u32), RUNS>,
    /// Who runs the candidate.
    pub(crate) user: User,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Solicit {
    /// The rank that the user gave to the sender.
    pub(crate) rank: Option<u32>,
    pub(crate) host: HostName,
}

/// A candidate, introduced by another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) candidate: Candidate,
    /// The source address of the candidate's datagrams, as the sender sees it.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub(crate) source: SocketAddr,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Join {
    pub(crate) world: WorldSize,
    pub(crate) node: NodeInfo,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// The number of the dial that arrived last, which is the lease from now on; none before a dial has
    /// arrived.
    pub(crate) lease: Option<u32>,
    /// Whether the node holds a seat; a standby does not.
    pub(crate) seated: bool,
    /// What keeps the world from forming, as far as the leader knows.
    pub(crate) trouble: Option<Trouble>,
}

/// What a leader tells its members as soon as it knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Trouble {
    /// A node could not be seated.
    Misfit(Misfit),
    /// A path could not be proved in a round.
    Broken(BrokenPath),
}

impl Trouble {
    /// Whether both are of the same hosts, so that members need not be told twice.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Misfit(misfit), Self::Misfit(other)) => misfit.repeats(other),
            (Self::Broken(path), Self::Broken(other)) => path.repeats(other),
            _ => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// Another node, which answers, holds the rank.
    RankTaken(Peer),
    /// The leader expects a world of this size.
    WorldDiffers(WorldSize),
    /// The world has formed without this node, which was a standby.
    WorldFull,
    /// The leader stops leading: the world has formed, or another node takes the leader's place.
    Closing,
    /// The first of these nodes has IPv6 alone, the other IPv4 alone.
    NoCommonFamily(Peer, Peer),
    /// Not all nodes have RDMA, which a node requires (true), or which the world before used (false).
    NoRdma(Verdict, bool),
    /// These members answer, and were not ready in round after round.
    Unready(List<Peer, UNREADY>),
    /// Paths could not be proved: these, and how many more.
    PathsBroken(List<BrokenPath, REFUSED>, u32),
    /// A node requires that all traits are the same, and they are not.
    Differs(Sameness),
    /// The leader runs as this user, and has so many members, itself included.
    UserDiffers(User, u32),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepare {
    pub(crate) round: u64,
    /// As in [`Welcome`], for a node that has missed that.
    pub(crate) lease: u32,
    /// The size of the world that this round forms.
    pub(crate) world: u32,
    pub(crate) rank: u32,
    pub(crate) digest: Digest,
    /// The workers on all nodes of lower ranks.
    pub(crate) slots_before: u64,
    /// The workers in the whole world.
    pub(crate) slots_total: u64,
    pub(crate) master: NodeId,
    /// MASTER_ADDR and MASTER_PORT.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub(crate) master_at: SocketAddr,
    /// The address at which the others reach this node.
    #[serde(deserialize_with = "deserialize_unicast_ip")]
    pub(crate) address: IpAddr,
    /// To how many addresses of other nodes it must prove its path, beside that to the master's own port.
    pub(crate) paths: u32,
    /// Some of these nodes. A prepare is sent once for each [`PARTNERS`] of them, in any order.
    pub(crate) partners: List<Partner, PARTNERS>,
}

/// A node to which a path is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Partner {
    pub(crate) id: NodeId,
    pub(crate) rank: u32,
    /// The address that the job uses there, and the port for paths.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub(crate) path: SocketAddr,
    /// The node's own port, which shows whether a firewall blocks ports or the host.
    pub(crate) own_port: u16,
}

impl Partner {
    /// The master, to which each node proves the path to its own port.
    pub(crate) fn master(id: NodeId, at: SocketAddr) -> Self {
        Self { id, rank: 0, path: at, own_port: at.port() }
    }
}

/// Paths that a member could not prove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Broken {
    pub(crate) round: u64,
    pub(crate) paths: List<BrokenTo, BROKEN>,
    /// How many more there are.
    pub(crate) more: u32,
}

/// A path that the sender could not prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BrokenTo {
    pub(crate) partner: NodeId,
    /// Which of the partner's addresses, and the port.
    #[serde(deserialize_with = "deserialize_unicast")]
    pub(crate) path: SocketAddr,
    pub(crate) fault: Fault,
    /// Whether the partner's own port answers at the same address.
    pub(crate) own_port_answers: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Commit {
    pub(crate) round: u64,
    /// What all nodes use to reach each other.
    pub(crate) verdict: Verdict,
    /// The traits that differ.
    pub(crate) sameness: Sameness,
    /// How many nodes have joined and have no seat.
    pub(crate) left_over: u32,
}

/// What a newcomer learns of a world that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Running {
    /// The process that leads, which takes newcomers in.
    pub(crate) leader: NodeId,
    /// Where it accepts sessions.
    pub(crate) addresses: List<SocketAddr, LEADERS>,
    /// The host and the user of the node that says this.
    pub(crate) host: HostName,
    pub(crate) user: User,
}

/// A member of a running world, as an observer shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) host: HostName,
    /// Whether its command has ended well.
    pub(crate) has_finished: bool,
    /// How many failures may still be followed by a restart; none where the caller has not said it.
    pub(crate) restarts_left: Option<u32>,
    /// The lowest ranks that it knows to be suspected.
    pub(crate) suspected: List<u32, SUSPECTED>,
    /// How many newcomers wait for a seat.
    pub(crate) waiting: u32,
    /// Why the last world that is over has ended: the rank, and how its command has.
    pub(crate) ended: Option<(u32, End)>,
}

/// The encoded roster.
pub(crate) fn encode_roster(roster: &Roster) -> Vec<u8> {
    let mut bytes = Vec::new();
    for member in roster.members() {
        put(member, super::config(), &mut bytes);
    }
    bytes
}

/// Decodes a roster of `world` members. Returns nothing where the bytes are no such roster or some are left
/// over.
pub(crate) fn decode_roster(mut bytes: &[u8], world: World) -> Option<Roster> {
    let mut members = Vec::new();
    for rank in 0..world.get() {
        let decoded = bincode::serde::borrow_decode_from_slice::<Member, _>(bytes, super::config());
        let (member, used) = decoded.ok()?;
        bytes = &bytes[used..];
        members.push(Member { rank: Rank(rank), ..member });
    }
    Roster::new(members).filter(|_| bytes.is_empty())
}

pub(super) fn put<T: Serialize>(body: &T, config: impl Config, bytes: &mut Vec<u8>) {
    let result = bincode::serde::encode_into_std_write(body, bytes, config);
    debug_assert!(result.is_ok(), "writing to a vector does not fail: {result:?}");
}

pub(super) fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8], config: impl Config) -> Option<T> {
    let (body, used) = bincode::serde::borrow_decode_from_slice(bytes, config).ok()?;
    (used == bytes.len()).then_some(body)
}
