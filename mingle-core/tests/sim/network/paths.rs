//! Connections that prove paths. A firewall may drop SYNs to the kernel's ports, or a link long segments.

use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::proto::{ANSWER, DialId, Fault, Link, NodeId, PathNews, Peer, Reach, TOKEN, Time};

use super::Network;
use super::history::Fact;
use super::hosts::PORT;
use super::queue::Happening;

/// The port for paths of every host.
const PATHS: u16 = 40_000;
/// The length of a packet with a full segment.
const PACKET: u32 = 1500;

/// A node names a path that was broken so long before it ends: its leader names those of the round in which
/// the fewest were broken.
const LATELY: Duration = Duration::from_secs(17);

/// A connection that proves a path.
pub(super) struct Proving {
    pub(super) host: usize,
    life: u32,
    dial: DialId,
    to: SocketAddr,
    token: [u8; TOKEN],
    answer: [u8; ANSWER],
    /// The length of its longest packet.
    packet: u32,
    tries: u32,
    /// The dialer has ended it.
    over: bool,
}

/// The flaws of the paths from one host to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// SYNs to the kernel's ports are dropped.
    Filtered,
    /// They are answered by a reset.
    Rejected,
    /// Packets longer than this vanish.
    Hole(u32),
}

impl Network {
    /// All hosts that there are prove their paths.
    pub fn prove_paths(&mut self) {
        for host in 0..self.hosts.len() {
            self.prove_paths_of(host);
        }
    }

    /// All hosts that there are prove the path to the master alone.
    pub fn prove_masters(&mut self) {
        for host in 0..self.hosts.len() {
            self.set_reach(host);
        }
    }

    /// This host proves its paths.
    pub fn prove_paths_of(&mut self, host: usize) {
        self.hosts[host].proves_paths = true;
        self.set_reach(host);
    }

    /// The links of this host are those of its endpoints.
    pub(super) fn set_reach(&mut self, host: usize) {
        let port = if self.hosts[host].proves_paths { PATHS } else { 0 };
        let node = &mut self.hosts[host].config.node;
        let links =
            node.endpoints.iter().map(|endpoint| Link { address: endpoint.ip(), prefix: 8, mtu: PACKET });
        node.reach = Reach::new(port, links.collect::<Vec<_>>());
    }

    pub(super) fn dial_path(
        &mut self,
        host: usize,
        dial: DialId,
        to: SocketAddr,
        token: [u8; TOKEN],
        answer: [u8; ANSWER],
        packet: Option<u32>,
    ) {
        let packet = packet.unwrap_or(PACKET);
        self.hosts[host].dials += 1;
        self.next_connection += 1;
        let path = self.next_connection;
        let life = self.hosts[host].life;
        self.proving
            .insert(path, Proving { host, life, dial, to, token, answer, packet, tries: 0, over: false });
        self.provers.insert((host, life, dial), path);
        self.path_syn(path);
    }

    pub(super) fn hang_up_path(&mut self, host: usize, dial: DialId) {
        let path = self.provers.remove(&(host, self.hosts[host].life, dial));
        if let Some(proving) = path.and_then(|path| self.proving.get_mut(&path)) {
            proving.over = true;
        }
    }

    /// The host at the other end of a path. The port for paths is the same on all.
    fn path_target(&mut self, host: usize, to: SocketAddr) -> Option<usize> {
        let own_port = if to.port() == PATHS { PORT } else { to.port() };
        self.find(host, SocketAddr::new(to.ip(), own_port))
    }

