//! What the processes of a world that stays tell each other on their sessions.
//!
//! There are four kinds of frames, and each is a whole state: what a process is and wants ([`Join`]),
//! what it is doing ([`Status`]), what the leader has decided ([`Reign`]), and the next world ([`Plan`]). A
//! later frame of a kind says all that an earlier one said, as far as it still holds. So a frame that was
//! replaced before it was read is no loss, and a process that was stopped for an hour reads four frames.

use std::net::SocketAddr;

use mingle_rdma::Verdict;
use serde::{Deserialize, Serialize};

use super::session::Body;
use super::{Answer, BrokenTo, Join, Reach, Refusal, frame_config, read, write};
use crate::model::{BrokenPath, End, Endpoints, Epoch, Member, NodeId, Paths, Roster, Sameness, WorldSize};

/// The most nodes that are asked, one after the other, to lead when the leader is lost.
pub(crate) const HEIRS: usize = 16;
/// The most ranks that are named as absent.
pub(crate) const ABSENT: usize = 16;
/// The most addresses of a node.
const ADDRESSES: usize = Endpoints::ADVERTISED;

/// A process, and where it accepts sessions as long as it lives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contact {
    pub(crate) id: NodeId,
    /// The preferred address first.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Contact {
    /// A member of a plan, where the job reaches it.
    pub(crate) fn of(seat: &Member) -> Self {
        Self { id: seat.id, addresses: vec![(seat.address.ip(), seat.session_port).into()] }
    }
}

impl Join {
    /// Where the process of this ID, which has said this, accepts sessions.
    pub(crate) fn contact(&self, id: NodeId) -> Contact {
        let session = |endpoint: &SocketAddr| (endpoint.ip(), self.node.attributes.session_port).into();
        Contact { id, addresses: self.node.endpoints.iter().map(session).collect() }
    }
}

/// What a process is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The last world that this process has started in, or that may have formed with it.
    pub(crate) epoch: Epoch,
    pub(crate) command: Command,
    /// The last round whose paths it has proved, or has failed to prove, and what has come of that.
    pub(crate) answer: Option<(RoundId, Answer)>,
    /// It has lost this leader.
    pub(crate) lost: Option<NodeId>,
    /// The nodes that have lost the leader and have come to this process, and what they do in this epoch.
    pub(crate) guests: Vec<(NodeId, Command)>,
}

/// What has become of the command of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Command {
    /// There is none: the process waits for a seat, or is back for the next world.
    Waits,
    Runs,
    /// It has ended well, and the process waits for the others.
    Succeeded,
    /// It has ended so, and nobody had asked it to.
    Failed(End),
    /// The world is over, and it has not ended yet.
    Stops,
    /// It has ended, and the process leaves the job.
    Leaves,
    /// The same, and the world was over before, or the command has failed.
    Quits,
    /// It has yet to end, and the process was asked to leave the job then, before the world was over.
    Drains,
}

/// An attempt at a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RoundId {
    pub(crate) leader: NodeId,
    pub(crate) number: u32,
}

/// What the leader has decided, as it says it itself, or as another node passes it on to a node that has lost
/// the leader.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reign {
    pub(crate) epoch: Epoch,
    /// How many nodes a world of this job has.
    pub(crate) size: WorldSize,
    /// How often a leader was lost in this epoch.
    pub(crate) term: u32,
    /// The rank of the leader in this epoch; none if it was not a member.
    pub(crate) rank: Option<u32>,
    pub(crate) leader: Contact,
    /// Half of the members of this epoch, or fewer, can be reached.
    pub(crate) is_cut_off: bool,
    /// The round that has made this epoch: in the first the ID of rank 0, and 1. None for a process that has
    /// no plan.
    pub(crate) round: Option<RoundId>,
    pub(crate) phase: Phase,
    /// The number of the leader's last round.
    pub(crate) rounds: u32,
    /// The ranks whose nodes are silent.
    pub(crate) suspected: Vec<u32>,
    /// How many nodes wait for a seat.
    pub(crate) waiting: u32,
    /// Of a world that is over: how many nodes are ready for the next one, those that wait included, and
    /// which ranks have not come back, the first [`ABSENT`] of them.
    pub(crate) here: u32,
    pub(crate) absent: Vec<u32>,
    /// Why it could not plan the next world, or a path that was broken in a round of that.
    pub(crate) trouble: Option<Refusal>,
    /// Who leads if this leader is lost, in this order. For nodes that have no plan of this epoch.
    pub(crate) heirs: Vec<Contact>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// The commands run.
    #[default]
    Runs,
    /// The world is over, and all commands stop.
    Over(FirstCause),
    /// The same, and the members of the leader's last round prove their paths.
    Round(FirstCause),
    /// All commands have ended well.
    Released,
}

