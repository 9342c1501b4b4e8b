//! Reading a job without taking part in it: what each datagram shows of its sender.

use super::report::Progress;
use crate::model::{HostName, JobTag, Keys, NodeId, World};
use crate::wire::{Codec, Dropped, Header, Message, Reply};

/// Reads the datagrams of a job without being a node of that job.
///
/// In a job with a secret the observer drops a datagram that it has already read, as a node does. The
/// observer keeps its own record of datagrams, so nodes still accept every datagram that the observer has
/// read.
#[derive(Debug)]
pub struct Observer {
    id: NodeId,
    codec: Codec,
}

/// What a datagram shows of its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// A node, and what the node does.
    Node(NodeId, Observed),
    /// The datagram is sealed with another secret than the observer's, or only the sender or only the
    /// observer has a secret.
    Sealed,
    /// The datagram belongs to this other version of the protocol.
    Version(u8),
}

/// What a node does, as far as an observer needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// The node leads, and has counted the members.
    Leads(Progress),
    /// The node looks for a leader. Holds the name of its host.
    Seeks(HostName),
    /// The node is a member of a running world, and has answered an observer.
    Runs(Reply),
}

impl Observer {
    /// An observer of the job with this tag. A job with a secret needs its `keys`. `id` is random.
    pub fn new(tag: JobTag, keys: Option<&Keys>, id: NodeId) -> Self {
        Self { id, codec: Codec::new(tag, keys) }
    }

    /// The datagram that asks the members of a running world for their status. Send it to all nodes.
    pub fn query(&mut self) -> Vec<u8> {
        let header = Header { sender: self.id, recipient: NodeId::ALL };
        self.codec.encode(header, &Message::Query)
    }

    /// What a datagram shows; none if the datagram is of another job or has been read before.
    pub fn read(&mut self, datagram: &[u8]) -> Option<Sighting> {
        let (header, message) = match self.codec.decode(datagram) {
            Ok(decoded) => decoded,
            // The version is in the clear.
            Err(Dropped::Version(version)) => return Some(Sighting::Version(version)),
            Err(Dropped::Unauthentic) => return Some(Sighting::Sealed),
            Err(_) => return None,
        };
        let observed = match message {
            Message::Announce(announce) => Observed::Leads(announce.count.progress(&announce.candidate)),
            Message::Solicit(solicit) => Observed::Seeks(solicit.host),
            Message::Reply(reply) if World::new(reply.world).is_ok() => Observed::Runs(reply),
            Message::Reply(_) | Message::Hint(_) | Message::Running(_) | Message::Query => return None,
        };
        Some(Sighting::Node(header.sender, observed))
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::model::JobId;
    use crate::model::Secret;
    use crate::wire::{Announce, Candidate, Count, Header, Solicit};

    const NODE: NodeId = NodeId([7; 16]);

    fn job() -> JobId {
        "foo".parse().unwrap()
    }

    fn keys(secret: &str) -> Keys {
        Secret::new(secret.as_bytes()).unwrap().keys(&job())
    }

    fn observer(keys: Option<&Keys>) -> Observer {
        Observer::new(job().tag(), keys, NodeId([9; 16]))
    }

    fn announce() -> Message {
        Message::Announce(Announce {
            candidate: Candidate {
                id: NODE,
                explicit: false,
                members: 3,
                world: "2:4".parse().unwrap(),
                host: HostName::new("a"),
                endpoints: "10.0.0.1:29503".parse::<std::net::SocketAddr>().unwrap().into(),
            },
            count: Count {
                joined: 2,
                newest: [HostName::new("b")].into_iter().collect(),
                missing: [(2, 3)].into_iter().collect(),
            },
            user: crate::model::User::default(),
        })
    }

    fn encoded(keys: Option<&Keys>, message: &Message) -> Vec<u8> {
        let header = Header { sender: NODE, recipient: NodeId::ALL };
        Codec::new(job().tag(), keys).encode(header, message)
    }

    #[test]
    fn a_node_that_looks_for_a_leader_is_seen() {
        let solicit = Message::Solicit(Solicit { rank: Some(3), host: HostName::new("d") });
        let sighting = observer(None).read(&encoded(None, &solicit)).unwrap();
        assert_eq!(sighting, Sighting::Node(NODE, Observed::Seeks(HostName::new("d"))));
    }

    #[test]
    fn a_datagram_that_does_not_open_is_sealed_or_of_another_version() {
        let (ours, other) = (keys("a secret of many bytes"), keys("another one of many"));
        let sealed = encoded(Some(&ours), &announce());
        for (secret, bytes) in
            [(None, &sealed), (Some(&other), &sealed), (Some(&ours), &encoded(None, &announce()))]
        {
            assert_eq!(observer(secret).read(bytes), Some(Sighting::Sealed));
        }
        let mut later = encoded(None, &announce());
        later[4] = crate::wire::VERSION + 1;
        assert_eq!(observer(None).read(&later), Some(Sighting::Version(crate::wire::VERSION + 1)));
        let elsewhere = "bar".parse::<JobId>().unwrap().tag();
        assert_eq!(Observer::new(elsewhere, None, NODE).read(&sealed), None);
        assert_eq!(observer(None).read(&sealed[..20]), None);
    }
}
