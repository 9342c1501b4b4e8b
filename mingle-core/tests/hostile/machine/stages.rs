//! The situations in which a node is attacked. Each is reached by real nodes that keep to the protocol, and
//! is checked to be the phase that it is about.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use mingle_core::proto::testing::{Forger, Frame, Phase, Scene, describe, kind};
use mingle_core::proto::{Config, ConnId, Keys, Link as Network, Node, NodeId, NodeInfo, Reach};
use mingle_core::{HostName, JobId, Member, Metadata, Roster, Secret, World, WorldSize, rdma};

use super::cells::Name;
use super::link::Link;
use super::promises::{TIMEOUT, Watch};
use super::said;

/// The port for paths of every node.
const PATHS: u16 = 40_000;

/// A situation, and the way into it.
#[derive(Clone, Copy)]
pub struct Stage {
    pub name: &'static str,
    pub phase: Phase,
    /// The number of the attacked node. Among nodes that are equal otherwise the lowest leads.
    own: u8,
    pub world: u32,
    rank: Option<u32>,
    play: fn(&mut Play),
}

/// An attacked node, and what an attacker knows of it.
#[derive(Clone)]
pub struct Play {
    pub link: Link,
    pub scene: Scene,
    /// Seals as nodes of the job do.
    pub forger: Forger,
    /// The numbers of the other nodes. An attacker writes as one of them.
    pub peers: Vec<u8>,
    /// The number of the attacker's last session.
    session: u64,
    stage: Stage,
    keys: Option<Keys>,
}

pub fn job() -> JobId {
    "hostile".parse().expect("a valid name")
}

pub fn id(number: u8) -> NodeId {
    NodeId([number; 16])
}

/// The attacker's node, at `stranger(1)`.
pub const EVE: u8 = 20;

pub fn endpoint(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, number), 29500))
}

/// An address at which no node is.
pub fn stranger(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(198, 18, 0, number), 29777))
}

/// The options of a node.
#[derive(Clone, Copy, Default)]
struct With {
    rank: Option<u32>,
    wants_roster: bool,
    requires_rdma: bool,
    timeout: Option<Duration>,
    /// The world may be smaller.
    is_range: bool,
}

const PLAIN: With =
    With { rank: None, wants_roster: false, requires_rdma: false, timeout: None, is_range: false };
const ROSTER: With = With { wants_roster: true, ..PLAIN };
const SOON: Duration = Duration::from_secs(5);

macro_rules! stages {
    ($($name:literal $phase:ident node $own:literal $(rank $rank:literal)? of $world:literal,
        $play:expr;)*) => {
        /// Every situation. A new phase needs one: a test looks for it.
        pub const STAGES: &[Stage] = &[$(Stage {
            name: $name,
            phase: Phase::$phase,
            own: $own,
            world: $world,
            rank: stages!(@rank $($rank)?),
            play: $play,
        }),*];
    };
    (@rank $rank:literal) => { Some($rank) };
    (@rank) => { None };
}

stages! {
    "looks, given rank 1" Looking node 2 rank 1 of 3, |play| play.start(PLAIN);
    "leads alone" Alone node 2 of 3, |play| play.start(PLAIN);
    "leads alone and wants the roster" Alone node 2 of 3, |play| play.start(ROSTER);
    "listens in a large world" Alone node 2 of 100, |play| play.start(PLAIN);
    "stands aside" StandsAside node 1 of 3, |play| play.stand_aside();
    "leads a member" Collecting node 1 of 3, |play| play.meet(&[(2, PLAIN)]);
    "leads a round" Proving node 1 of 3, |play| play.meet(&[(2, PLAIN), (3, ROSTER)]);
    "leads a round of another master" Proving node 2 of 3, |play| {
        play.meet_until(&[(3, PLAIN)], Phase::Collecting);
        play.join(1, PLAIN);
    };
    "has committed" Committed node 1 of 2, |play| play.meet(&[(2, PLAIN)]);
    "refuses its members" Refusing node 1 of 2, |play| {
        play.meet(&[(2, With { requires_rdma: true, ..PLAIN })]);
    };
    "joins" Joining node 2 of 3, |play| play.meet(&[(1, PLAIN)]);
    "joins, given rank 1" Joining node 2 rank 1 of 3, |play| play.meet(&[(1, PLAIN)]);
    "joins a large world" Joining node 2 of 100, |play| play.meet(&[(1, PLAIN)]);
    "yields with a member" Yielding node 2 of 4, |play| {
        play.meet_until(&[(3, PLAIN)], Phase::Collecting);
        play.join(1, With { rank: Some(0), ..PLAIN });
    };
    "has joined" Joined node 2 of 3, |play| play.meet(&[(1, PLAIN)]);
    "proves its paths and wants the roster" Preparing node 2 of 3, |play| {
        play.link.answers_paths = false;
        play.meet_as(ROSTER, &[(1, PLAIN), (3, PLAIN)]);
    };
    "proves its paths" Preparing node 2 of 3, |play| {
        play.link.answers_paths = false;
        play.meet(&[(1, PLAIN), (3, PLAIN)]);
    };
    "has reported broken paths" Preparing node 2 of 3, |play| {
        play.link.answers_paths = false;
        play.meet(&[(1, PLAIN), (3, PLAIN)]);
        while play.said("answer: Broken") == 0 {
            let until = play.link.now + SOON;
            assert!(play.link.step(until), "it reports nothing");
        }
    };
    "leads a round with broken paths" Proving node 1 of 3, |play| {
        play.link.answers_paths = false;
        play.meet(&[(2, PLAIN), (3, PLAIN)]);
    };
    "proves another master" Preparing node 3 of 3, |play| {
        play.meet_until(&[(2, PLAIN)], Phase::Joined);
        play.join(1, PLAIN);
    };
    "is ready" Ready node 2 of 3, |play| play.meet(&[(1, PLAIN), (3, ROSTER)]);
    "is ready, given rank 1" Ready node 2 rank 1 of 3, |play| play.meet(&[(1, PLAIN), (3, ROSTER)]);
    "is ready past its deadline" Overdue node 2 of 3, |play| {
        let short = With { timeout: Some(Duration::from_secs(1)), ..PLAIN };
        play.meet_as_until(short, &[(1, PLAIN), (3, ROSTER)], Phase::Ready);
        play.link.silence();
    };
    "has ended" Ended node 1 of 1, |play| play.start(PLAIN);
}

