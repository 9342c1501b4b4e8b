//! Connections that prove paths. A firewall may drop SYNs to the kernel's ports, or a link long segments.

use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::proto::{ANSWER, DialId, Fault, Link, NodeId, PathNews, Reach, TOKEN, Time};

use super::Network;
use super::hosts::PORT;
use super::queue::Happening;

/// The port for paths of every host.
const PATHS: u16 = 40_000;
/// The length of a packet with a full segment.
const PACKET: u32 = 1500;

/// A connection that proves a path.
pub(super) struct Proving {
    pub(super) host: usize,
    life: u32,
    dial: DialId,
    to: SocketAddr,
    token: [u8; TOKEN],
    answer: [u8; ANSWER],
    packet: u32,
    tries: u32,
    /// The dialer has ended it.
    over: bool,
}

/// What is wrong with the paths from one host to another.
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
        for host in &mut self.hosts {
            let node = &mut host.config.node;
            let links =
                node.endpoints.iter().map(|endpoint| Link { address: endpoint.ip(), prefix: 8, mtu: PACKET });
            node.reach = Reach::new(PATHS, links.collect::<Vec<_>>());
        }
    }

    pub(super) fn dial_path(
        &mut self,
        host: usize,
        dial: DialId,
        to: SocketAddr,
        token: [u8; TOKEN],
        (answer, packet): ([u8; ANSWER], Option<u32>),
    ) {
        self.hosts[host].dials += 1;
        self.next_connection += 1;
        let path = self.next_connection;
        let life = self.hosts[host].life;
        let packet = packet.unwrap_or(PACKET);
        self.proving
            .insert(path, Proving { host, life, dial, to, token, answer, packet, tries: 0, over: false });
        self.provers.insert((host, life, dial), path);
        self.path_syn(path);
    }

    /// Returns whether there is such a connection.
    pub(super) fn hang_up_path(&mut self, host: usize, dial: DialId) -> bool {
        let path = self.provers.remove(&(host, self.hosts[host].life, dial));
        path.and_then(|path| self.proving.get_mut(&path)).map(|proving| proving.over = true).is_some()
    }

    /// Sends a SYN. Where it or the SYN-ACK is lost, the kernel tries again after 1, 3 and 7 s.
    pub(super) fn path_syn(&mut self, path: u64) {
        let Proving { host, to, over, .. } = self.proving[&path];
        if over {
            return;
        }
        let target = self.find(host, SocketAddr::new(to.ip(), PORT));
        let flaw = target.and_then(|target| self.flaws.get(&(host, target)).copied());
        let is_kernels = to.port() == PATHS;
        let is_cut = target.is_none_or(|target| {
            !self.hosts[target].powered
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
            self.at(
                at,
                Happening::Path { path, news: PathNews::Opened { packet: self.proving[&path].packet } },
            );
        }
    }

    /// An answer arrives at the prover.
    pub(super) fn path(&mut self, path: u64, news: PathNews) {
        let Proving { host, life, dial, to, token, answer, packet, over, .. } = self.proving[&path];
        let prover = &self.hosts[host];
        if over || prover.life != life {
            return;
        }
        let Some(target) = self.find(host, SocketAddr::new(to.ip(), PORT)) else { return };
        let node = self.hosts[target].node.as_ref();
        let is_answered = node.and_then(|node| node.path_target().answer(&token)) == Some(answer);
        let near = self.are_near(host, target);
        let news = if news == PathNews::Arrived && !is_answered {
            PathNews::Failed(Fault::Unanswered)
        } else {
            news
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
            _ => {}
        }
        self.note(host, || format!("path {dial:?} to {to}: {news:?}"));
        self.with(host, |node, now| node.handle_path(now, dial, news));
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

    /// Whether the first of these has proved its path to the second.
    pub fn has_proved_path(&self, from: NodeId, to: NodeId) -> bool {
        self.promises.paths.contains(&(from, to))
    }
}
