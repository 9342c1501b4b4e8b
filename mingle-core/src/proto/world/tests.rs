//! Worlds that stay, on simulated hosts, kernels and networks, in every kind of trouble. An independent
//! checker reads what the commands did: when each began and ended, in which world and with which rank.

use std::net::{IpAddr, SocketAddr};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::model::{
    Endpoints, Fault, HostName, Link, Member, Metadata, Rank, Roster, World as Size, WorldSize,
};
use crate::proto::session::Ends;
use crate::proto::{Config, PathDial, PathNews};
use crate::wire::world::Terms;
use crate::wire::{Answer, Broken, BrokenTo, NodeInfo, Reach};

const ONE_WAY: Duration = Duration::from_micros(200);
/// Linux's first interval between two SYNs, and between two copies of a segment. Both double.
const SYN_AGAIN: Duration = Duration::from_secs(1);
const SEGMENT_AGAIN: Duration = Duration::from_millis(200);
/// When a kernel gives up a connection whose other end is silent: TCP_USER_TIMEOUT, keepalive.
const GIVEN_UP: Duration = Duration::from_secs(10);
/// The pause between two of a kernel's probes of a silent connection, and how many have no answer at most.
const PROBE: Duration = Duration::from_secs(2);
const PROBES: u32 = 5;
/// When a dial is given up.
const OPENING: Duration = Duration::from_secs(10);
const GONE_AFTER: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The other process has dialled from this address.
fn accepted_from(remote: IpAddr) -> Way {
    Way::Accepted(Ends { local: [10, 0, 0, 1].into(), remote })
}

/// What happens at a host, or on its way there.
#[derive(Debug, Clone)]
enum Event {
    Syn(u64),
    DialFails(u64, Failed),
    /// A dial has reached a host of another network, which refuses it.
    Elsewhere(usize, u32, NodeId, DialId),
    /// The hello of a connection has reached the process that was dialled, and its answer the dialer.
    Hello(u64),
    RoundAnswer(u64),
    /// To this end of a connection.
    Frame(u64, usize, Frame),
    Closed(u64, usize, Ending),
    /// The kernel at this end has heard nothing of the other for so long.
    GivenUp(u64, usize),
    /// The kernel at this end, which knows nothing of the end of the connection, probes it again.
    Probe(u64, usize, u32),
    Timer(usize, u32),
    /// A connection that proves a path has brought what it brings, to this address.
    Path(usize, u32, DialId, SocketAddr),
    /// A command that has to stop has ended, or a node whose command has failed is ready again.
    Stopped(usize, u32, Epoch),
    Trouble(Trouble),
    /// What the others know of the job has reached a process that has asked.
    Answers(usize, u32),
    /// A process does what follows from all that it has read.
    CarryOut(usize),
}

#[derive(Debug, Clone, Copy)]
enum Trouble {
    Kill(usize),
    PowerOff(usize),
    /// A new process, beside nothing or on a host that was off.
    Start(usize),
    Stop(usize, Duration),
    Continue(usize, u32),
    Cut(usize, usize),
    Mend(usize, usize),
    /// Connections of this host are reset, though all hosts live.
    Reset(usize),
    Fail(usize),
    Succeed(usize),
    Leave(usize),
}

#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
struct Host {
    id: NodeId,
    life: u32,
    world: Option<World>,
    is_on: bool,
    is_stopped: bool,
    /// What has arrived while the process was stopped.
    unread: Vec<Event>,
    timer: Option<Time>,
    /// The round whose paths it proves or has proved, as long as its world may form.
    round: Option<RoundId>,
    command: Option<Running>,
    /// When it was last cut off, stopped or reset, until when.
    troubled: Option<(Time, Time)>,
    finished: bool,
    /// It reads, and will do what follows.
    is_busy: bool,
    /// It looks for others once its command has stopped.
    is_lost: bool,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    epoch: Epoch,
    round: RoundId,
    rank: u32,
    told: Option<Time>,
}

#[derive(Debug, Clone)]
struct Connection {
    dial: DialId,
    /// The dialer, and the host that was dialled; with the life of each.
    hosts: [usize; 2],
    lives: [u32; 2],
    /// The numbers of both ends' sessions.
    number: u64,
    answered: u64,
    meant: NodeId,
    /// Which ends have it open.
    open: [bool; 2],
    /// When what was sent last to each end arrives.
    arrives: [Time; 2],
    tries: u32,
    /// It has ended before the dialer has read the answer to its hello.
    ended: Option<Ending>,
    /// The dialer has read the answer to its hello.
    is_answered: bool,
    is_over: bool,
}

struct Net {
    now: Time,
    random: Xoshiro256PlusPlus,
    loss: f64,
    size: WorldSize,
    hosts: Vec<Host>,
    connections: BTreeMap<u64, Connection>,
    events: BTreeMap<(Time, u64), Event>,
    so_far: u64,
    cut: BTreeMap<(usize, usize), Time>,
    next_id: u32,
    broken: Vec<String>,
    traces: bool,
    seen: BTreeMap<&'static str, u64>,
    worlds: BTreeMap<RoundId, BTreeMap<u32, usize>>,
    slow_stops: bool,
    /// How long a process goes on reading before it does what follows.
    reading: Duration,
    /// Paths that no proof passes, though sessions do.
    broken_paths: Vec<(usize, usize)>,
    /// How long a command takes to stop at most.
    stop_time: Duration,
    /// Some processes that die reset their connections.
    resets: bool,
}

fn address(host: usize, life: u32) -> SocketAddr {
    SocketAddr::from((
        [10, 0, u8::try_from(host / 250).unwrap(), u8::try_from(host % 250).unwrap()],
        30000 + u16::try_from(life).unwrap(),
    ))
}

/// What a process at these addresses brings to a world of this size.
fn shared(own: &Contact, world: WorldSize, seed: u64, now: Time) -> Shared {
    let at = own.addresses.iter().map(|address| SocketAddr::new(address.ip(), 29500));
    let mut node = NodeInfo::new(HostName::new("host"), Endpoints::new(at.collect()).unwrap());
    node.attributes.session_port = own.addresses.iter().map(SocketAddr::port).max().unwrap();
    node.reach = reach(own);
    let config = Config {
        gone_after: GONE_AFTER,
        stop_timeout: STOP_TIMEOUT,
        grow_after: world.is_range().then_some(Duration::from_secs(5)),
        last_call: Duration::from_secs(2),
        ..Config::new(own.id, crate::proto::tests::tag(), world, node)
    };
    Shared::new(config, seed, now)
}

/// Where others find a process at these addresses: only its own network leads from one host to another.
fn reach(own: &Contact) -> Reach {
    let link = |address: &SocketAddr| Link { address: address.ip(), prefix: 8, mtu: 1500 };
    let is_elsewhere = |address: &&SocketAddr| address.to_string().starts_with("172.17.0.1:");
    Reach::new(40_000, own.addresses.iter().filter(|address| !is_elsewhere(address)).map(link))
}

/// What a process at these addresses tells of itself.
fn arrival(contact: &Contact) -> Join {
    shared(contact, Size::new(1).unwrap().into(), 1, Time::ZERO).join()
}

/// The plan of these seats.
fn plan(round: RoundId, epoch: Epoch, seats: &[Contact]) -> Plan {
    let member = |(rank, seat): (u32, &Contact)| Member {
        rank: Rank(rank),
        id: seat.id,
        host: HostName::new("host"),
        address: (seat.addresses[0].ip(), 29500).into(),
        slots: 1,
        metadata: Metadata::default(),
        session_port: seat.addresses[0].port(),
    };
    let roster = Roster::new((0..).zip(seats).map(member).collect()).unwrap();
    let reached = seats.iter().map(reach).collect();
    Plan { round, epoch, terms: Terms { roster, reached, ..Terms::default() } }
}

impl Net {
    fn new(seed: u64, size: WorldSize, members: usize, spares: usize, loss: f64) -> Self {
        let mut net = Self {
            now: Time::from_secs(1),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            loss,
            size,
            hosts: Vec::new(),
            connections: BTreeMap::new(),
            events: BTreeMap::new(),
            so_far: 0,
            cut: BTreeMap::new(),
            next_id: 0,
            broken: Vec::new(),
            traces: false,
            seen: BTreeMap::new(),
            worlds: BTreeMap::new(),
            slow_stops: false,
            reading: Duration::ZERO,
            broken_paths: Vec::new(),
            stop_time: Duration::from_millis(300),
            resets: true,
        };
        for _ in 0..members + spares {
            let id = net.new_id();
            net.hosts.push(Host {
                id,
                life: 0,
                world: None,
                is_on: true,
                is_stopped: false,
                unread: Vec::new(),
                timer: None,
                round: None,
                command: None,
                troubled: None,
                finished: false,
                is_busy: false,
                is_lost: false,
            });
        }
        let leader = net.random.random_range(0..members);
        // The rendezvous of the first world has reached each at its own address.
        let reached = |host| Contact { addresses: vec![address(host, 0)], ..net.contact(host) };
        let seats: Vec<Contact> = (0..members).map(reached).collect();
        let round = RoundId { leader: net.hosts[leader].id, number: 1 };
        let epoch = Epoch { generation: 0, origin: 7 };
        let plan = Arc::new(plan(round, epoch, &seats));
        for host in 0..members {
            let (seed, own) = (net.random.random(), net.contact(host));
            let world = World::member(shared(&own, size, seed, net.now), Arc::clone(&plan));
            net.hosts[host].world = Some(world);
            net.begin(host, &plan);
        }
        for host in members..members + spares {
            net.guest(host, leader);
        }
        for host in 0..members + spares {
            net.carry_out(host);
        }
        net
    }

    /// IDs are random in truth; here they are in no order.
    fn new_id(&mut self) -> NodeId {
        self.next_id += 1;
        let mut id = [0; 16];
        id[0] = self.random.random();
        id[12..].copy_from_slice(&self.next_id.to_be_bytes());
        NodeId(id)
    }

    fn contact(&self, host: usize) -> Contact {
        let own = address(host, self.hosts[host].life);
        // Some hosts have another address, at which others find a host of their own network.
        let elsewhere = SocketAddr::from(([172, 17, 0, 1], 30000));
        let addresses = match host % 3 {
            0 => vec![own],
            1 => vec![own, elsewhere],
            _ => vec![elsewhere, own],
        };
        Contact { id: self.hosts[host].id, addresses }
    }

