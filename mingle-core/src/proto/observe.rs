//! What somebody learns who only listens: from a datagram to what it says of a job.

use super::election::Key;
use super::report::{Progress, RankRange};
use crate::model::{End, HostName, JobTag, Keys, Lineage, NodeId, Peer, World};
use crate::rdma::Tally;
use crate::wire::{Codec, Dropped, Message};

/// Reads the datagrams of one job without being a node of it: nothing that it does is heard by anybody.
///
/// What has come before is dropped in a job with a secret, as by a node; an observer counts by itself, so no node
/// misses what an observer has read.
///
/// ```
/// use mingle_core::JobId;
/// use mingle_core::tools::Observer;
///
/// let job: JobId = "foo".parse()?;
/// let mut observer = Observer::new(job.tag(), None);
/// assert_eq!(observer.read(b"of another protocol"), None);
/// # Ok::<(), mingle_core::error::InvalidId>(())
/// ```
#[derive(Debug)]
pub struct Observer {
    codec: Codec,
}

/// One node of the job, as it was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The node. Of a sealed word it is what stands in the clear, and of another version's it may be anything.
    pub node: NodeId,
    /// Which formation of the job it takes part in.
    pub lineage: Lineage,
    /// What it has said.
    pub word: Word,
}

/// What a node has said, as far as it tells who is there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Word {
    /// It gathers the others.
    Gathers(Gathering),
    /// It looks for who gathers.
    Seeks {
        /// What its host calls itself.
        host: HostName,
        /// The rank that it was given.
        rank: Option<u32>,
    },
    /// It tells of somebody else who gathers.
    Hints {
        /// That node.
        leader: NodeId,
        /// Its name and preferred endpoint.
        peer: Peer,
    },
    /// The world that it was in is over.
    Over {
        /// The rank that has failed or is gone.
        rank: u32,
        /// How it has ended.
        end: End,
    },
    /// Something that says only that it is there.
    Other,
    /// Something that was sealed with another secret than the observer's, or where one of both has none.
    Sealed,
    /// Something in another version of the protocol.
    Version(u8),
}

/// A node that gathers, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathering {
    /// Who is there.
    pub progress: Progress,
    /// The node was given rank 0.
    pub explicit: bool,
    /// The most members that it has ever had, itself included.
    pub most: u32,
    /// How many of those who are there can use RDMA; none where nobody of them has looked.
    pub rdma: Option<Tally>,
}

impl Gathering {
    /// The place of this gathering, which is `node`'s, in the order of all: the greatest is the one that the others
    /// will join.
    pub fn precedence(&self, node: NodeId) -> impl Ord + use<> {
        Key::new(self.explicit, self.most, self.progress.leader.address.ip(), node)
    }
}

impl Observer {
    /// An observer of the job with this tag; `keys` are needed where it has a secret.
    pub fn new(tag: JobTag, keys: Option<&Keys>) -> Self {
        Self { codec: Codec::new(tag, keys) }
    }

    /// What a datagram tells of the job, where it is one of the job's and has not come before.
    pub fn read(&mut self, datagram: &[u8]) -> Option<Sighting> {
        let (header, message) = match self.codec.decode(datagram) {
            Ok(decoded) => decoded,
            Err(dropped) => return unread(dropped, datagram),
        };
        let word = match message {
            Message::Announce(announce) => {
                let candidate = announce.candidate;
                let Ok(world) = World::new(candidate.world) else { return None };
                let address = candidate.endpoints.preferred();
                Word::Gathers(Gathering {
                    progress: Progress {
                        joined: announce.joined,
                        world,
                        newest: announce.newest.into_vec(),
                        missing: announce
                            .missing
                            .iter()
                            .map(|&(first, last)| RankRange { first, last })
                            .collect(),
                        leader: Peer { host: candidate.host, address },
                    },
                    explicit: candidate.explicit,
                    most: candidate.members,
                    rdma: announce.rdma,
                })
            }
            Message::Solicit(solicit) => Word::Seeks { host: solicit.host, rank: solicit.rank },
            Message::Hint(hint) => {
                let address = hint.candidate.endpoints.preferred();
                Word::Hints { leader: hint.candidate.id, peer: Peer { host: hint.candidate.host, address } }
            }
            Message::Over(over) => Word::Over { rank: over.rank, end: over.end },
            _ => Word::Other,
        };
        Some(Sighting { node: header.sender, lineage: header.lineage, word })
    }
}

