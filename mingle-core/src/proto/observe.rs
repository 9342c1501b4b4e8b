//! Reading a job without taking part in it: what each datagram shows of its sender.

use super::report::Progress;
use super::seek::Key;
use crate::model::{End, HostName, JobTag, Keys, Lineage, NodeId, Peer, World};
use crate::rdma::Tally;
use crate::wire::{Codec, Dropped, Header, Message, claimed_sender};

/// Reads the datagrams of one job without being a node of it.
///
/// In a job with a secret it drops a datagram that it has read before, as a node does. It keeps its own
/// record of that, so a node still accepts every datagram that an observer has read.
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

/// What one datagram shows of its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The sender. Nothing authenticates it where [`Sighting::observed`] is [`Observed::Sealed`]; where it is
    /// [`Observed::Version`], it may be any number.
    pub node: NodeId,
    /// The formation of the job that the sender takes part in; the default where the datagram could not be
    /// read.
    pub lineage: Lineage,
    /// What the sender does.
    pub observed: Observed,
}

/// What a datagram shows of its sender, as far as an observer needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observed {
    /// It announces itself as a candidate.
    Leads(Candidacy),
    /// It looks for a leader.
    Seeks {
        /// The name of its host.
        host: HostName,
        /// The rank that its user gave to it.
        rank: Option<u32>,
    },
    /// It introduces another node, which leads.
    Hints {
        /// The other node.
        leader: NodeId,
        /// The other node's host and preferred endpoint.
        peer: Peer,
    },
    /// Its running world is over.
    Over {
        /// The rank whose command has failed, or whose node is gone.
        rank: u32,
        /// How the command ended.
        end: End,
    },
    /// It is a member of a running world, and has answered an observer.
    Runs(Runs),
    /// Any other message: the sender is there.
    Other,
    /// The datagram is sealed with another secret than the observer's, or only one of the two has a secret.
    Sealed,
    /// The datagram is of this other version of the protocol.
    Version(u8),
}

/// What a candidate announces of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidacy {
    /// The members so far, and the ranks that are missing.
    pub progress: Progress,
    /// Whether the user gave rank 0 to the node.
    pub explicit: bool,
    /// The most members that it has ever had, itself included.
    pub most: u32,
    /// How many members can use RDMA; none where no member has read its devices.
    pub rdma: Option<Tally>,
    /// The hash of the list of hosts that the leader expects, and the places in it of those that are absent:
    /// the first and the last of each run, seven runs at most.
    pub absent: Option<(u32, Vec<(u32, u32)>)>,
}

/// The answer of a member of a running world to an observer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    /// The name of its host.
    pub host: HostName,
    /// Its rank.
    pub rank: u32,
    /// The size of its world.
    pub world: World,
    /// Whether its command has ended well, while others' run.
    pub has_finished: bool,
    /// How many failures may still be followed by a restart; none where its launcher does not say so.
    pub restarts_left: Option<u32>,
    /// The lowest ranks that it knows to be suspected, at most 16.
    pub suspected: Vec<u32>,
    /// How many newcomers wait for a seat, as rank 0 knows; 0 of other ranks.
    pub waiting: u32,
}

impl Candidacy {
    /// Orders candidates: the others will join the greatest. `node` is the candidate itself.
    pub fn precedence(&self, node: NodeId) -> impl Ord + use<> {
        Key::new(self.explicit, self.most, self.progress.leader.address.ip(), node)
    }
}

impl Observer {
    /// An observer of the job with this tag. A job with a secret needs the `keys`.
    pub fn new(tag: JobTag, keys: Option<&Keys>) -> Self {
        Self { codec: Codec::new(tag, keys) }
    }

    /// The datagram that asks the members of a running world for their status, to be sent to all. `observer`
    /// is a random ID.
    pub fn query(&mut self, observer: NodeId) -> Vec<u8> {
        let header = Header { sender: observer, recipient: NodeId::ALL, lineage: Lineage::default() };
        self.codec.encode(header, &Message::Query)
    }

