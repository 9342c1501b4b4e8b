//! Connections by which the members of a running world watch each other: kernels accept them, keep them alive
//! and close them, whatever the processes do.

use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::proto::{DialId, Time, WatchNews};

use super::Network;
use super::hosts::PORT;
use super::queue::Happening;

/// How long the opening of a connection may take.
const OPENING: Duration = Duration::from_secs(2);
/// The interval of the kernel's probes, and how many stay unanswered before it gives a connection up.
const PROBE: Duration = Duration::from_secs(2);
const PROBES: u32 = 3;

pub(super) struct Watching {
    pub(super) host: usize,
    life: u32,
    dial: DialId,
    to: SocketAddr,
    /// When its opening has failed.
    until: Time,
    /// The host that has accepted it, and the life of that host.
    target: Option<(usize, u32)>,
    unanswered: u32,
    over: bool,
}

/// What happens to such a connection.
#[derive(Debug, Clone, Copy)]
pub enum Watch {
    /// The kernel sends or repeats its SYN.
    Syn,
    /// The kernel probes it.
    Probe,
    /// The other process sends its byte, once it runs.
    Greeting,
    /// The process that has opened it learns this.
    News(WatchNews),
}

impl Network {
    pub(super) fn watch(&mut self, host: usize, dial: DialId, to: SocketAddr) {
        self.next_connection += 1;
        let (watch, life, until) = (self.next_connection, self.hosts[host].life, self.now + OPENING);
        let watching = Watching { host, life, dial, to, until, target: None, unanswered: 0, over: false };
        self.watching.insert(watch, watching);
        self.watchers.insert((host, life, dial), watch);
        self.watch_syn(watch);
    }

    /// Returns whether there is such a connection.
    pub(super) fn hang_up_watch(&mut self, host: usize, dial: DialId) -> bool {
        let watch = self.watchers.remove(&(host, self.hosts[host].life, dial));
        watch.and_then(|watch| self.watching.get_mut(&watch)).map(|watching| watching.over = true).is_some()
    }

    pub(super) fn happen_watch(&mut self, watch: u64, what: Watch) {
        let Watching { host, life, over, .. } = self.watching[&watch];
        if over || self.hosts[host].life != life {
            return;
        }
        match what {
            Watch::Syn => self.watch_syn(watch),
            Watch::Probe => self.watch_probe(watch),
            Watch::Greeting => self.watch_greeting(watch),
            Watch::News(news) => self.watch_news(watch, news),
        }
    }

    fn watch_at(&mut self, at: Time, watch: u64, what: Watch) {
        self.at(at, Happening::Watch { watch, what });
    }

    fn watch_syn(&mut self, watch: u64) {
        let Watching { host, to, until, .. } = self.watching[&watch];
        if self.now >= until {
            return self.watch_news(watch, WatchNews::Silent);
        }
        let target = self.find(host, SocketAddr::new(to.ip(), PORT));
        let Some(target) = target.filter(|&target| self.passes(host, target)) else {
            return self.watch_at(until.min(self.now + Duration::from_secs(1)), watch, Watch::Syn);
        };
        let near = self.are_near(host, target);
        let at = self.now + self.one_way(near) + self.one_way(near);
        // Each formation has another port.
        let own = self.hosts[host].config.lineage;
        let slot = &self.hosts[target];
        let is_newcomer = self.hosts[host].node.is_some();
        let runs = slot.running.is_some() && (slot.config.lineage == own || is_newcomer);
        // Its port is open while the world forms, and greets nobody.
        let forms = slot.node.is_some() && slot.config.lineage.generation == own.generation;
        if !runs && (!forms || is_newcomer) {
            return self.watch_at(at, watch, Watch::News(WatchNews::Refused));
        }
        self.watching.get_mut(&watch).unwrap().target = Some((target, slot.life));
        self.hosts[target].found.watched_by.insert(watch);
        if !runs {
            self.watch_at(at, watch, Watch::News(WatchNews::Opened));
            return self.watch_at(at + PROBE, watch, Watch::Probe);
        }
        let from = self.hosts[host].config.node.endpoints.preferred().ip();
        self.with_running(target, |running, now| running.handle_guest(now, from));
        self.watch_at(at, watch, Watch::News(WatchNews::Opened));
        self.watch_at(at, watch, Watch::Greeting);
        self.watch_at(at + PROBE, watch, Watch::Probe);
    }

    /// Whether a packet passes from one host to another, and its answer back.
    fn passes(&mut self, host: usize, target: usize) -> bool {
        let near = self.are_near(host, target);
        let is_lost = !near && (self.chance(self.weather.loss) || self.chance(self.weather.loss));
        !is_lost && !self.is_cut(host, target) && self.hosts[target].powered
    }

    fn is_cut(&self, host: usize, target: usize) -> bool {
        self.cut.contains_key(&(host, target)) || self.cut.contains_key(&(target, host))
    }

    fn watch_greeting(&mut self, watch: u64) {
        let Watching { host, target: Some((target, life)), .. } = self.watching[&watch] else { return };
        let slot = &self.hosts[target];
        if slot.life != life {
            return;
        }
        if slot.paused.is_some() || !slot.powered || self.is_cut(host, target) {
            self.watch_at(self.now + PROBE, watch, Watch::Greeting);
        } else {
            self.watch_news(watch, WatchNews::Greeted);
        }
    }

    fn watch_probe(&mut self, watch: u64) {
        let Watching { host, target: Some((target, life)), unanswered, .. } = self.watching[&watch] else {
            return;
        };
        let unanswered = if self.passes(host, target) { 0 } else { unanswered + 1 };
        self.watching.get_mut(&watch).unwrap().unanswered = unanswered;
        if unanswered >= PROBES {
            self.watch_at(self.now, watch, Watch::News(WatchNews::Silent));
        } else if unanswered == 0 && self.hosts[target].life != life {
            self.watch_at(self.now, watch, Watch::News(WatchNews::Closed));
        } else {
            self.watch_at(self.now + PROBE, watch, Watch::Probe);
        }
    }

    fn watch_news(&mut self, watch: u64, news: WatchNews) {
        let Watching { host, dial, to, .. } = self.watching[&watch];
        self.watching.get_mut(&watch).unwrap().over = !matches!(news, WatchNews::Opened | WatchNews::Greeted);
        self.note(host, || format!("watch {dial:?} of {to}: {news:?}"));
        self.with_running(host, |running, now| running.handle_watch(now, dial, news));
        self.with(host, |node, now| node.handle_watch(now, dial, news));
    }

    /// The kernel of a host whose process has ended closes the connections that watch it. A cut that loses
    /// this lasts until a probe finds it.
    pub(super) fn close_watched(&mut self, target: usize) {
        for watch in std::mem::take(&mut self.hosts[target].found.watched_by) {
            let host = self.watching[&watch].host;
            if !self.cut.contains_key(&(target, host)) {
                let near = self.are_near(host, target);
                let at = self.now + self.one_way(near);
                self.watch_at(at, watch, Watch::News(WatchNews::Closed));
            }
        }
    }
}