    fn guest(&mut self, host: usize, leader: usize) {
        let seed = self.random.random();
        let (own, leader) = (self.contact(host), self.contact(leader));
        let world = World::guest(shared(&own, self.size, seed, self.now), leader);
        self.hosts[host].world = Some(world);
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.traces {
            println!("{:?} {}", self.now, text());
        }
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn at(&mut self, at: Time, event: Event) {
        self.so_far += 1;
        self.events.insert((at.max(self.now), self.so_far), event);
    }

    fn chance(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.random.random_bool(chance)
    }

    fn one_way(&mut self) -> Duration {
        ONE_WAY + Duration::from_micros(self.random.random_range(0..300))
    }

    fn passes(&self, from: usize, to: usize) -> bool {
        self.hosts[from].is_on
            && self.hosts[to].is_on
            && !self.cut.contains_key(&(from.min(to), from.max(to)))
    }

    fn run_until(&mut self, end: Time) {
        while let Some((&(at, number), _)) = self.events.first_key_value() {
            if at > end {
                break;
            }
            let Some(event) = self.events.remove(&(at, number)) else { break };
            self.now = at;
            assert!(self.so_far < 3_000_000, "too much happens: {}", self.state());
            self.happen(event);
        }
        self.now = end;
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of event")]
    fn happen(&mut self, event: Event) {
        match event {
            Event::Syn(conn) => self.syn(conn),
            Event::DialFails(conn, failed) => self.dial_fails(conn, failed),
            Event::Elsewhere(host, life, meant, dial) => {
                if self.hosts[host].life == life && !self.hosts[host].is_stopped {
                    self.with(host, |world, now| world.dial_failed(now, meant, dial, Failed::Refused));
                }
            }
            Event::Hello(conn) => self.hello(conn),
            Event::RoundAnswer(conn) => self.answer(conn),
            Event::Frame(conn, end, frame) => self.frame(conn, end, frame),
            Event::Closed(conn, end, ending) => self.closed(conn, end, ending),
            Event::GivenUp(conn, end) => {
                let [a, b] = self.connections[&conn].hosts;
                let cut = self.cut.get(&(a.min(b), a.max(b)));
                if cut.is_some_and(|since| *since + GIVEN_UP <= self.now) {
                    self.closed(conn, end, Ending::Broken);
                }
            }
            Event::Probe(conn, end, number) => {
                let [a, b] = self.connections[&conn].hosts;
                let is_lost = self.chance(self.loss) || self.chance(self.loss);
                if (self.passes(a, b) && !is_lost) || number == PROBES {
                    // The other kernel resets a connection that it does not know.
                    self.closed(conn, end, Ending::Broken);
                } else {
                    self.at(self.now + PROBE, Event::Probe(conn, end, number + 1));
                }
            }
            Event::Timer(host, life) => {
                let now = self.now;
                let slot = &mut self.hosts[host];
                if slot.life == life && slot.timer == Some(now) {
                    slot.timer = None;
                    if slot.is_stopped {
                        slot.timer = Some(Time::MAX);
                        return;
                    }
                    self.with(host, World::advance);
                }
            }
            Event::Path(host, life, dial, to) => {
                if self.hosts[host].life != life {
                    return;
                }
                if self.hosts[host].is_stopped {
                    self.hosts[host].unread.push(Event::Path(host, life, dial, to));
                } else if self.proves_path(host, to) {
                    self.with(host, |world, now| world.handle_path(now, dial, &PathNews::Arrived));
                }
            }
            Event::Stopped(host, life, epoch) => {
                if self.hosts[host].life != life {
                    return;
                }
                self.hosts[host].command.take_if(|command| command.epoch == epoch);
                if self.hosts[host].command.is_some() {
                    return;
                }
                if self.hosts[host].is_stopped {
                    self.hosts[host].unread.push(Event::Stopped(host, life, epoch));
                    return;
                }
                if self.hosts[host].is_lost {
                    return self.look_for_others(host);
                }
                self.with(host, |world, now| {
                    world.stopped(now);
                });
            }
            Event::Answers(host, life) => {
                if self.hosts[host].life != life {
                    return;
                }
                if self.hosts[host].is_stopped {
                    self.hosts[host].unread.push(Event::Answers(host, life));
                } else if (0..self.hosts.len()).any(|other| self.gives_way(host, other)) {
                    self.hosts[host].is_lost = true;
                    self.look_for_others(host);
                }
            }
            Event::Trouble(trouble) => self.trouble(trouble),
            Event::CarryOut(host) => {
                self.hosts[host].is_busy = false;
                self.carry_out(host);
            }
        }
    }

    fn with(&mut self, host: usize, what: impl FnOnce(&mut World, Time)) {
        let now = self.now;
        if let Some(world) = &mut self.hosts[host].world {
            what(world, now);
        }
        self.has_read(host);
    }

    /// A process that has much to read does what follows at the end.
    fn has_read(&mut self, host: usize) {
        if self.reading.is_zero() {
            self.carry_out(host);
        } else if !std::mem::replace(&mut self.hosts[host].is_busy, true) {
            self.at(self.now + self.reading, Event::CarryOut(host));
        }
    }

    fn carry_out(&mut self, host: usize) {
        while let Some(action) = self.hosts[host].world.as_mut().and_then(World::poll_action) {
            match action {
                Action::Output(Output::DialPath(PathDial { dial, to, .. })) => {
                    let after = self.now + Duration::from_millis(self.random.random_range(1..20));
                    self.at(after, Event::Path(host, self.hosts[host].life, dial, to));
                }
                // A question who leads. Datagrams are not lost here.
                Action::Output(Output::Multicast { .. }) => {
                    let (at, life) = (self.now + self.one_way() + self.one_way(), self.hosts[host].life);
                    self.at(at, Event::Answers(host, life));
                }
                Action::Output(Output::Event(crate::proto::Event::Warning(Warning::TryAgain { .. }))) => {
                    self.saw("told of a broken path");
                }
                Action::Output(_) => {}
                Action::Carry(Order::Dial { to, peer, dial, number }) => {
                    self.dial(host, to, peer, dial, number);
                }
                Action::Carry(Order::Write(conn, frame)) => self.write(host, conn.0, frame),
                Action::Carry(Order::Close(conn)) => self.close(host, conn.0),
                Action::Report(change) => self.report(host, change),
            }
        }
        self.hear_release(host, |world| world.farewell.is_some());
        let Host { world, round, id, .. } = &mut self.hosts[host];
        let proves = world.as_ref().and_then(|world| world.round.as_ref()).map(|round| round.plan.round);
        let is_void = std::mem::replace(round, proves).is_some_and(|former| Some(former) != proves);
        // Of the round of a former leader it knows that it is over.
        let is_own = proves.is_some_and(|round| round.leader == *id);
        if world.as_ref().is_some_and(|world| world.leads() && is_own && !world.is_in_round()) {
            self.broken.push(format!("host {host} may end at its timeout while others start their commands"));
        }
        let answer = world.as_ref().and_then(|world| world.round.as_ref()?.answer.as_ref());
        if matches!(answer, Some(Answer::Broken(broken)) if broken.paths.is_empty()) {
            self.broken.push(format!("host {host} cannot prove what was planned: {world:?}"));
        }
        if is_void {
            self.saw("void round");
        }
        let due = self.hosts[host].world.as_ref().and_then(World::poll_timeout);
        if let Some(due) = due
            && self.hosts[host].timer.is_none_or(|timer| due.max(self.now) != timer)
            && !self.hosts[host].is_stopped
        {
            let (due, life) = (due.max(self.now), self.hosts[host].life);
            self.hosts[host].timer = Some(due);
            self.at(due, Event::Timer(host, life));
        }
    }

    /// A process that ends, and has not left, was released.
    fn hear_release(&mut self, host: usize, ends: fn(&World) -> bool) {
        let is_released = |world: &World| ends(world) && !world.has_left();
        if self.hosts[host].world.as_ref().is_some_and(is_released) && !self.hosts[host].finished {
            self.saw("released");
            self.hosts[host].finished = true;
        }
    }

    fn report(&mut self, host: usize, change: WorldChange) {
        self.note(|| format!("host {host} reports {change:?}"));
        let life = self.hosts[host].life;
        match change {
            WorldChange::Formed(_) => {
                self.saw("formed again");
                self.hosts[host].round = None;
                let plan = self.hosts[host].world.as_ref().and_then(|world| world.plan.clone());
                self.begin(host, &plan.expect("it has formed"));
            }
            WorldChange::Over(cause) => {
                self.check_cause(host, cause);
                let is_slow = self.slow_stops && self.chance(0.1);
                let most = if is_slow { Duration::from_secs(15) } else { self.stop_time };
                let after = most.mul_f64(self.random.random());
                let epoch = self.hosts[host].world.as_ref().map(|world| world.epoch).unwrap_or_default();
                if let Some(command) = &mut self.hosts[host].command {
                    command.told.get_or_insert(self.now);
                }
                self.at(self.now + after, Event::Stopped(host, life, epoch));
            }
            WorldChange::FirstCause(cause) => {
                self.saw("first cause");
                self.check_cause(host, cause);
            }
            WorldChange::Change(Change::Suspected(..)) => self.saw("suspected"),
            WorldChange::Change(Change::Back(..)) => self.saw("back"),
            WorldChange::Change(_) => self.saw("cut off"),
            WorldChange::Lost => {
                self.saw("lost");
                // The search goes on until it finds a leader.
                self.end_process(host, false);
                self.hosts[host].finished = self.hosts.iter().any(|host| host.finished);
                if !self.hosts[host].finished {
                    self.restart(host);
                }
            }
            WorldChange::MayEnd => {
                self.hear_release(host, |_| true);
                self.end_process(host, false);
            }
        }
    }

    /// A process that has heard of others looks for them, once its command has stopped.
    fn look_for_others(&mut self, host: usize) {
        let slot = &self.hosts[host];
        if slot.is_lost && slot.world.is_some() && slot.command.is_none() {
            self.report(host, WorldChange::Lost);
        }
    }

    /// Whether such a leader goes over to the part of the job that this other host knows.
    fn gives_way(&self, host: usize, other: usize) -> bool {
        let (Some(world), Some(heard)) = (&self.hosts[host].world, &self.hosts[other].world) else {
            return false;
        };
        let (own, generation) = (world.reign.epoch.generation, heard.said_generation());
        let hears = other != host && self.passes(host, other) && !self.hosts[other].is_stopped;
        heard.who_knows().filter(|_| hears).is_some_and(|leader| {
            let is_other = !world.expects(leader.id) || generation > own;
            is_other && world.gives_way_to(generation, leader.id)
        })
    }

    /// The hosts whose processes lead. A leader that leaves names itself to nobody.
    fn leaders(&self) -> impl Iterator<Item = usize> {
        let leads = |host: &usize| {
            let slot = &self.hosts[*host];
            let world = slot.world.as_ref().filter(|_| slot.is_on && !slot.is_stopped);
            world.is_some_and(|world| world.lead.is_some() && !world.has_left())
        };
        (0..self.hosts.len()).filter(leads)
    }

    /// A host whose process leads the latest world, as a search would find it.
    fn leader(&self) -> Option<usize> {
        let epoch = |host: &usize| {
            let world = self.hosts[*host].world.as_ref();
            world.map(|world| standing(&world.reign))
        };
        self.leaders().max_by_key(epoch)
    }

    fn check_cause(&mut self, host: usize, cause: FirstCause) {
        if cause.end != End::Gone {
            return;
        }
        self.saw("gone");
        let plan = self.hosts[host].world.as_ref().and_then(|world| world.plan.clone());
        let (Some(plan), Some(rank)) = (plan, cause.rank) else { return };
        let Some(seat) = plan.seats().get(usize::try_from(rank).unwrap()) else { return };
        let Some(gone) = self.hosts.iter().find(|other| other.id == seat.id && other.world.is_some()) else {
            return;
        };
        let number = self.hosts.iter().position(|host| host.id == seat.id).unwrap();
        let is_reached = |other: &usize| *other == host || self.passes(host, *other);
        let reached: Vec<usize> = (0..self.hosts.len())
            .filter(|other| self.hosts[*other].world.is_some())
            .filter(is_reached)
            .collect();
        let members = reached.iter().filter(|other| plan.rank_of(self.hosts[**other].id).is_some()).count();
        let living =
            self.hosts.iter().filter(|host| host.world.is_some() && plan.rank_of(host.id).is_some()).count();
        let is_fresh = self.cut.values().any(|since| *since + Duration::from_secs(2) > self.now);
        let decides = 2 * members > living
            || is_fresh
            || self.size.at_most(u32::try_from(reached.len()).unwrap()) > 0
            || self.hosts[number].is_stopped;
        let leads = self.hosts[host].world.as_ref().is_some_and(|world| world.lead.is_some());
        if leads && !decides && gone.is_on && plan.rank_of(self.hosts[host].id).is_some() {
            self.broken.push(format!(
                "{:?}: host {host} says that rank {rank} is gone, and reaches {members} of {}",
                self.now,
                plan.seats().len()
            ));
        }
        let is_cut = self.cut.keys().any(|(a, b)| *a == number || *b == number);
        let excused =
            !gone.is_on || is_cut || gone.troubled.is_some_and(|(_, until)| until + GONE_AFTER > self.now);
        if !excused {
            self.broken
                .push(format!("{:?}: host {host} says that rank {rank} is gone, and it is there", self.now));
        }
    }

    /// Whether what this host sends to prove a path arrives, and is answered.
    fn proves_path(&mut self, host: usize, to: SocketAddr) -> bool {
        let Some(other) = (0..self.hosts.len()).find(|other| address(*other, 0).ip() == to.ip()) else {
            return false;
        };
        let path = (host.min(other), host.max(other));
        if self.cut.contains_key(&path) || self.broken_paths.contains(&path) {
            self.saw("broken path");
            return false;
        }
        self.hosts[other].is_on && !self.hosts[other].is_stopped && self.hosts[other].world.is_some()
    }

    /// A command starts.
    fn begin(&mut self, host: usize, plan: &Plan) {
        let Some(rank) = plan.rank_of(self.hosts[host].id) else { return };
        self.note(|| format!("host {host} begins in {:?} as rank {rank}", plan.epoch));
        let started = Running { epoch: plan.epoch, round: plan.round, rank, told: None };
        let before = self.hosts[host].command.replace(started);
        if let Some(before) = before {
            self.broken.push(format!("host {host} starts in {:?} beside its own {before:?}", plan.epoch));
        }
        let world = self.worlds.entry(plan.round).or_default();
        let first = self.hosts.iter().find(|host| host.id == plan.seats()[0].id);
        let is_first_well =
            first.is_some_and(|first| first.is_on && !first.is_stopped && first.world.is_some());
        if rank > 0
            && !world.contains_key(&0)
            && is_first_well
            && self.loss == 0.0
            && self.cut.is_empty()
            && plan.epoch.generation > 0
        {
            self.broken.push(format!("{:?}: rank {rank} begins in {:?} before rank 0", self.now, plan.epoch));
        }
        let other = self.worlds.entry(plan.round).or_default().insert(rank, host);
        if other.is_some() {
            self.broken.push(format!("rank {rank} twice in {:?}", plan.epoch));
        }
        for other in 0..self.hosts.len() {
            let slot = &self.hosts[other];
            let Some(command) = slot.command.filter(|command| command.round != plan.round) else { continue };
            let fewest = usize::try_from(self.size.min().get()).unwrap();
            // A process that was stopped reads what it was told before.
            let is_late = plan.epoch < command.epoch && self.hosts[host].troubled.is_some();
            let is_excused = is_late
                || !slot.is_on
                || (!self.cut.is_empty() && self.hosts.len() >= 2 * fewest)
                || self.cut.keys().any(|(a, b)| *a == other || *b == other)
                || slot.is_stopped
                || slot
                    .troubled
                    .is_some_and(|(_, until)| until + GONE_AFTER + Duration::from_secs(20) > self.now)
                || command.told.is_some_and(|told| told + STOP_TIMEOUT <= self.now + Duration::from_secs(2));
            if !is_excused {
                let text = format!(
                    "{:?}: host {host} starts in {:?} while {other} runs in {:?}",
                    self.now, plan.epoch, command.epoch
                );
                self.broken.push(text);
            }
        }
    }

    fn dial(&mut self, host: usize, to: SocketAddr, meant: NodeId, dial: DialId, number: u64) {
        let target = (0..self.hosts.len()).find(|host| address(*host, 0).ip() == to.ip());
        let Some(target) = target else {
            let at = self.now + self.one_way() + self.one_way();
            return self.at(at, Event::Elsewhere(host, self.hosts[host].life, meant, dial));
        };
        let target_life = u32::from(to.port() - 30000);
        self.so_far += 1;
        let conn = self.so_far;
        let connection = Connection {
            dial,
            hosts: [host, target],
            lives: [self.hosts[host].life, target_life],
            number,
            answered: 0,
            meant,
            open: [false, false],
            arrives: [Time::ZERO; 2],
            tries: 0,
            ended: None,
            is_answered: false,
            is_over: false,
        };
        self.connections.insert(conn, connection);
        self.at(self.now + OPENING, Event::DialFails(conn, Failed::Silent));
        self.at(self.now, Event::Syn(conn));
    }

    fn syn(&mut self, conn: u64) {
        let Some(connection) = self.connections.get_mut(&conn).filter(|c| !c.is_over && !c.open[0]) else {
            return;
        };
        let [from, to] = connection.hosts;
        connection.tries += 1;
        let tries = connection.tries;
        let is_lost = self.chance(self.loss) || self.chance(self.loss);
        if !self.passes(from, to) || is_lost {
            if tries < 4 {
                self.at(self.now + SYN_AGAIN * (1 << (tries - 1)), Event::Syn(conn));
            }
            return;
        }
        let round_trip = self.one_way() + self.one_way();
        let slot = &self.hosts[to];
        let is_listening = slot.world.is_some() && slot.life == self.connections[&conn].lives[1];
        if !is_listening {
            self.at(self.now + round_trip, Event::DialFails(conn, Failed::Refused));
            return;
        }
        let arrives = self.now + round_trip + self.stall();
        self.at(arrives, Event::Hello(conn));
    }

    /// How long segments that are lost hold up what follows them.
    fn stall(&mut self) -> Duration {
        let (mut stall, mut again) = (Duration::ZERO, SEGMENT_AGAIN);
        while self.chance(self.loss) && stall < GIVEN_UP {
            stall += again;
            again *= 2;
        }
        stall
    }

    fn dial_fails(&mut self, conn: u64, failed: Failed) {
        let Some(connection) = self.connections.get_mut(&conn).filter(|c| !c.is_over && !c.is_answered)
        else {
            return;
        };
        let (host, life) = (connection.hosts[0], connection.lives[0]);
        if self.hosts[host].life == life && self.hosts[host].is_stopped {
            self.hosts[host].unread.push(Event::DialFails(conn, failed));
            return;
        }
        connection.is_over = true;
        let (dial, meant) = (connection.dial, connection.meant);
        if connection.open[1] {
            let at = self.now + ONE_WAY;
            self.at(at, Event::Closed(conn, 1, Ending::Closed));
        }
        if self.hosts[host].life == life {
            self.with(host, |world, now| world.dial_failed(now, meant, dial, failed));
        }
    }

    /// The hello has reached the process that was dialled.
    fn hello(&mut self, conn: u64) {
        let Some(connection) = self.connections.get(&conn).filter(|c| !c.is_over && !c.open[1]).cloned()
        else {
            return;
        };
        let [from, to] = connection.hosts;
        if self.hosts[to].life != connection.lives[1]
            || self.hosts[to].world.is_none()
            || !self.passes(from, to)
        {
            return;
        }
        if self.hosts[to].is_stopped {
            self.hosts[to].unread.push(Event::Hello(conn));
            return;
        }
        let (now, sender) = (self.now, self.hosts[from].id);
        if self.hosts[from].life != connection.lives[0] {
            return;
        }
        let Some(world) = &mut self.hosts[to].world else { return };
        let Some(answered) = world.answers(now, sender, connection.meant) else {
            let at = now + ONE_WAY;
            self.at(at, Event::DialFails(conn, Failed::Refused));
            return;
        };
        let way = accepted_from(address(from, 0).ip());
        world.opened(now, sender, way, ConnId(conn * 2 + 1), (answered, connection.number));
        if let Some(connection) = self.connections.get_mut(&conn) {
            (connection.open[1], connection.answered) = (true, answered);
        }
        let arrives = now + self.one_way() + self.stall();
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.arrives[0] = arrives;
        }
        self.at(arrives, Event::RoundAnswer(conn));
        self.has_read(to);
    }

    fn answer(&mut self, conn: u64) {
        let Some(connection) = self.connections.get(&conn).filter(|c| !c.is_over && !c.open[0]).cloned()
        else {
            return;
        };
        let [host, other] = connection.hosts;
        if self.hosts[host].life != connection.lives[0] || !self.passes(host, other) {
            return;
        }
        if self.hosts[host].is_stopped {
            self.hosts[host].unread.push(Event::RoundAnswer(conn));
            return;
        }
        let number = connection.answered;
        if let Some(connection) = self.connections.get_mut(&conn) {
            (connection.open[0], connection.is_answered) = (true, true);
        }
        self.with(host, |world, now| {
            let way = Way::Dialled(connection.dial);
            world.opened(now, connection.meant, way, ConnId(conn * 2), (connection.number, number));
        });
        if let Some(ending) = connection.ended {
            self.closed(conn, 0, ending);
        }
    }

    fn write(&mut self, host: usize, conn: u64, frame: Frame) {
        if frame.body.first() == Some(&REIGN) {
            self.saw("word of a leader");
        }
        let end = usize::from(conn % 2 == 1);
        let conn = conn / 2;
        let delay = self.one_way() + self.stall();
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&conn).filter(|c| c.open[end]) else { return };
        assert_eq!(connection.hosts[end], host);
        let other = 1 - end;
        let arrives = connection.arrives[other].max(now + delay) + Duration::from_nanos(1);
        connection.arrives[other] = arrives;
        self.at(arrives, Event::Frame(conn, other, frame));
    }

    /// When kernels repeat what a cut stops: all at once, so that what was written first arrives first.
    fn repeats(&self) -> Time {
        SEGMENT_AGAIN * (u32::try_from(self.now.as_millis() / SEGMENT_AGAIN.as_millis()).unwrap() + 1)
    }

    fn frame(&mut self, conn: u64, end: usize, frame: Frame) {
        let Some(connection) = self.connections.get(&conn) else { return };
        let (host, other) = (connection.hosts[end], connection.hosts[1 - end]);
        if !connection.open[end] {
            if self.passes(host, other) && (end == 1 || connection.is_answered) {
                // The kernel knows no such connection. What it says is lost as often as what is repeated.
                let at = self.now + ONE_WAY + self.stall();
                self.at(at, Event::Closed(conn, 1 - end, Ending::Broken));
            }
            return;
        }
        if !self.passes(host, other) && self.hosts[host].is_on {
            // The kernel repeats it until the cut is over, or the connection is given up.
            let again = self.repeats();
            if let Some(connection) = self.connections.get_mut(&conn) {
                connection.arrives[end] = connection.arrives[end].max(again);
            }
            self.at(again, Event::Frame(conn, end, frame));
            return;
        }
        if self.hosts[host].is_stopped {
            self.hosts[host].unread.push(Event::Frame(conn, end, frame));
            return;
        }
        let number = ConnId(conn * 2 + u64::try_from(end).unwrap());
        self.with(host, |world, now| _ = world.read(now, number, frame));
    }

    /// A process closes its end.
    fn close(&mut self, host: usize, conn: u64) {
        let end = usize::from(conn % 2 == 1);
        let conn = conn / 2;
        let Some(connection) = self.connections.get_mut(&conn).filter(|c| c.open[end]) else { return };
        assert_eq!(connection.hosts[end], host);
        connection.open[end] = false;
        let at = connection.arrives[1 - end].max(self.now + ONE_WAY) + Duration::from_nanos(1);
        self.at(at, Event::Closed(conn, 1 - end, Ending::Closed));
    }

