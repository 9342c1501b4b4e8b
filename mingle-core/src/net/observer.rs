//! An observer, for `mingle watch`: it hears the nodes that look for each other, and has a connection to the
//! leader of a world that stays. It takes part in nothing.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::Network;
use super::clock::{clock, random};
use super::error::Error;
use super::sockets::connection::TaskEvent;
use super::sockets::connections::Connections;
use super::station::Station;
use crate::model::{Epoch, HostName, JobId, Keys, Member, NodeId, RankRange, Secret, World};
use crate::proto::session::PeerLinks;
use crate::proto::{Impossible, Over, Progress, Time, Warning};
use crate::wire::session::Hellos;
use crate::wire::world::{Command, Phase, Reign, RoundId, STATUS, Status, WorldSaid};
use crate::wire::{Body, Codec, Dropped, Header, Message, Notice};

/// How often the leader of a world that stays is asked whether it is there, or all are asked who leads.
const ASK: Duration = Duration::from_secs(1);
/// Others are asked who leads after so long without an answer: a process that was stopped keeps its
/// connections.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most members of a world that are shown.
const MOST: usize = 16_384;

/// What an observer has learned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// This node leads, and has counted the members.
    Leads(NodeId, Progress),
    /// This node looks for a leader. Holds the name of its host, and the source of its datagram.
    Seeks(NodeId, HostName, SocketAddr),
    /// The datagram from this address is sealed with another secret than the observer's, or only the sender
    /// or only the observer has a secret.
    Sealed(SocketAddr),
    /// The datagram from this address belongs to this other version of the protocol.
    Version(SocketAddr, u8),
    /// A node says that the job is in a world that stays, and where its leader is, which has yet to answer.
    LedFrom(SocketAddr),
    /// The job is in a world that stays, and its leader answers.
    Runs(Run),
    /// A job that forms on the link, and the address of its leader.
    Job(Notice, SocketAddr),
}

/// A world that stays, as its leader describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// How often the job has restarted.
    pub generation: u32,
    /// The members by rank.
    pub members: Arc<[Member]>,
    /// Why the world is over; none if it is not.
    pub over: Option<Over>,
    /// Whether all commands have ended well.
    pub has_finished: bool,
    /// The ranks that do not answer, and may be dead.
    pub suspected: BTreeSet<u32>,
    /// How many nodes wait for a seat.
    pub waiting: u32,
    /// How many nodes are here for the next world, if this one is over.
    pub here: u32,
    /// The ranks that are not back, if the world is over; of many the first 16.
    pub missing: Vec<RankRange>,
}

/// Observes one job, or all jobs that form on the link.
///
/// In a job with a secret it drops a datagram that it has already read, as a node does. It keeps its own
/// record of datagrams, so nodes still accept every datagram that it has read.
#[derive(Debug)]
pub struct Observer {
    station: Station,
    job: Option<ObservedJob>,
}

#[derive(Debug)]
struct ObservedJob {
    id: NodeId,
    codec: Codec,
    origin: Instant,
    connections: Connections,
    /// The link to the process that is said to lead.
    links: PeerLinks<()>,
    leader: Option<NodeId>,
    /// When it has answered last, or was named.
    answered: Time,
    /// The members of this round, as a leader has said last.
    plan: Option<(RoundId, Arc<[Member]>)>,
    /// What the leader has said last.
    reign: Option<Reign>,
    /// All that this process says to a leader: it has no command, and does not say what it is.
    status: Body,
    /// When to ask again.
    asks: Instant,
}

impl Observer {
    /// Observes a job. If it has a secret, only an observer that knows the secret sees its nodes.
    ///
    /// # Errors
    /// As for [`Station::of_observer`].
    ///
    /// # Panics
    /// As for [`Station::of_node`].
    pub fn of_job(job: &JobId, secret: Option<&Secret>, network: &Network) -> Result<Self, Error> {
        let station = Station::of_observer(job, network)?;
        let keys = secret.map(|secret| secret.keys(job));
        Ok(Self { station, job: Some(ObservedJob::new(job, keys.as_ref())?) })
    }

