//! The messages and their bodies.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Config, NodeInfo};
use crate::model::{Digest, End, Endpoints, HostName, List, Member, NodeId, Peer, Rank, Roster, World};
use crate::rdma::{Tally, Verdict};

/// Most names of hosts in an announce.
pub(crate) const NEWEST: usize = 3;
/// Most runs of missing ranks in an announce.
pub(crate) const RUNS: usize = 8;
/// Most pairs of prover and master in a refusal.
pub(crate) const UNPROVED: usize = 3;
/// Bytes of the roster in one part of it.
pub(crate) const PART: usize = 1000;
/// Most ranks that are asked for at once.
pub(crate) const MISSING: usize = 32;
/// No entry of a roster is longer, in bytes.
pub(crate) const LONGEST_ENTRY: usize = 1000;

/// The kinds of messages: the number on the wire, and the type of the body.
macro_rules! messages {
    ($($(#[$doc:meta])* $number:literal $name:ident $(($body:ty))?,)*) => {
        /// Everything that one node says to another.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) enum Message {
            $($(#[$doc])* $name $(($body))?,)*
        }

        impl Message {
            pub(super) fn kind(&self) -> u8 {
                match self {
                    $(messages!(@pattern $name $(($body))?) => $number,)*
                }
            }

            pub(super) fn encode_body(&self, config: Config, bytes: &mut Vec<u8>) {
                match self {
                    $(messages!(@bind body $name $(($body))?) => messages!(@encode body config bytes $(($body))?),)*
                }
            }

            pub(super) fn decode_body(kind: u8, bytes: &[u8], config: Config) -> Option<Self> {
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
    (@decode $bytes:ident $config:ident $name:ident ($body:ty)) => { take($bytes, $config).map(Self::$name) };
    (@decode $bytes:ident $config:ident $name:ident) => { $bytes.is_empty().then_some(Self::$name) };
}

messages! {
    /// "I gather": a candidate's call to all, and a leader's news to its members.
    1 Announce(Announce),
    /// "Who gathers?"
    2 Solicit(Solicit),
    /// "That one gathers": whoever knows two candidates tells each of the other.
    3 Hint(Introduction),
    /// "Go to that one": a leader's word to its members, once it has itself joined that one.
    4 Redirect(Introduction),
    /// "Count me in."
    5 Join(Join),
    /// The answer to a join.
    6 Welcome(Welcome),
    /// The end of a join.
    7 Refuse(Refusal),
    /// "Are you there?"
    8 Ping,
    /// "I am."
    9 Pong,
    /// "All are here: this is your rank; prove that you reach the master."
    10 Prepare(Prepare),
    /// "Has a connection of mine arrived?", to the master.
    11 Prove,
    /// "It has": the number of the dial.
    12 Proved(u32),
    /// "I have all that I need; I stay until I hear commit or void."
    13 Ready(Ready),
    /// "I cannot reach the master": the round.
    14 Unproved(u64),
    /// "That round is over and has come to nothing."
    15 Void(u64),
    /// "All were ready: the world has formed."
    16 Commit(Commit),
    /// "I know": the round.
    17 Done(u64),
    /// "Send me these parts of the roster."
    18 Want(Want),
    /// One part of the roster.
    19 Part(Part),
    /// "A command has failed, or a node is gone: what we formed is over."
    20 Over(Ended),
    /// "My command has ended well; may I go?", to rank 0.
    21 Finished,
    /// "All have ended well."
    22 Released,
    /// "I go."
    23 Leaving,
    /// "The job runs already": to a node that is in no world.
    24 Running,
    /// "Who of these ranks hears me?"
    25 Missing(List<u32, MISSING>),
}

impl Message {
    /// Whether the message is padded to the length of the longest answer.
    pub(super) fn is_padded(&self) -> bool {
        matches!(self, Self::Solicit(_) | Self::Join(_))
    }
}

/// A node that gathers, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) id: NodeId,
    /// It was given rank 0.
    pub(crate) explicit: bool,
    /// The most members it has ever had, itself included: only grows.
    pub(crate) members: u32,
    pub(crate) world: u32,
    pub(crate) host: HostName,
    /// In its order of preference.
    pub(crate) endpoints: Endpoints,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Announce {
    pub(crate) candidate: Candidate,
    /// How many are here now.
    pub(crate) joined: u32,
    /// Hosts that joined last, newest first.
    pub(crate) newest: List<HostName, NEWEST>,
    /// Runs of given ranks that are missing, both ends included.
    pub(crate) missing: List<(u32, u32), RUNS>,
    /// How many of those here can use RDMA, where somebody has looked.
    pub(crate) rdma: Option<Tally>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Solicit {
    pub(crate) rank: Option<u32>,
    pub(crate) host: HostName,
}

/// A candidate, told by somebody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) candidate: Candidate,
    /// Where the teller hears it.
    pub(crate) source: SocketAddr,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Join {
    pub(crate) world: u32,
    pub(crate) node: NodeInfo,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// The dial that arrived last, and is the lease from now on.
    pub(crate) lease: Option<u32>,
    /// It counts; a spare does not.
    pub(crate) seated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// The rank is held by a node that answers.
    RankTaken(Peer),
    /// The leader gathers a world of this size.
    WorldDiffers(u32),
    /// The world has formed without this node, which waited for a place.
    WorldFull,
    /// The world has formed; this is the wrong moment.
    Closing,
    /// Nobody can be master: pairs of prover and master.
    MasterUnproved(List<(Peer, Peer), UNPROVED>),
    /// Somebody needs RDMA, and not all have it.
    NoRdma(Verdict),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepare {
    pub(crate) round: u64,
    /// As in [`Welcome`], for a node that has missed it.
    pub(crate) lease: u32,
    pub(crate) rank: u32,
    pub(crate) digest: Digest,
    /// Workers on the nodes of lower ranks.
    pub(crate) slots_before: u64,
    /// Workers in the whole world.
    pub(crate) slots_total: u64,
    /// The length of the roster as it is sent; zero where nobody wants it.
    pub(crate) roster_bytes: u32,
    pub(crate) master: NodeId,
    pub(crate) endpoints: Endpoints,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) round: u64,
    /// Which of the master's endpoints was proved, as an index.
    pub(crate) endpoint: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Commit {
    pub(crate) round: u64,
    /// Which of the master's endpoints is MASTER_ADDR for those that proved it.
    pub(crate) endpoint: u8,
    /// What all ranks use to reach each other.
    pub(crate) verdict: Verdict,
}

/// Parts of the roster: `first`, and those after it whose bits are set (bit 0 is `first` itself).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Want {
    pub(crate) round: u64,
    pub(crate) first: u32,
    pub(crate) mask: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) round: u64,
    pub(crate) index: u32,
    pub(crate) bytes: List<u8, PART>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Who failed, or is gone.
    pub(crate) rank: u32,
    pub(crate) end: End,
}

/// The roster as it is sent, in parts.
pub(crate) fn encode_roster(roster: &Roster) -> Vec<u8> {
    let mut bytes = Vec::new();
    for member in roster.members() {
        put(member, super::config(), &mut bytes);
    }
    bytes
}

/// The roster of `world` members in these bytes, which must be used up.
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

fn put<T: Serialize>(body: &T, config: Config, bytes: &mut Vec<u8>) {
    let result = bincode::serde::encode_into_std_write(body, bytes, config);
    debug_assert!(result.is_ok(), "writing to a vector does not fail: {result:?}");
}

fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8], config: Config) -> Option<T> {
    let (body, used) = bincode::serde::borrow_decode_from_slice(bytes, config).ok()?;
    (used == bytes.len()).then_some(body)
}