    fn closed(&mut self, conn: u64, end: usize, ending: Ending) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if end == 0 && !connection.is_answered {
            // The kernel keeps it until the process has read the answer.
            connection.ended = Some(ending);
        }
        if !connection.open[end] {
            return;
        }
        let (host, other) = (connection.hosts[end], connection.hosts[1 - end]);
        if ending == Ending::Closed && self.cut.contains_key(&(host.min(other), host.max(other))) {
            let again = self.repeats();
            self.at(again, Event::Closed(conn, end, ending));
            return;
        }
        if self.hosts[host].is_stopped {
            self.hosts[host].unread.push(Event::Closed(conn, end, ending));
            return;
        }
        connection.open[end] = false;
        if ending == Ending::Broken {
            self.at(self.now + PROBE, Event::Probe(conn, 1 - end, 1));
        }
        let number = ConnId(conn * 2 + u64::try_from(end).unwrap());
        self.with(host, |world, now| world.closed(now, number, ending));
    }

    /// A process ends, or is killed; or its host has lost power, and its kernel tells nobody.
    fn end_process(&mut self, host: usize, without_a_word: bool) {
        let slot = &mut self.hosts[host];
        (slot.world, slot.command, slot.timer, slot.round) = (None, None, None, None);
        let unread = std::mem::take(&mut slot.unread);
        slot.is_stopped = false;
        slot.life += 1;
        let ends: Vec<(u64, usize)> = self
            .connections
            .iter()
            .flat_map(|(conn, c)| {
                [0, 1]
                    .into_iter()
                    .filter(|end| c.hosts[*end] == host && (c.open[*end] || (c.open[1] && !c.is_answered)))
                    .map(|end| (*conn, end))
                    .collect::<Vec<_>>()
            })
            .collect();
        for (conn, end) in ends {
            let Some(connection) = self.connections.get_mut(&conn) else { continue };
            connection.open[end] = false;
            let arrives = connection.arrives[1 - end].max(self.now + ONE_WAY);
            let is_unread = |event: &Event| matches!(event, Event::Frame(c, e, _) if (*c, *e) == (conn, end));
            let has_unread = unread.iter().any(is_unread) || (self.resets && self.random.random_bool(0.2));
            let (at, event) = match has_unread {
                _ if without_a_word => (self.now + GIVEN_UP, Event::Closed(conn, 1 - end, Ending::Broken)),
                // The kernel says that once, and repeats the end of a connection of which all was read.
                true if self.chance(self.loss) => (self.now + PROBE, Event::Probe(conn, 1 - end, 1)),
                true => (arrives, Event::Closed(conn, 1 - end, Ending::Broken)),
                false => (arrives + self.stall(), Event::Closed(conn, 1 - end, Ending::Closed)),
            };
            self.at(at, event);
        }
    }

    fn restart(&mut self, host: usize) {
        let id = self.new_id();
        let slot = &mut self.hosts[host];
        (slot.id, slot.is_on, slot.is_lost, slot.finished) = (id, true, false, false);
        match self.leader().filter(|leader| *leader != host) {
            Some(leader) => {
                self.guest(host, leader);
                self.carry_out(host);
            }
            None => self.at(self.now + Duration::from_secs(1), Event::Trouble(Trouble::Start(host))),
        }
    }

    fn mark(&mut self, host: usize, until: Time) {
        let begun = self.now;
        let known = self.hosts[host].troubled.filter(|(_, known)| *known + GONE_AFTER > begun);
        self.hosts[host].troubled =
            Some(known.map_or((begun, until), |(since, known)| (since, known.max(until))));
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of trouble")]
    fn trouble(&mut self, trouble: Trouble) {
        self.note(|| format!("{trouble:?}"));
        let now = self.now;
        match trouble {
            Trouble::Kill(host) => {
                if self.hosts[host].world.is_some() {
                    self.saw("killed");
                    self.end_process(host, false);
                }
            }
            Trouble::PowerOff(host) => {
                self.saw("power");
                self.end_process(host, true);
                self.hosts[host].is_on = false;
            }
            Trouble::Start(host) => {
                if self.hosts[host].world.is_none() && !self.hosts[host].finished {
                    self.restart(host);
                }
            }
            Trouble::Stop(host, time) => {
                if self.hosts[host].world.is_some() && !self.hosts[host].is_stopped {
                    self.saw("stopped");
                    self.hosts[host].is_stopped = true;
                    self.mark(host, now + time);
                    let life = self.hosts[host].life;
                    self.at(now + time, Event::Trouble(Trouble::Continue(host, life)));
                }
            }
            Trouble::Continue(host, life) => {
                let slot = &mut self.hosts[host];
                if slot.life != life || !slot.is_stopped {
                    return;
                }
                slot.is_stopped = false;
                slot.timer = None;
                let unread = std::mem::take(&mut slot.unread);
                // Like the driver: what has arrived is read before the time is looked at.
                for event in unread {
                    self.happen(event);
                }
                self.with(host, World::advance);
            }
            Trouble::Cut(a, b) => {
                self.saw("cut");
                self.cut.insert((a.min(b), a.max(b)), now);
                let crossing: Vec<(u64, usize)> = self
                    .connections
                    .iter()
                    .filter(|(_, c)| c.hosts == [a, b] || c.hosts == [b, a])
                    .flat_map(|(conn, c)| {
                        [0, 1]
                            .into_iter()
                            .filter(|end| c.open[*end])
                            .map(|end| (*conn, end))
                            .collect::<Vec<_>>()
                    })
                    .collect();
                for (conn, end) in crossing {
                    let at = now + GIVEN_UP + Duration::from_millis(self.random.random_range(0..2000));
                    self.at(at, Event::GivenUp(conn, end));
                }
            }
            Trouble::Mend(a, b) => {
                self.cut.remove(&(a.min(b), a.max(b)));
                self.mark(a, now);
                self.mark(b, now);
            }
            Trouble::Reset(host) => {
                self.saw("reset");
                let of_host: Vec<u64> = self
                    .connections
                    .iter()
                    .filter(|(_, c)| c.hosts.contains(&host))
                    .map(|(conn, _)| *conn)
                    .collect();
                for conn in of_host {
                    for end in [0, 1] {
                        self.closed(conn, end, Ending::Broken);
                    }
                }
            }
            Trouble::Fail(host) => self.command_ends(host, Some(End::Exited(1))),
            Trouble::Succeed(host) => self.command_ends(host, None),
            Trouble::Leave(host) => self.command_ends(host, Some(End::Left)),
        }
    }

    fn command_ends(&mut self, host: usize, end: Option<End>) {
        if self.hosts[host].world.is_none() {
            return;
        }
        if self.hosts[host].is_stopped {
            let trouble = match end {
                Some(End::Left) => Trouble::Leave(host),
                Some(_) => Trouble::Fail(host),
                None => Trouble::Succeed(host),
            };
            self.hosts[host].unread.push(Event::Trouble(trouble));
            return;
        }
        if self.hosts[host].command.is_none() && end != Some(End::Left) {
            return;
        }
        self.saw(match end {
            Some(End::Left) => "left",
            Some(_) => "failed",
            None => "succeeded",
        });
        self.hosts[host].command = None;
        self.with(host, |world, now| world.ended(now, end));
    }

    /// The round in which most commands run, and how many.
    fn most(&self) -> Option<(RoundId, usize)> {
        let mut count: BTreeMap<RoundId, usize> = BTreeMap::new();
        for command in self.hosts.iter().filter_map(|host| host.command) {
            *count.entry(command.round).or_default() += 1;
        }
        count.into_iter().max_by_key(|(_, count)| *count)
    }

    /// Whether one world runs that is as large as the nodes that live allow, and no other.
    fn is_settled(&self) -> bool {
        let living = self.hosts.iter().filter(|host| host.is_on && host.world.is_some()).count();
        let size = usize::try_from(self.size.at_most(u32::try_from(living).unwrap())).unwrap();
        let Some((round, most)) = self.most() else { return size == 0 };
        let fewest = usize::try_from(self.size.min().get()).unwrap();
        let rounds: BTreeSet<RoundId> =
            self.hosts.iter().filter_map(|host| Some(host.command?.round)).collect();
        if rounds.len() == 2 && living >= 2 * fewest && self.seen.contains_key("cut") {
            // The network fell apart, and the nodes were enough for two worlds.
            return true;
        }
        let is_whole = self.hosts.iter().filter_map(|host| host.world.as_ref()).any(|world| {
            let members = world.lead.as_ref().map(|lead| world.members(lead)).unwrap_or_default();
            let running = members.iter().filter(|member| member.command == Command::Runs).count();
            let succeeded = members.iter().filter(|member| member.command == Command::Succeeded).count();
            running == most && running + succeeded == members.len()
        });
        let alone = self.hosts.iter().filter_map(|host| host.command).all(|command| command.round == round);
        let leaders = self
            .hosts
            .iter()
            .filter(|host| host.world.as_ref().is_some_and(|world| world.lead.is_some()))
            .count();
        let ends = self.hosts.iter().all(|host| host.command.is_none_or(|command| command.told.is_none()));
        is_whole && alone && leaders == 1 && ends
    }

    /// Whether no process is left that has been in a world: the others search as at the start.
    fn is_forgotten(&self) -> bool {
        self.hosts
            .iter()
            .filter_map(|host| host.world.as_ref())
            .all(|world| world.plan.is_none() && world.lead.is_none())
    }

    fn state(&self) -> String {
        let host = |(number, host): (usize, &Host)| {
            let Some(world) = &host.world else {
                return format!("\n  {number}: no process, on: {}", host.is_on);
            };
            format!(
                "\n  {number} {:?}: epoch {}, {:?}, over {:?}, leads {}, follows {:?} ({}), walk {:?}, command {:?}, phase {:?}, answer {:?}, waiting {}",
                host.id,
                world.epoch.generation,
                world.command,
                world.over,
                world.lead.is_some(),
                self.hosts.iter().position(|host| host.id == world.reign.leader.id),
                world.reign.term,
                world.walk.as_ref().map(|walk| walk
                    .asked()
                    .iter()
                    .map(|id| self.hosts.iter().position(|host| host.id == *id))
                    .collect::<Vec<_>>()),
                host.command.map(|command| (command.epoch.generation, command.rank)),
                world.reign.phase,
                world.status().answer,
                world.reign.waiting,
            )
        };
        let links: String = self
            .hosts
            .iter()
            .filter_map(|host| host.world.as_ref().filter(|world| world.lead.is_some()))
            .flat_map(|world| {
                world
                    .peers
                    .iter()
                    .map(|(id, peer)| format!("\n   {id:?} {:?} {:?}", peer.link, peer.known.status))
            })
            .collect();
        self.hosts.iter().enumerate().map(host).chain([links]).collect()
    }
}

/// Kinds of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Commands,
    Deaths,
    Pauses,
    Cuts,
    Halves,
    Drains,
    Mixed,
}

const KINDS: [Kind; 7] =
    [Kind::Commands, Kind::Deaths, Kind::Pauses, Kind::Cuts, Kind::Halves, Kind::Drains, Kind::Mixed];

/// How long after the last trouble one world runs again.
const AGAIN: Duration = Duration::from_secs(90);

/// A world of a seed: up to nine members, how many of them the world needs, up to four nodes that wait, and
/// what the network loses.
fn make(seed: u64, random: &mut Xoshiro256PlusPlus) -> Net {
    let members = random.random_range(1..=9_usize);
    let spares = random.random_range(0..=4_usize);
    let fewest = random.random_range(1..=members);
    let count = |count: usize| Size::new(u32::try_from(count).unwrap()).unwrap();
    let size = if random.random_bool(0.4) && 2 * fewest > members {
        WorldSize::new(count(fewest), count(members)).unwrap()
    } else {
        WorldSize::from(count(members))
    };
    let loss = [0.0, 0.0, 0.01, 0.05, 0.2][random.random_range(0..5)];
    let mut net = Net::new(seed, size, members, spares, loss);
    net.slow_stops = random.random_bool(0.2);
    net
}

/// Plans a trouble of this kind.
fn plan_trouble(net: &mut Net, kind: Kind, at: Time, random: &mut Xoshiro256PlusPlus) {
    let hosts = net.hosts.len();
    let host = random.random_range(0..hosts);
    let time = Duration::from_millis(random.random_range(10..45_000));
    let mut plan = |at, trouble| net.at(at, Event::Trouble(trouble));
    match kind {
        Kind::Commands => {
            for _ in 0..random.random_range(1..=3) {
                let host = random.random_range(0..hosts);
                let at = at + Duration::from_millis(random.random_range(0..3) * 200);
                plan(at, if random.random_bool(0.7) { Trouble::Fail(host) } else { Trouble::Succeed(host) });
            }
        }
        Kind::Deaths => {
            plan(at, if random.random_bool(0.7) { Trouble::Kill(host) } else { Trouble::PowerOff(host) });
            plan(at + time / 4, Trouble::Start(host));
        }
        Kind::Pauses => {
            plan(at, Trouble::Stop(host, time));
            if random.random_bool(0.5) {
                plan(at + time / 3, Trouble::Fail(random.random_range(0..hosts)));
            }
        }
        Kind::Cuts => {
            let other = random.random_range(0..hosts);
            if host == other {
                plan(at, Trouble::Reset(host));
            } else {
                plan(at, Trouble::Cut(host, other));
                plan(at + time, Trouble::Mend(host, other));
                if random.random_bool(0.3) {
                    plan(at + time / 2, Trouble::Fail(random.random_range(0..hosts)));
                }
            }
        }
        Kind::Halves => {
            let half = random.random_range(0..hosts);
            for (a, b) in (0..half).flat_map(|a| (half..hosts).map(move |b| (a, b))) {
                plan(at, Trouble::Cut(a, b));
                plan(at + time, Trouble::Mend(a, b));
            }
        }
        Kind::Drains => {
            plan(at, Trouble::Leave(host));
            plan(at + time / 4, Trouble::Start(host));
        }
        Kind::Mixed => plan_trouble(net, KINDS[random.random_range(0..KINDS.len() - 1)], at, random),
    }
}

/// While no node dies, is stopped or cut off: no command runs for a while only where the nodes are too few.
fn run_without_gaps(net: &mut Net, end: Time) -> Result<(), String> {
    let fewest = usize::try_from(net.size.min().get()).unwrap();
    let stops = if net.slow_stops { STOP_TIMEOUT } else { Duration::ZERO };
    let most = stops + Duration::from_secs(if net.loss > 0.1 { 10 } else { 5 });
    let mut since = None;
    while net.now < end {
        net.run_until(net.now + Duration::from_millis(200));
        let are_enough = net.hosts.iter().filter(|host| host.world.is_some()).count() >= fewest;
        if !are_enough || net.hosts.iter().any(|host| host.command.is_some()) {
            since = None;
        } else if net.now > *since.get_or_insert(net.now) + most {
            return Err(format!("{:?}: no world for {most:?}, and enough nodes: {}", net.now, net.state()));
        }
    }
    Ok(())
}

/// Runs the world of a seed. Returns how long it took after the last trouble until one world ran.
fn run(seed: u64, kind: Kind, traces: bool) -> Result<(Net, Time), String> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut net = make(seed, &mut random);
    net.traces = traces;
    net.note(|| format!("seed {seed} of {kind:?}"));
    let mut at = Time::from_secs(2);
    for _ in 0..random.random_range(1..=5) {
        at += Duration::from_millis(random.random_range(0..26_000));
        plan_trouble(&mut net, kind, at, &mut random);
    }
    let troubles = net.events.iter().filter(|(_, event)| matches!(event, Event::Trouble(_)));
    let calm = troubles.map(|((at, _), _)| *at).max().unwrap_or_default();
    if matches!(kind, Kind::Commands | Kind::Drains) {
        run_without_gaps(&mut net, calm)?;
    }
    while net.now < calm || net.hosts.iter().any(|host| host.is_stopped) {
        net.run_until(net.now + Duration::from_millis(100));
    }
    let calm = net.now;
    while !(net.is_settled() || net.is_forgotten() || net.hosts.iter().any(|host| host.finished)) {
        if net.now > calm + AGAIN {
            return Err(format!("not in one world after {AGAIN:?}: {} members, {}", net.size, net.state()));
        }
        net.run_until(net.now + Duration::from_millis(100));
    }
    let took = net.now.saturating_sub(calm);
    if net.is_settled() && net.most().is_some() {
        finish(&mut net, &mut random)?;
    }
    net.broken.first().map_or(Ok(()), |broken| Err(broken.clone()))?;
    Ok((net, took))
}

/// A node that could hear nobody so shortly before the commands end may not have found the others by then.
const LATE: Duration = Duration::from_secs(10);

/// All commands end well, and all nodes with them.
fn finish(net: &mut Net, random: &mut Xoshiro256PlusPlus) -> Result<(), String> {
    let begun = net.now;
    for _ in 0..40 {
        for host in 0..net.hosts.len() {
            let at = net.now + Duration::from_millis(random.random_range(0..2000));
            net.at(at, Event::Trouble(Trouble::Succeed(host)));
        }
        net.run_until(net.now + Duration::from_secs(1));
    }
    // Nobody tells a node that the job has ended while it was cut off or stopped.
    let is_too_late = |host: &Host| host.troubled.is_some_and(|(_, until)| until + LATE > begun);
    let is_left = |host: &&Host| host.is_on && host.world.is_some() && !is_too_late(host);
    let left = net.hosts.iter().filter(is_left).count();
    if left > 0 || net.hosts.iter().any(|host| host.command.is_some()) {
        return Err(format!("all commands have succeeded, and {left} nodes don't end: {}", net.state()));
    }
    Ok(())
}

