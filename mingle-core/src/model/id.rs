//! Names and numbers that exist only when they are valid: of a job, a world, a rank, a node, a host.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::model::Digest;

/// Why a text or a number is not valid. The message says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidId {
    /// The job ID has this many characters, but must have 1 to 128.
    #[error("a job ID has 1 to 128 characters, and this one has {0}")]
    JobLength(usize),
    /// The job ID has this character, but must consist of printable ASCII, so that logs and terminals show it
    /// unchanged.
    #[error("a job ID holds printable ASCII characters only, and {0:?} is none")]
    JobCharacter(char),
    /// The world has this many nodes, but must have 1 to [`World::MAX`].
    #[error("a world has 1 to {max} nodes, not {0}", max = World::MAX)]
    World(u64),
    /// The minimum of a range of world sizes is above the maximum.
    #[error("the fewest nodes come first, and {min} is above {max}")]
    WorldRange {
        /// The minimum that was asked for, in nodes.
        min: u32,
        /// The maximum that was asked for, in nodes.
        max: u32,
    },
    /// The rank is not below the size of its world.
    #[error("rank {rank} does not exist in a world of {world}: ranks are 0 to {last}", last = world - 1)]
    Rank {
        /// The rank that was asked for.
        rank: u32,
        /// The size of the world, in nodes.
        world: u32,
    },
    /// The rank key does not have 1 to 128 characters of printable ASCII.
    #[error("a rank key has 1 to 128 printable ASCII characters")]
    RankKey,
    /// This text is not a whole number.
    #[error("{0:?} is not a whole number")]
    Number(String),
}

/// The user's name for a job: 1 to 128 printable ASCII characters, the same on every node.
///
/// mingle derives the multicast groups, the tag in every datagram and the sequence of ports from the job ID,
/// so two jobs with different IDs are kept apart.
///
/// ```
/// use mingle_core::JobId;
/// let job: JobId = "llama-pretrain".parse()?;
/// assert_eq!(job.as_str(), "llama-pretrain");
/// assert!("".parse::<JobId>().is_err());
/// assert!("two\nlines".parse::<JobId>().is_err());
/// # Ok::<(), mingle_core::error::InvalidId>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(String);

impl JobId {
    /// The text as the user gave it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tag in every datagram of this job.
    pub fn tag(&self) -> JobTag {
        self.tag_for("mingle 1 job tag")
    }

    /// The tag of nodes that try a formation: they meet no node of the job itself.
    pub(crate) fn tag_of_tries(&self) -> JobTag {
        self.tag_for("mingle 1 tag of tries")
    }

    fn tag_for(&self, context: &str) -> JobTag {
        let hash = blake3::derive_key(context, self.0.as_bytes());
        JobTag(hash.first_chunk().copied().unwrap_or_default())
    }

    /// The IPv4 group of this job, in 239.192.0.0/14 (organization-local scope, RFC 2365).
    ///
    /// ```
    /// # use mingle_core::JobId;
    /// let group = "foo".parse::<JobId>()?.group_v4();
    /// assert_eq!(u32::from(group) >> 18, u32::from(std::net::Ipv4Addr::new(239, 192, 0, 0)) >> 18);
    /// # Ok::<(), mingle_core::error::InvalidId>(())
    /// ```
    pub fn group_v4(&self) -> Ipv4Addr {
        group_v4(blake3::derive_key("mingle 1 group", self.0.as_bytes()))
    }

    /// The IPv6 group of this job, in ff15::/16 (transient, site-local scope; RFC 4291, section 2.7). The
    /// last four bytes are a dynamic group ID (RFC 3307, section 4.3); they are all of the group that an
    /// Ethernet address can hold.
    ///
    /// ```
    /// # use mingle_core::JobId;
    /// let group = "foo".parse::<JobId>()?.group_v6();
    /// assert_eq!(group.segments()[0], 0xff15);
    /// # Ok::<(), mingle_core::error::InvalidId>(())
    /// ```
    pub fn group_v6(&self) -> Ipv6Addr {
        group_v6(blake3::derive_key("mingle 1 group of IPv6", self.0.as_bytes()))
    }

    /// The ports of all jobs, which a firewall may admit alone.
    pub(crate) const PORTS: RangeInclusive<u16> = 29_500..=29_999;

    /// The port in [`JobId::PORTS`] at which vLLM's data parallel ranks meet (`data_parallel_rpc_port`,
    /// vllm/config/parallel.py): a job of vLLM on this host would not start.
    const VLLMS: u16 = 29_550;