/// The situation of this name, in a job without a secret.
pub fn play(name: &str) -> Play {
    STAGES.iter().find(|stage| stage.name == name).expect("a situation").play(false)
}

impl Stage {
    /// The attacked node in this situation. It is reached once, and copied.
    pub fn play(&self, has_secret: bool) -> Play {
        static PLAYS: OnceLock<Vec<[OnceLock<Play>; 2]>> = OnceLock::new();
        let plays = PLAYS.get_or_init(|| STAGES.iter().map(|_| Default::default()).collect());
        let at = STAGES.iter().position(|stage| stage.name == self.name).expect("one of the list");
        plays[at][usize::from(has_secret)].get_or_init(|| self.reach(has_secret)).clone()
    }

    fn reach(&self, has_secret: bool) -> Play {
        let secret = Secret::new(b"sixteen bytes it is").ok().filter(|_| has_secret);
        let keys = secret.map(|secret| secret.keys(&job()));
        let forger = Forger::new(job().tag(), keys.as_ref());
        let watch = Watch::new(id(self.own), endpoint(self.own), self.rank, self.world, forger.clone());
        let scene = Scene {
            nodes: Vec::new(),
            endpoints: (1..=3).map(stranger).collect(),
            world: self.world,
            ranks: (0..self.world.min(4)).collect(),
            rounds: vec![1, 2],
            rosters: Vec::new(),
            recipient: endpoint(self.own).ip(),
        };
        let stage = *self;
        let link = Link::new(watch);
        let mut play = Play { link, scene, forger, peers: Vec::new(), session: 0, stage, keys };
        (self.play)(&mut play);
        play.link.run_to(self.phase, SOON);
        play.finish();
        play
    }
}

impl Play {
    fn config(&self, number: u8, with: With) -> Config {
        let mut node = NodeInfo::new(HostName::new(&format!("host-{number}")), endpoint(number).into());
        let world = World::new(self.stage.world).expect("a size of a world");
        let size: WorldSize =
            if with.is_range { format!("2:{world}").parse().expect("two sizes") } else { world.into() };
        node.rank = with.rank.and_then(|rank| world.rank(rank).ok());
        node.reach = Reach::new(PATHS, [Network { address: endpoint(number).ip(), prefix: 24, mtu: 1500 }]);
        node.attributes.wants_roster = with.wants_roster;
        node.attributes.fabric = rdma::Summary::default().required(with.requires_rdma);
        Config {
            keys: self.keys.clone(),
            timeout: Some(with.timeout.unwrap_or(TIMEOUT)),
            ..Config::new(id(number), job().tag(), size, node)
        }
    }

    /// A node that keeps to the protocol joins the others.
    pub fn add(&mut self, number: u8) {
        self.join(number, PLAIN);
    }

    fn join(&mut self, number: u8, with: With) {
        let config = self.config(number, with);
        self.link.watch.is_home(endpoint(number));
        if number != self.stage.own {
            self.peers.push(number);
        }
        let node = Node::new(config, number.into(), self.link.now);
        self.link.add(node, id(number), endpoint(number));
    }

    fn start(&mut self, with: With) {
        let with = With { rank: self.stage.rank, ..with };
        self.join(self.stage.own, with);
    }