/// Why a world is over: the command of this rank has ended so, or its node is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FirstCause {
    pub(crate) rank: Option<u32>,
    pub(crate) end: End,
}

/// A world that is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) round: RoundId,
    pub(crate) epoch: Epoch,
    pub(crate) terms: Terms,
}

/// What the nodes of a plan learn of each other and of the job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) roster: Roster,
    /// How the job reaches each member, by rank: the first link is of the member's own address.
    pub(crate) reached: Vec<Reach>,
    /// Which paths are proved.
    pub(crate) paths: Paths,
    pub(crate) verdict: Verdict,
    pub(crate) sameness: Sameness,
}

impl Terms {
    /// A member, and how the job reaches it.
    pub(crate) fn reached(&self, id: NodeId) -> Option<(&Member, &Reach)> {
        self.at(self.roster.find(id)?.rank.get())
    }

    /// The member of this rank, and how the job reaches it.
    pub(crate) fn at(&self, rank: u32) -> Option<(&Member, &Reach)> {
        let rank = usize::try_from(rank).ok()?;
        Some((self.roster.members().get(rank)?, self.reached.get(rank)?))
    }

    /// A broken path as messages name it; none if it names no addresses of these terms.
    pub(crate) fn broken(&self, from: NodeId, to: &BrokenTo) -> Option<BrokenPath> {
        let ((from, own), (target, reached)) = (self.reached(from)?, self.reached(to.partner)?);
        let link = reached.all().find(|link| link.address == to.path.ip())?;
        let is_known = [Some(target.address.port()), reached.port()].contains(&Some(to.path.port()));
        // A node reaches itself.
        if !is_known || from.id == target.id {
            return None;
        }
        Some(to.path(from.peer(), target, (own.links().first()?.mtu, link.mtu)))
    }
}

impl Plan {
    /// The members by rank.
    pub(crate) fn seats(&self) -> &[Member] {
        self.terms.roster.members()
    }

    pub(crate) fn rank_of(&self, id: NodeId) -> Option<u32> {
        self.terms.roster.find(id).map(|seat| seat.rank.get())
    }

    pub(crate) fn seat(&self, rank: u32) -> Option<&Member> {
        self.seats().get(usize::try_from(rank).ok()?)
    }

    /// Up to [`HEIRS`] members, spread over the ranks, in the order in which they are asked.
    pub(crate) fn heirs(&self) -> Vec<Contact> {
        let seats = self.seats();
        let count = seats.len().min(HEIRS);
        (0..count).map(|heir| Contact::of(&seats[heir * seats.len() / count])).collect()
    }
}

/// What a frame says, whose kind is the number of the variant, from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorldSaid {
    /// To the process that leads, or that may know who leads.
    Arrival(Box<Join>),
    Status(Status),
    Reign(Reign),
    Plan(Plan),
}

/// The kinds of the frames that say what a process is doing, and what the leader has decided.
pub(crate) const STATUS: u8 = 1;
pub(crate) const REIGN: u8 = 2;

impl WorldSaid {
    pub(crate) fn encode(&self) -> Body {
        write(self, frame_config()).into()
    }