    /// The ports that a node of this job tries, in order: each port of 29500 to 29999, except 29550, which
    /// vLLM opens itself.
    ///
    /// All hosts of a job start at the same port, so a firewall sees few ports. Two jobs on the same host
    /// rarely start at the same port.
    ///
    /// ```
    /// # use mingle_core::JobId;
    /// let mut ports: Vec<u16> = "foo".parse::<JobId>()?.ports().collect();
    /// ports.sort_unstable();
    /// assert_eq!(ports, (29500..=29999).filter(|port| *port != 29550).collect::<Vec<u16>>());
    /// # Ok::<(), mingle_core::error::InvalidId>(())
    /// ```
    pub fn ports(&self) -> impl Iterator<Item = u16> + use<> {
        let first = *Self::PORTS.start();
        let count = u32::from(*Self::PORTS.end() - first) + 1;
        let hash = blake3::derive_key("mingle 1 ports", self.0.as_bytes());
        let start = u32::from(u16::from_be_bytes([hash[0], hash[1]])) % count;
        // Any step that shares no factor with 500 = 2^2 * 5^3 visits every port once.
        let steps: Vec<u32> = (1..count).filter(|s| s % 2 != 0 && s % 5 != 0).collect();
        let step = steps[usize::from(hash[2]) % steps.len()];
        let ports = (0..count).map(move |i| {
            let offset = (start + i * step) % count;
            first + u16::try_from(offset).unwrap_or(0)
        });
        ports.filter(|port| *port != Self::VLLMS)
    }

    /// The range from which a node holds ports for the job's own use. Other programs use the ports around the
    /// range: Ray's workers use ports up to 19999, torchrun without `--rdzv-endpoint` uses 29400, a node of
    /// mingle uses [`JobId::ports`], Kubernetes has node ports from 30000 on, and Linux picks ports for
    /// connections from 32768 on.
    pub const OWN_PORTS: RangeInclusive<u16> = 20_000..=29_399;

    /// All of [`JobId::OWN_PORTS`], in the order in which a node of this job tries them.
    pub(crate) fn own_ports(&self) -> impl Iterator<Item = u16> + use<> {
        let first = *Self::OWN_PORTS.start();
        let count = Self::OWN_PORTS.end() - first + 1;
        let hash = blake3::derive_key("mingle 1 own ports", self.0.as_bytes());
        let start = u16::from_be_bytes([hash[0], hash[1]]) % count;
        (0..count).map(move |i| first + (start + i) % count)
    }
}

/// The IPv4 directory group: leaders of all jobs advertise there, once a second, to `mingle watch` and to
/// nodes that have waited for long.
pub(crate) fn directory_v4() -> Ipv4Addr {
    group_v4(blake3::derive_key("mingle 1 lobby", b""))
}

/// The IPv6 directory group.
pub(crate) fn directory_v6() -> Ipv6Addr {
    group_v6(blake3::derive_key("mingle 1 lobby of IPv6", b""))
}

fn group_v4(hash: [u8; 32]) -> Ipv4Addr {
    let low = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) & 0x3_ffff;
    Ipv4Addr::from(u32::from(Ipv4Addr::new(239, 192, 0, 0)) | low)
}

fn group_v6(hash: [u8; 32]) -> Ipv6Addr {
    let mut group: [u8; 16] = hash.first_chunk().copied().unwrap_or_default();
    group[..2].copy_from_slice(&[0xff, 0x15]);
    group[12] |= 0x80;
    Ipv6Addr::from(group)
}

