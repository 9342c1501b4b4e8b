//! The networks of a host's RoCE ports, on which the ranks of a world agree.

use serde::{Deserialize, Serialize};

use super::gid::Addressing;
use super::machine::{Address, GidEntry, Machine};
use super::summary::Capability;

/// The network of an address, reduced to 15 bits. The same network has the same value on all hosts. Two
/// networks may share a value; then each host chooses between the two by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Network([u8; 2]);

/// The most networks of a host that it tells the others.
pub(super) const MOST: usize = 32;

/// The networks of a host: the best network of each port first, and empty slots at the end.
pub type Networks = [Network; MOST];

impl Network {
    pub(super) fn of(address: &Address) -> Self {
        // FNV-1a.
        let text = address.net.trunc().to_string();
        let hash = text
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let folded = ((hash >> 16) ^ hash) & 0x7fff;
        Self(u16::try_from(folded.max(1)).unwrap_or(1).to_be_bytes())
    }

    /// The first bit says that the host would use this network by itself.
    pub(super) fn first(self) -> Self {
        Self([self.0[0] | 0x80, self.0[1]])
    }

    pub(super) fn is_first(self) -> bool {
        self.0[0] & 0x80 != 0
    }

    pub(super) fn plain(self) -> Self {
        Self([self.0[0] & 0x7f, self.0[1]])
    }
}

impl Machine {
    /// The networks of the ports that this host would use of RoCE, for every addressing. None if it has no
    /// such port.
    pub(super) fn networks(&self) -> Option<Networks> {
        let choice = self.choose_by(Some(Capability::Roce), None);
        let mut found: Vec<(usize, Network)> = Vec::new();
        for (port, addressing) in choice.used().flat_map(|port| Addressing::ALL.map(|kind| (port.port, kind)))
        {
            let is_own = |entry: &&GidEntry| {
                entry.addressing() == Some(addressing) && self.foreign(port, entry).is_none()
            };
            let own = port.gids.iter().filter(is_own);
            let mut ranked: Vec<_> =
                own.filter_map(|entry| Some((self.rank(entry), Network::of(self.held(entry)?)))).collect();
            ranked.sort_unstable();
            found.extend(ranked.into_iter().map(|(_, network)| network).enumerate());
        }
        // The second choices of all ports come behind their first ones.
        found.sort_by_key(|(place, _)| *place);
        let mut networks: Vec<Network> = Vec::new();
        for (place, network) in found {
            if networks.iter().all(|known| known.plain() != network) {
                networks.push(if place == 0 { network.first() } else { network });
            }
        }
        networks.resize(MOST, Network::default());
        networks.try_into().ok().filter(|_| choice.kind == Capability::Roce)
    }
}