/// A number in the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What each kind must have met, in so many worlds of a hundred.
fn evidence(kind: Kind) -> &'static [(&'static str, u64)] {
    match kind {
        Kind::Commands => &[("failed", 100), ("succeeded", 300), ("formed again", 500)],
        Kind::Deaths => &[("killed", 100), ("power", 40), ("gone", 300)],
        Kind::Pauses => &[("stopped", 150), ("failed", 40)],
        Kind::Cuts => &[("cut", 100), ("reset", 20), ("suspected", 5)],
        Kind::Halves => &[("cut", 1000), ("suspected", 300), ("cut off", 50)],
        Kind::Drains => &[("left", 150), ("formed again", 500)],
        Kind::Mixed => &[("killed", 10), ("cut", 100), ("left", 15), ("stopped", 10), ("first cause", 1)],
    }
}

#[test]
fn worlds_in_trouble_are_one_world_again_and_end() {
    let runs = number("MINGLE_SIM_RUNS").unwrap_or(100);
    let only = std::env::var("MINGLE_TROUBLE").ok();
    let seed = number("MINGLE_SEED");
    let mut failed = 0;
    for kind in KINDS.into_iter().filter(|kind| only.as_ref().is_none_or(|only| *only == format!("{kind:?}")))
    {
        let (mut seen, mut taken) = (BTreeMap::new(), Vec::new());
        // What several troubles do together is rare.
        let runs = if kind == Kind::Mixed { 4 * runs } else { runs };
        for seed in seed.map_or(0..runs, |seed| seed..seed + 1) {
            match run(seed, kind, number("MINGLE_SEED").is_some()) {
                Ok((net, took)) => {
                    for (what, count) in net.seen {
                        *seen.entry(what).or_insert(0) += count;
                    }
                    taken.push((took, seed));
                }
                Err(broken) => {
                    failed += 1;
                    println!("MINGLE_TROUBLE={kind:?} MINGLE_SEED={seed}: {broken}");
                }
            }
        }
        taken.sort();
        println!("{kind:?}: {} worlds, the slowest and its seed {:?}, {seen:?}", taken.len(), taken.last());
        for (what, fewest) in evidence(kind).iter().filter(|_| runs >= 100 && seed.is_none()) {
            assert!(seen.get(what) >= Some(fewest), "{kind:?} has met {what} {:?} times", seen.get(what));
        }
    }
    assert_eq!(failed, 0, "see above");
}

/// A world of so many nodes that has run for a while, its leader and another member.
fn running(members: usize, loss: f64, seed: u64) -> (Net, usize, usize) {
    let size = WorldSize::from(Size::new(u32::try_from(members).unwrap()).unwrap());
    let mut net = Net::new(seed, size, members, 0, loss);
    net.resets = false;
    if members >= 1000 {
        net.reading = Duration::from_millis(1);
    }
    net.run_until(Time::from_secs(10));
    let leads = |host: &Host| host.world.as_ref().is_some_and(|world| world.lead.is_some());
    let leader = net.hosts.iter().position(leads).unwrap();
    (net, leader, (leader + members / 2) % members)
}

/// How long it takes from now until all commands that run have been told to stop, but for the command of a
/// process that is stopped.
fn time_until_over(net: &mut Net) -> Time {
    let begun = net.now;
    let is_told = |host: &Host| host.is_stopped || host.command.is_none_or(|command| command.told.is_some());
    while !net.hosts.iter().all(is_told) {
        assert!(net.now < begun + Duration::from_secs(60), "{}", net.state());
        net.run_until(net.now + Duration::from_millis(5));
    }
    net.now.saturating_sub(begun)
}

fn print_worst(what: &str, mut taken: Vec<Time>) -> Time {
    taken.sort();
    println!(
        "{what}: median {:?}, worst {:?}, n = {}",
        taken[taken.len() / 2],
        taken[taken.len() - 1],
        taken.len()
    );
    taken[taken.len() - 1]
}

#[test]
fn a_death_ends_the_world_on_every_node_within_the_promised_time() {
    let ms = Duration::from_millis;
    for (members, runs, loss, most) in
        [(4, 50, 0.0, ms(300)), (4, 50, 0.05, ms(1200)), (200, 1, 0.0, ms(300))]
    {
        for kills_leader in [false, true] {
            let taken = (0..runs).map(|seed| {
                let (mut net, leader, other) = running(members, loss, seed);
                net.trouble(Trouble::Kill(if kills_leader { leader } else { other }));
                time_until_over(&mut net)
            });
            let what = format!("{members} nodes, loss {loss}, kills the leader: {kills_leader}");
            assert!(print_worst(&what, taken.collect()) <= most);
        }
    }
}

#[test]
fn a_member_killed_as_its_world_forms_ends_the_world_within_3_seconds_though_its_last_packets_are_lost() {
    let taken = (0..400).filter_map(|seed| {
        let (mut net, _, victim) = running(4, 0.2, seed);
        (net.resets, net.stop_time) = (true, Duration::from_millis(1));
        net.trouble(Trouble::Fail(victim));
        while net.worlds.len() == 1 {
            net.run_until(net.now + Duration::from_micros(100));
        }
        let has_formed = |host: &Host| host.command.is_some();
        if has_formed(&net.hosts[victim]) {
            return None;
        }
        net.trouble(Trouble::Kill(victim));
        let killed = net.now;
        let others = |net: &Net| net.hosts.iter().filter(|host| has_formed(host)).count();
        while others(&net) < 3 && net.now < killed + Duration::from_secs(1) {
            net.run_until(net.now + Duration::from_millis(1));
        }
        time_until_over(&mut net);
        Some(net.now.saturating_sub(killed))
    });
    let taken: Vec<Time> = taken.collect();
    assert!(taken.len() > 200, "{}", taken.len());
    assert!(print_worst("killed as it forms", taken) <= Duration::from_secs(3));
}

#[test]
fn a_command_that_fails_under_a_stopped_leader_ends_the_world_within_8_seconds() {
    for loss in [0.0, 0.05] {
        let taken = (0..50).map(|seed| {
            let (mut net, leader, other) = running(4, loss, seed);
            net.trouble(Trouble::Stop(leader, Duration::from_secs(60)));
            net.trouble(Trouble::Fail(other));
            time_until_over(&mut net)
        });
        assert!(print_worst(&format!("loss {loss}"), taken.collect()) <= Duration::from_secs(8));
    }
}

/// The node that waits has nothing to say, so that it does not notice by itself that its leader is stopped.
#[test]
fn a_node_that_waits_finds_who_leads_in_the_place_of_a_stopped_leader_once_somebody_looks_for_the_job() {
    for seed in 0..50 {
        let mut net = Net::new(seed, WorldSize::from(Size::new(3).unwrap()), 3, 1, 0.01);
        net.run_until(Time::from_secs(10));
        let leader = net.leader().unwrap();
        net.trouble(Trouble::Stop(leader, Duration::from_secs(3600)));
        net.trouble(Trouble::Fail((leader + 1) % 3));
        let end = net.now + Duration::from_secs(40);
        while net.now < end && net.hosts[3].command.is_none() {
            net.run_until(net.now + Duration::from_secs(1));
            // As the driver does, which looks at the time before it carries out what follows.
            net.with(3, |world, now| {
                world.ask_leader(now);
                world.advance(now);
            });
        }
        assert!(net.hosts[3].command.is_some(), "seed {seed}: {}", net.state());
    }
}

#[test]
fn a_member_is_expected_from_the_start_until_it_is_lost() {
    let (mut net, leader, other) = running(4, 0.0, 1);
    let id = net.contact(other).id;
    let is_expected = |net: &Net| net.hosts[leader].world.as_ref().unwrap().expects(id);
    assert!(is_expected(&net) && is_expected(&Net::new(1, net.size, 4, 0, 0.0)));
    net.trouble(Trouble::Kill(other));
    net.run_until(net.now + Duration::from_secs(5));
    assert!(!is_expected(&net));
    assert!(!net.hosts[leader].world.as_ref().unwrap().expects(NodeId([9; 16])));
}

#[test]
fn a_process_that_is_stopped_for_an_hour_keeps_its_world() {
    for seed in 0..20 {
        let (mut net, leader, other) = running(4, 0.01, seed);
        for stopped in [other, leader] {
            net.trouble(Trouble::Stop(stopped, Duration::from_secs(3600)));
            net.run_until(net.now + Duration::from_secs(3700));
            assert!(net.is_settled() && net.worlds.len() == 1, "seed {seed}: {}", net.state());
            assert!(!net.seen.contains_key("suspected"), "seed {seed}");
        }
    }
}

#[test]
fn a_world_that_is_left_alone_sends_nothing() {
    let (mut net, ..) = running(8, 0.0, 1);
    let so_far = net.so_far;
    net.run_until(net.now + Duration::from_secs(3600));
    assert_eq!(net.so_far, so_far);
}

#[test]
fn a_node_that_is_where_it_was_has_nothing_to_decide_and_one_that_has_moved_tells_the_leader() {
    let (mut world, _) = connected_follower(3);
    let (ms, mut config) = (Time::from_millis, world.config().clone());
    let frames = written(&actions(&mut world).0, ConnId(1));
    world.read(ms(2), ConnId(1), acknowledgement(&frames)).unwrap();
    actions(&mut world);
    world.set_config(ms(2000), config.clone());
    assert!(!world.is_dirty);
    config.node.attributes.session_port += 1;
    world.set_config(ms(4000), config);
    let frames = written(&actions(&mut world).0, ConnId(1));
    let said = frames.iter().find_map(|frame| match WorldSaid::decode(&frame.body)? {
        WorldSaid::Arrival(arrival) => Some(arrival.contact(world.own.id)),
        _ => None,
    });
    assert!(said.is_some() && said.as_ref() == Some(&world.own), "{said:?}");
}

#[test]
fn the_next_world_forms_at_once_when_the_commands_have_stopped() {
    let taken = (0..50).map(|seed| {
        let (mut net, _, other) = running(4, 0.0, seed);
        net.stop_time = Duration::from_millis(1);
        let begun = net.now;
        net.trouble(Trouble::Fail(other));
        while net.worlds.values().last().is_some_and(|world| world.len() != 4) || net.worlds.len() != 2 {
            assert!(net.now < begun + Duration::from_secs(60), "{}", net.state());
            net.run_until(net.now + Duration::from_millis(1));
        }
        net.now.saturating_sub(begun)
    });
    // Of which up to 20 go to the proof of the paths, as simulated here.
    assert!(print_worst("from a failure to the next world", taken.collect()) <= Duration::from_millis(50));
}

#[test]
fn a_node_that_waits_and_is_stopped_delays_the_next_world_by_less_than_5_seconds() {
    let taken = (0..20).map(|seed| {
        let size = WorldSize::from(Size::new(3).unwrap());
        let mut net = Net::new(seed, size, 3, 2, 0.0);
        net.resets = false;
        net.run_until(Time::from_secs(10));
        let (killed, stopped) = (0, 3 + usize::try_from(seed % 2).unwrap());
        net.trouble(Trouble::Stop(stopped, Duration::from_secs(3600)));
        net.trouble(Trouble::Kill(killed));
        let begun = net.now;
        while net.worlds.len() < 2 || net.most().is_none_or(|(_, running)| running < 3) {
            assert!(net.now < begun + Duration::from_secs(60), "{}", net.state());
            net.run_until(net.now + Duration::from_millis(5));
        }
        net.now.saturating_sub(begun)
    });
    assert!(print_worst("from the death of a member", taken.collect()) < Duration::from_secs(5));
}

#[test]
fn a_world_forms_without_a_node_whose_paths_are_broken_and_never_ends_for_that_node() {
    let count = |count: u32| Size::new(count).unwrap();
    let sizes = [(4, 1, WorldSize::from(count(4))), (5, 0, WorldSize::new(count(3), count(5)).unwrap())];
    for (seed, (members, spares, size)) in (0..20).flat_map(|seed| sizes.map(|size| (seed, size))) {
        let mut net = Net::new(seed, size, members, spares, 0.0);
        net.resets = false;
        let bad = usize::try_from(seed).unwrap() % members;
        net.broken_paths = (0..members + spares)
            .filter(|host| *host != bad)
            .map(|host| (host.min(bad), host.max(bad)))
            .collect();
        net.run_until(Time::from_secs(10));
        let other = (bad + 1) % members;
        net.trouble(Trouble::Fail(other));
        net.run_until(net.now + Duration::from_secs(8));
        let running = net.most().map(|(_, running)| running);
        assert_eq!((running, net.hosts[bad].command.is_none()), (Some(4), true), "{seed}: {}", net.state());
        let tried = net.seen["broken path"];
        assert!(net.seen["told of a broken path"] >= 4, "{seed}: all learn which");
        net.run_until(net.now + Duration::from_secs(600));
        let worlds = net.worlds.values().filter(|world| world.len() > 1).count();
        assert_eq!((worlds, net.seen["broken path"]), (2, tried), "{seed}: {}", net.state());
    }
}

/// The command of the leader's host fails; and the leader, as it is as soon as this holds of it.
fn fails_until(net: &mut Net, holds: impl Fn(&World) -> bool) -> (usize, World) {
    let led = net.leader().unwrap();
    net.run_until(Time::from_secs(5));
    net.trouble(Trouble::Fail(led));
    while !holds(net.hosts[led].world.as_ref().unwrap()) {
        net.run_until(net.now + Duration::from_micros(20));
    }
    (led, net.hosts[led].world.clone().unwrap())
}

/// What a world asks for, and the last dial of it: its number and that of the session.
fn actions(world: &mut World) -> (Vec<Action>, Option<(DialId, u64)>) {
    let actions: Vec<Action> = std::iter::from_fn(|| world.poll_action()).collect();
    let dial = |action: &Action| match action {
        Action::Carry(Order::Dial { dial, number, .. }) => Some((*dial, *number)),
        _ => None,
    };
    let last = actions.iter().rev().find_map(dial);
    (actions, last)
}

/// The frames that are written on a connection.
fn written(actions: &[Action], conn: ConnId) -> Vec<Frame> {
    let frame = |action: &Action| match action {
        Action::Carry(Order::Write(to, frame)) if *to == conn => Some(frame.clone()),
        _ => None,
    };
    actions.iter().filter_map(frame).collect()
}

/// The acknowledgement of these frames, of which there is at least one.
fn acknowledgement(written: &[Frame]) -> Frame {
    Frame::acknowledgement(written.iter().map(|frame| frame.number).max().expect("it says something"))
}

/// A node of this number, alone on its host.
fn contact(number: u8) -> Contact {
    Contact { id: NodeId([number; 16]), addresses: vec![address(usize::from(number), 0)] }
}

/// A member of a world of so many nodes which another member leads, and the IDs of the others.
fn follower(members: u8) -> (World, Vec<NodeId>) {
    let seats: Vec<Contact> = (1..=members).map(contact).collect();
    let round = RoundId { leader: seats[0].id, number: 1 };
    let others = seats.iter().map(|seat| seat.id).filter(|id| *id != NodeId([2; 16])).collect();
    let plan = plan(round, Epoch { generation: 0, origin: 7 }, &seats);
    let size = WorldSize::from(Size::new(u32::from(members)).unwrap());
    (World::member(shared(&contact(2), size, 5, Time::ZERO), plan), others)
}

/// The same, with an open connection to the leader, the first of the others.
fn connected_follower(members: u8) -> (World, Vec<NodeId>) {
    let (mut world, others) = follower(members);
    let (dial, number) = actions(&mut world).1.unwrap();
    world.opened(Time::from_millis(1), others[0], Way::Dialled(dial), ConnId(1), (number, 9));
    (world, others)
}

#[test]
fn a_process_of_another_job_or_with_a_far_generation_is_not_heard() {
    let (world, _) = follower(3);
    for (generation, origin, is_heard) in
        [(0, 7, true), (FURTHEST, 7, true), (FURTHEST + 1, 7, false), (0, 8, false), (u32::MAX, 0, true)]
    {
        let epoch = Epoch { generation, origin };
        assert_eq!(world.may_be_of_this_job(epoch), is_heard, "{epoch:?}");
    }
}

#[test]
fn a_connection_whose_hello_was_sent_before_the_other_process_was_taken_for_dead_is_closed() {
    let (mut world, others) = connected_follower(3);
    let (leader, ms) = (others[0], Time::from_millis);
    world.closed(ms(2), ConnId(1), Ending::Closed);
    world.advance(ms(200));
    let (_, late) = actions(&mut world);
    let (late, number) = late.unwrap();
    for at in [300, 410] {
        world.advance(ms(at));
        let (again, _) = actions(&mut world).1.unwrap();
        world.dial_failed(ms(at), leader, again, Failed::Refused);
    }
    assert!(world.dead.contains(&leader));
    world.opened(ms(420), leader, Way::Dialled(late), ConnId(2), (number, 9));
    assert!(actions(&mut world).0.contains(&Action::Carry(Order::Close(ConnId(2)))));
    let number = world.answers(ms(430), leader, NodeId([2; 16])).unwrap();
    world.opened(ms(430), leader, accepted_from(address(1, 0).ip()), ConnId(3), (number, 9));
    assert!(
        !actions(&mut world).0.contains(&Action::Carry(Order::Close(ConnId(3)))) && world.is_there(leader)
    );
}