/// Of a datagram that does not open, the version is in the clear, and in this version the sender.
fn unread(dropped: Dropped, datagram: &[u8]) -> Option<Sighting> {
    let word = match dropped {
        Dropped::Unauthentic => Word::Sealed,
        Dropped::Version(version) => Word::Version(version),
        _ => return None,
    };
    // Another version may have anything there, or nothing.
    let sender = datagram.get(24..40).and_then(|bytes| bytes.try_into().ok());
    Some(Sighting { node: sender.map_or(NodeId::ALL, NodeId), lineage: Lineage::default(), word })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::JobId;
    use crate::model::Secret;
    use crate::wire::{Announce, Candidate, Header, Solicit};

    const NODE: NodeId = NodeId([7; 16]);

    fn job() -> JobId {
        "foo".parse().unwrap()
    }

    fn keys(secret: &str) -> Keys {
        Secret::new(secret.as_bytes()).unwrap().keys(&job())
    }

    fn announce() -> Message {
        Message::Announce(Announce {
            candidate: Candidate {
                id: NODE,
                explicit: false,
                members: 3,
                world: 4,
                host: HostName::new("a"),
                endpoints: "10.0.0.1:29503".parse::<std::net::SocketAddr>().unwrap().into(),
            },
            joined: 2,
            newest: [HostName::new("b")].into_iter().collect(),
            missing: [(2, 3)].into_iter().collect(),
            rdma: Some(Tally { roce: 2, ..Tally::default() }),
        })
    }

    fn said(keys: Option<&Keys>, message: &Message) -> Vec<u8> {
        let lineage = Lineage { generation: 1, origin: 9 };
        let header = Header { sender: NODE, recipient: NodeId::ALL, lineage };
        Codec::new(job().tag(), keys).encode(header, message)
    }

    fn read(observer: &mut Observer, bytes: &[u8]) -> Option<Sighting> {
        observer.read(bytes)
    }

    #[test]
    fn who_gathers_and_who_seeks_is_read_and_changes_nothing_for_a_node() {
        for secret in [None, Some(keys("a secret of many bytes"))] {
            let mut observer = Observer::new(job().tag(), secret.as_ref());
            let mut node = Codec::new(job().tag(), secret.as_ref());
            let bytes = said(secret.as_ref(), &announce());
            let sighting = read(&mut observer, &bytes).unwrap();
            assert_eq!((sighting.node, sighting.lineage.generation), (NODE, 1));
            let Word::Gathers(gathering) = &sighting.word else { panic!("{sighting:?}") };
            assert_eq!(gathering.progress.to_string(), "2 of 4 nodes here, missing ranks 2-3");
            assert_eq!(gathering.progress.leader.to_string(), "a (10.0.0.1:29503)");
            assert_eq!(gathering.rdma, Some(Tally { roce: 2, ..Tally::default() }));
            assert!(node.decode(&bytes).is_ok(), "it is new to a node all the same");
            assert_eq!(
                read(&mut observer, &bytes).is_none(),
                secret.is_some(),
                "the second of one sealed word"
            );
        }
        let seeks = Message::Solicit(Solicit { rank: Some(3), host: HostName::new("d") });
        let sighting = read(&mut Observer::new(job().tag(), None), &said(None, &seeks)).unwrap();
        assert_eq!(sighting.word, Word::Seeks { host: HostName::new("d"), rank: Some(3) });
    }

    #[test]
    fn what_does_not_open_is_a_sealed_word_of_a_job_that_is_there() {
        let (ours, other) = (keys("a secret of many bytes"), keys("another one of many"));
        let sealed = said(Some(&ours), &announce());
        for (secret, bytes) in
            [(None, &sealed), (Some(&other), &sealed), (Some(&ours), &said(None, &announce()))]
        {
            let sighting = read(&mut Observer::new(job().tag(), secret), bytes).unwrap();
            assert_eq!((sighting.node, sighting.word), (NODE, Word::Sealed));
        }
        let mut later = said(None, &announce());
        later[4] = 2;
        let sighting = read(&mut Observer::new(job().tag(), None), &later).unwrap();
        assert_eq!(sighting.word, Word::Version(2));
        let elsewhere = "bar".parse::<JobId>().unwrap().tag();
        assert_eq!(read(&mut Observer::new(elsewhere, None), &sealed), None);
        assert_eq!(read(&mut Observer::new(job().tag(), None), &sealed[..20]), None);
    }

    #[test]
    fn the_order_is_that_of_the_election() {
        let with = |explicit, most| {
            let mut observer = Observer::new(job().tag(), None);
            let Some(Word::Gathers(mut gathering)) =
                read(&mut observer, &said(None, &announce())).map(|sighting| sighting.word)
            else {
                panic!("an announce tells who gathers");
            };
            (gathering.explicit, gathering.most) = (explicit, most);
            gathering.precedence(NODE)
        };
        assert!(with(true, 1) > with(false, 3) && with(false, 3) > with(false, 2));
    }
}