    /// Observes all jobs on the link whose leaders advertise them.
    ///
    /// # Errors
    /// As for [`Station::of_observer`].
    ///
    /// # Panics
    /// As for [`Station::of_node`].
    pub fn of_all_jobs(network: &Network) -> Result<Self, Error> {
        Ok(Self { station: Station::of_all_jobs(network)?, job: None })
    }

    /// Which interfaces could not join a group, and why.
    pub fn warnings(&self) -> Vec<Warning> {
        self.station.warnings()
    }

    /// Waits for the next sighting. Cancel-safe.
    pub async fn next(&mut self) -> Sighting {
        loop {
            let seen = match &mut self.job {
                None => {
                    let (from, _, bytes) = self.station.receive().await;
                    Notice::decode(&bytes).map(|notice| Sighting::Job(notice, from))
                }
                Some(job) => {
                    if let Some(question) = job.ask() {
                        // An interface that cannot send has had a warning.
                        let _ = self.station.send_to_all(&question);
                    }
                    let due = job.advance();
                    tokio::select! {
                        (from, _, bytes) = self.station.receive() => job.receive(from, &bytes),
                        event = job.connections.next() => event.and_then(|event| job.hear(event)),
                        () = sleep_until(due.into()) => None,
                    }
                }
            };
            if let Some(seen) = seen {
                return seen;
            }
        }
    }
}

impl ObservedJob {
    fn new(job: &JobId, keys: Option<&Keys>) -> Result<Self, Error> {
        let (epoch, command) = (Epoch::default(), Command::Waits);
        let status = Status { epoch, command, answer: None, lost: None, guests: Vec::new() };
        let id = NodeId(random()?);
        // Nobody dials an observer.
        let mut connections = Connections::open(Vec::new(), Vec::new(), World::default())?;
        connections.speak_as(id, Hellos::new(job.tag(), keys));
        Ok(Self {
            id,
            codec: Codec::new(job.tag(), keys),
            origin: clock(),
            connections,
            links: PeerLinks::new(id, random().map(u64::from_le_bytes)?),
            leader: None,
            answered: Time::ZERO,
            plan: None,
            reign: None,
            status: WorldSaid::Status(status).encode(),
            asks: clock(),
        })
    }

    fn now(&self) -> Time {
        clock().duration_since(self.origin)
    }

    /// If it is time to, asks the leader whether it is there. Where none answers, returns a datagram for all,
    /// which asks who leads.
    fn ask(&mut self) -> Option<Vec<u8>> {
        if clock() < self.asks {
            return None;
        }
        self.asks = clock() + ASK;
        let (now, answers) = (self.now(), self.run().is_some());
        if answers {
            self.answered = now;
        }
        if let Some(leader) = self.leader
            && let Some(peer) = self.links.get_mut(leader)
        {
            if now >= self.answered + PATIENCE || peer.link.is_refused() {
                self.forget();
            } else {
                peer.link.say_again(STATUS);
                self.links.say(now, leader, &self.status);
            }
        }
        let header = Header { sender: self.id, recipient: NodeId::ALL };
        (!answers).then(|| self.codec.encode(header, &Message::Query))
    }

    /// Carries out what the link wants. Returns when to ask again, or something is due on the link.
    fn advance(&mut self) -> Instant {
        let now = self.now();
        while self.links.next_due(now).is_some() {}
        while let Some(order) = self.links.poll_order(now) {
            self.connections.carry_out(order, |_| true);
        }
        let due = self.links.poll_timeout().map(|due| self.origin + due);
        due.into_iter().fold(self.asks, Instant::min)
    }