impl FromStr for JobId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let length = text.chars().count();
        if length == 0 || length > 128 {
            return Err(InvalidId::JobLength(length));
        }
        if let Some(bad) = text.chars().find(|c| !matches!(c, ' '..='~')) {
            return Err(InvalidId::JobCharacter(bad));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The 16 bytes that datagrams carry to tell jobs apart: a hash of the job ID. The tag is a name, not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobTag(pub [u8; 16]);

impl JobTag {
    /// The first half of the tag, by which a notice to the directory group names a job.
    pub fn beginning(self) -> [u8; 8] {
        self.0.first_chunk().copied().unwrap_or_default()
    }
}

/// The size of a world: how many nodes the job has, 1 to [`World::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World(u32);

impl Default for World {
    /// A world of one node.
    fn default() -> Self {
        Self(1)
    }
}

impl World {
    /// The largest size, in nodes. The roster of such a world takes about 50 MB.
    pub const MAX: u32 = 1_000_000;

    /// A world of `size` nodes.
    ///
    /// # Errors
    /// [`InvalidId::World`] if `size` is 0 or above [`World::MAX`].
    pub fn new(size: u32) -> Result<Self, InvalidId> {
        if size == 0 || size > Self::MAX { Err(InvalidId::World(u64::from(size))) } else { Ok(Self(size)) }
    }

    /// The number of nodes.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The rank with this number, which must be below the size.
    ///
    /// # Errors
    /// [`InvalidId::Rank`] if `rank` is not below the size.
    pub fn rank(self, rank: u32) -> Result<Rank, InvalidId> {
        if rank < self.0 { Ok(Rank(rank)) } else { Err(InvalidId::Rank { rank, world: self.0 }) }
    }
}

impl FromStr for World {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let size: u64 = text.parse().map_err(|_| InvalidId::Number(text.to_owned()))?;
        u32::try_from(size).map_err(|_| InvalidId::World(size)).and_then(Self::new)
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The rank of a node, 0 to the size of the world minus 1. [`World::rank`] checks the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Rank(pub(crate) u32);

impl Rank {
    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The ID of a node: 128 random bits. A restarted node gets a new ID.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub [u8; 16]);

impl NodeId {
    /// The recipient of a multicast datagram: all nodes.
    pub(crate) const ALL: Self = Self([0; 16]);
    /// The recipient of a datagram to a seed: any node at the address.
    pub(crate) const ANYONE: Self = Self([0xff; 16]);
}

impl fmt::Display for NodeId {
    /// Writes the first four bytes, which tell the nodes of a job apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

/// Which formation of a job a node takes part in: the first formation, or a formation after a restart.
///
/// The members of a world that stays tell it to each other, so that the worlds of a job are
/// told apart. Epochs are ordered by generation, then by origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Epoch {
    /// How often the job has restarted: 0 in the first formation.
    pub generation: u32,
    /// Names the job's first world, of which all later worlds are restarts: the first 8 bytes of that world's
    /// digest, little endian, or 1 if these bytes are 0. The origin is 0 until the first world has formed.
    ///
    /// The origin keeps an earlier run of the same job, or a recording of that run, from ending this run.
    pub origin: u64,
}

impl Epoch {
    /// The epoch of the world that has formed with this digest. An origin that is already set stays.
    #[must_use]
    pub fn formed(self, digest: Digest) -> Self {
        let first = digest.0.first_chunk().copied().unwrap_or_default();
        // 0 stands for no origin.
        let origin = u64::from_le_bytes(first).max(1);
        if self.origin == 0 { Self { origin, ..self } } else { self }
    }

    /// The epoch of the restart after this world; none after 4,294,967,295 restarts.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Some(Self { generation: self.generation.checked_add(1)?, ..self })
    }
}

/// The name of a host: 1 to 63 characters of `A-Z a-z 0-9 . _ -`, which are safe in a shell and on a
/// terminal.
///
/// The constructor and the decoder replace every other character by `_`.
///
/// ```
/// use mingle_core::HostName;
/// assert_eq!(HostName::new("node-7.rack2").as_str(), "node-7.rack2");
/// assert_eq!(HostName::new("$(reboot)\n").as_str(), "__reboot__");
/// assert_eq!(HostName::new("").as_str(), "unnamed");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct HostName(String);

impl HostName {
    /// The longest name, in characters: one DNS label (RFC 1035, section 2.3.4).
    pub const MAX: usize = 63;

    /// The name, made safe and cut to [`HostName::MAX`] characters; `unnamed` if the text is empty.
    pub fn new(name: &str) -> Self {
        if name.is_empty() {
            return Self("unnamed".to_owned());
        }
        let safe = |c: char| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' }
        };
        Self(name.chars().take(Self::MAX).map(safe).collect())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for HostName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&str>::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_that_a_terminal_could_not_show_is_refused() {
        assert_eq!("".parse::<JobId>(), Err(InvalidId::JobLength(0)));
        assert_eq!("x".repeat(129).parse::<JobId>(), Err(InvalidId::JobLength(129)));
        assert_eq!("a\u{202e}b".parse::<JobId>(), Err(InvalidId::JobCharacter('\u{202e}')));
        assert!("a job with spaces; and 'quotes'".parse::<JobId>().is_ok());
    }

    #[test]
    fn the_tag_and_the_group_of_a_job_never_change() {
        // Nodes of two releases must agree on these values.
        let job: JobId = "foo".parse().unwrap();
        assert_eq!(job.group_v4().octets()[0], 239);
        assert_eq!(job.tag(), "foo".parse::<JobId>().unwrap().tag());
        assert_ne!(job.tag(), "bar".parse::<JobId>().unwrap().tag());
    }

    #[test]
    fn a_rank_is_below_its_world() {
        let world = World::new(4).unwrap();
        assert_eq!(world.rank(3).map(Rank::get), Ok(3));
        assert_eq!(world.rank(4), Err(InvalidId::Rank { rank: 4, world: 4 }));
        assert!("0".parse::<World>().is_err());
        assert!("99999999999".parse::<World>().is_err());
    }
}
