//! The endpoints of a node.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize};

use super::List;

/// The endpoints of a node in its order of preference: one to six, so that they fit into a datagram. Each is
/// for TCP and UDP alike.
///
/// ```
/// use mingle_core::proto::Endpoints;
/// let endpoints = Endpoints::new(vec!["10.0.0.1:29500".parse()?, "[fd00::1]:29500".parse()?]).unwrap();
/// assert_eq!(endpoints.preferred().port(), 29500);
/// assert_eq!(Endpoints::new(Vec::new()), None);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Endpoints(List<SocketAddr, { Self::ADVERTISED }>);

impl Endpoints {
    /// The most endpoints of a node.
    pub(crate) const ADVERTISED: usize = 6;

    /// The first of these endpoints in this order; none if the list is empty.
    pub fn new(endpoints: Vec<SocketAddr>) -> Option<Self> {
        (!endpoints.is_empty()).then(|| Self(endpoints.into_iter().collect()))
    }

    /// The first endpoint, which the node prefers.
    pub fn preferred(&self) -> SocketAddr {
        self.0[0]
    }

    /// Whether all of these are addresses of the loopback interface.
    pub(crate) fn are_loopback(&self) -> bool {
        self.iter().all(|endpoint| endpoint.ip().is_loopback())
    }

    /// The endpoints of one address family, or nothing where there are none.
    pub(crate) fn of_family(&self, is_ipv6: bool) -> Option<Self> {
        Self::new(self.0.iter().copied().filter(|endpoint| endpoint.is_ipv6() == is_ipv6).collect())
    }
}

/// Whether a node can have this endpoint. Others would send to a whole link, or to nobody.
fn is_unicast(endpoint: &SocketAddr) -> bool {
    let is_broadcast = endpoint.ip() == Ipv4Addr::BROADCAST;
    endpoint.port() != 0 && !endpoint.ip().is_unspecified() && !endpoint.ip().is_multicast() && !is_broadcast
}

fn impossible<E: serde::de::Error>() -> E {
    E::custom("an address that no node can have")
}

/// Reads one endpoint, which a node can have.
pub(crate) fn deserialize_unicast<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<SocketAddr, D::Error> {
    let endpoint = SocketAddr::deserialize(deserializer)?;
    if is_unicast(&endpoint) { Ok(endpoint) } else { Err(impossible()) }
}

/// Reads one address, which a node can have.
pub(crate) fn deserialize_unicast_ip<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpAddr, D::Error> {
    let address = IpAddr::deserialize(deserializer)?;
    if is_unicast(&SocketAddr::new(address, 1)) { Ok(address) } else { Err(impossible()) }
}

impl From<SocketAddr> for Endpoints {
    fn from(endpoint: SocketAddr) -> Self {
        Self([endpoint].into_iter().collect())
    }
}

impl Deref for Endpoints {
    type Target = [SocketAddr];

    fn deref(&self) -> &[SocketAddr] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Endpoints {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = List::<SocketAddr, { Self::ADVERTISED }>::deserialize(deserializer)?;
        if !list.iter().all(is_unicast) {
            return Err(impossible());
        }
        Self::new(list.into_vec()).ok_or_else(|| serde::de::Error::custom("a node without an endpoint"))
    }
}