    /// Nothing where the bytes are no frame of these, or more than that.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        read(body, frame_config()).filter(Self::is_bounded)
    }

    fn is_bounded(&self) -> bool {
        let fits = |contact: &Contact| (1..=ADDRESSES).contains(&contact.addresses.len());
        match self {
            Self::Arrival(arrival) => arrival.node.attributes.session_port != 0,
            Self::Status(_) => true,
            Self::Reign(reign) => {
                fits(&reign.leader)
                    && reign.heirs.len() <= HEIRS
                    && reign.heirs.iter().all(fits)
                    && reign.absent.len() <= ABSENT
            }
            Self::Plan(plan) => !plan.seats().is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HostName, Link, Metadata, Rank};
    use crate::wire::NodeInfo;

    fn contact(number: u8) -> Contact {
        Contact { id: NodeId([number; 16]), addresses: vec![SocketAddr::from(([10, 0, 0, number], 30000))] }
    }

    fn arrival(session_port: u16) -> WorldSaid {
        let mut node = NodeInfo::new(HostName::new("a"), SocketAddr::from(([10, 0, 0, 1], 29500)).into());
        node.attributes.session_port = session_port;
        let join = Join { world: "2".parse().unwrap(), node, traits: vec![1], misfit: None };
        WorldSaid::Arrival(Box::new(join))
    }

    /// A plan of so many nodes.
    fn plan(nodes: u32) -> Plan {
        let address = SocketAddr::from(([10, 0, 0, 1], 29500));
        let member = |rank: u32| Member {
            rank: Rank(rank),
            id: NodeId([rank.to_le_bytes()[0]; 16]),
            host: HostName::new("a"),
            address,
            slots: 8,
            metadata: Metadata::default(),
            session_port: 30000,
        };
        let link = Link::unknown(address.ip());
        let reached = Reach::new(40000, [link]).with([Link::unknown([10, 1, 0, 1].into())]);
        let roster = Roster::new((0..nodes).map(member).collect()).unwrap();
        let reached = vec![reached; usize::try_from(nodes).unwrap()];
        let terms = Terms { roster, reached, ..Terms::default() };
        let round = RoundId { leader: NodeId([1; 16]), number: 1 };
        Plan { round, epoch: Epoch::default(), terms }
    }

    fn all() -> Vec<WorldSaid> {
        let epoch = Epoch { generation: 3, origin: 9 };
        let round = RoundId { leader: NodeId([1; 16]), number: 7 };
        let cause = FirstCause { rank: Some(2), end: End::Killed(9) };
        let answer = Some((round, Answer::Ready));
        let guests =
            vec![(NodeId([4; 16]), Command::Failed(End::Exited(1))), (NodeId([5; 16]), Command::Drains)];
        let reign = Reign {
            epoch,
            size: "2:4".parse().unwrap(),
            term: 2,
            rank: None,
            leader: contact(1),
            is_cut_off: true,
            round: Some(round),
            phase: Phase::Over(cause),
            rounds: 7,
            suspected: vec![2, 300],
            waiting: 4,
            here: 3,
            absent: vec![1],
            trouble: None,
            heirs: vec![contact(2), contact(3)],
        };
        vec![
            arrival(30000),
            WorldSaid::Status(Status {
                epoch,
                command: Command::Stops,
                answer,
                lost: Some(NodeId([2; 16])),
                guests,
            }),
            WorldSaid::Reign(reign),
            WorldSaid::Plan(plan(40)),
        ]
    }

    #[test]
    fn every_state_comes_back_and_no_other_bytes_are_one() {
        for said in all() {
            let body = said.encode();
            assert_eq!(WorldSaid::decode(&body), Some(said));
            for length in 0..body.len() {
                assert_eq!(WorldSaid::decode(&body[..length]), None, "{length} bytes");
            }
            assert_eq!(WorldSaid::decode(&[&body[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn a_plan_of_10_000_nodes_is_read_and_that_of_none_is_not() {
        for nodes in [0, 10_000] {
            let said = WorldSaid::Plan(plan(nodes));
            assert_eq!(WorldSaid::decode(&said.encode()), Some(said).filter(|_| nodes > 0));
        }
    }

    #[test]
    fn a_process_without_an_address_or_a_port_for_sessions_or_with_too_many_is_refused() {
        for count in [0, ADDRESSES + 1] {
            let leader = Contact { addresses: vec![contact(1).addresses[0]; count], ..contact(1) };
            let Some(WorldSaid::Reign(reign)) = all().into_iter().nth(REIGN.into()) else { panic!() };
            let said = WorldSaid::Reign(Reign { leader, ..reign });
            assert_eq!(WorldSaid::decode(&said.encode()), None, "{count} addresses");
        }
        assert_eq!(WorldSaid::decode(&arrival(0).encode()), None);
        let mut members = plan(1).seats().to_vec();
        members[0].address.set_port(0);
        let terms = Terms { roster: Roster::new(members).unwrap(), ..plan(1).terms };
        assert_eq!(WorldSaid::decode(&WorldSaid::Plan(Plan { terms, ..plan(1) }).encode()), None);
    }

    #[test]
    fn the_heirs_of_a_large_world_are_16_members_spread_over_its_ranks() {
        assert_eq!(plan(3).heirs(), plan(3).seats().iter().map(Contact::of).collect::<Vec<_>>());
        let heirs: Vec<u8> = plan(160).heirs().iter().map(|heir| heir.id.0[0]).collect();
        assert_eq!(heirs, (0..16).map(|heir| heir * 10).collect::<Vec<_>>());
    }
}
