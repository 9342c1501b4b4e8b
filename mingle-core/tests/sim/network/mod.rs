//! A network of nodes in virtual time. One seed decides everything.
//!
//! Happenings are ordered by (time, sequence). Datagrams are lost, duplicated, delayed and reordered; TCP
//! connections are delayed, refused, filtered or closed. Nodes exchange bytes only, so every message passes
//! through the codec.
//!
//! `hosts` has the hosts and their processes, `pauses` those that are stopped or late, `power` hosts
//! that lose power, `changes` what else changes on a host, `fabric` its RDMA devices, `links` the
//! datagrams, `tcp` the connections, `sessions` what processes say on them, `paths` those that prove paths,
//! `queue` what will happen; `promises` checks at every step what is promised, `history` is the record of a
//! run.

mod changes;
mod fabric;
mod history;
mod hosts;
mod links;
mod paths;
mod pauses;
mod power;
mod promises;
mod queue;
mod sessions;
mod tcp;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use mingle_core::proto::testing::Phase;
use mingle_core::proto::{DialId, Node, Output, PathDial, Time, Warning};
use mingle_core::{Event, Failure};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

pub use fabric::Fabric;
use fabric::Fabrics;
use history::History;
pub use history::{End, Ended, Fact};
pub use hosts::{Host, PORT, Unformed};
pub use links::Weather;
pub use paths::Flaw;
use paths::Proving;
pub use pauses::Lateness;
use promises::Promises;
use queue::{Happening, Queue};
use tcp::Connection;

/// Which nodes that have failed are started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restarts {
    Never,
    /// Those that do not know the outcome.
    InDoubt,
    All,
}

impl Restarts {
    fn covers(self, failure: &Failure) -> bool {
        match self {
            Self::Never => false,
            Self::InDoubt => matches!(failure, Failure::OutcomeUnknown { .. }),
            Self::All => true,
        }
    }
}

pub struct Network {
    pub now: Time,
    pub hosts: Vec<Host>,
    pub weather: Weather,
    pub trace: String,
    rng: Xoshiro256PlusPlus,
    queue: Queue,
    /// How many hosts have no outcome yet.
    unfinished: usize,
    /// The pairs (from, to) of hosts between which nothing passes, and since when.
    cut: BTreeMap<(usize, usize), Time>,
    connections: BTreeMap<u64, Connection>,
    by_address: BTreeMap<SocketAddr, Vec<usize>>,
    next_connection: u64,
    /// The connections that prove paths.
    proving: BTreeMap<u64, Proving>,
    provers: BTreeMap<(usize, u32, DialId), u64>,
    /// The flaws of the paths from one host to another.
    pub flaws: BTreeMap<(usize, usize), Flaw>,
    /// Those that were there until all paths were healed.
    healed_flaws: BTreeMap<(usize, usize), Flaw>,
    promises: Promises,
    fabrics: Fabrics,
    /// The promises that were broken.
    pub broken: Vec<String>,
    /// The pairs (from, to) of hosts between which a firewall drops SYNs, and until when.
    pub no_syn: BTreeMap<(usize, usize), Time>,
    /// When the last cut ended, the last stopped process went on, or seeds or addresses changed last.
    pub healed: Time,
    /// The record of this run.
    pub history: History,
    /// How late timers fire.
    pub lateness: Option<Lateness>,
    /// Which nodes are started again, as by an orchestrator.
    pub restarts: Restarts,
    /// Whether a trace is written. A large world costs less without one.
    pub tracing: bool,
    /// All unicast datagrams, where they are recorded.
    pub record: Option<Vec<Vec<u8>>>,
}