    /// What a datagram shows; none if it is of another job or has been read before.
    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<Sighting> {
        let (header, message) = match self.codec.decode(datagram) {
            Ok(decoded) => decoded,
            // The version is in the clear.
            Err(Dropped::Version(version)) => return Some(Sighting::Version(from, version)),
            Err(Dropped::Unauthentic) => return Some(Sighting::Sealed(from)),
            Err(_) => return None,
        };
        match message {
            Message::Announce(announce) => {
                Some(Sighting::Leads(header.sender, announce.count.progress(&announce.candidate)))
            }
            Message::Solicit(solicit) => Some(Sighting::Seeks(header.sender, solicit.host, from)),
            Message::Running(running) if header.recipient == self.id && self.leader.is_none() => {
                let (now, addresses) = (self.now(), running.addresses.to_vec());
                (self.leader, self.answered) = (Some(running.leader), now);
                let from = addresses.first().copied();
                self.links.add(now, running.leader, addresses, ());
                self.links.say(now, running.leader, &self.status);
                from.map(Sighting::LedFrom)
            }
            Message::Running(_) | Message::Hint(_) | Message::Query => None,
        }
    }

    /// Closes the connections to the leader. Who leads is asked with the next question.
    fn forget(&mut self) {
        let now = self.now();
        self.reign = None;
        if let Some(leader) = self.leader.take() {
            self.links.forget(now, leader);
        }
    }

    fn hear(&mut self, event: TaskEvent) -> Option<Sighting> {
        let now = self.now();
        match event {
            TaskEvent::Opened { peer, way, conn, numbers: (own, other), .. } => {
                if self.links.has(peer) && own == self.links.number_for(peer) {
                    self.links.opened(now, peer, way, conn, other);
                } else {
                    self.links.refuse(conn);
                }
            }
            TaskEvent::Read(conn, frame, _permit) => {
                let read = self.links.read(now, conn, frame, WorldSaid::decode);
                if let Some(said) = read.and_then(|(_, said)| said.transpose()) {
                    self.learn(said);
                }
                return self.run().map(Sighting::Runs);
            }
            TaskEvent::Closed(conn, ending) => _ = self.links.closed(now, conn, ending),
            TaskEvent::DialFailed(peer, dial, failed) => self.links.dial_failed(now, peer, dial, failed),
            _ => {}
        }
        None
    }

    fn learn(&mut self, said: Result<WorldSaid, Impossible>) {
        match said {
            Ok(WorldSaid::Plan(plan)) if plan.seats().len() <= MOST => {
                self.plan = Some((plan.round, plan.seats().into()));
            }
            Ok(WorldSaid::Reign(reign)) if self.leader == Some(reign.leader.id) => self.reign = Some(reign),
            // Another one leads, or this is no process of mingle.
            Ok(WorldSaid::Reign(_) | WorldSaid::Plan(_)) | Err(_) => self.forget(),
            Ok(WorldSaid::Arrival(_) | WorldSaid::Status(_)) => {}
        }
    }

