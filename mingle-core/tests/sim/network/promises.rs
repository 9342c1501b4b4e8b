//! What is promised at every step, looked at where it can change: at the node that speaks, hears or ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use mingle_core::Formed;
use mingle_core::proto::NodeId;

use super::Network;

/// What a node's words have bound it to.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Ready, and to which leader in which round; until it hears void or commit of that round.
    bound: BTreeMap<usize, (NodeId, Vec<u8>)>,
    /// Who has said ready, by leader and round.
    ready: BTreeMap<(NodeId, Vec<u8>), BTreeSet<NodeId>>,
    /// Addresses at which a token of a host's life has reached a host: (dialer, its life, address, acceptor).
    pub(super) proved: BTreeSet<(usize, u32, SocketAddr, usize)>,
}

impl Promises {
    pub(super) fn release(&mut self, host: usize) {
        self.bound.remove(&host);
    }
}

/// The round at the start of a body: bincode writes its length into the first byte, where it is long.
fn round(bytes: &[u8]) -> &[u8] {
    let length = match bytes[68] {
        251 => 3,
        252 => 5,
        253 => 9,
        _ => 1,
    };
    &bytes[68..68 + length]
}

fn id(bytes: &[u8]) -> NodeId {
    NodeId(bytes.try_into().unwrap())
}

impl Network {
    /// Whether a host's node may do anything about this datagram: it is of its job, and for it or for all.
    pub(super) fn concerns(&self, host: usize, bytes: &[u8]) -> bool {
        let config = &self.hosts[host].config;
        let recipient = &bytes[40..56];
        bytes[8..24] == config.tag.0
            && (recipient == config.id.0 || recipient == [0; 16] || recipient == [0xff; 16])
    }

    /// A word that binds its sender, or must not be said by one that is bound.
    pub(super) fn said(&mut self, host: usize, bytes: &[u8]) {
        let (me, to) = (id(&bytes[24..40]), id(&bytes[40..56]));
        match bytes[5] {
            13 => {
                let round = round(bytes).to_vec();
                self.promises.ready.entry((to, round.clone())).or_default().insert(me);
                self.promises.bound.insert(host, (to, round));
            }
            5 => {
                if let Some((leader, round)) = self.promises.bound.get(&host)
                    && *leader != to
                {
                    self.broken.push(format!("{host} is ready for {leader} in {round:?} and joins {to}"));
                }
            }
            16 => {
                let round = round(bytes).to_vec();
                let ready = self.promises.ready.get(&(me, round)).map_or(0, BTreeSet::len);
                let world = usize::try_from(self.hosts[host].config.world.get()).unwrap();
                if ready + 1 != world {
                    self.broken.push(format!("{host} commits with {ready} ready members of {world}"));
                }
                self.committed = Some(host);
            }
            _ => {}
        }
    }

    pub(super) fn heard(&mut self, host: usize, bytes: &[u8]) {
        let sender = id(&bytes[24..40]);
        // Void or commit.
        if !matches!(bytes[5], 15 | 16) {
            return;
        }
        let round = round(bytes);
        if self.promises.bound.get(&host).is_some_and(|(leader, bound)| *leader == sender && bound == round) {
            self.promises.bound.remove(&host);
        }
    }

    /// What a node may count on once its world has formed: its own token has reached the master there.
    pub(super) fn formed(&mut self, host: usize, formed: &Formed) {
        let life = self.hosts[host].life;
        let at = |acceptor| (host, life, formed.master, acceptor);
        let mut proofs = self.promises.proved.range(at(0)..=at(usize::MAX));
        if formed.rank.get() != 0 && proofs.next().is_none() {
            self.broken.push(format!("{host} has not proved {}", formed.master));
        }
    }
}