#[test]
fn a_host_that_is_cut_off_is_not_dead_because_another_host_refuses_at_one_of_its_addresses() {
    for seed in 0..20 {
        let (mut net, leader, _) = running(6, 0.0, seed);
        let cut = (0..6).find(|host| host % 3 == 2 && *host != leader).unwrap();
        for other in (0..6).filter(|other| *other != cut) {
            net.trouble(Trouble::Cut(cut, other));
        }
        net.run_until(net.now + Duration::from_secs(25));
        for other in (0..6).filter(|other| *other != cut) {
            net.trouble(Trouble::Mend(cut, other));
        }
        net.run_until(net.now + Duration::from_secs(30));
        assert!(net.worlds.len() == 1 && !net.seen.contains_key("gone"), "seed {seed}: {}", net.state());
    }
}

#[test]
fn a_leader_that_was_stopped_suspects_nobody_when_it_reads_the_first_that_has_arrived() {
    for seed in 0..20 {
        let (mut net, leader, other) = running(4, 0.0, seed);
        net.trouble(Trouble::Reset(other));
        net.trouble(Trouble::Stop(leader, Duration::from_secs(60)));
        let third = (0..4).find(|host| *host != leader && *host != other).unwrap();
        net.trouble(Trouble::Succeed(third));
        net.run_until(net.now + Duration::from_secs(70));
        let calm = ["suspected", "gone"].iter().all(|what| !net.seen.contains_key(what));
        assert!(calm && net.worlds.len() == 1, "seed {seed}: {}", net.state());
    }
}

#[test]
fn a_member_that_the_former_leader_named_as_gone_is_dead_for_the_next_one_unless_it_has_a_connection() {
    for is_connected in [false, true] {
        let (mut world, others) = connected_follower(3);
        let (gone, ms) = (others[1], Time::from_millis);
        if is_connected {
            let number = world.answers(ms(2), gone, world.own.id).unwrap();
            world.opened(ms(2), gone, accepted_from(contact(3).addresses[0].ip()), ConnId(2), (number, 9));
        }
        let phase = Phase::Over(FirstCause { rank: Some(2), end: End::Gone });
        let reign = Reign { phase, ..world.reign.clone() };
        let leaves = Status { command: Command::Leaves, ..world.status() };
        for (number, said) in [(1, WorldSaid::Reign(reign)), (2, WorldSaid::Status(leaves))] {
            let frame = Frame { number, read: 0, body: said.encode() };
            world.read(ms(3), ConnId(1), frame).unwrap();
        }
        actions(&mut world);
        assert!(world.leads());
        assert_eq!(world.dead.contains(&gone), !is_connected);
    }
}

#[test]
fn an_heir_leads_on_though_the_leader_that_leaves_reaches_more_nodes_and_still_says_that_it_leads() {
    let (mut world, _) = connected_follower(3);
    let phase = Phase::Over(FirstCause { rank: Some(0), end: End::Left });
    let reign = Reign { phase, ..world.reign.clone() };
    let again = Reign { waiting: 1, ..reign.clone() };
    let leaves = Status { command: Command::Leaves, ..world.status() };
    let said = [WorldSaid::Reign(reign), WorldSaid::Status(leaves), WorldSaid::Reign(again)];
    for (number, said) in (1..).zip(said) {
        let frame = Frame { number, read: 0, body: said.encode() };
        world.read(Time::from_millis(3), ConnId(1), frame).unwrap();
        actions(&mut world);
    }
    assert!(world.leads() && world.reign.is_cut_off, "{:?}", world.reign);
}

#[test]
fn a_leader_says_that_it_leaves_only_where_an_heir_is_there() {
    let ms = Time::from_millis;
    for has_heir in [false, true] {
        let seats: Vec<Contact> = [1, 3].into_iter().take(1 + usize::from(has_heir)).map(contact).collect();
        let round = RoundId { leader: seats[0].id, number: 1 };
        let plan = plan(round, Epoch { generation: 0, origin: 7 }, &seats);
        let size = "1:3".parse().unwrap();
        let mut world = World::member(shared(&seats[0], size, 5, Time::ZERO), plan);
        for number in [2, 3].into_iter().take(1 + usize::from(has_heir)) {
            let peer = contact(number);
            let own_number = world.answers(ms(1), peer.id, seats[0].id).unwrap();
            let way = accepted_from(address(usize::from(number), 0).ip());
            world.opened(ms(1), peer.id, way, ConnId(number.into()), (own_number, 9));
        }
        let body = WorldSaid::Arrival(Box::new(arrival(&contact(2)))).encode();
        world.read(ms(2), ConnId(2), Frame { number: 1, read: 0, body }).unwrap();
        let frames = written(&actions(&mut world).0, ConnId(2));
        world.read(ms(3), ConnId(2), acknowledgement(&frames)).unwrap();
        world.ended(ms(4), Some(End::Left));
        let frames = written(&actions(&mut world).0, ConnId(2));
        let is_status = |frame: &Frame| matches!(WorldSaid::decode(&frame.body), Some(WorldSaid::Status(_)));
        assert_eq!((frames.is_empty(), frames.iter().any(is_status)), (false, has_heir), "{frames:?}");
    }
}

#[test]
fn a_plan_that_arrives_before_the_command_has_stopped_is_proved_when_it_has() {
    let (mut world, others) = connected_follower(3);
    let (leader, ms) = (others[0], Time::from_millis);
    let read = |world: &mut World, number: u64, said: WorldSaid| {
        let body = said.encode();
        world.read(ms(10 + number), ConnId(1), Frame { number, read: 0, body }).unwrap();
    };
    let cause = FirstCause { rank: Some(2), end: End::Exited(1) };
    let phase = Phase::Round(cause);
    let plan = world.plan.clone().unwrap();
    let (round, epoch) = (RoundId { leader, number: 2 }, plan.epoch.next().unwrap());
    let next = Plan { round, epoch, terms: plan.terms.clone() };
    let reign = Reign { phase, rounds: 2, ..world.reign.clone() };
    read(&mut world, 1, WorldSaid::Plan(next.clone()));
    read(&mut world, 2, WorldSaid::Reign(reign));
    actions(&mut world);
    assert!(world.round.is_none(), "its command still stops");
    world.stopped(ms(20));
    actions(&mut world);
    assert_eq!(world.round.map(|round| round.plan.round), Some(next.round));
}

#[test]
fn a_ready_member_whose_leader_leaves_leads_the_world_of_the_round_or_the_last_one_if_the_round_is_void() {
    for has_formed in [true, false] {
        let (mut world, others) = connected_follower(3);
        let (leader, ms) = (others[0], Time::from_millis);
        let mut number = 0;
        let mut read = |world: &mut World, said: WorldSaid| {
            number += 1;
            let body = said.encode();
            world.read(ms(10 + number), ConnId(1), Frame { number, read: 0, body }).unwrap();
        };
        let plan = world.plan.as_deref().unwrap().clone();
        let (round, epoch) = (RoundId { leader, number: 2 }, plan.epoch.next().unwrap());
        let phase = Phase::Round(FirstCause { rank: Some(2), end: End::Exited(1) });
        let under_way = Reign { phase, rounds: 2, ..world.reign.clone() };
        read(&mut world, WorldSaid::Reign(under_way.clone()));
        actions(&mut world);
        world.stopped(ms(12));
        read(&mut world, WorldSaid::Plan(Plan { round, epoch, terms: plan.terms.clone() }));
        actions(&mut world);
        world.round.as_mut().unwrap().answer = Some(Answer::Ready);
        world.advance(ms(15));
        actions(&mut world);
        let last = Reign { phase: Phase::Over(FirstCause { rank: Some(0), end: End::Left }), ..under_way };
        let formed = Reign { epoch, round: Some(round), ..last.clone() };
        let leaves = Status { epoch, command: Command::Leaves, ..world.status() };
        read(&mut world, WorldSaid::Reign(if has_formed { formed } else { last }));
        read(&mut world, WorldSaid::Status(leaves));
        world.advance(ms(30));
        actions(&mut world);
        let expected = if has_formed { epoch } else { plan.epoch };
        assert!(world.leads() && world.epoch == expected, "{has_formed}: {:?}", world.reign);
    }
}

#[test]
fn a_node_that_has_lost_the_leader_leads_though_another_says_that_it_follows_this_node() {
    let (mut world, others) = connected_follower(3);
    let (other, own, ms) = (others[1], world.own.clone(), Time::from_millis);
    let pass = |world: &mut World, from: u64, to: u64| {
        for at in (from..=to).step_by(20) {
            world.advance(ms(at));
            actions(world);
        }
    };
    world.closed(ms(10), ConnId(1), Ending::Broken);
    let number = world.answers(ms(20), other, own.id).unwrap();
    world.opened(ms(20), other, accepted_from(contact(3).addresses[0].ip()), ConnId(2), (number, 9));
    pass(&mut world, 20, 3100);
    assert!(world.walk.is_some() && !world.leads());
    // Of an earlier time, at which this node has led.
    let body = WorldSaid::Reign(Reign { leader: own, rank: Some(1), ..world.reign.clone() }).encode();
    world.read(ms(3100), ConnId(2), Frame { number: 1, read: 0, body }).unwrap();
    actions(&mut world);
    assert!(!world.leads());
    pass(&mut world, 3120, 3700);
    assert!(world.leads(), "{:?}", world.walk);
}

#[test]
fn a_round_is_over_for_a_member_that_reads_that_it_is_void_and_for_a_leader_that_was_stopped() {
    let (mut world, others) = connected_follower(3);
    let (leader, ms) = (others[0], Time::from_millis);
    let round = RoundId { leader, number: 2 };
    let plan = world.plan.as_deref().unwrap().clone();
    let next = Plan { round, epoch: plan.epoch.next().unwrap(), terms: plan.terms };
    let cause = FirstCause { rank: Some(2), end: End::Exited(1) };
    let phases = [Phase::Round(cause), Phase::Over(cause)];
    let reigns = phases.map(|phase| Reign { phase, rounds: 2, ..world.reign.clone() });
    let [under_way, void] = reigns.map(WorldSaid::Reign);
    let mut is_in_round = Vec::new();
    for (number, said) in (1..).zip([under_way, WorldSaid::Plan(next), void]) {
        let body = said.encode();
        world.read(ms(10 + number), ConnId(1), Frame { number, read: 0, body }).unwrap();
        actions(&mut world);
        world.stopped(ms(10 + number));
        actions(&mut world);
        is_in_round.push((world.is_in_round(), world.round.is_some()));
    }
    assert_eq!(is_in_round, [(false, false), (true, true), (false, false)]);

    let mut net = Net::new(1, Size::new(3).unwrap().into(), 3, 0, 0.0);
    let (_, mut world) = fails_until(&mut net, World::is_in_round);
    world.advance(net.now + Duration::from_secs(5));
    assert!(!world.is_in_round() && !matches!(world.reign.phase, Phase::Runs), "{:?}", world.reign);
}

#[test]
fn a_round_is_void_at_once_if_a_node_of_it_was_in_a_later_world_than_the_leader_knew() {
    let mut net = Net::new(1, Size::new(3).unwrap().into(), 3, 0, 0.0);
    let (led, mut world) = fails_until(&mut net, World::is_in_round);
    let id = net.hosts[(led + 1) % 3].id;
    let status = world.peers.get(id).unwrap().known.status.clone().unwrap();
    let doubted = world.epoch.next().unwrap();
    world.at(net.now);
    world.on_status(id, Status { epoch: doubted, ..status });
    actions(&mut world);
    assert_eq!(world.round.map(|round| round.plan.epoch), doubted.next(), "another one begins at once");
}

#[test]
fn a_round_is_over_for_a_leader_whose_world_ends_before_its_own_command_has_begun() {
    let mut nets = (0..).map(|seed| Net::new(seed, Size::new(3).unwrap().into(), 3, 0, 0.0));
    let mut net = nets.find(|net| net.leader() > Some(0)).unwrap();
    let awaits_first = |lead: &WorldLead| lead.leads_commands() && lead.is_in_round();
    let (_, mut world) = fails_until(&mut net, |world| world.lead.as_ref().is_some_and(awaits_first));
    let (round, epoch) = (world.plan.as_ref().unwrap().round, world.epoch);
    assert!(world.round.is_some() && round.leader == world.own.id);
    world.at(net.now);
    let failed = Command::Failed(End::Exited(1));
    world.on_status(
        net.hosts[0].id,
        Status { epoch, command: failed, answer: None, lost: None, guests: Vec::new() },
    );
    actions(&mut world);
    assert!(matches!(world.reign.phase, Phase::Over(_)) && world.round.is_none(), "{:?}", world.reign);
}

#[test]
fn a_broken_path_of_the_former_leaders_round_says_nothing_of_the_rounds_of_its_heir() {
    let (mut world, _) = connected_follower(3);
    world.reign.trouble = Some(Refusal::PathsBroken(std::iter::empty().collect(), 1));
    world.succeed(1);
    actions(&mut world);
    assert_eq!((world.reign.leader.id, &world.reign.trouble), (world.own.id, &None));
}

#[test]
fn of_two_halves_of_a_large_world_that_do_not_reach_each_other_the_later_one_is_left_out() {
    let nodes: Vec<NodeId> = (0..1_000u16).map(|number| NodeId(u128::from(number).to_be_bytes())).collect();
    let (early, late) = nodes.split_at(500);
    let mut lead = WorldLead::formed(Time::ZERO);
    lead.learn(Time::ZERO, early.iter().flat_map(|a| late.iter().map(|b| (*a, *b))).collect());
    let mut out = lead.left_out(Time::from_millis(10), &nodes);
    out.sort();
    assert_eq!(out, late);
    // It cannot say to whom its paths are broken.
    lead.learn(Time::ZERO, vec![(early[7], early[7])]);
    assert_eq!(lead.left_out(Time::from_millis(10), early), [early[7]]);
    assert_eq!(lead.left_out(Time::from_secs(61), &nodes), []);
}

#[test]
fn a_leader_that_gives_the_job_up_and_leaves_at_once_frees_the_nodes_that_wait() {
    let mut net = Net::new(1, Size::new(3).unwrap().into(), 3, 1, 0.0);
    let led = net.leader().unwrap();
    net.run_until(Time::from_secs(5));
    let now = net.now;
    let world = net.hosts[led].world.as_mut().unwrap();
    world.release_all(now);
    world.ended(now, Some(End::Left));
    net.carry_out(led);
    net.run_until(now + Duration::from_secs(3));
    let finished = net.hosts.iter().map(|host| host.finished);
    assert!(finished.eq([false, false, false, true]), "{:?}", net.seen);
}

#[test]
fn a_node_that_was_asked_to_leave_is_the_first_cause_though_another_command_fails_before_its_own_ends() {
    for (leaves, is_asked) in (0..3).flat_map(|host| [(host, true), (host, false)]) {
        let (mut net, ..) = running(3, 0.0, 7);
        net.stop_time = Duration::from_secs(1 << 30);
        let fails = (leaves + 1) % 3;
        if is_asked {
            net.with(leaves, World::drain);
            net.run_until(net.now + Duration::from_secs(5));
            let runs = |host: &Host| host.command.is_some_and(|command| command.told.is_none());
            assert!(net.hosts.iter().all(runs), "nothing has ended yet: {}", net.state());
        }
        net.trouble(Trouble::Fail(fails));
        time_until_over(&mut net);
        if is_asked {
            // For longer than the leader looks for the first cause of a failure.
            net.run_until(net.now + Duration::from_secs(5));
        }
        assert!(net.hosts[leaves].command.is_some(), "it is told to stop, and still runs: {}", net.state());
        net.trouble(Trouble::Leave(leaves));
        net.run_until(net.now + Duration::from_millis(300));
        let over = net.hosts[(leaves + 2) % 3].world.as_ref().unwrap().over;
        let (host, end) = if is_asked { (leaves, End::Left) } else { (fails, End::Exited(1)) };
        assert_eq!(over, Some(FirstCause { rank: u32::try_from(host).ok(), end }), "{leaves}");
        assert!(!net.seen.contains_key("first cause"), "it was known at once");
    }
}

#[test]
fn a_node_that_has_died_is_the_first_cause_of_what_fails_though_another_drains() {
    let (mut net, leader, _) = running(4, 0.0, 7);
    net.stop_time = Duration::from_secs(1 << 30);
    let [drains, dies, fails] = [1, 2, 3].map(|step| (leader + step) % 4);
    net.with(drains, World::drain);
    net.run_until(net.now + Duration::from_secs(1));
    net.trouble(Trouble::Kill(dies));
    net.trouble(Trouble::Fail(fails));
    net.run_until(net.now + Duration::from_secs(2));
    let first = FirstCause { rank: u32::try_from(dies).ok(), end: End::Gone };
    for host in [leader, drains, fails] {
        assert_eq!(net.hosts[host].world.as_ref().unwrap().over, Some(first), "{}", net.state());
    }
}