    fn meet_as_until(&mut self, own: With, others: &[(u8, With)], phase: Phase) {
        self.start(own);
        for &(number, with) in others {
            self.join(number, with);
        }
        self.link.run_to(phase, SOON);
    }

    fn meet_until(&mut self, others: &[(u8, With)], phase: Phase) {
        self.meet_as_until(PLAIN, others, phase);
    }

    fn meet_as(&mut self, own: With, others: &[(u8, With)]) {
        self.meet_as_until(own, others, self.stage.phase);
    }

    fn meet(&mut self, others: &[(u8, With)]) {
        self.meet_as(PLAIN, others);
    }

    /// Somebody says that the job runs, whose world may have one of several sizes.
    fn stand_aside(&mut self) {
        self.start(With { is_range: true, ..PLAIN });
        self.hear("Running", 9, |_| (), &[]);
    }

    /// Adds to the scene all that an attacker has learned of the nodes.
    fn finish(&mut self) {
        let strangers = [20, 21].map(id);
        let peers = self.peers.iter().map(|&number| id(number));
        self.scene.nodes = peers.chain(strangers).chain([id(self.stage.own)]).collect();
        let homes = self.peers.iter().chain([&self.stage.own]).map(|&number| endpoint(number));
        self.scene.endpoints.extend(homes);
        self.scene.rosters = vec![self.roster()];
        if self.stage.world > 1 {
            self.scene.rosters.push(Self::roster_of(&[20, 21, 22]));
        }
    }

    fn roster(&self) -> Roster {
        let mut numbers: Vec<u8> = self.peers.iter().copied().chain([self.stage.own]).collect();
        numbers.sort_unstable();
        Self::roster_of(&numbers)
    }

    pub fn roster_of(numbers: &[u8]) -> Roster {
        let world = World::new(1000).expect("a size of a world");
        let members = (0..).zip(numbers).map(|(rank, &number)| Member {
            rank: world.rank(rank).expect("a small world"),
            id: id(number),
            host: HostName::new(&format!("host-{number}")),
            address: if number == EVE { stranger(1) } else { endpoint(number) },
            slots: 1,
            metadata: Metadata::default(),
            session_port: 0,
        });
        Roster::new(members.collect()).expect("ranks from 0 on")
    }

    /// Whose name this is.
    pub fn name(&self, name: NodeId) -> Name {
        if self.peers.iter().any(|&number| id(number) == name) { Name::Node } else { Name::Stranger }
    }

    /// The phase that the situation is about.
    pub fn phase(&self) -> Phase {
        self.stage.phase
    }

    /// The number of the attacked node.
    pub fn own(&self) -> u8 {
        self.stage.own
    }

    /// A well-formed message of an attacker arrives, from an address of its own.
    pub fn hear(&mut self, message: &str, sender: u8, change: impl FnOnce(&mut Scene), fields: &[u8]) {
        let kind = kind(message);
        let mut scene = self.scene.clone();
        change(&mut scene);
        let frame = Frame { sender: id(sender), recipient: self.link.own_id() };
        let datagram = self.forger.datagram(kind, frame, &scene, fields).expect("a kind of message");
        assert_eq!(self.forger.read(&datagram), Ok((kind, frame)));
        self.link.attack(stranger(1), &datagram);
    }

    /// The attacker opens a connection in this name, of a session that begins anew. Nothing if the attacked
    /// node does not answer.
    pub fn intrude(&mut self, name: NodeId) -> Option<ConnId> {
        let number = self.later_number(name);
        self.link.intrude(name, number)
    }

    /// The number of a session that is later than all in this name.
    pub fn later_number(&mut self, name: NodeId) -> u64 {
        self.session += 1;
        self.link.number_of(name).unwrap_or(0).wrapping_add(self.session)
    }

    /// The attacker writes a frame of this kind on its connection, and has read all that the node has
    /// written there. Returns whether the connection stays open.
    pub fn write(&mut self, conn: ConnId, kind: u8, scene: &Scene, fields: &[u8]) -> bool {
        let mut intrusions = self.link.intrusions.iter_mut();
        let Some(own) = intrusions.find(|other| other.conn == conn) else { return false };
        own.said += 1;
        let frame = Forger::frame(kind, own.said, own.read, scene, fields).expect("a kind of frame");
        self.link.write(conn, frame)
    }

    /// The attacker says this on its connection.
    pub fn says(&mut self, conn: ConnId, what: &str, change: impl FnOnce(&mut Scene), fields: &[u8]) {
        let mut scene = self.scene.clone();
        change(&mut scene);
        assert!(self.write(conn, said(what), &scene, fields), "{what} is possible");
    }

    /// How many frames with these words the attacked node has written.
    pub fn said(&self, words: &str) -> usize {
        self.link.watch.said.iter().filter(|frame| describe(frame).contains(words)).count()
    }
}