    /// The world, while its leader answers.
    fn run(&self) -> Option<Run> {
        self.links.get(self.leader?).filter(|peer| peer.link.answers(self.now()))?;
        let reign = self.reign.as_ref()?;
        let (_, members) = self.plan.as_ref().filter(|(round, _)| Some(*round) == reign.round)?;
        let is_member = |rank: &u32| usize::try_from(*rank).is_ok_and(|rank| rank < members.len());
        let cause = match reign.phase {
            Phase::Over(cause) | Phase::Round(cause) => Some(cause),
            Phase::Runs | Phase::Released => None,
        };
        Some(Run {
            generation: reign.epoch.generation,
            members: Arc::clone(members),
            over: cause.map(|cause| Over::of(cause, members)),
            has_finished: reign.phase == Phase::Released,
            suspected: reign.suspected.iter().copied().filter(is_member).collect(),
            waiting: reign.waiting,
            here: reign.here,
            missing: RankRange::runs(reign.absent.iter().copied()),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::wire::{Announce, Candidate, Count, Running, Solicit};

    const NODE: NodeId = NodeId([7; 16]);

    fn job() -> JobId {
        "foo".parse().unwrap()
    }

    fn keys(secret: &str) -> Keys {
        Secret::new(secret.as_bytes()).unwrap().keys(&job())
    }

    fn at() -> SocketAddr {
        "10.0.0.7:29503".parse().unwrap()
    }

    fn seen(job: &JobId, keys: Option<&Keys>, bytes: &[u8]) -> Option<Sighting> {
        ObservedJob::new(job, keys).unwrap().receive(at(), bytes)
    }

    fn announce() -> Message {
        Message::Announce(Announce {
            candidate: Candidate {
                id: NODE,
                explicit: false,
                members: 3,
                world: "2:4".parse().unwrap(),
                host: HostName::new("a"),
                endpoints: "10.0.0.1:29503".parse::<SocketAddr>().unwrap().into(),
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

    /// A job whose leader is said to be at these addresses.
    fn led_from(addresses: &[SocketAddr]) -> ObservedJob {
        let addresses = addresses.iter().copied().collect();
        let (host, user) = (HostName::new("a"), crate::model::User::default());
        let running = Message::Running(Running { leader: NODE, generation: 0, addresses, host, user });
        let mut observed = ObservedJob::new(&job(), None).unwrap();
        let header = Header { sender: NODE, recipient: observed.id };
        observed.receive(at(), &Codec::new(job().tag(), None).encode(header, &running));
        observed
    }

    #[tokio::test]
    async fn a_process_that_says_what_no_leader_says_is_left() {
        let mut observed = led_from(&[at()]);
        assert_eq!(observed.leader, Some(NODE));
        observed.learn(WorldSaid::decode(&[9, 9]).ok_or(Impossible));
        assert!(observed.leader.is_none() && observed.links.get(NODE).is_none());
    }

    #[tokio::test]
    async fn a_node_that_looks_for_a_leader_is_seen() {
        let solicit = Message::Solicit(Solicit { rank: Some(3), host: HostName::new("d") });
        let sighting = seen(&job(), None, &encoded(None, &solicit)).unwrap();
        assert_eq!(sighting, Sighting::Seeks(NODE, HostName::new("d"), at()));
    }

    #[tokio::test]
    async fn a_leader_is_dialled_at_each_of_its_addresses() {
        let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listeners = [listen().await, listen().await];
        let mut observed = led_from(&[0, 1].map(|at: usize| listeners[at].local_addr().unwrap()));
        let dials = async {
            loop {
                let due = observed.advance();
                tokio::select! {
                    event = observed.connections.next() => drop(event.map(|event| observed.hear(event))),
                    () = sleep_until(due.into()) => {}
                }
            }
        };
        let accepted = async {
            for listener in &listeners {
                listener.accept().await.unwrap();
            }
        };
        tokio::select! {
            () = dials => {}
            accepted = timeout(Duration::from_secs(30), accepted) => accepted.unwrap(),
        }
    }

    #[tokio::test]
    async fn a_datagram_that_does_not_open_is_sealed_or_of_another_version() {
        let (ours, other) = (keys("a secret of many bytes"), keys("another one of many"));
        let sealed = encoded(Some(&ours), &announce());
        for (secret, bytes) in
            [(None, &sealed), (Some(&other), &sealed), (Some(&ours), &encoded(None, &announce()))]
        {
            assert_eq!(seen(&job(), secret, bytes), Some(Sighting::Sealed(at())));
        }
        let mut later = encoded(None, &announce());
        later[4] = crate::wire::VERSION + 1;
        assert_eq!(seen(&job(), None, &later), Some(Sighting::Version(at(), crate::wire::VERSION + 1)));
        assert_eq!(seen(&"bar".parse().unwrap(), None, &sealed), None);
        assert_eq!(seen(&job(), None, &sealed[..20]), None);
    }
}