#[test]
fn a_node_that_was_asked_to_leave_and_is_killed_before_it_has_left_counts_as_one_that_has() {
    for is_killed_first in [false, true] {
        let (mut net, leader, _) = running(3, 0.0, 7);
        net.stop_time = Duration::from_secs(1 << 30);
        let [drains, fails] = [1, 2].map(|step| (leader + step) % 3);
        net.with(drains, World::drain);
        net.run_until(net.now + Duration::from_secs(1));
        let [first, second] = [Trouble::Fail(fails), Trouble::Kill(drains)];
        let [first, second] = if is_killed_first { [second, first] } else { [first, second] };
        net.trouble(first);
        time_until_over(&mut net);
        net.trouble(second);
        net.run_until(net.now + Duration::from_secs(2));
        let first = FirstCause { rank: u32::try_from(drains).ok(), end: End::Left };
        for host in [leader, fails] {
            assert_eq!(net.hosts[host].world.as_ref().unwrap().over, Some(first), "{}", net.state());
        }
    }
}

#[test]
fn the_world_is_over_for_a_node_that_reaches_no_heir_and_whose_own_command_has_failed() {
    let (mut net, leader, _) = running(20, 0.0, 1);
    let heirs = net.hosts[leader].world.as_ref().unwrap().heirs();
    let is_heir = |host: &usize| heirs.iter().any(|heir| heir.id == net.hosts[*host].id);
    let host = (0..20).find(|host| !is_heir(host)).unwrap();
    for other in (0..20).filter(|other| *other != host) {
        net.trouble(Trouble::Cut(host, other));
    }
    net.run_until(net.now + Duration::from_secs(60));
    let over = |net: &Net| net.hosts[host].world.as_ref().unwrap().over;
    assert_eq!(over(&net), None, "its command runs on");
    net.trouble(Trouble::Fail(host));
    net.run_until(net.now + Duration::from_secs(60));
    let cause = FirstCause { rank: u32::try_from(host).ok(), end: End::Exited(1) };
    assert_eq!(over(&net), Some(cause), "{}", net.state());
}

#[test]
fn a_node_that_has_failed_and_leaves_before_anybody_has_read_that_is_the_cause_by_its_failure() {
    let mut net = Net::new(1, Size::new(3).unwrap().into(), 3, 0, 0.0);
    let led = net.leader().unwrap();
    let failed = (led + 1) % 3;
    net.run_until(Time::from_secs(5));
    net.trouble(Trouble::Stop(led, Duration::from_secs(3)));
    net.trouble(Trouble::Fail(failed));
    net.run_until(net.now + Duration::from_secs(2));
    let (now, world) = (net.now, net.hosts[failed].world.as_mut().unwrap());
    world.ended(now, Some(End::Left));
    net.carry_out(failed);
    net.run_until(now + Duration::from_millis(1500));
    let cause = net.hosts[led].world.as_ref().unwrap().over.unwrap();
    assert!(matches!(cause.end, End::Exited(_) | End::Killed(_)), "{cause:?}");
}

#[test]
fn a_leader_without_a_command_of_its_own_goes_on_beside_a_node_of_its_void_round() {
    let (mut world, _) = follower(3);
    let ms = Time::from_millis;
    let mut plan = world.plan.as_deref().unwrap().clone();
    (plan.round.leader, plan.epoch.generation) = (NodeId([2; 16]), 1);
    world = World::member(world.shared, plan.clone());
    world.command = Command::Waits;
    let spare = Contact { id: NodeId([9; 16]), addresses: vec![address(9, 0)] };
    let number = world.answers(ms(1), spare.id, NodeId([2; 16])).unwrap();
    world.opened(ms(1), spare.id, accepted_from(address(9, 0).ip()), ConnId(1), (number, 9));
    world.peers.get_mut(spare.id).unwrap().known.was_planned = true;
    let phase = Phase::Over(FirstCause { rank: None, end: End::Unknown });
    let round = Some(RoundId { number: 0, ..plan.round });
    let reign = Reign { term: 1, leader: spare, round, phase, ..world.reign.clone() };
    let body = WorldSaid::Reign(reign).encode();
    world.read(ms(2), ConnId(1), Frame { number: 1, read: 0, body }).unwrap();
    actions(&mut world);
    assert!(world.lead.is_some() && world.plan.is_some(), "{:?}", world.reign);
}

#[test]
fn a_member_that_hears_its_leader_by_an_heir_takes_that_for_stopped_once_it_owes_an_answer_for_5_seconds() {
    let (mut world, others) = connected_follower(4);
    let (leader, heir, ms) = (others[0], others[1], Time::from_millis);
    // In small steps, or it would have been stopped.
    let mut now = 10;
    let mut asks_until = |world: &mut World, until: u64| {
        while now < until {
            now += 10;
            world.advance(ms(now));
            actions(world);
        }
        world.walk.as_ref().is_some_and(|walk| walk.asked() == [heir])
    };
    world.closed(ms(10), ConnId(1), Ending::Broken);
    assert!(!asks_until(&mut world, 3100) && world.walk.is_some(), "it asks all: {:?}", world.walk);
    // The heir says that it follows the leader, and reads no more.
    let number = world.answers(ms(3100), heir, NodeId([2; 16])).unwrap();
    let way = accepted_from(contact(3).addresses[0].ip());
    world.opened(ms(3100), heir, way, ConnId(2), (number, 9));
    let body = WorldSaid::Reign(world.reign.clone()).encode();
    world.read(ms(3110), ConnId(2), Frame { number: 1, read: 0, body }).unwrap();
    assert!(asks_until(&mut world, 8050), "{:?}", world.walk);
    assert_eq!(world.reign.leader.id, leader);
    assert!(!asks_until(&mut world, 8200), "{:?}", world.walk);
}

#[test]
fn a_node_that_waits_and_has_read_nothing_of_a_leader_names_nobody() {
    let size = WorldSize::from(Size::new(2).unwrap());
    let mut world = World::guest(shared(&contact(2), size, 5, Time::ZERO), contact(1));
    for second in 0..20 {
        world.advance(Time::from_secs(second));
        actions(&mut world);
        assert_eq!(world.who_knows(), None);
    }
}

#[test]
fn a_node_that_waits_and_is_refused_by_the_leader_that_was_named_to_it_looks_for_another_within_half_a_second()
 {
    let size = WorldSize::from(Size::new(3).unwrap());
    let mut world = World::guest(shared(&contact(2), size, 5, Time::ZERO), contact(1));
    let mut now = Time::ZERO;
    loop {
        let (all, dial) = actions(&mut world);
        if all.contains(&Action::Report(WorldChange::Lost)) {
            break;
        }
        if let Some((dial, _)) = dial {
            world.dial_failed(now, contact(1).id, dial, Failed::Refused);
        }
        now = now.max(world.poll_timeout().expect("it goes on"));
        assert!(now < Time::from_millis(500), "it waits for a process that is not there");
        world.advance(now);
    }
}

#[test]
fn the_next_world_forms_soon_when_a_leader_leaves_or_dies_that_has_led_rounds() {
    for seed in 0..150 {
        let size = WorldSize::from(Size::new(3).unwrap());
        let mut net = Net::new(seed, size, 3, 3, 0.2);
        net.run_until(Time::from_secs(10));
        for ends in [Trouble::Fail, Trouble::Leave, Trouble::Fail, Trouble::Kill] {
            let leader = net.leader().unwrap();
            net.trouble(ends(leader));
            net.run_until(net.now + Duration::from_secs(12));
        }
        let runs = net.most().map(|(_, running)| running);
        assert!(net.worlds.len() == 5 && runs == Some(3), "seed {seed}: {}", net.state());
    }
}

#[test]
fn the_next_round_begins_soon_when_the_leader_leaves_after_a_member_that_was_found_dead() {
    let taken = (0..50).map(|seed| {
        let size = WorldSize::new(Size::new(3).unwrap(), Size::new(5).unwrap()).unwrap();
        let mut net = Net::new(seed, size, 5, 0, 0.2);
        (net.resets, net.stop_time) = (false, Duration::from_millis(1));
        net.run_until(Time::from_secs(10));
        let leader = net.leader().unwrap();
        let former = net.hosts[leader].id;
        net.trouble(Trouble::Kill((leader + 2) % 5));
        time_until_over(&mut net);
        net.trouble(Trouble::Leave(leader));
        let begun = net.now;
        let plans = |host: &Host| {
            let world = host.world.as_ref().filter(|world| world.leads() && world.own.id != former);
            world.is_some_and(|world| matches!(world.reign.phase, Phase::Round(_)))
        };
        while !net.hosts.iter().any(plans) {
            assert!(net.now < begun + Duration::from_secs(60), "{}", net.state());
            net.run_until(net.now + Duration::from_millis(5));
        }
        net.now.saturating_sub(begun)
    });
    // A member that must be found dead anew costs a second more.
    let worst = print_worst("from the end of the leader to the next round", taken.collect());
    assert!(worst <= Duration::from_millis(800));
}

/// Anything that a process may say of a world, with what it knows of this one.
fn lie(world: &World, own: &Contact, random: &mut Xoshiro256PlusPlus) -> WorldSaid {
    let plan = world.plan.clone().unwrap();
    let seat = |random: &mut Xoshiro256PlusPlus| {
        Contact::of(&plan.seats()[random.random_range(0..plan.seats().len())])
    };
    let broken_to = |to: Contact| BrokenTo {
        partner: to.id,
        path: to.addresses[0],
        fault: Fault::Silent,
        own_port_answers: false,
    };
    let later = random.random_range(0..3);
    let epoch = Epoch { generation: plan.epoch.generation + later, ..plan.epoch };
    let leader = if random.random_bool(0.6) { own.clone() } else { seat(random) };
    let end = [End::Exited(1), End::Gone, End::Left, End::Grows][random.random_range(0..4)];
    let cause = FirstCause { rank: Some(0), end };
    let number = random.random_range(0..9);
    let round = RoundId { leader: if later == 0 { plan.round.leader } else { leader.id }, number };
    let command = [Command::Waits, Command::Failed(end), Command::Leaves, Command::Succeeded]
        [random.random_range(0..4)];
    match random.random_range(0..3) {
        0 => WorldSaid::Plan(tests::plan(round, epoch, &[own.clone(), seat(random)])),
        1 => WorldSaid::Status(Status {
            epoch,
            command,
            answer: Some((
                round,
                Answer::Broken(Broken { paths: [broken_to(seat(random))].into_iter().collect(), more: 0 }),
            )),
            lost: Some(seat(random).id),
            guests: plan.seats().iter().map(|seat| (seat.id, command)).collect(),
        }),
        _ => WorldSaid::Reign(Reign {
            size: Size::new(3).unwrap().into(),
            epoch,
            term: random.random_range(0..99),
            rank: Some(random.random_range(0..2)),
            leader,
            is_cut_off: random.random(),
            round: Some(if random.random() { plan.round } else { round }),
            phase: [Phase::Over(cause), Phase::Round(cause), Phase::Released, Phase::Runs]
                [random.random_range(0..4)],
            rounds: number,
            suspected: vec![0, 1, 99],
            waiting: 3,
            here: 9,
            absent: vec![99],
            trouble: None,
            heirs: vec![own.clone()],
        }),
    }
}