    /// Sends a SYN. Where it or the SYN-ACK is lost, the kernel tries again after 1, 3 and 7 s.
    pub(super) fn path_syn(&mut self, path: u64) {
        let Proving { host, to, over, .. } = self.proving[&path];
        if over {
            return;
        }
        let target = self.path_target(host, to);
        let flaw = target.and_then(|target| self.flaws.get(&(host, target)).copied());
        let is_kernels = to.port() == PATHS;
        if flaw.is_some() {
            self.saw(Fact::PathBroken);
        }
        let is_cut = target.is_none_or(|target| {
            let slot = &self.hosts[target];
            let is_deaf = slot.filtered
                || slot.translated.is_some()
                || self.no_syn.get(&(host, target)).is_some_and(|&until| self.now < until);
            !slot.powered
                || !is_kernels && is_deaf
                || self.cut.contains_key(&(host, target))
                || self.cut.contains_key(&(target, host))
        });
        let near = target.is_some_and(|target| self.are_near(host, target));
        let is_lost = !near && (self.chance(self.weather.loss) || self.chance(self.weather.loss));
        let (one_way, back) = (self.one_way(near), self.one_way(near));
        let at = self.now + one_way + back;
        if is_cut || is_lost || is_kernels && flaw == Some(Flaw::Filtered) {
            let proving = self.proving.get_mut(&path).unwrap();
            proving.tries += 1;
            let again = self.now + Duration::from_secs(1 << (proving.tries - 1));
            if proving.tries < 4 {
                self.at(again, Happening::PathSyn { path });
            }
        } else if is_kernels && flaw == Some(Flaw::Rejected) {
            self.at(at, Happening::Path { path, news: PathNews::Failed(Fault::Refused) });
        } else {
            let packet = self.proving[&path].packet;
            self.at(at, Happening::Path { path, news: PathNews::Opened { packet } });
        }
    }

    /// An answer arrives at the prover.
    pub(super) fn path(&mut self, path: u64, news: PathNews) {
        let Proving { host, life, dial, to, token, answer, packet, over, .. } = self.proving[&path];
        let prover = &self.hosts[host];
        if over || prover.life != life {
            return;
        }
        let Some(target) = self.path_target(host, to) else { return };
        let node = self.hosts[target].node.as_ref();
        let answered = node.and_then(|node| node.path_target().answer(&token));
        let near = self.are_near(host, target);
        let news = match news {
            PathNews::Arrived if answered != Some(answer) => PathNews::Failed(Fault::Unanswered),
            news => news,
        };
        match news {
            PathNews::Opened { .. } => {
                let vanishes =
                    matches!(self.flaws.get(&(host, target)), Some(Flaw::Hole(most)) if packet > *most);
                if !vanishes {
                    let at = self.path_segment(self.now, near);
                    self.at(at, Happening::Path { path, news: PathNews::Arrived });
                }
            }
            PathNews::Arrived if to.port() == PATHS && packet == PACKET => {
                let ids = (self.hosts[host].config.id, self.hosts[target].config.id);
                self.promises.paths.insert(ids);
            }
            PathNews::Arrived if packet == PACKET => {
                self.promises.proved.insert((host, life, to, target));
            }
            _ => {}
        }
        self.note(host, || format!("path {dial:?} to {to}: {news:?}"));
        self.with(host, |node, now| node.handle_path(now, dial, &news));
    }

    /// When a segment that is sent then has been answered. The kernel repeats a lost one after 0.2, 0.4 s
    /// and so on.
    fn path_segment(&mut self, mut at: Time, near: bool) -> Time {
        let mut wait = Duration::from_millis(200);
        while !near && (self.chance(self.weather.loss) || self.chance(self.weather.loss)) {
            at += wait;
            wait *= 2;
        }
        at + self.one_way(near) + self.one_way(near)
    }

    /// From now on all paths work.
    pub fn heal_paths(&mut self) {
        self.saw(Fact::PathHealed);
        self.healed = self.healed.max(self.now);
        self.healed_flaws = std::mem::take(&mut self.flaws);
    }

    /// Whether the path between these had a flaw in the last 17 s before `at`.
    pub fn had_flaw(&self, from: &Peer, to: &Peer, at: Time) -> bool {
        let host =
            |peer: &Peer| self.hosts.iter().position(|host| host.has_had((peer.address.ip(), PORT).into()));
        let (Some(from), Some(to)) = (host(from), host(to)) else { return false };
        let healed_lately = self.healed_flaws.contains_key(&(from, to)) && at < self.healed + LATELY;
        self.flaws.contains_key(&(from, to)) || healed_lately
    }

    /// Whether the first of these has proved its path to the second.
    pub fn has_proved_path(&self, from: NodeId, to: NodeId) -> bool {
        self.promises.paths.contains(&(from, to))
    }
}
