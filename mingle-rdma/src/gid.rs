//! GIDs: the addresses of RDMA ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A global identifier of a port (InfiniBand Architecture Specification, 4.1.1): 128 bits, written like an
/// IPv6 address. A RoCE GID *is* the address of a network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// An empty slot of a GID table.
    pub const ZERO: Self = Self([0; 16]);

    /// Whether the GID is link-local (`fe80::/10`): such a GID is valid only on the link, and is not routed.
    pub fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// The IP address that a RoCE GID stands for. A mapped address (`::ffff:10.0.0.1`) is returned as IPv4.
    pub fn address(self) -> IpAddr {
        let address = Ipv6Addr::from(self.0);
        address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
    }

    /// The family of [`Gid::address`].
    pub fn family(self) -> AddressFamily {
        match self.address() {
            IpAddr::V4(_) => AddressFamily::Ipv4,
            IpAddr::V6(_) => AddressFamily::Ipv6,
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        Self(address.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

/// The kernel's form: eight groups of four hexadecimal digits.
impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, group) in self.0.chunks(2).enumerate() {
            write!(f, "{}{:02x}{:02x}", if i == 0 { "" } else { ":" }, group[0], group[1])?;
        }
        Ok(())
    }
}

impl FromStr for Gid {
    type Err = InvalidGid;

    /// Accepts only the kernel's form (`%pI6`), so that half a line is not taken for a GID.
    fn from_str(text: &str) -> Result<Self, InvalidGid> {
        let address: Result<Ipv6Addr, _> = text.parse();
        // Eight groups of four digits, and the colons between them.
        address.ok().filter(|_| text.len() == 39).map(Self::from).ok_or(InvalidGid)
    }
}

/// The text is not a GID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a GID is eight groups of four hexadecimal digits")]
pub struct InvalidGid;

/// The family of the address that a RoCE GID stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AddressFamily {
    /// IPv4, which NCCL calls AF_INET.
    Ipv4,
    /// IPv6, which NCCL calls AF_INET6.
    Ipv6,
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
        f.write_str(match self.version {
            RoceVersion::V1 => "RoCE v1",
            RoceVersion::V2 => "RoCE v2",
        })?;
        f.write_str(match self.family {
            AddressFamily::Ipv4 => " over IPv4",
            AddressFamily::Ipv6 => " over IPv6",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_is_parsed_as_it_is_written_and_nothing_else_is() {
        let text = "0000:0000:0000:0000:0000:ffff:0a0a:000b";
        let gid: Gid = text.parse().unwrap();
        assert_eq!(gid.to_string(), text);
        assert_eq!(gid.address(), IpAddr::from([10, 10, 0, 11]));
        assert_eq!((gid.family(), gid.is_link_local()), (AddressFamily::Ipv4, false));
        let link_local: Gid = "fe80:0000:0000:0000:a288:c2ff:fe5b:03ec".parse().unwrap();
        assert!(link_local.is_link_local() && link_local.family() == AddressFamily::Ipv6);
        for wrong in ["", "fe80::1", &text[..38], &format!("{text}:0000"), &text.replace('a', "+"), "0000:"] {
            assert_eq!(wrong.parse::<Gid>(), Err(InvalidGid), "{wrong}");
        }
    }

    #[test]
    fn the_link_local_prefix_is_ten_bits() {
        for (first, expected) in [("fe80", true), ("febf", true), ("fec0", false), ("fe7f", false)] {
            let gid: Gid = format!("{first}:0000:0000:0000:0000:0000:0000:0001").parse().unwrap();
            assert_eq!(gid.is_link_local(), expected, "{first}");
        }
    }

    #[test]
    fn every_addressing_knows_its_place() {
        for (place, addressing) in Addressing::ALL.into_iter().enumerate() {
            assert_eq!(addressing.place(), place);
        }
    }
}