#[test]
fn a_process_without_a_seat_ends_no_command_and_never_leads_whatever_it_says() {
    for seed in 0..60 {
        let (mut net, leader, other) = running(5, 0.0, seed);
        match seed % 3 {
            0 => {}
            1 => net.trouble(Trouble::Stop(leader, Duration::from_secs(20))),
            _ => net.trouble(Trouble::Cut(leader, other)),
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let own = Contact {
            id: NodeId([u8::try_from(seed).unwrap(); 16]),
            addresses: vec![([172, 17, 0, 1], 9).into()],
        };
        for number in 1..150 {
            for host in 0..5 {
                let conn = ConnId(u64::MAX - u64::try_from(host).unwrap());
                let said = match number {
                    1 => WorldSaid::Arrival(Box::new(arrival(&own))),
                    _ => lie(net.hosts[host].world.as_ref().unwrap(), &own, &mut random),
                };
                let body = said.encode();
                net.with(host, |world, now| {
                    if number == 1 {
                        let answered = world.answers(now, own.id, world.own.id).unwrap();
                        world.opened(now, own.id, accepted_from([172, 17, 0, 1].into()), conn, (answered, 3));
                    }
                    world.read(now, conn, Frame { number, read: 0, body }).unwrap();
                });
            }
            net.run_until(net.now + Duration::from_millis(200));
        }
        let follows = |host: &Host| host.world.as_ref().is_some_and(|world| world.reign.leader.id == own.id);
        let is_told = |host: &Host| host.command.is_none_or(|command| command.told.is_some());
        assert!(!net.hosts.iter().any(|host| follows(host) || is_told(host)), "{seed}: {}", net.state());
    }
}

/// Without a secret anybody can say a hello in the name of a member, with a number that is greater than the
/// member's.
#[test]
fn a_stranger_that_opens_a_session_in_the_name_of_a_member_or_of_the_leader_delays_no_end_of_the_world() {
    for (seed, as_leader) in (1..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let (mut net, leader, member) = running(4, 0.0, seed);
        let (victim, claimed) = if as_leader { (member, leader) } else { (leader, member) };
        let claimed = net.hosts[claimed].id;
        let later = net.hosts[victim].world.as_ref().unwrap().peers.number_for(claimed).wrapping_add(1 << 61);
        net.with(victim, |world, now| {
            let answered = world.answers(now, claimed, world.own.id).unwrap();
            let way = accepted_from([10, 9, 9, 9].into());
            world.opened(now, claimed, way, ConnId(u64::MAX), (answered, later));
            world.opened(now, claimed, way, ConnId(u64::MAX - 1), (answered, later.wrapping_add(1 << 62)));
        });
        net.run_until(net.now + Duration::from_secs(30));
        assert!(net.hosts.iter().all(|host| host.command.unwrap().told.is_none()), "{}", net.state());
        net.trouble(Trouble::Fail(member));
        net.run_until(net.now + Duration::from_millis(100));
        let runs_on =
            |host: &Host| host.id != net.hosts[member].id && host.command.is_some_and(|c| c.told.is_none());
        assert!(!net.hosts.iter().any(runs_on), "{seed} {as_leader}: {}", net.state());
    }
}

/// An heir has not met the other members before it leads.
#[test]
fn a_stranger_that_joins_an_heir_in_the_name_of_a_member_keeps_the_member_from_no_later_leader() {
    for seed in 1..20 {
        let (mut net, leader, _) = running(5, 0.0, seed);
        let world = |net: &Net, host: usize| net.hosts[host].world.clone().unwrap();
        let place = |id: NodeId| net.hosts.iter().position(|host| host.id == id).unwrap();
        let heirs: Vec<usize> = world(&net, leader).heirs().iter().map(|heir| place(heir.id)).collect();
        let others: Vec<usize> = heirs.into_iter().filter(|heir| *heir != leader).collect();
        let (heir, member) = (others[0], others[1]);
        let (claimed, stranger) = (net.hosts[member].id, [10, 9, 9, 9].into());
        let later = world(&net, member).peers.number_for(net.hosts[heir].id).wrapping_add(1 << 61);
        net.with(heir, |world, now| {
            let answered = world.answers(now, claimed, world.own.id).unwrap();
            let conn = ConnId(u64::MAX);
            world.opened(now, claimed, accepted_from(stranger), conn, (answered, later));
            let contact = Contact { id: claimed, addresses: vec![SocketAddr::new(stranger, 9)] };
            let body = WorldSaid::Arrival(Box::new(arrival(&contact))).encode();
            world.read(now, conn, Frame { number: 1, read: 0, body }).unwrap();
        });
        net.trouble(Trouble::Kill(leader));
        net.run_until(net.now + Duration::from_secs(1));
        let heir = world(&net, heir);
        assert!(heir.leads(), "{seed}: {}", net.state());
        let is_told = |host: &Host| {
            let is_told = heir.peers.get(host.id).is_some_and(|peer| peer.link.session.is_read());
            host.world.is_none() || host.id == heir.own.id || is_told
        };
        assert!(net.hosts.iter().all(is_told), "{seed}: {}", net.state());
        net.run_until(net.now + Duration::from_secs(30));
        assert!(net.is_settled(), "{seed}: {}", net.state());
    }
}

#[test]
fn a_stranger_that_says_that_a_member_leads_at_its_own_address_is_not_taken_for_the_member() {
    let (mut world, _) = follower(3);
    let (own, heir, stranger) = (world.own.id, contact(3), IpAddr::from([10, 9, 9, 9]));
    let number = world.answers(Time::ZERO, heir.id, own).unwrap();
    world.opened(Time::ZERO, heir.id, accepted_from(stranger), ConnId(7), (number, 9));
    let leader = Contact { addresses: vec![SocketAddr::new(stranger, 9)], ..heir.clone() };
    let (term, rank) = (world.reign.term + 1, Some(2));
    let body = WorldSaid::Reign(Reign { term, rank, leader, ..world.reign.clone() }).encode();
    world.read(Time::ZERO, ConnId(7), Frame { number: 1, read: 0, body }).unwrap();
    assert!(world.reign.leader.id == heir.id && !world.has_met(heir.id));
    let dials = actions(&mut world).0;
    let is_home = |action: &Action| matches!(action, Action::Carry(Order::Dial { to, .. }) if heir.addresses.contains(to));
    assert!(dials.iter().any(is_home), "{dials:?}");
}

#[test]
fn a_world_knows_no_more_processes_than_are_there_and_its_members() {
    let (mut world, _) = follower(3);
    let known = world.peers.len();
    for stranger in 10..200 {
        assert!(world.answers(Time::ZERO, NodeId([stranger; 16]), NodeId([2; 16])).is_some());
    }
    assert_eq!(world.peers.len(), known, "an answer to a hello creates nothing");
    let (stranger, own) = (NodeId([10; 16]), NodeId([2; 16]));
    let number = world.answers(Time::ZERO, stranger, own).unwrap();
    world.opened(Time::ZERO, stranger, accepted_from([10, 9, 9, 9].into()), ConnId(1), (number, 9));
    world.closed(Time::ZERO, ConnId(1), Ending::Broken);
    for ms in (0..70_000).step_by(50) {
        assert!(ms > 60_000 || world.peers.has(stranger));
        world.advance(Time::from_millis(ms));
        actions(&mut world);
    }
    assert!(!world.peers.has(stranger));
    let size = WorldSize::from(Size::new(4).unwrap());
    let mut net = Net::new(1, size, 4, 2, 0.0);
    net.run_until(Time::from_secs(10));
    for round in 0..60 {
        let host = round % 6;
        net.trouble(if round % 3 == 0 { Trouble::Leave(host) } else { Trouble::PowerOff(host) });
        net.run_until(net.now + Duration::from_secs(50));
        net.trouble(Trouble::Start(host));
        net.run_until(net.now + Duration::from_secs(50));
    }
    assert!(net.is_settled(), "{}", net.state());
    for world in net.hosts.iter().filter_map(|host| host.world.as_ref()) {
        let most = [world.peers.len(), world.dead.len(), world.left.len(), world.succeeded.len()];
        assert!(most.iter().max() <= Some(&9), "{most:?}");
        let former = !world.dead.is_empty() || !world.left.is_empty() || !world.succeeded.is_empty();
        assert!(world.lead.is_none() || !former, "{most:?}");
    }
}

/// `MINGLE_NODES=10000` takes 10 s of processor time.
#[test]
#[expect(clippy::disallowed_methods, reason = "it says how long a run takes")]
fn a_death_among_thousands_of_nodes_is_known_to_all_within_300_ms() {
    let members = usize::try_from(number("MINGLE_NODES").unwrap_or(1000)).unwrap();
    let begun = std::time::Instant::now();
    let (mut net, leader, other) = running(members, 0.0, 1);
    println!("{members} nodes have met after {:?}", begun.elapsed());
    for killed in [other, leader] {
        net.trouble(Trouble::Kill(killed));
        let took = time_until_over(&mut net);
        println!("over after {took:?}; real {:?}", begun.elapsed());
        assert!(took <= Duration::from_millis(300), "{took:?}");
        (net, ..) = running(members, 0.0, 1);
    }
}

#[test]
fn a_world_of_thousands_of_nodes_forms_again_with_a_few_words_of_its_leader_to_each() {
    let members = usize::try_from(number("MINGLE_NODES").unwrap_or(1000)).unwrap();
    let size = WorldSize::from(Size::new(u32::try_from(members).unwrap()).unwrap());
    let mut net = Net::new(1, size, members, 1, 0.0);
    net.resets = false;
    net.reading = Duration::from_millis(1);
    net.run_until(Time::from_secs(10));
    let (begun, before) = (net.now, net.seen["word of a leader"]);
    net.trouble(Trouble::Kill(members / 2));
    while net.worlds.len() < 2 || net.most().is_none_or(|(_, running)| running < members) {
        assert!(net.now < begun + Duration::from_secs(60), "{:?}", net.seen);
        net.run_until(net.now + Duration::from_millis(5));
    }
    let each = (net.seen["word of a leader"] - before) / u64::try_from(members).unwrap();
    println!("{members} nodes after {:?}, with {each} words to each", net.now.saturating_sub(begun));
    assert!((4..20).contains(&each), "over, the counts, the round, and the commit: {each}");
}

#[test]
fn a_node_that_waits_with_a_given_rank_that_is_taken_or_does_not_exist_does_not_count_as_here() {
    for (rank, here) in [(Some(0), 2), (Some(4), 2), (Some(2), 3), (None, 3)] {
        let mut net = Net::new(1, Size::new(4).unwrap().into(), 4, 1, 0.0);
        net.resets = false;
        let (now, world) = (net.now, net.hosts[4].world.as_mut().unwrap());
        let mut config = world.shared.config.clone();
        config.node.rank = rank.map(Rank);
        world.set_config(now, config);
        net.run_until(net.now + Duration::from_secs(5));
        net.trouble(Trouble::Kill(2));
        net.trouble(Trouble::Kill(3));
        net.run_until(net.now + Duration::from_secs(5));
        let reign = &net.hosts[net.leader().unwrap()].world.as_ref().unwrap().reign;
        assert_eq!((reign.here, &reign.absent[..], reign.waiting), (here, &[2, 3][..], 1), "{rank:?}");
    }
}

#[test]
fn a_node_that_waits_with_a_given_rank_that_is_taken_keeps_no_smaller_world_from_forming_and_ends_none() {
    let mut net = Net::new(1, "2:4".parse().unwrap(), 4, 1, 0.0);
    let (now, world) = (net.now, net.hosts[4].world.as_mut().unwrap());
    let mut config = world.shared.config.clone();
    config.node.rank = Some(Rank(1));
    world.set_config(now, config);
    net.run_until(net.now + Duration::from_secs(4));
    net.trouble(Trouble::Kill(3));
    net.run_until(net.now + Duration::from_secs(60));
    let world = net.hosts[net.leader().unwrap()].world.as_ref().unwrap();
    let seats = world.plan.as_ref().unwrap().seats().len();
    assert_eq!((world.epoch.generation, seats, world.over), (1, 3, None), "{}", net.state());
}

#[test]
fn nodes_that_wait_with_given_ranks_take_these_whoever_came_first() {
    for ranks in [[2, 3], [3, 2]] {
        let mut net = Net::new(1, Size::new(4).unwrap().into(), 4, 2, 0.0);
        for (host, rank) in [4, 5].into_iter().zip(ranks) {
            let (now, world) = (net.now, net.hosts[host].world.as_mut().unwrap());
            let mut config = world.shared.config.clone();
            config.node.rank = Some(Rank(rank));
            world.set_config(now, config);
        }
        net.run_until(net.now + Duration::from_secs(4));
        net.trouble(Trouble::Kill(2));
        net.trouble(Trouble::Kill(3));
        net.run_until(net.now + Duration::from_secs(5));
        let world = net.hosts[net.leader().unwrap()].world.as_ref().unwrap();
        assert_eq!(world.epoch.generation, 1, "the next world has formed");
        let seats = [4, 5].map(|host| world.plan.as_ref().unwrap().rank_of(net.hosts[host].id));
        assert_eq!(seats, ranks.map(Some));
    }
}

#[test]
fn members_keep_their_ranks_whatever_their_addresses_are() {
    let mut net = Net::new(1, Size::new(4).unwrap().into(), 4, 1, 0.0);
    net.run_until(net.now + Duration::from_secs(4));
    for (generation, trouble) in [(1, Trouble::Kill(0)), (2, Trouble::Fail(2))] {
        net.trouble(trouble);
        net.run_until(net.now + Duration::from_secs(5));
        let world = net.hosts[net.leader().unwrap()].world.as_ref().unwrap();
        assert_eq!(world.epoch.generation, generation, "{}", net.state());
        // The node with the last address has taken the rank of the lost one.
        let ranks = [4, 1, 2, 3].map(|host| world.plan.as_ref().unwrap().rank_of(net.hosts[host].id));
        assert_eq!(ranks, [0, 1, 2, 3].map(Some), "world {generation}");
    }
}

#[test]
fn a_world_grows_at_once_and_again_only_after_a_pause() {
    let mut net = Net::new(1, "2:3".parse().unwrap(), 2, 1, 0.0);
    for host in 0..2 {
        net.with(host, |world, _| world.shared.config.grow_after = Some(Duration::from_secs(60)));
    }
    let runs_in = |net: &mut Net, seconds, generation| {
        net.run_until(Time::from_secs(seconds));
        let leader = net.hosts[net.leader().unwrap()].world.as_ref().unwrap();
        assert_eq!((leader.epoch.generation, &leader.reign.phase), (generation, &Phase::Runs), "{seconds} s");
    };
    runs_in(&mut net, 6, 1);
    net.trouble(Trouble::Kill(2));
    runs_in(&mut net, 8, 2);
    net.trouble(Trouble::Start(2));
    runs_in(&mut net, 60, 2);
    runs_in(&mut net, 70, 3);
}

#[test]
fn a_node_whose_command_has_ended_well_may_die_and_one_that_leaves_when_the_world_is_over_is_no_cause() {
    let phase = |net: &Net| net.hosts[net.leader().unwrap()].world.as_ref().unwrap().reign.phase;
    let (mut net, leader, member) = running(3, 0.0, 1);
    let third = (0..3).find(|host| ![leader, member].contains(host)).unwrap();
    net.command_ends(third, None);
    net.run_until(net.now + Duration::from_secs(1));
    net.trouble(Trouble::Kill(third));
    net.run_until(net.now + Duration::from_secs(5));
    assert_eq!(phase(&net), Phase::Runs);

    let (mut net, leader, member) = running(3, 0.0, 2);
    let third = (0..3).find(|host| ![leader, member].contains(host)).unwrap();
    net.command_ends(member, Some(End::Exited(3)));
    net.run_until(net.now + Duration::from_millis(200));
    net.command_ends(third, Some(End::Left));
    net.run_until(net.now + Duration::from_secs(1));
    let Phase::Over(cause) = phase(&net) else { panic!("{:?}", phase(&net)) };
    assert_eq!(cause.end, End::Exited(3));
}

#[test]
fn a_node_that_waits_and_has_lost_the_leader_follows_whom_an_heir_follows() {
    let (ms, size) = (Time::from_millis, WorldSize::from(Size::new(3).unwrap()));
    let mut world = World::guest(shared(&contact(2), size, 5, Time::ZERO), contact(1));
    let open = |world: &mut World, at, peer: u8| {
        let dial = |action: &Action| match action {
            Action::Carry(Order::Dial { peer: id, dial, number, .. }) if *id == contact(peer).id => {
                Some((*dial, *number))
            }
            _ => None,
        };
        let (dial, number) = actions(world).0.iter().find_map(dial).expect("it dials");
        world.opened(at, contact(peer).id, Way::Dialled(dial), ConnId(peer.into()), (number, 9));
    };
    let read = |world: &mut World, at, from: u8, leader, term| {
        let epoch = Epoch { generation: 0, origin: 7 };
        let heirs = vec![contact(1), contact(3)];
        let size = world.shared.config.world;
        let reign = Reign { epoch, size, term, leader, heirs, ..Reign::default() };
        let frame = Frame { number: 1, read: 0, body: WorldSaid::Reign(reign).encode() };
        world.read(at, ConnId(from.into()), frame).unwrap();
    };
    open(&mut world, ms(1), 1);
    // The leader of one part of a world that had fallen apart, and an heir that has found the other part.
    read(&mut world, ms(2), 1, contact(1), 1);
    actions(&mut world);
    world.closed(ms(3), ConnId(1), Ending::Closed);
    let mut now = ms(3);
    while world.leader().is_some() {
        if let (_, Some((dial, _))) = actions(&mut world) {
            world.dial_failed(now, contact(1).id, dial, Failed::Refused);
        }
        now = world.poll_timeout().unwrap().max(now);
        world.advance(now);
        world.settle();
    }
    open(&mut world, now, 3);
    read(&mut world, now, 3, contact(4), 0);
    assert_eq!(world.leader(), Some(&contact(4)));
}

#[test]
fn members_that_were_stopped_while_others_went_on_form_no_second_world_though_the_leader_is_stopped_as_well()
{
    let mut asked = 0;
    for seed in 0..20 {
        let mut net = Net::new(seed, "2:3".parse().unwrap(), 3, 2, 0.0);
        net.run_until(Time::from_secs(10));
        let leader = net.leader().unwrap();
        let others: Vec<usize> = (0..3).filter(|host| *host != leader).collect();
        for other in &others {
            net.trouble(Trouble::Stop(*other, Duration::from_secs(40)));
        }
        net.trouble(Trouble::Fail(leader));
        // It goes on with the nodes that have waited.
        while net.worlds.len() == 1 {
            net.run_until(net.now + Duration::from_millis(100));
            assert!(net.now < Time::from_secs(40), "seed {seed}: {}", net.state());
        }
        net.run_until(net.now + Duration::from_secs(1));
        net.trouble(Trouble::Stop(leader, Duration::from_secs(60)));
        let left_behind = others.iter().map(|host| net.hosts[*host].id).collect::<Vec<_>>();
        while net.now < Time::from_secs(80) {
            net.run_until(net.now + Duration::from_millis(100));
        }
        assert_eq!(net.worlds.len(), 2, "seed {seed}: {}", net.state());
        asked += others.iter().filter(|host| !left_behind.contains(&net.hosts[**host].id)).count();
    }
    assert!(asked > 0, "none of them has heard of the others by asking");
}

#[test]
fn members_that_were_stopped_while_others_went_on_form_no_second_world_though_the_leader_dies_as_they_go_on()
{
    for seed in 0..40 {
        let mut net = Net::new(seed, "2:3".parse().unwrap(), 3, 2, 0.0);
        net.stop_time = Duration::ZERO;
        net.run_until(Time::from_secs(10));
        let leader = net.leader().unwrap();
        for other in (0..3).filter(|host| *host != leader) {
            net.trouble(Trouble::Stop(other, Duration::from_secs(40)));
        }
        net.trouble(Trouble::Fail(leader));
        net.run_until(Time::from_millis(50_000 - seed));
        assert_eq!(net.worlds.len(), 2, "it has gone on with the nodes that have waited");
        net.trouble(Trouble::Kill(leader));
        net.run_until(Time::from_secs(80));
        let commands = net.hosts.iter().filter_map(|host| Some(host.command.as_ref()?.epoch));
        assert_eq!(commands.collect::<BTreeSet<_>>().len(), 1, "seed {seed}: {}", net.state());
    }
}

#[test]
fn a_member_that_was_stopped_and_a_newcomer_form_no_world_beside_that_of_the_others_when_the_leader_dies() {
    for seed in 0..20 {
        let mut net = Net::new(seed, "2".parse().unwrap(), 2, 1, 0.0);
        net.run_until(Time::from_secs(10));
        let leader = net.leader().unwrap();
        let member = 1 - leader;
        net.trouble(Trouble::Stop(member, Duration::from_secs(60)));
        // Behind this word the member's process reads no other on its connection.
        net.trouble(Trouble::Kill(2));
        net.run_until(Time::from_secs(11));
        net.trouble(Trouble::Start(2));
        net.run_until(Time::from_secs(12));
        net.trouble(Trouble::Fail(leader));
        // It goes on with the node that has waited.
        while net.worlds.len() == 1 {
            net.run_until(net.now + Duration::from_millis(100));
            assert!(net.now < Time::from_secs(50), "seed {seed}: {}", net.state());
        }
        net.run_until(Time::from_secs(58));
        net.trouble(Trouble::PowerOff(leader));
        let was = net.hosts[member].id;
        while !net.hosts[member].world.as_ref().unwrap().leads() {
            net.run_until(net.now + Duration::from_millis(1));
            assert!(net.now < Time::from_secs(80), "seed {seed}: {}", net.state());
        }
        net.trouble(Trouble::Start(leader));
        net.run_until(Time::from_secs(130));
        assert_eq!(net.broken, Vec::<String>::new(), "seed {seed}");
        assert!(net.is_settled() && net.hosts[member].id != was, "seed {seed}: {}", net.state());
    }
}

#[test]
fn a_node_that_waits_names_an_heir_while_the_leader_is_dead_and_the_other_members_are_stopped() {
    let size = WorldSize::from(Size::new(3).unwrap());
    let mut net = Net::new(7, size, 3, 1, 0.0);
    net.run_until(Time::from_secs(10));
    let leader = net.leader().unwrap();
    let members: Vec<usize> = (0..3).filter(|host| *host != leader).collect();
    for host in &members {
        net.trouble(Trouble::Stop(*host, Duration::from_secs(60)));
    }
    net.trouble(Trouble::Kill(leader));
    for _ in 0..200 {
        net.run_until(net.now + Duration::from_millis(100));
        let spare = net.hosts[3].world.as_ref().unwrap();
        let heir = spare.who_knows().map(|heir| heir.id);
        let is_lost = spare.leader().is_none();
        assert!(heir.is_some() && (!is_lost || members.iter().any(|host| Some(net.hosts[*host].id) == heir)));
    }
    assert!(net.hosts[3].world.as_ref().unwrap().leader().is_none(), "the leader is lost");
}

#[test]
fn a_node_that_is_gone_is_not_said_to_be_back() {
    for seed in 0..10 {
        let (mut net, _, other) = running(4, 0.0, seed);
        net.trouble(Trouble::PowerOff(other));
        net.run_until(net.now + 3 * GONE_AFTER);
        let seen = |what| net.seen.contains_key(what);
        assert!(seen("suspected") && seen("gone") && !seen("back"), "{seed}: {:?}", net.seen);
    }
}

/// Whoever is left would take it for the leader of another world.
#[test]
fn a_node_that_leaves_never_names_itself_to_newcomers() {
    for (seed, leads, cut_for) in
        (0..10).flat_map(|seed| [(seed, false, 0), (seed, true, 0), (seed, true, 15)])
    {
        let (mut net, leader, member) = running(2, 0.0, seed);
        let leaver = if leads { leader } else { member };
        let troubles = [Trouble::Leave(leaver), Trouble::Cut(leader, member), Trouble::Reset(leaver)];
        if cut_for == 0 {
            // Its last words are lost with its connections.
            for trouble in troubles {
                net.trouble(trouble);
            }
        } else {
            net.trouble(Trouble::Cut(leader, member));
            net.run_until(net.now + Duration::from_secs(cut_for));
            net.trouble(Trouble::Leave(leaver));
        }
        let mut lonely = 0;
        while let Some(world) = net.hosts[leaver].world.as_ref().filter(|world| !world.has_ended) {
            let named = world.who_knows().map(|contact| contact.id);
            let is_alone = !world.peers.iter().any(|(_, peer)| peer.link.is_there());
            lonely += u32::from(is_alone);
            assert!(!is_alone || named != Some(world.own.id), "{seed} {leads} {cut_for} {lonely}");
            net.run_until(net.now + Duration::from_millis(1));
        }
        assert!(lonely > 100, "{seed} {leads}: {lonely}");
    }
}

#[test]
fn a_world_of_200_nodes_of_which_40_die_and_return_within_a_minute_is_one_world_again_and_ends() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(20);
    let [fewest, most] = [160, 200].map(|nodes| Size::new(nodes).unwrap());
    let mut net = Net::new(20, WorldSize::new(fewest, most).unwrap(), 200, 0, 0.01);
    net.reading = Duration::from_millis(1);
    net.run_until(Time::from_secs(10));
    for host in 0..40 {
        let at = net.now + Duration::from_millis(random.random_range(0..60_000));
        let trouble =
            if random.random_bool(0.7) { Trouble::Kill(host * 5) } else { Trouble::PowerOff(host * 5) };
        net.at(at, Event::Trouble(trouble));
        let back = at + Duration::from_millis(random.random_range(500..15_000));
        net.at(back, Event::Trouble(Trouble::Start(host * 5)));
    }
    net.run_until(net.now + Duration::from_secs(75));
    let calm = net.now;
    while !net.is_settled() {
        assert!(net.now < calm + AGAIN, "{}", net.state());
        net.run_until(net.now + Duration::from_millis(100));
    }
    println!("settled after {:?}, {:?}", net.now.saturating_sub(calm), net.seen);
    assert!(net.seen["killed"] + net.seen["power"] >= 40, "{:?}", net.seen);
    assert!(net.worlds.len() >= 5, "it went on meanwhile: {:?}", net.worlds.keys());
    finish(&mut net, &mut random).unwrap();
    assert!(net.broken.is_empty(), "{:?}", net.broken);
}

