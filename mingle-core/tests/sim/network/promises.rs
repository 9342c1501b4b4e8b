//! What is promised at every step, checked when a node sends, receives or ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use mingle_core::Formed;
use mingle_core::proto::NodeId;

use super::Network;

/// What each node is bound to by the messages that it has sent.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// The leader and the round for which a host's node is ready, until it hears void or commit of that
    /// round.
    bound: BTreeMap<usize, (NodeId, Vec<u8>)>,
    /// The nodes that have sent ready, by leader and round.
    ready: BTreeMap<(NodeId, Vec<u8>), BTreeSet<NodeId>>,
    /// The tokens that have arrived: (dialer, its life, address dialled, acceptor).
    pub(super) proved: BTreeSet<(usize, u32, SocketAddr, usize)>,
}

impl Promises {
    pub(super) fn release(&mut self, host: usize) {
        self.bound.remove(&host);
    }
}

/// The encoded round at the start of a body. The first byte of a long number is its length (bincode).
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
    /// Whether a host's node may act on this datagram: it is of its job, and the node is a recipient.
    pub(super) fn is_recipient(&self, host: usize, bytes: &[u8]) -> bool {
        let config = &self.hosts[host].config;
        let recipient = &bytes[40..56];
        bytes[8..24] == config.tag.0
            && (recipient == config.id.0 || recipient == [0; 16] || recipient == [0xff; 16])
    }

    /// Notes the ready that binds its sender, and checks the join and the commit.
    pub(super) fn check_sent(&mut self, host: usize, bytes: &[u8]) {
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

    /// Notes the void or the commit that ends what its recipient is bound to.
    pub(super) fn check_received(&mut self, host: usize, bytes: &[u8]) {
        let sender = id(&bytes[24..40]);
        if !matches!(bytes[5], 15 | 16) {
            return;
        }
        let round = round(bytes);
        if self.promises.bound.get(&host).is_some_and(|(leader, bound)| *leader == sender && bound == round) {
            self.promises.bound.remove(&host);
        }
    }

    /// Checks that the token of a node whose world has formed has arrived at the master's endpoint.
    pub(super) fn formed(&mut self, host: usize, formed: &Formed) {
        let life = self.hosts[host].life;
        let at = |acceptor| (host, life, formed.master, acceptor);
        let mut proofs = self.promises.proved.range(at(0)..=at(usize::MAX));
        if formed.rank.get() != 0 && proofs.next().is_none() {
            self.broken.push(format!("{host} has not proved {}", formed.master));
        }
    }
}