impl Network {
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self {
            now: Time::ZERO,
            hosts: Vec::new(),
            weather,
            trace: String::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            queue: Queue::default(),
            unfinished: 0,
            cut: BTreeMap::new(),
            connections: BTreeMap::new(),
            by_address: BTreeMap::new(),
            next_connection: 0,
            proving: BTreeMap::new(),
            provers: BTreeMap::new(),
            flaws: BTreeMap::new(),
            healed_flaws: BTreeMap::new(),
            promises: Promises::default(),
            fabrics: Fabrics::new(seed),
            broken: Vec::new(),
            no_syn: BTreeMap::new(),
            healed: Time::ZERO,
            history: History::default(),
            lateness: None,
            restarts: Restarts::Never,
            tracing: true,
            record: None,
        }
    }

    /// As [`Network::new`], and the hosts may have other traits than the rest.
    pub fn varied(seed: u64, weather: Weather) -> Self {
        let mut net = Self::new(seed, weather);
        net.fabrics.vary_traits(seed);
        net
    }

    fn at(&mut self, time: Time, happening: Happening) {
        self.queue.push(time, happening);
    }

    /// Does what happens next. Returns false where nothing is left to happen.
    pub fn step(&mut self) -> bool {
        let Some((time, happening)) = self.queue.pop() else { return false };
        self.now = self.now.max(time);
        self.happen(happening);
        true
    }

    /// Goes on until `done`, or until `limit`. Returns whether it was done.
    pub fn run_until(&mut self, limit: Time, mut done: impl FnMut(&Self) -> bool) -> bool {
        while !done(self) {
            if self.queue.next().is_none_or(|time| time > limit) || !self.step() {
                return false;
            }
        }
        true
    }

    /// Goes on until every node has ended, or until `limit`. Returns whether every node has.
    pub fn run(&mut self, limit: Time) -> bool {
        self.run_until(limit, |net| net.unfinished == 0)
    }

    /// The host whose process must run for this to happen.
    fn process_for(&self, happening: &Happening) -> Option<usize> {
        match happening {
            Happening::Wake(host, _) | Happening::Datagram { to: host, .. } => Some(*host),
            Happening::SynAnswered { conn, .. } | Happening::DialExpires { conn } => {
                Some(self.connections[conn].ends[0].host)
            }
            Happening::Read { conn, end, .. } => Some(self.connections[conn].ends[*end].host),
            Happening::Path { path, .. } => Some(self.proving[path].host),
            _ => None,
        }
    }

    fn happen(&mut self, happening: Happening) {
        if let Some(host) = self.process_for(&happening)
            && self.hosts[host].paused.is_some()
        {
            self.hold(host, happening);
            return;
        }
        match happening {
            Happening::Cut(from, to, cut) => self.cut(from, to, cut),
            Happening::Forge(host, frame) => self.forge(host, frame),
            Happening::Replay(host, bytes) => self.replay(host, &bytes),
            Happening::Seeds(host, seeds) => self.change_seeds(host, seeds),
            Happening::Address(host, ip, appears) => self.change_address(host, ip, appears),
            Happening::Break(host) => self.break_dialled(host),
            Happening::Pause(host) => self.pause(host),
            Happening::Resume(host) => self.resume(host),
            Happening::Start(host) => self.start(host),
            Happening::Kill(host) => self.kill(host),
            Happening::PowerLoss(host) => self.lose_power(host),
            Happening::PowerOn(host) => self.hosts[host].powered = true,
            Happening::Probe { conn, end, number } => self.probe(conn, end, number),
            Happening::Starved { conn, end, since } => self.starved(conn, end, since),
            Happening::GiveUp { conn, end } => self.give_up(conn, end),
            Happening::Wake(host, at) => self.wake(host, at),
            Happening::Datagram { to, life, packet } if self.hosts[to].life == life => {
                self.receive(to, &packet);
            }
            Happening::Datagram { .. } => {}
            Happening::Syn { conn } => self.syn(conn),
            Happening::PathSyn { path } => self.path_syn(path),
            Happening::Path { path, news } => self.path(path, news),
            Happening::SynAnswered { conn, target } => self.syn_answered(conn, target),
            Happening::DialExpires { conn } => self.dial_expires(conn),
            Happening::Arrive { conn, end } => self.arrive(conn, end),
            Happening::Read { conn, end, segment } => self.read(conn, end, segment),
        }
    }

    fn wake(&mut self, host: usize, at: Time) {
        let slot = &mut self.hosts[host];
        slot.wake = slot.wake.filter(|&wake| wake != at);
        // A timer that fires late may have been overtaken by another one.
        let now = self.now;
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(slot.node.as_ref().and_then(|node| node.poll_timeout())) {
            self.note(host, || "timeout".to_owned());
            self.with(host, Node::handle_timeout);
        }
    }

    /// Calls a node and carries out its outputs. Returns how many there were.
    fn with(&mut self, host: usize, act: impl FnOnce(&mut Node, Time)) -> usize {
        let Some(mut node) = self.hosts[host].node.take() else { return 0 };
        act(&mut node, self.now);
        if node.phase() == Phase::Committed {
            self.decides(host);
        }
        let mut outcome = None;
        let mut outputs = 0;
        while let Some(output) = node.poll_output() {
            outputs += 1;
            match output {
                Output::Event(Event::Formed(formed)) => outcome = Some(Ok(formed)),
                Output::Event(Event::Failed(failure)) => outcome = Some(Err(failure)),
                Output::Event(Event::Warning(warning)) => self.warns(host, &warning),
                Output::Event(event) => {
                    if let Event::Preparing { round } = event {
                        self.prepares(host, round);
                    }
                    self.note(host, || format!("{event:?}"));
                }
                other => self.carry_out(host, other),
            }
        }
        if let Some(outcome) = outcome {
            self.note(host, || format!("ends: {outcome:?}"));
            if let Ok(formed) = &outcome {
                self.formed(host, formed);
            }
            let how = match &outcome {
                Ok(formed) => Ended::Formed(formed.digest),
                Err(failure) => Ended::Failed(failure.clone()),
            };
            self.ends(host, how);
            self.promises.release(host);
            assert!(node.has_ended(), "a node has ended when it says so");
            if outcome.as_ref().is_err_and(|failure| self.restarts.covers(failure)) {
                let again = self.now + Time::from_millis(self.rng.random_range(10..2000));
                self.at(again, Happening::Start(host));
            }
            self.set_outcome(host, Some(outcome.map_err(Unformed::Failed)));
            self.hosts[host].ended = Some(self.now);
            self.close_all(host);
            return outputs;
        }
        if let Some(at) = node.poll_timeout() {
            self.wake_at(host, at);
        }
        self.hosts[host].bound = node.is_bound();
        self.hosts[host].node = Some(node);
        outputs
    }

    fn warns(&mut self, host: usize, warning: &Warning) {
        self.note(host, || format!("warns: {warning}"));
        self.hosts[host].warnings.push(warning.to_string());
    }

    fn carry_out(&mut self, host: usize, output: Output) {
        self.note(host, || history::describe(&output));
        match output {
            Output::Send { to, datagram } => self.unicast(host, to, datagram),
            Output::Multicast { datagram } => self.multicast(host, &datagram),
            Output::Carry(order) => self.carry(host, order),
            Output::DialPath(PathDial { dial, to, token, answer, packet }) => {
                self.dial_path(host, dial, to, token, answer, packet);
            }
            Output::HangUp(dial) => self.hang_up_path(host, dial),
            Output::StopAccepting => self.hosts[host].accepting = false,
            _ => {}
        }
    }

    fn note(&mut self, host: usize, what: impl FnOnce() -> String) {
        if self.tracing {
            let _ = writeln!(self.trace, "{:>12.6} {host}: {}", self.now.as_secs_f64(), what());
        }
    }
}