#[test]
fn a_member_that_dies_before_it_has_said_where_it_is_is_dead_by_its_seat_in_the_plan() {
    let (own, other) = (contact(1), contact(2));
    let plan = plan(
        RoundId { leader: own.id, number: 1 },
        Epoch { generation: 0, origin: 9 },
        &[own.clone(), other.clone()],
    );
    let size = Size::new(2).unwrap().into();
    let mut now = Time::from_secs(1);
    let mut world = World::member(shared(&own, size, 1, now), plan);
    let number = world.answers(now, other.id, own.id).unwrap();
    world.opened(now, other.id, accepted_from(other.addresses[0].ip()), ConnId(1), (number, 7));
    world.closed(now, ConnId(1), Ending::Closed);
    let mut over = None;
    while over.is_none() && now < Time::from_secs(3) {
        while let Some(action) = world.poll_action() {
            match action {
                Action::Carry(Order::Dial { to, peer, dial, .. }) => {
                    assert_eq!(to, other.addresses[0]);
                    world.dial_failed(now, peer, dial, Failed::Refused);
                }
                Action::Report(WorldChange::Over(cause)) => over = Some(cause),
                _ => {}
            }
        }
        now += Duration::from_millis(20);
        world.advance(now);
    }
    assert_eq!(over, Some(FirstCause { rank: Some(1), end: End::Gone }));
    assert!(now < Time::from_millis(1400), "{now:?}");
}

#[test]
fn a_member_that_never_came_is_the_first_cause_of_the_failure_of_another() {
    let plan = plan(
        RoundId { leader: contact(1).id, number: 1 },
        Epoch { generation: 0, origin: 9 },
        &[contact(1), contact(2)],
    );
    let begun = Time::from_secs(1);
    let mut now = begun + Duration::from_millis(100);
    let size = Size::new(2).unwrap().into();
    let mut world = World::member(shared(&contact(1), size, 1, begun), plan);
    world.ended(now, Some(End::Exited(1)));
    let mut reported = Vec::new();
    while now < begun + Duration::from_secs(2) {
        while let Some(action) = world.poll_action() {
            match action {
                Action::Carry(Order::Dial { peer, dial, .. }) => {
                    world.dial_failed(now, peer, dial, Failed::Refused);
                }
                Action::Report(change) => reported.push(change),
                _ => {}
            }
        }
        now += Duration::from_millis(20);
        world.advance(now);
    }
    let own = FirstCause { rank: Some(0), end: End::Exited(1) };
    let first = FirstCause { rank: Some(1), end: End::Gone };
    assert!(reported.starts_with(&[WorldChange::Over(own), WorldChange::FirstCause(first)]), "{reported:?}");
}

/// A world whose leader leaves as it forms, after its command has ended like this. Another node may begin
/// late.
fn left_as_it_forms(seed: u64, members: usize, ended: End, loss: f64) -> (Net, usize) {
    let size = WorldSize::from(Size::new(u32::try_from(members).unwrap()).unwrap());
    let mut net = Net::new(seed, size, members, 0, loss);
    let leader = net.leader().unwrap();
    if seed.is_multiple_of(2) {
        let late = Duration::from_millis(net.random.random_range(1..2000));
        net.trouble(Trouble::Stop((leader + 1) % members, late));
    }
    for end in [ended, End::Left] {
        net.with(leader, |world, now| world.ended(now, Some(end)));
    }
    (net, leader)
}

#[test]
fn a_leader_that_leaves_or_has_failed_before_its_members_have_come_is_not_gone() {
    for seed in 0..300 {
        for (members, ended) in (2..5).flat_map(|members| [(members, End::Left), (members, End::Exited(7))]) {
            let (mut net, leader) = left_as_it_forms(seed, members, ended, 0.02);
            net.run_until(net.now + Duration::from_secs(3));
            assert!(net.hosts[leader].world.is_none(), "seed {seed}: {}", net.state());
            for world in net.hosts.iter().filter_map(|host| host.world.as_ref()) {
                let cause = world.over.map(|cause| cause.end);
                assert_eq!(cause, Some(ended), "seed {seed}, {members} members: {}", net.state());
            }
        }
    }
}

#[test]
fn no_node_runs_on_or_takes_the_leader_for_gone_that_left_as_its_world_formed_whatever_was_lost() {
    for seed in 0..1000 {
        let loss = [0.0, 0.05, 0.3][usize::try_from(seed % 3).unwrap()];
        for members in 2..6 {
            let (mut net, _) = left_as_it_forms(seed, members, End::Exited(7), loss);
            net.run_until(net.now + Duration::from_secs(25));
            let runs = |world: &World| world.over.is_none() && world.epoch.generation == 0;
            for world in net.hosts.iter().filter_map(|host| host.world.as_ref()) {
                let is_gone = world.over.is_some_and(|cause| cause.end == End::Gone);
                assert!(!runs(world) && !is_gone, "seed {seed}, {members} members: {}", net.state());
            }
        }
    }
}

#[test]
fn a_leader_whose_command_stops_too_late_for_the_next_world_waits_for_a_seat_in_it() {
    let mut late = 0;
    for seed in 0..20 {
        let mut net = Net::new(seed, "1:2".parse().unwrap(), 1, 1, 0.0);
        net.stop_time = Duration::from_secs(1500);
        net.run_until(net.now + Duration::from_secs(5));
        net.trouble(Trouble::Fail(0));
        net.run_until(net.now + Duration::from_secs(1600));
        let world = net.hosts[0].world.as_ref().unwrap();
        if net.hosts[0].command.is_none() {
            late += u32::from(world.is_guest());
            assert_eq!(world.command, Command::Waits, "seed {seed}: {}", net.state());
        }
    }
    assert!(late > 0);
}

#[test]
fn after_a_pause_longer_than_the_stop_timeout_the_next_world_has_all_members_and_no_spare_in_their_place() {
    for seed in 0..20 {
        let mut net = Net::new(seed, Size::new(3).unwrap().into(), 3, 3, 0.0);
        net.run_until(Time::from_secs(10));
        // All come back a minute later, one after the other.
        net.stop_time = Duration::from_secs(1 << 30);
        net.trouble(Trouble::Fail(1));
        net.run_until(Time::from_secs(11));
        let pauses: Vec<(usize, u32, Epoch)> = (0..3)
            .map(|host| (host, net.hosts[host].life, net.hosts[host].world.as_ref().unwrap().epoch))
            .collect();
        for ((host, life, epoch), after) in pauses.into_iter().zip(0..) {
            let at = net.now + 2 * STOP_TIMEOUT + Duration::from_millis(300 * after);
            net.at(at, Event::Stopped(host, life, epoch));
        }
        net.run_until(net.now + 2 * STOP_TIMEOUT + Duration::from_secs(5));
        let commands = net.hosts.iter().map(|host| host.command.is_some());
        let run: Vec<bool> = commands.collect();
        assert_eq!((net.worlds.len(), &run[..3]), (2, &[true; 3][..]), "seed {seed}: {}", net.state());
    }
}

#[test]
fn a_leader_that_dies_long_after_its_world_was_over_is_no_cause_of_that() {
    let (mut world, others) = connected_follower(3);
    let (leader, ms) = (others[0], Time::from_millis);
    let cause = FirstCause { rank: Some(2), end: End::Exited(1) };
    let body = WorldSaid::Reign(Reign { phase: Phase::Over(cause), ..world.reign.clone() }).encode();
    world.read(ms(3), ConnId(1), Frame { number: 1, read: 0, body }).unwrap();
    actions(&mut world);
    world.stopped(ms(10));
    world.closed(ms(5000), ConnId(1), Ending::Closed);
    for at in (5000..5400).step_by(20) {
        world.advance(ms(at));
        let is_to_leader = |action: Action| match action {
            Action::Carry(Order::Dial { peer, dial, .. }) if peer == leader => Some(dial),
            _ => None,
        };
        for dial in actions(&mut world).0.into_iter().filter_map(is_to_leader) {
            world.dial_failed(ms(at), leader, dial, Failed::Refused);
        }
    }
    assert!(world.leads() && world.dead.contains(&leader), "{:?}", world.reign);
    assert_eq!(world.over, Some(cause));
}

#[test]
fn a_node_without_a_seat_or_whose_leader_has_none_leaves_once_the_leader_has_read_that() {
    let (ms, size) = (Time::from_millis, WorldSize::from(Size::new(3).unwrap()));
    let spare = World::guest(shared(&contact(9), size, 5, Time::ZERO), contact(1));
    let (mut member, _) = follower(3);
    member.peers.forget(ms(0), contact(1).id);
    member.reign.leader = contact(7);
    member.follow();
    let last_written = |all: &[Action]| acknowledgement(&written(all, ConnId(1)));
    for mut world in [spare, member] {
        let leader = world.reign.leader.id;
        let (dial, number) = actions(&mut world).1.unwrap();
        world.opened(ms(1), leader, Way::Dialled(dial), ConnId(1), (number, 9));
        let (all, _) = actions(&mut world);
        world.read(ms(5), ConnId(1), last_written(&all)).unwrap();
        world.ended(ms(10), Some(End::Left));
        let (all, _) = actions(&mut world);
        assert!(!all.contains(&Action::Report(WorldChange::MayEnd)), "{all:?}");
        world.read(ms(20), ConnId(1), last_written(&all)).unwrap();
        assert!(actions(&mut world).0.contains(&Action::Report(WorldChange::MayEnd)));
    }
}

/// The leader of a world of its own, and the plan of that.
fn lone_leader() -> (World, Plan) {
    let (world, _) = follower(1);
    let plan = world.plan.as_deref().unwrap().clone();
    let own = contact(1);
    (World::member(shared(&own, world.shared.config.world, 5, Time::ZERO), plan.clone()), plan)
}

/// An observer opens a session on the connection of this number, and says what observers say.
fn observe(world: &mut World, number: u8) {
    let (now, conn, observer) = (Time::from_millis(1), ConnId(number.into()), NodeId([number; 16]));
    let answered = world.answers(now, observer, world.own.id).unwrap();
    world.opened(now, observer, accepted_from(address(number.into(), 0).ip()), conn, (answered, 4));
    let (epoch, command) = (Epoch::default(), Command::Waits);
    let status = WorldSaid::Status(Status { epoch, command, answer: None, lost: None, guests: Vec::new() });
    world.read(now, conn, Frame { number: 1, read: 0, body: status.encode() }).unwrap();
}

#[test]
fn of_many_observers_at_once_sixteen_are_told_who_the_members_are() {
    let (mut world, plan) = lone_leader();
    (100..140).for_each(|number| observe(&mut world, number));
    let (all, _) = actions(&mut world);
    let is_told = |number: &u8| {
        let frames = written(&all, ConnId((*number).into()));
        frames.iter().any(|frame| WorldSaid::decode(&frame.body) == Some(WorldSaid::Plan(plan.clone())))
    };
    assert_eq!((100..140).filter(is_told).count(), 16);
}

#[test]
fn an_observer_learns_who_the_members_are_and_how_the_world_ends_and_nobody_waits_for_it() {
    let ((mut world, plan), ms) = (lone_leader(), Time::from_millis);
    observe(&mut world, 9);
    let said = |frames: &[Frame]| -> Vec<WorldSaid> {
        frames.iter().filter_map(|frame| WorldSaid::decode(&frame.body)).collect()
    };
    let frames = written(&actions(&mut world).0, ConnId(9));
    let all = said(&frames);
    assert!(all.contains(&WorldSaid::Plan(plan)), "{all:?}");
    assert!(world.spares().is_empty() && world.is_alone());
    world.read(ms(3), ConnId(9), acknowledgement(&frames)).unwrap();
    // Nodes that wait are freed, as if all had ended well.
    world.release_all(ms(10));
    world.ended(ms(10), Some(End::Exited(3)));
    let all = said(&written(&actions(&mut world).0, ConnId(9)));
    let over = Phase::Over(FirstCause { rank: Some(0), end: End::Exited(3) });
    let is_told = |said: &WorldSaid| matches!(said, WorldSaid::Reign(reign) if reign.phase == over);
    assert!(all.last().is_some_and(is_told), "{all:?}");
    world.ended(ms(20), Some(End::Left));
    assert!(actions(&mut world).0.contains(&Action::Report(WorldChange::MayEnd)));
}

#[test]
fn a_leader_that_goes_over_to_a_better_one_says_so_at_once_to_those_that_follow_it() {
    let (ms, size) = (Time::from_millis, WorldSize::from(Size::new(3).unwrap()));
    let seats: Vec<Contact> = (1..=3).map(contact).collect();
    let round = RoundId { leader: seats[0].id, number: 1 };
    let plan = plan(round, Epoch { generation: 0, origin: 7 }, &seats);
    let (own, member, other) = (&seats[0], seats[1].id, &seats[2]);
    let mut world = World::member(shared(own, size, 5, Time::ZERO), plan);
    for (id, host, conn) in [(member, 2, ConnId(2)), (other.id, 3, ConnId(3))] {
        let number = world.answers(ms(1), id, own.id).unwrap();
        world.opened(ms(1), id, accepted_from(address(host, 0).ip()), conn, (number, 9));
    }
    let frames = written(&actions(&mut world).0, ConnId(2));
    world.read(ms(3), ConnId(2), acknowledgement(&frames)).unwrap();
    let better = Reign { term: 1, rank: Some(2), leader: other.clone(), ..world.reign.clone() };
    let body = WorldSaid::Reign(better).encode();
    world.read(ms(3), ConnId(3), Frame { number: 1, read: 0, body }).unwrap();
    assert!(!world.leads());
    // Nothing of the new leader has been read, which may be lost.
    let frames = written(&actions(&mut world).0, ConnId(2));
    let names_it = |frame: &Frame| matches!(WorldSaid::decode(&frame.body), Some(WorldSaid::Reign(reign)) if reign.leader == *other);
    assert!(frames.iter().any(names_it), "{frames:?}");
}