    /// What a datagram shows; nothing where it is not of this job or has been read before.
    pub fn read(&mut self, datagram: &[u8]) -> Option<Sighting> {
        let (header, message) = match self.codec.decode(datagram) {
            Ok(decoded) => decoded,
            Err(dropped) => return unreadable(dropped, datagram),
        };
        let observed = match message {
            Message::Announce(announce) => {
                let missing = announce.missing();
                let absent = announce.expected.map(|hash| (hash, announce.missing.to_vec()));
                let candidate = announce.candidate;
                let address = candidate.endpoints.preferred();
                Observed::Leads(Candidacy {
                    progress: Progress {
                        joined: announce.joined,
                        world: candidate.world,
                        newest: announce.newest.into_vec(),
                        missing,
                        leader: Peer { host: candidate.host, address },
                    },
                    explicit: candidate.explicit,
                    most: candidate.members,
                    rdma: announce.rdma,
                    absent,
                })
            }
            Message::Solicit(solicit) => Observed::Seeks { host: solicit.host, rank: solicit.rank },
            Message::Hint(hint) => {
                let address = hint.candidate.endpoints.preferred();
                Observed::Hints {
                    leader: hint.candidate.id,
                    peer: Peer { host: hint.candidate.host, address },
                }
            }
            Message::Over(over) => Observed::Over { rank: over.rank, end: over.end },
            Message::Status(status) => {
                let Ok(world) = World::new(status.world) else { return None };
                Observed::Runs(Runs {
                    host: status.host,
                    rank: status.rank,
                    world,
                    has_finished: status.has_finished,
                    restarts_left: status.restarts_left,
                    suspected: status.suspected.into_vec(),
                    waiting: status.waiting,
                })
            }
            // Of an observer, perhaps of this one.
            Message::Query => return None,
            _ => Observed::Other,
        };
        Some(Sighting { node: header.sender, lineage: header.lineage, observed })
    }
}

/// The version and the claimed sender of a datagram are in the clear.
fn unreadable(dropped: Dropped, datagram: &[u8]) -> Option<Sighting> {
    let observed = match dropped {
        Dropped::Unauthentic => Observed::Sealed,
        Dropped::Version(version) => Observed::Version(version),
        _ => return None,
    };
    let node = claimed_sender(datagram).unwrap_or(NodeId::ALL);
    Some(Sighting { node, lineage: Lineage::default(), observed })
}

