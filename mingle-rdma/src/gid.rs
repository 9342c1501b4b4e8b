//! How RoCE ports are addressed.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The family of the address that a RoCE GID stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AddressFamily {
    /// IPv4, which NCCL calls AF_INET.
    Ipv4,
    /// IPv6, which NCCL calls AF_INET6.
    Ipv6,
}

impl AddressFamily {
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

/// The format of RoCE packets. RoCE v1 is an Ethernet protocol of its own (0x8915) and stays on the link;
/// RoCE v2 is UDP (port 4791) and is routed. The two versions cannot communicate with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RoceVersion {
    /// The kernel's `IB/RoCE v1`, which is also the type of every InfiniBand GID.
    V1,
    /// The kernel's `RoCE v2`.
    V2,
}

impl fmt::Display for RoceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::V1 { "RoCE v1" } else { "RoCE v2" })
    }
}

/// How RoCE ports are addressed. Both ends of a connection must use the same addressing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Addressing {
    /// The version of RoCE.
    pub version: RoceVersion,
    /// The family of the GID's address.
    pub family: AddressFamily,
}

impl Addressing {
    /// All four addressings, from best to worst: v2 before v1, IPv4 before IPv6.
    pub const ALL: [Self; 4] = [
        Self { version: RoceVersion::V2, family: AddressFamily::Ipv4 },
        Self { version: RoceVersion::V2, family: AddressFamily::Ipv6 },
        Self { version: RoceVersion::V1, family: AddressFamily::Ipv4 },
        Self { version: RoceVersion::V1, family: AddressFamily::Ipv6 },
    ];

    /// The position of the addressing in [`Addressing::ALL`].
    pub fn place(self) -> usize {
        Self::ALL.iter().position(|other| *other == self).unwrap_or(0)
    }
}

impl fmt::Display for Addressing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.family == AddressFamily::Ipv4 { "IPv4" } else { "IPv6" };
        write!(f, "{} over {family}", self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_addressing_knows_its_place() {
        for (place, addressing) in Addressing::ALL.into_iter().enumerate() {
            assert_eq!(addressing.place(), place);
        }
    }
}
