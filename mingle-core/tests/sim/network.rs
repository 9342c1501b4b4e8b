//! A network of nodes in virtual time: one seed drives everything.
//!
//! Events are ordered by (time, sequence). Datagrams are lost, doubled, late and reordered; TCP
//! connections are late, refused, filtered or closed. Every message passes through the codec, since
//! nodes exchange bytes alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use mingle_core::proto::{Config, ConnId, DialId, Node, Output, TOKEN, Time};
use mingle_core::{Event, Failure, Formed, HostName, JobId, NodeId, RankBy, World};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};

pub const PORT: u16 = 29500;

/// How bad the network is.
#[derive(Debug, Clone)]
pub struct Weather {
    /// Chance that a packet is lost, 0.0 to 1.0.
    pub loss: f64,
    /// Chance that a datagram arrives twice.
    pub duplicate: f64,
    /// One-way delay, from and to.
    pub delay: (Duration, Duration),
}

impl Weather {
    pub fn fine() -> Self {
        let delay = (Duration::from_micros(50), Duration::from_micros(200));
        Self { loss: 0.0, duplicate: 0.0, delay }
    }
}

#[derive(Debug, Clone)]
enum Happening {
    Start(usize),
    /// Nothing passes from the first to the second any more, or everything again.
    Cut(usize, usize, bool),
    /// A datagram of a stranger's.
    Forge(usize, u8, Vec<u8>),
    Replay(usize, Vec<u8>),
    /// The connections that a host has dialled are reset towards it, and not towards the others.
    Break(usize),
    /// The process is stopped (SIGSTOP), or goes on.
    Pause(usize),
    Resume(usize),
    Kill(usize),
    Wake(usize, Time),
    Datagram {
        to: usize,
        life: u32,
        from: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A SYN arrives, or its repeat.
    Syn {
        conn: u64,
    },
    Dialed {
        conn: u64,
    },
    Token {
        conn: u64,
    },
    /// The side that accepted learns of the end.
    Closed {
        conn: u64,
    },
    /// The side that dialled learns of the end.
    HungUp {
        conn: u64,
    },
}

struct Connection {
    dialer: usize,
    life: u32,
    dial: DialId,
    to: SocketAddr,
    acceptor: Option<(usize, u32)>,
    token: [u8; TOKEN],
    tries: u32,
    /// Either side has closed it.
    over: bool,
}

/// What a node's words have bound it to.
#[derive(Debug, Default)]
struct Promises {
    /// Ready, and to which leader in which round; until it hears void or commit of that round.
    bound: BTreeMap<usize, (NodeId, Vec<u8>)>,
    /// Who has said ready, by leader and round.
    ready: BTreeMap<(NodeId, Vec<u8>), BTreeSet<NodeId>>,
    /// Addresses at which a token of a host's life has reached a host: (dialer, its life, address, acceptor).
    proved: BTreeSet<(usize, u32, SocketAddr, usize)>,
}

pub struct Host {
    pub node: Option<Node>,
    pub config: Config,
    /// Restarts count up; what was meant for an earlier life is dropped.
    pub life: u32,
    pub accepting: bool,
    pub outcome: Option<Result<Formed, Failure>>,
    pub ended: Option<Time>,
    pub started: Option<Time>,
    /// Incoming TCP is filtered by a firewall.
    pub filtered: bool,
    pub warnings: Vec<String>,
    pub dials: u32,
    pub sent: u32,
    /// It hears no multicast.
    pub deaf: bool,
    /// Endpoints of this host that lead nowhere: a bridge of its own, a dead link.
    pub dead: BTreeSet<SocketAddr>,
    /// While the process is stopped: what the kernel holds for it.
    paused: Option<Vec<Happening>>,
}

pub struct Network {
    pub now: Time,
    pub hosts: Vec<Host>,
    pub weather: Weather,
    /// (from, to) pairs between which nothing passes.
    pub cut: BTreeSet<(usize, usize)>,
    pub trace: String,
    rng: Xoshiro256PlusPlus,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    sequence: u64,
    connections: BTreeMap<u64, Connection>,
    dialled: BTreeMap<(usize, u32, DialId), u64>,
    by_address: BTreeMap<SocketAddr, Vec<usize>>,
    next_connection: u64,
    promises: Promises,
    /// What was promised and not kept.
    pub broken: Vec<String>,
    /// Until when a firewall drops the SYNs of the first to the second.
    pub no_syn: BTreeMap<(usize, usize), Time>,
    /// When the last cut healed, or the last stopped process went on.
    pub healed: Time,
    /// The failures that nodes have ended with, one a line.
    pub told: String,
    /// Without it a large world costs less.
    pub tracing: bool,
    /// Everything that was sent, where it is recorded.
    pub record: Option<Vec<Vec<u8>>>,
}

impl Network {
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self {
            now: Time::ZERO,
            hosts: Vec::new(),
            weather,
            cut: BTreeSet::new(),
            trace: String::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            sequence: 0,
            connections: BTreeMap::new(),
            dialled: BTreeMap::new(),
            by_address: BTreeMap::new(),
            next_connection: 0,
            promises: Promises::default(),
            broken: Vec::new(),
            no_syn: BTreeMap::new(),
            healed: Time::ZERO,
            told: String::new(),
            tracing: true,
            record: None,
        }
    }