#[cfg(test)]
mod tests {
    use super::super::report::RankRange;
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
                world: "2:4".parse().unwrap(),
                host: HostName::new("a"),
                endpoints: "10.0.0.1:29503".parse::<std::net::SocketAddr>().unwrap().into(),
            },
            joined: 2,
            newest: [HostName::new("b")].into_iter().collect(),
            missing: [(2, 3)].into_iter().collect(),
            rdma: Some(Tally { roce: 2, ..Tally::default() }),
            expected: None,
        })
    }

    fn encoded(keys: Option<&Keys>, message: &Message) -> Vec<u8> {
        let lineage = Lineage { generation: 1, origin: 9 };
        let header = Header { sender: NODE, recipient: NodeId::ALL, lineage };
        Codec::new(job().tag(), keys).encode(header, message)
    }

    #[test]
    fn an_observer_reads_announces_and_solicits_and_a_node_still_accepts_them() {
        for secret in [None, Some(keys("a secret of many bytes"))] {
            let mut observer = Observer::new(job().tag(), secret.as_ref());
            let mut node = Codec::new(job().tag(), secret.as_ref());
            let bytes = encoded(secret.as_ref(), &announce());
            let sighting = observer.read(&bytes).unwrap();
            assert_eq!((sighting.node, sighting.lineage.generation), (NODE, 1));
            let Observed::Leads(candidacy) = &sighting.observed else { panic!("{sighting:?}") };
            assert_eq!(candidacy.progress.to_string(), "2 of 2:4 nodes here, missing ranks 2-3");
            assert_eq!(candidacy.progress.leader.to_string(), "a (10.0.0.1:29503)");
            assert_eq!(candidacy.rdma, Some(Tally { roce: 2, ..Tally::default() }));
            assert!(node.decode(&bytes).is_ok(), "a node has not read it");
            assert_eq!(observer.read(&bytes).is_none(), secret.is_some(), "a sealed datagram is read once");
        }
        let seeks = Message::Solicit(Solicit { rank: Some(3), host: HostName::new("d") });
        let sighting = Observer::new(job().tag(), None).read(&encoded(None, &seeks)).unwrap();
        assert_eq!(sighting.observed, Observed::Seeks { host: HostName::new("d"), rank: Some(3) });
    }

    #[test]
    fn an_observer_asks_all_nodes_of_its_job_and_reads_no_other_observers_question() {
        for secret in [None, Some(keys("a secret of many bytes"))] {
            let asked = Observer::new(job().tag(), secret.as_ref()).query(NODE);
            let read = Codec::new(job().tag(), secret.as_ref()).decode(&asked);
            let header = Header { sender: NODE, recipient: NodeId::ALL, lineage: Lineage::default() };
            assert_eq!(read, Ok((header, Message::Query)));
            assert_eq!(Observer::new(job().tag(), secret.as_ref()).read(&asked), None);
        }
    }

    #[test]
    fn a_datagram_that_does_not_open_shows_its_claimed_sender_or_its_version() {
        let (ours, other) = (keys("a secret of many bytes"), keys("another one of many"));
        let sealed = encoded(Some(&ours), &announce());
        for (secret, bytes) in
            [(None, &sealed), (Some(&other), &sealed), (Some(&ours), &encoded(None, &announce()))]
        {
            let sighting = Observer::new(job().tag(), secret).read(bytes).unwrap();
            assert_eq!((sighting.node, sighting.observed), (NODE, Observed::Sealed));
        }
        let mut later = encoded(None, &announce());
        later[4] = crate::wire::VERSION + 1;
        let sighting = Observer::new(job().tag(), None).read(&later).unwrap();
        assert_eq!(sighting.observed, Observed::Version(crate::wire::VERSION + 1));
        let elsewhere = "bar".parse::<JobId>().unwrap().tag();
        assert_eq!(Observer::new(elsewhere, None).read(&sealed), None);
        assert_eq!(Observer::new(job().tag(), None).read(&sealed[..20]), None);
    }

    #[test]
    fn candidates_are_ordered_as_in_the_election() {
        let with = |explicit, most| {
            let mut observer = Observer::new(job().tag(), None);
            let Some(Observed::Leads(mut candidacy)) =
                observer.read(&encoded(None, &announce())).map(|sighting| sighting.observed)
            else {
                panic!("an announce is a candidate's");
            };
            (candidacy.explicit, candidacy.most) = (explicit, most);
            candidacy.precedence(NODE)
        };
        assert!(with(true, 1) > with(false, 3) && with(false, 3) > with(false, 2));
    }

    #[test]
    fn hints_ends_of_worlds_and_other_messages_are_told_apart() {
        let candidate = || {
            let Message::Announce(announce) = announce() else { unreachable!() };
            announce.candidate
        };
        let source = "10.0.0.9:29500".parse::<std::net::SocketAddr>().unwrap();
        let hint = crate::wire::Introduction { candidate: candidate(), source };
        let address = candidate().endpoints.preferred();
        let over = crate::wire::Ended { rank: 3, end: End::Exited(7) };
        for (message, observed) in [
            (
                Message::Hint(hint),
                Observed::Hints { leader: NODE, peer: Peer { host: HostName::new("a"), address } },
            ),
            (Message::Over(over), Observed::Over { rank: 3, end: End::Exited(7) }),
            (Message::Missing([1].into_iter().collect()), Observed::Other),
        ] {
            let sighting = Observer::new(job().tag(), None).read(&encoded(None, &message)).unwrap();
            let lineage = Lineage { generation: 1, origin: 9 };
            assert_eq!(sighting, Sighting { node: NODE, lineage, observed });
        }
    }

    #[test]
    fn a_candidacy_says_all_that_the_candidate_announces() {
        let mut observer = Observer::new(job().tag(), None);
        let Some(Observed::Leads(candidacy)) =
            observer.read(&encoded(None, &announce())).map(|sighting| sighting.observed)
        else {
            panic!("an announce is a candidate's");
        };
        assert_eq!((candidacy.explicit, candidacy.most, candidacy.progress.joined), (false, 3, 2));
        assert_eq!(candidacy.progress.world.to_string(), "2:4");
        assert_eq!(candidacy.progress.newest, [HostName::new("b")]);
        assert_eq!(candidacy.progress.missing, [RankRange { first: 2, last: 3 }]);
    }
}
