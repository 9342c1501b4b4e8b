//! Datagrams between hosts: lost, duplicated, delayed, reordered, cut off.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use mingle_core::proto::Time;
use rand::RngExt;

use super::hosts::PORT;
use super::queue::{Arrival, Happening, Packet};
use super::{Fact, Network, history};

/// How long a datagram takes from a host to itself.
const LOOPBACK: Duration = Duration::from_micros(10);

/// A packet that takes longer is very slow.
const SLOW: Duration = Duration::from_millis(200);

/// How well the network carries packets.
#[derive(Debug, Clone)]
pub struct Weather {
    /// The probability that a packet is lost, 0.0 to 1.0.
    pub loss: f64,
    /// The probability that a datagram arrives twice, 0.0 to 1.0.
    pub duplicate: f64,
    /// The least and the greatest one-way delay.
    pub delay: (Duration, Duration),
}

impl Weather {
    pub fn fine() -> Self {
        let delay = (Duration::from_micros(50), Duration::from_micros(200));
        Self { loss: 0.0, duplicate: 0.0, delay }
    }
}

impl Network {
    /// From `at` on, nothing passes `from` one host `to` another for `length`.
    pub fn cut_at(&mut self, from: usize, to: usize, at: Time, length: Duration) {
        self.at(at, Happening::Cut(from, to, true));
        self.at(at + length, Happening::Cut(from, to, false));
    }

    /// An attacker that can send on the link replays a recorded datagram to a host.
    pub fn replay_at(&mut self, host: usize, bytes: Vec<u8>, at: Time) {
        self.at(at, Happening::Replay(host, bytes));
    }