    /// Adds a host with the address 10.0.0.0 + `number`, which starts its node at `start`.
    pub fn add(&mut self, number: u32, world: u32, rank: Option<u32>, start: Time) -> usize {
        let world = World::new(world).unwrap();
        let ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + number);
        let config = Config {
            id: NodeId([0; 16]),
            tag: "sim".parse::<JobId>().unwrap().tag(),
            keys: None,
            world,
            rank: rank.map(|rank| world.rank(rank).unwrap()),
            host: HostName::new(&format!("host-{number}")),
            endpoints: vec![SocketAddr::from((ip, PORT))],
            slots: 1,
            rank_by: RankBy::Address,
            roster: false,
            may_be_master: true,
            timeout: Some(Duration::from_secs(60)),
        };
        self.hosts.push(Host {
            node: None,
            config,
            life: 0,
            accepting: false,
            outcome: None,
            ended: None,
            started: None,
            filtered: false,
            warnings: Vec::new(),
            dials: 0,
            sent: 0,
            deaf: false,
            dead: BTreeSet::new(),
            paused: None,
        });
        let host = self.hosts.len() - 1;
        self.by_address.entry(SocketAddr::from((ip, PORT))).or_default().push(host);
        self.at(start, Happening::Start(host));
        host
    }

    pub fn kill_at(&mut self, host: usize, at: Time) {
        self.at(at, Happening::Kill(host));
    }

    pub fn restart_at(&mut self, host: usize, at: Time) {
        self.at(at, Happening::Start(host));
    }

    /// Gives a host one more address, before or after those that it has. A `dead` one leads nowhere from
    /// other hosts.
    pub fn add_address(&mut self, host: usize, ip: Ipv4Addr, preferred: bool, dead: bool) {
        let endpoint = SocketAddr::from((ip, PORT));
        let endpoints = &mut self.hosts[host].config.endpoints;
        endpoints.insert(if preferred { 0 } else { endpoints.len() }, endpoint);
        self.by_address.entry(endpoint).or_default().push(host);
        if dead {
            self.hosts[host].dead.insert(endpoint);
        }
    }

    /// The process stops, and goes on after `length`.
    pub fn pause_at(&mut self, host: usize, at: Time, length: Duration) {
        self.at(at, Happening::Pause(host));
        self.at(at + length, Happening::Resume(host));
    }

    /// A stranger who knows the job's tag says a word to a host's node, with a body as it is on the wire.
    pub fn forge_at(&mut self, host: usize, kind: u8, body: Vec<u8>, at: Time) {
        self.at(at, Happening::Forge(host, kind, body));
    }

    /// An attacker who can send on the link repeats a recorded datagram to a host.
    pub fn replay_at(&mut self, host: usize, bytes: Vec<u8>, at: Time) {
        self.at(at, Happening::Replay(host, bytes));
    }

    /// A middlebox resets the connections that a host has dialled, towards that host alone.
    pub fn break_at(&mut self, host: usize, at: Time) {
        self.at(at, Happening::Break(host));
    }

    /// Nothing passes `from` one host `to` another for `length`.
    pub fn cut_at(&mut self, from: usize, to: usize, at: Time, length: Duration) {
        self.at(at, Happening::Cut(from, to, true));
        self.at(at + length, Happening::Cut(from, to, false));
    }

    fn at(&mut self, time: Time, happening: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse((time, self.sequence)));
        self.happenings.insert(self.sequence, happening);
    }

    fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.rng.random_bool(p)
    }

    fn delay(&mut self) -> Duration {
        let (from, to) = self.weather.delay;
        self.rng.random_range(from..=to)
    }

    /// Does what is next. Returns whether there was anything left.
    pub fn step(&mut self) -> bool {
        let Some(Reverse((time, sequence))) = self.queue.pop() else { return false };
        self.now = self.now.max(time);
        let Some(happening) = self.happenings.remove(&sequence) else { return true };
        self.happen(happening);
        true
    }

    /// Whom it concerns, where a process must run for it.
    fn concerned(&self, happening: &Happening) -> Option<usize> {
        match happening {
            Happening::Wake(host, _) | Happening::Datagram { to: host, .. } => Some(*host),
            Happening::Token { conn } | Happening::Closed { conn } => {
                self.connections[conn].acceptor.map(|(host, _)| host)
            }
            Happening::HungUp { conn } | Happening::Dialed { conn } => Some(self.connections[conn].dialer),
            _ => None,
        }
    }

    /// Between which hosts a segment of an open connection travels.
    fn way(&self, happening: &Happening) -> Option<(usize, usize)> {
        match happening {
            Happening::Token { conn } | Happening::Closed { conn } => {
                let connection = &self.connections[conn];
                connection.acceptor.map(|(acceptor, _)| (connection.dialer, acceptor))
            }
            Happening::HungUp { conn } => {
                let connection = &self.connections[conn];
                connection.acceptor.map(|(acceptor, _)| (acceptor, connection.dialer))
            }
            _ => None,
        }
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each thing that can happen")]
    fn happen(&mut self, happening: Happening) {
        if let Some(host) = self.concerned(&happening)
            && let Some(held) = &mut self.hosts[host].paused
        {
            held.push(happening);
            return;
        }
        if let Some((from, to)) = self.way(&happening)
            && self.cut.contains(&(from, to))
        {
            // TCP repeats it.
            self.at(self.now + Duration::from_millis(300), happening);
            return;
        }
        match happening {
            Happening::Cut(from, to, true) => _ = self.cut.insert((from, to)),
            Happening::Cut(from, to, false) => {
                self.cut.remove(&(from, to));
                self.healed = self.now;
            }
            Happening::Forge(host, kind, body) => {
                let config = &self.hosts[host].config;
                let mut bytes = b"MNGL".to_vec();
                bytes.extend([1, kind]);
                bytes.extend(u16::try_from(body.len()).unwrap().to_le_bytes());
                bytes.extend(config.tag.0);
                bytes.extend([0xee; 16]);
                bytes.extend(config.id.0);
                bytes.extend(body);
                let from = SocketAddr::from(([10, 9, 9, 9], PORT));
                self.note(host, &format!("forged kind {kind}"));
                self.with(host, |node, now| node.handle_datagram(now, from, &bytes));
            }
            Happening::Replay(host, bytes) => {
                let from = SocketAddr::from(([10, 9, 9, 9], PORT));
                self.note(host, "replayed");
                self.with(host, |node, now| node.handle_datagram(now, from, &bytes));
            }
            Happening::Break(host) => {
                let life = self.hosts[host].life;
                let open = self.connections.iter().filter(|(_, c)| !c.over && c.acceptor.is_some());
                let dialled: Vec<(u64, DialId)> = open
                    .filter(|(_, c)| (c.dialer, c.life) == (host, life))
                    .map(|(&k, c)| (k, c.dial))
                    .collect();
                for (conn, dial) in dialled {
                    self.connections.get_mut(&conn).unwrap().over = true;
                    self.note(host, &format!("reset {dial:?}"));
                    // The other side's kernel learns of it by its next keepalive probe.
                    self.at(self.now + Duration::from_secs(5), Happening::Closed { conn });
                    self.with(host, |node, now| node.handle_hung_up(now, dial));
                }
            }
            Happening::Pause(host) => {
                if self.hosts[host].node.is_some() && self.hosts[host].paused.is_none() {
                    self.note(host, "paused");
                    self.hosts[host].paused = Some(Vec::new());
                }
            }
            Happening::Resume(host) => {
                let Some(held) = self.hosts[host].paused.take() else { return };
                self.note(host, "goes on");
                self.healed = self.now;
                // Datagrams, then connections, then timers, as the driver does.
                let kind = |happening: &Happening| match happening {
                    Happening::Datagram { .. } => 0,
                    Happening::Wake(..) => 2,
                    _ => 1,
                };
                for wanted in 0..3 {
                    for happening in held.iter().filter(|h| kind(h) == wanted) {
                        self.happen(happening.clone());
                    }
                }
                self.with(host, Node::handle_timeout);
            }
            Happening::Start(host) => self.start(host),
            Happening::Kill(host) => self.kill(host),
            Happening::Wake(host, at) => {
                let due = self.hosts[host].node.as_ref().and_then(Node::poll_timeout);
                if due == Some(at) {
                    self.note(host, "timeout");
                    self.with(host, Node::handle_timeout);
                }
            }
            Happening::Datagram { to, life, from, bytes } => {
                if self.hosts[to].life == life {
                    self.heard(to, &bytes);
                    self.note(to, &format!("kind {} from {from}", bytes.get(5).unwrap_or(&0)));
                    self.with(to, |node, now| node.handle_datagram(now, from, &bytes));
                }
            }
            Happening::Syn { conn } => self.syn(conn),
            Happening::Dialed { conn } => self.dialed(conn),
            Happening::Token { conn } => self.token(conn),
            Happening::Closed { conn } => {
                let connection = &self.connections[&conn];
                if let Some((host, life)) = connection.acceptor
                    && self.hosts[host].life == life
                {
                    self.note(host, &format!("closed {conn}"));
                    self.with(host, |node, now| node.handle_closed(now, ConnId(conn)));
                }
            }
            Happening::HungUp { conn } => {
                let (host, life, dial) = self.dialer(conn);
                if self.hosts[host].life == life {
                    self.note(host, &format!("hung up {dial:?}"));
                    self.with(host, |node, now| node.handle_hung_up(now, dial));
                }
            }
        }
    }

    /// Goes on until `done`, or until `limit`; returns whether it was done.
    pub fn run_until(&mut self, limit: Time, mut done: impl FnMut(&Self) -> bool) -> bool {
        while !done(self) {
            if self.queue.peek().is_none_or(|Reverse((time, _))| *time > limit) || !self.step() {
                return false;
            }
        }
        true
    }

    /// Until every node that runs has ended.
    pub fn run(&mut self, limit: Time) -> bool {
        self.run_until(limit, |net| net.hosts.iter().all(|host| host.outcome.is_some()))
    }

    fn start(&mut self, host: usize) {
        // A restart follows a crash; where there was none, there is nothing to restart.
        let slot = &self.hosts[host];
        if slot.node.is_some() || !matches!(slot.outcome, None | Some(Err(Failure::Left))) {
            return;
        }
        let mut id = [0; 16];
        self.rng.fill_bytes(&mut id);
        let seed = self.rng.random();
        let slot = &mut self.hosts[host];
        slot.life += 1;
        slot.paused = None;
        slot.config.id = NodeId(id);
        slot.accepting = true;
        slot.outcome = None;
        slot.started = Some(self.now);
        slot.node = Some(Node::new(slot.config.clone(), seed, self.now));
        self.note(host, "start");
        self.with(host, |_, _| ());
    }

    fn kill(&mut self, host: usize) {
        if self.hosts[host].node.take().is_some() {
            self.note(host, "killed");
            self.hosts[host].outcome = Some(Err(Failure::Left));
            self.hosts[host].paused = None;
            self.promises.bound.remove(&host);
            self.gone(host);
        }
    }

    /// The kernel closes everything that the process held.
    fn gone(&mut self, host: usize) {
        let life = self.hosts[host].life;
        self.hosts[host].accepting = false;
        let held: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, c)| {
                !c.over && ((c.dialer, c.life) == (host, life) || c.acceptor == Some((host, life)))
            })
            .map(|(&conn, _)| conn)
            .collect();
        for conn in held {
            let by_dialer = self.connections[&conn].dialer == host;
            self.close(conn, by_dialer);
        }
        self.hosts[host].life += 1;
    }

    /// Hands something to a node and carries out what it answers.
    fn with(&mut self, host: usize, act: impl FnOnce(&mut Node, Time)) {
        let Some(mut node) = self.hosts[host].node.take() else { return };
        act(&mut node, self.now);
        let mut outcome = None;
        while let Some(output) = node.poll_output() {
            match output {
                Output::Event(Event::Formed(formed)) => outcome = Some(Ok(formed)),
                Output::Event(Event::Failed(failure)) => outcome = Some(Err(failure)),
                Output::Event(Event::Warning(text)) => self.hosts[host].warnings.push(text),
                Output::Event(event) => {
                    if self.tracing {
                        self.note(host, &format!("{event:?}"));
                    }
                }
                other => self.carry_out(host, other),
            }
        }
        if let Some(outcome) = outcome {
            self.note(host, &format!("ends: {outcome:?}"));
            self.promises.bound.remove(&host);
            match &outcome {
                Ok(formed) => self.formed(host, formed),
                Err(failure) => _ = writeln!(self.told, "{failure}"),
            }
            assert!(node.has_ended(), "a node that tells its end has ended");
            self.hosts[host].outcome = Some(outcome);
            self.hosts[host].ended = Some(self.now);
            self.gone(host);
            return;
        }
        if let Some(at) = node.poll_timeout() {
            // Not in the past: what was due has been done.
            let at = at.max(self.now);
            self.at(at, Happening::Wake(host, at));
        }
        self.hosts[host].node = Some(node);
    }

    fn carry_out(&mut self, host: usize, output: Output) {
        match output {
            Output::Send { to, datagram } => {
                self.hosts[host].sent += 1;
                self.record(&datagram);
                self.said(host, &datagram);
                if let (Some(target), Some(from)) = (self.find(host, to), self.source(host)) {
                    self.deliver(host, target, from, &datagram);
                }
            }
            Output::Multicast { datagram } => {
                self.hosts[host].sent += 1;
                let live: Vec<SocketAddr> = self.live(host).collect();
                for target in 0..self.hosts.len() {
                    if !self.hosts[target].deaf {
                        for &from in &live {
                            self.deliver(host, target, from, &datagram);
                        }
                    }
                }
            }
            Output::Dial { dial, to, token } => {
                self.hosts[host].dials += 1;
                self.next_connection += 1;
                let conn = self.next_connection;
                let life = self.hosts[host].life;
                let connection =
                    Connection { dialer: host, life, dial, to, acceptor: None, token, tries: 0, over: false };
                self.connections.insert(conn, connection);
                self.dialled.insert((host, life, dial), conn);
                self.send_syn(conn);
            }
            Output::HangUp(dial) => {
                let life = self.hosts[host].life;
                if let Some(&conn) = self.dialled.get(&(host, life, dial)) {
                    self.close(conn, true);
                }
            }
            Output::Close(conn) => self.close(conn.0, false),
            Output::StopAccepting => self.hosts[host].accepting = false,
            _ => {}
        }
    }

    /// Which host has this address, seen `from` another: a host's own addresses are itself.
    fn find(&self, from: usize, address: SocketAddr) -> Option<usize> {
        let holders = self.by_address.get(&address)?;
        if holders.contains(&from) {
            return Some(from);
        }
        holders.iter().copied().find(|&host| !self.hosts[host].dead.contains(&address))
    }

    /// The addresses of a host that others reach.
    fn live(&self, host: usize) -> impl Iterator<Item = SocketAddr> {
        let host = &self.hosts[host];
        host.config.endpoints.iter().filter(|endpoint| !host.dead.contains(endpoint)).copied()
    }

    /// The address from which a host's datagrams leave.
    fn source(&self, host: usize) -> Option<SocketAddr> {
        self.live(host).next()
    }

    /// A word that binds its sender, or must not be said by one that is bound.
    fn record(&mut self, datagram: &[u8]) {
        if let Some(record) = &mut self.record {
            record.push(datagram.to_vec());
        }
    }

    fn said(&mut self, host: usize, bytes: &[u8]) {
        let id = |range: std::ops::Range<usize>| NodeId(bytes[range].try_into().unwrap());
        let (me, to) = (id(24..40), id(40..56));
        match bytes[5] {
            13 => {
                // Ready: the round, then one byte of the endpoint.
                let round = bytes[56..bytes.len() - 1].to_vec();
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
                let round = bytes[56..bytes.len() - 1].to_vec();
                let ready = self.promises.ready.get(&(me, round)).map_or(0, BTreeSet::len);
                let world = usize::try_from(self.hosts[host].config.world.get()).unwrap();
                if ready + 1 != world {
                    self.broken.push(format!("{host} commits with {ready} ready members of {world}"));
                }
            }
            _ => {}
        }
    }

    fn heard(&mut self, host: usize, bytes: &[u8]) {
        let sender = NodeId(bytes[24..40].try_into().unwrap());
        let round = match bytes[5] {
            15 => &bytes[56..],
            16 => &bytes[56..bytes.len() - 1],
            _ => return,
        };
        if self.promises.bound.get(&host).is_some_and(|(leader, bound)| *leader == sender && bound == round) {
            self.promises.bound.remove(&host);
        }
    }

    /// What a node may count on once its world has formed: its own token has reached the master there.
    fn formed(&mut self, host: usize, formed: &Formed) {
        if formed.rank.get() == 0 {
            return;
        }
        let life = self.hosts[host].life;
        let acceptors: Vec<usize> = (0..self.hosts.len())
            .filter(|&acceptor| self.promises.proved.contains(&(host, life, formed.master, acceptor)))
            .collect();
        if acceptors.is_empty() {
            self.broken.push(format!("{host} has not proved {}", formed.master));
        }
    }

    fn deliver(&mut self, from: usize, to: usize, sender: SocketAddr, bytes: &[u8]) {
        if self.hosts[to].node.is_none() || from == to {
            return;
        }
        let life = self.hosts[to].life;
        let copies = 1 + u32::from(self.chance(self.weather.duplicate));
        for _ in 0..copies {
            if !self.cut.contains(&(from, to)) && !self.chance(self.weather.loss) {
                let at = self.now + self.delay();
                self.at(at, Happening::Datagram { to, life, from: sender, bytes: bytes.to_vec() });
            }
        }
    }

    fn dialer(&self, conn: u64) -> (usize, u32, DialId) {
        let connection = &self.connections[&conn];
        (connection.dialer, connection.life, connection.dial)
    }

    /// SYN and SYN-ACK pass, or the kernel tries again after 1, 3, 7 s.
    fn send_syn(&mut self, conn: u64) {
        let (from, _, _) = self.dialer(conn);
        let connection = self.connections.get_mut(&conn).unwrap();
        connection.tries += 1;
        let tries = connection.tries;
        let to = connection.to;
        let target = self.find(from, to);
        let filtered = target.is_none_or(|t| {
            self.hosts[t].filtered
                || self.no_syn.get(&(from, t)).is_some_and(|&until| self.now < until)
                || self.cut.contains(&(from, t))
                || self.cut.contains(&(t, from))
        });
        let lost = self.chance(self.weather.loss) || self.chance(self.weather.loss);
        if filtered || lost {
            if tries < 5 {
                let again = self.now + Duration::from_secs(1 << (tries - 1));
                self.at(again, Happening::Syn { conn });
            }
            return;
        }
        let at = self.now + self.delay() + self.delay();
        self.at(at, Happening::Dialed { conn });
    }

    fn syn(&mut self, conn: u64) {
        if !self.connections[&conn].over {
            self.send_syn(conn);
        }
    }

    fn dialed(&mut self, conn: u64) {
        let (host, life, dial) = self.dialer(conn);
        if self.connections[&conn].over || self.hosts[host].life != life {
            return;
        }
        let target = self.find(host, self.connections[&conn].to);
        let accepting = target.filter(|&t| self.hosts[t].accepting);
        let Some(acceptor) = accepting else {
            // Refused.
            self.connections.get_mut(&conn).unwrap().over = true;
            self.note(host, &format!("refused {dial:?}"));
            self.with(host, |node, now| node.handle_hung_up(now, dial));
            return;
        };
        let acceptor_life = self.hosts[acceptor].life;
        self.connections.get_mut(&conn).unwrap().acceptor = Some((acceptor, acceptor_life));
        let local: IpAddr = self.source(host).unwrap_or(self.hosts[host].config.endpoints[0]).ip();
        self.with(host, |node, now| node.handle_dialed(now, dial, local));
        let mut at = self.now + self.delay();
        let mut wait = Duration::from_millis(200);
        while self.chance(self.weather.loss) && wait < Duration::from_secs(10) {
            at += wait;
            wait *= 2;
        }
        self.at(at, Happening::Token { conn });
    }

    fn token(&mut self, conn: u64) {
        let connection = &self.connections[&conn];
        let Some((host, life)) = connection.acceptor else { return };
        if connection.over || self.hosts[host].life != life {
            return;
        }
        let (token, local) = (connection.token, connection.to.ip());
        let proof = (connection.dialer, connection.life, connection.to, host);
        let target: [u8; 16] = token[40..56].try_into().unwrap();
        if target == self.hosts[host].config.id.0 {
            self.promises.proved.insert(proof);
        }
        self.note(host, &format!("token on {conn}"));
        self.with(host, |node, now| node.handle_token(now, ConnId(conn), local, &token));
    }

    /// One side closes; the other learns of it when the segment arrives.
    fn close(&mut self, conn: u64, by_dialer: bool) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if std::mem::replace(&mut connection.over, true) {
            return;
        }
        let mut at = self.now + self.delay();
        let mut wait = Duration::from_millis(200);
        while self.chance(self.weather.loss) && wait < Duration::from_secs(10) {
            at += wait;
            wait *= 2;
        }
        self.at(at, if by_dialer { Happening::Closed { conn } } else { Happening::HungUp { conn } });
    }

    fn note(&mut self, host: usize, what: &str) {
        if !self.tracing {
            return;
        }
        let _ = writeln!(self.trace, "{:>12.6} {host}: {what}", self.now.as_secs_f64());
    }
}
