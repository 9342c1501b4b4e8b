//! The messages of datagrams, and their bodies.

use std::net::SocketAddr;

use bincode::config::Config;
use serde::{Deserialize, Serialize};

use super::Encoding;
use crate::model::{End, Endpoints, HostName, List, NodeId, Peer, User, WorldSize, deserialize_unicast};

/// The most host names in an announce.
pub(crate) const NEWEST: usize = 3;
/// The most ranges of missing ranks in an announce.
pub(crate) const RUNS: usize = 6;
/// The most ranks in a status that are suspected.
pub(crate) const SUSPECTED: usize = 16;
/// The most addresses of the leader of a running world.
pub(crate) const LEADERS: usize = 8;

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
    /// its leader to a node that solicits.
    3 Hint(Introduction) to ONE_OR_ALL,
    /// A member of a running world tells a newcomer that the job runs already.
    4 Running(Running) to ONE,
    /// An observer, which is no node, asks the members of a running world for their status.
    5 Query to ALL,
    /// The answer to that.
    6 Status(Status) to ONE,
}

impl Message {
    /// Whether the message is padded to [`PADDED`](super::PADDED) bytes: its recipient writes to an address
    /// that it does not know yet, the sender's or the one in the message.
    pub(super) fn is_padded(&self) -> bool {
        matches!(self, Self::Announce(_) | Self::Solicit(_) | Self::Hint(_) | Self::Query)
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
    pub(crate) count: Count,
    /// Who runs the candidate.
    pub(crate) user: User,
}

/// How far a leader has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    /// How many members it has now, itself included.
    pub(crate) joined: u32,
    /// The hosts of the members that joined last, newest first.
    pub(crate) newest: List<HostName, NEWEST>,
    /// The missing ranks, where all are given: the first and the last rank of each range.
    pub(crate) missing: List<(u32, u32), RUNS>,
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

pub(super) fn put<T: Serialize>(body: &T, config: impl Config, bytes: &mut Vec<u8>) {
    let result = bincode::serde::encode_into_std_write(body, bytes, config);
    debug_assert!(result.is_ok(), "writing to a vector does not fail: {result:?}");
}

pub(super) fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8], config: impl Config) -> Option<T> {
    let (body, used) = bincode::serde::borrow_decode_from_slice(bytes, config).ok()?;
    (used == bytes.len()).then_some(body)
}