    pub(super) fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.rng.random_bool(p)
    }

    pub(super) fn delay(&mut self) -> Duration {
        let (from, to) = self.weather.delay;
        let delay = self.rng.random_range(from..=to);
        if delay > SLOW {
            self.saw(Fact::VerySlow);
        }
        delay
    }

    /// How long a packet takes, from a host to itself or to another.
    pub(super) fn one_way(&mut self, near: bool) -> Duration {
        if near { LOOPBACK } else { self.delay() }
    }

    /// Whether two nodes are on one host.
    pub(super) fn are_near(&self, a: usize, b: usize) -> bool {
        self.hosts[a].machine == self.hosts[b].machine
    }

    pub(super) fn cut(&mut self, from: usize, to: usize, cut: bool) {
        if self.are_near(from, to) {
            return;
        }
        if cut {
            self.cut.entry((from, to)).or_insert(self.now);
            self.starve_connections(from, to);
        } else if let Some(since) = self.cut.remove(&(from, to)) {
            self.was_cut(from, to, since);
            self.healed = self.now;
        }
    }

    /// The host that a packet `from` a host to this address reaches. A host reaches itself at its own
    /// addresses. Where several hosts have the address, the packet reaches any one of them. A host without an
    /// address of that family reaches none.
    pub(super) fn find(&mut self, from: usize, address: SocketAddr) -> Option<usize> {
        self.source(from, address)?;
        let holders = self.by_address.get(&address)?;
        if holders.contains(&from) {
            return Some(from);
        }
        let live = |&&host: &&usize| !self.hosts[host].dead.contains(&address);
        match holders.iter().filter(live).count() {
            0 | 1 => holders.iter().find(live).copied(),
            several => holders.iter().filter(live).nth(self.rng.random_range(0..several)).copied(),
        }
    }

    /// The source addresses of a host's packets.
    pub fn live(&self, host: usize) -> impl Iterator<Item = SocketAddr> {
        let host = &self.hosts[host];
        let silent = |endpoint| host.dead.contains(endpoint) || host.shared.contains(endpoint);
        host.config.node.endpoints.iter().filter(move |endpoint| !silent(endpoint)).copied()
    }

    /// The source address of a host's packets to `to`.
    pub(super) fn source(&self, host: usize, to: SocketAddr) -> Option<SocketAddr> {
        if let Some(outside) = self.hosts[host].translated {
            return (outside.is_ipv6() == to.is_ipv6()).then_some(outside);
        }
        self.live(host).find(|own| own.is_ipv6() == to.is_ipv6())
    }

    pub(super) fn unicast(&mut self, host: usize, to: SocketAddr, bytes: Vec<u8>) {
        self.count_sent(host, &bytes);
        if let Some(record) = &mut self.record {
            record.push(bytes.clone());
        }
        if let (Some(target), Some(from)) = (self.find(host, to), self.source(host, to)) {
            let packet = Rc::new(Packet { from, bytes });
            if target == host {
                // Loopback loses nothing.
                let (life, at) = (self.hosts[host].life, self.now + LOOPBACK);
                self.at(at, Happening::Datagram { to: host, life, packet });
            } else {
                let mut arrivals = Vec::new();
                self.copy(host, target, &mut arrivals);
                self.queue.push_copies(packet, arrivals);
            }
        }
    }

    /// Sends to all hosts of the same group, whether of the same job or not.
    pub(super) fn multicast(&mut self, host: usize, bytes: &[u8]) {
        self.count_sent(host, bytes);
        let group = self.hosts[host].group;
        let sources: Vec<SocketAddr> = self.live(host).collect();
        let mut arrivals: Vec<Vec<Arrival>> = sources.iter().map(|_| Vec::new()).collect();
        for target in 0..self.hosts.len() {
            if !self.hosts[target].deaf && self.hosts[target].group == group {
                for (from, arrivals) in sources.iter().zip(&mut arrivals) {
                    if self.source(target, *from).is_some() {
                        self.copy(host, target, arrivals);
                    }
                }
            }
        }
        for (from, arrivals) in sources.into_iter().zip(arrivals) {
            self.queue.push_copies(Rc::new(Packet { from, bytes: bytes.to_vec() }), arrivals);
        }
    }

    fn count_sent(&mut self, host: usize, bytes: &[u8]) {
        let host = &mut self.hosts[host];
        host.sent += 1;
        host.sent_bytes += u64::try_from(bytes.len()).unwrap();
    }

    /// Adds the copies of a packet that arrive from one host at another.
    fn copy(&mut self, from: usize, to: usize, arrivals: &mut Vec<Arrival>) {
        let host = &self.hosts[to];
        if host.node.is_none() || from == to {
            return;
        }
        let life = host.life;
        if self.are_near(from, to) {
            arrivals.push(Arrival { at: self.now + LOOPBACK, to, life });
            return;
        }
        if self.cut.contains_key(&(from, to)) {
            self.lost_to_cut(from);
            return;
        }
        let copies = 1 + u32::from(self.chance(self.weather.duplicate));
        for _ in 0..copies {
            if !self.chance(self.weather.loss) {
                let at = self.now + self.delay();
                arrivals.push(Arrival { at, to, life });
            }
        }
    }

    fn lost_to_cut(&mut self, from: usize) {
        // While a node acts, its host does not hold it.
        if self.hosts[from].bound {
            self.saw(Fact::CutInRound);
        }
    }

    pub(super) fn receive(&mut self, to: usize, packet: &Packet) {
        let Packet { from, bytes } = packet;
        self.hosts[to].received += 1;
        self.note(to, || format!("{} from {from}", history::name(bytes)));
        let is_recipient = self.is_recipient(to, bytes);
        let outputs = self.with(to, |node, now| node.handle_datagram(now, *from, bytes));
        if !is_recipient && outputs > 0 {
            self.broken.push(format!("{to} acts on a datagram that is another job's or another node's"));
        }
    }

    pub(super) fn replay(&mut self, host: usize, bytes: &[u8]) {
        let from = SocketAddr::from(([10, 9, 9, 9], PORT));
        self.note(host, || "replayed".to_owned());
        self.with(host, |node, now| node.handle_datagram(now, from, bytes));
    }
}
