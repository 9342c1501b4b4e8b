//! TCP connections: delayed, refused, filtered, reset, or accepted by another node than the target.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mingle_core::proto::{ConnId, DialId, NodeId, Time};

use super::queue::Happening;
use super::{Fact, Network};

/// The length of a segment, as the driver sets it.
const SEGMENT: usize = 1180;

pub(super) struct Connection {
    pub(super) dialer: usize,
    life: u32,
    dial: DialId,
    to: SocketAddr,
    /// The address at the dialer's end, once the connection is open.
    local: Option<IpAddr>,
    /// The host that the SYN has reached.
    target: Option<usize>,
    /// The host that has accepted it, and the life of that host.
    acceptor: Option<(usize, u32)>,
    hello: Vec<u8>,
    /// When the last bytes that were sent arrive.
    arrived: Time,
    tries: u32,
    /// One of the ends has closed it.
    over: bool,
    /// The end that has lost power.
    dead: Option<usize>,
    /// Its hello has arrived at its target, and the target's kernel has not seen its end.
    counts: bool,
    /// Both ends learn from their own kernels that it is broken.
    broken: bool,
}

impl Network {
    /// At `at`, a middlebox resets the connections that a host has dialled, towards that host alone.
    pub fn break_at(&mut self, host: usize, at: Time) {
        self.at(at, Happening::Break(host));
    }

    pub(super) fn dial(&mut self, host: usize, dial: DialId, to: SocketAddr, hello: Vec<u8>) {
        self.hosts[host].dials += 1;
        self.next_connection += 1;
        let conn = self.next_connection;
        let life = self.hosts[host].life;
        let connection = Connection {
            dialer: host,
            life,
            dial,
            to,
            local: None,
            target: None,
            acceptor: None,
            hello,
            arrived: self.now,
            tries: 0,
            over: false,
            dead: None,
            counts: false,
            broken: false,
        };
        self.connections.insert(conn, connection);
        self.hosts[host].connections.insert(conn);
        self.dialled.insert((host, life, dial), conn);
        self.send_syn(conn);
    }

    pub(super) fn hang_up(&mut self, host: usize, dial: DialId) {
        let life = self.hosts[host].life;
        if let Some(&conn) = self.dialled.get(&(host, life, dial)) {
            self.close(conn, true);
        }
    }

    /// The hosts (from, to) of a segment of an open connection.
    pub(super) fn direction(&self, happening: &Happening) -> Option<(usize, usize)> {
        let ends = |conn| {
            let connection: &Connection = &self.connections[conn];
            if connection.broken {
                return None;
            }
            connection.acceptor.map(|(acceptor, _)| (connection.dialer, acceptor))
        };
        match happening {
            Happening::Hello { conn } | Happening::Closed { conn } => ends(conn),
            Happening::HungUp { conn } | Happening::Roster { conn, .. } => {
                ends(conn).map(|(dialer, acceptor)| (acceptor, dialer))
            }
            _ => None,
        }
    }

    pub(super) fn acceptor(&self, conn: u64) -> Option<usize> {
        self.connections[&conn].acceptor.map(|(host, _)| host)
    }

    /// The address of a connection at one of its ends.
    pub(super) fn end_at(&self, conn: u64, host: usize) -> Option<IpAddr> {
        let connection = &self.connections[&conn];
        if connection.dialer == host { connection.local } else { Some(connection.to.ip()) }
    }

    fn dialer(&self, conn: u64) -> (usize, u32, DialId) {
        let connection = &self.connections[&conn];
        (connection.dialer, connection.life, connection.dial)
    }

    /// Sends a SYN. Where it or the SYN-ACK is lost, the kernel tries again after 1, 3, 7 and 15 s.
    fn send_syn(&mut self, conn: u64) {
        let (from, _, _) = self.dialer(conn);
        let to = self.connections[&conn].to;
        let target = self.find(from, to);
        let connection = self.connections.get_mut(&conn).unwrap();
        connection.target = target;
        connection.tries += 1;
        let filtered = target.is_none_or(|t| {
            let slot = &self.hosts[t];
            slot.filtered
                || !slot.powered
                || slot.translated.is_some()
                || self.no_syn.get(&(from, t)).is_some_and(|&until| self.now < until)
                || self.cut.contains_key(&(from, t))
                || self.cut.contains_key(&(t, from))
        });
        let near = target.is_some_and(|target| self.are_near(from, target));
        let lost = !near && (self.chance(self.weather.loss) || self.chance(self.weather.loss));
        if filtered || lost {
            self.syn_again(conn);
            return;
        }
        let at = self.now + self.one_way(near) + self.one_way(near);
        self.at(at, Happening::Dialed { conn });
    }

    fn syn_again(&mut self, conn: u64) {
        let tries = self.connections[&conn].tries;
        if tries < 5 {
            let again = self.now + Duration::from_secs(1 << (tries - 1));
            self.at(again, Happening::Syn { conn });
        }
    }

    pub(super) fn syn(&mut self, conn: u64) {
        if !self.connections[&conn].over {
            self.send_syn(conn);
        }
    }

    pub(super) fn dialed(&mut self, conn: u64) {
        let (host, life, dial) = self.dialer(conn);
        if self.connections[&conn].over || self.hosts[host].life != life {
            return;
        }
        let target = self.connections[&conn].target;
        if target.is_some_and(|target| !self.hosts[target].powered) {
            self.syn_again(conn);
            return;
        }
        let accepting = target.filter(|&t| self.hosts[t].accepting);
        let Some(acceptor) = accepting else {
            self.over(conn);
            self.note(host, || format!("refused {dial:?}"));
            self.with(host, |node, now| node.handle_hung_up(now, dial));
            return;
        };
        let acceptor_life = self.hosts[acceptor].life;
        self.connections.get_mut(&conn).unwrap().acceptor = Some((acceptor, acceptor_life));
        self.hosts[acceptor].connections.insert(conn);
        let to = self.connections[&conn].to;
        let own = self.hosts[host].config.node.endpoints[0];
        let translated = self.hosts[host].translated.is_some();
        let local = self.source(host, to).filter(|_| !translated).unwrap_or(own).ip();
        self.connections.get_mut(&conn).unwrap().local = Some(local);
        self.with(host, |node, now| node.handle_dialed(now, dial));
        let length = self.connections[&conn].hello.len();
        let at = self.stream(conn, length);
        self.at(at, Happening::Hello { conn });
    }

    pub(super) fn hello(&mut self, conn: u64) {
        let connection = &self.connections[&conn];
        let Some((host, life)) = connection.acceptor else { return };
        if connection.over || self.hosts[host].life != life {
            return;
        }
        let (hello, local) = (connection.hello.clone(), connection.to.ip());
        let proof = (connection.dialer, connection.life, connection.to, host);
        let config = &self.hosts[host].config;
        let is_target = hello[40..56] == config.id.0 && hello[8..24] == config.tag.0;
        if is_target {
            let (dialer, near) = (connection.dialer, self.are_near(connection.dialer, host));
            self.promises.proved.insert(proof);
            self.count(conn);
            if near {
                self.saw(Fact::Neighbours);
            }
            if self.hosts[dialer].translated.is_some() {
                self.saw(Fact::Translated);
            }
        }
        self.note(host, || format!("hello on {conn}"));
        self.with(host, |node, now| node.handle_hello(now, ConnId(conn), local, local, &hello));
        if !is_target && !self.connections[&conn].over {
            self.broken.push(format!("{host} keeps a connection whose hello has another target"));
        }
    }

    /// The acceptor writes a roster.
    pub(super) fn tell(&mut self, conn: u64, roster: Arc<[u8]>) {
        let at = self.stream(conn, roster.len());
        self.at(at, Happening::Roster { conn, roster });
    }

    pub(super) fn roster(&mut self, conn: u64, roster: &[u8]) {
        let (host, life, dial) = self.dialer(conn);
        if !self.connections[&conn].over && self.hosts[host].life == life {
            self.note(host, || format!("roster on {dial:?}"));
            self.with(host, |node, now| node.handle_roster(now, dial, roster));
        }
    }

    pub(super) fn closed(&mut self, conn: u64) {
        if let Some((host, life)) = self.connections[&conn].acceptor
            && self.hosts[host].life == life
        {
            self.note(host, || format!("closed {conn}"));
            self.with(host, |node, now| node.handle_closed(now, ConnId(conn)));
        }
    }

    pub(super) fn hung_up(&mut self, conn: u64) {
        let (host, life, dial) = self.dialer(conn);
        if self.hosts[host].life == life {
            self.note(host, || format!("hung up {dial:?}"));
            self.with(host, |node, now| node.handle_hung_up(now, dial));
        }
    }

    pub(super) fn break_dialled(&mut self, host: usize) {
        let dialled = |conn: &&u64| {
            let connection = &self.connections[conn];
            connection.dialer == host && connection.acceptor.is_some()
        };
        for conn in self.hosts[host].connections.iter().filter(dialled).copied().collect::<Vec<_>>() {
            let (_, _, dial) = self.dialer(conn);
            self.over(conn);
            self.note(host, || format!("reset {dial:?}"));
            // The acceptor's kernel learns it by its next keepalive probe.
            self.at(self.now + Duration::from_secs(5), Happening::Closed { conn });
            self.with(host, |node, now| node.handle_hung_up(now, dial));
        }
    }

    /// One end closes; the other one learns it when the segment arrives.
    pub(super) fn close(&mut self, conn: u64, by_dialer: bool) {
        if self.over(conn) {
            let at = self.segment(conn);
            if !by_dialer {
                self.kernel_sees_end(conn);
            }
            self.at(at, if by_dialer { Happening::Closed { conn } } else { Happening::HungUp { conn } });
        }
    }

    /// Ends a connection. Returns whether it was open.
    pub(super) fn over(&mut self, conn: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&conn) else { return false };
        for host in [Some(connection.dialer), connection.acceptor.map(|(host, _)| host)].into_iter().flatten()
        {
            self.hosts[host].connections.remove(&conn);
        }
        !std::mem::replace(&mut connection.over, true)
    }

    /// How many connections of this one's prover its acceptor's kernel takes for open, and whether this is
    /// one of them.
    fn leases(&mut self, conn: u64) -> Option<(&mut u32, &mut bool)> {
        let connection = self.connections.get_mut(&conn).unwrap();
        let prover = NodeId(connection.hello[24..40].try_into().unwrap());
        let (acceptor, _) = connection.acceptor?;
        Some((self.promises.leases.entry((prover, acceptor)).or_default(), &mut connection.counts))
    }

    /// The hello has arrived at its target.
    fn count(&mut self, conn: u64) {
        if let Some((leases, counts)) = self.leases(conn)
            && !std::mem::replace(counts, true)
        {
            *leases += 1;
        }
    }

    /// The acceptor's kernel has seen the end of a connection, whether its process has read that or not.
    pub(super) fn kernel_sees_end(&mut self, conn: u64) {
        if let Some((leases, counts)) = self.leases(conn)
            && std::mem::replace(counts, false)
        {
            *leases -= 1;
        }
    }

    pub(super) fn is_established(&self, conn: u64) -> bool {
        let connection = &self.connections[&conn];
        !connection.over && connection.acceptor.is_some() && connection.dead.is_none()
    }

    /// This end of a connection has lost power.
    pub(super) fn mark_dead(&mut self, conn: u64, host: usize) {
        self.connections.get_mut(&conn).unwrap().dead = Some(host);
    }

    /// The end of an open connection that has lost power.
    pub(super) fn dead_end(&self, conn: u64) -> Option<usize> {
        let connection = &self.connections[&conn];
        connection.dead.filter(|_| !connection.over)
    }

    /// The hosts at the ends of an open connection.
    pub(super) fn open_ends(&self, conn: u64) -> Option<(usize, usize)> {
        let connection = &self.connections[&conn];
        connection.acceptor.filter(|_| !connection.over).map(|(acceptor, _)| (connection.dialer, acceptor))
    }

    /// Whether a host that is left holds a connection to one that has lost power.
    pub(super) fn has_ghost(&self, host: usize) -> bool {
        self.connections.values().any(|connection| !connection.over && connection.dead == Some(host))
    }

    /// The kernels of both ends give a connection up.
    pub(super) fn break_both(&mut self, conn: u64) {
        if self.over(conn) {
            self.connections.get_mut(&conn).unwrap().broken = true;
            self.at(self.now, Happening::Closed { conn });
            self.at(self.now, Happening::HungUp { conn });
        }
    }

    /// When the last of so many bytes arrives that are sent now: in segments, each by itself, and after all
    /// that was sent on the connection before. Where three segments or more follow a lost segment, the kernel
    /// repeats it after a round trip (RFC 5681, 3.2).
    fn stream(&mut self, conn: u64, length: usize) -> Time {
        let mut last = self.now;
        for following in (0..length.div_ceil(SEGMENT)).rev() {
            let is_soon = following >= 3 && self.chance(self.weather.loss);
            let again = if is_soon { self.delay() + self.delay() } else { Time::ZERO };
            let arrives = if following < 3 || is_soon { self.segment(conn) } else { self.now + self.delay() };
            last = last.max(arrives + again);
        }
        let connection = self.connections.get_mut(&conn).unwrap();
        connection.arrived = connection.arrived.max(last);
        connection.arrived
    }

    /// When a segment that is sent now arrives. The kernel repeats a lost segment after 0.2, 0.4, 0.8 s and
    /// so on.
    fn segment(&mut self, conn: u64) -> Time {
        let ends = self.connections.get(&conn).and_then(|c| Some((c.dialer, c.acceptor?.0)));
        if ends.is_some_and(|(dialer, acceptor)| self.are_near(dialer, acceptor)) {
            return self.now + self.one_way(true);
        }
        let mut at = self.now + self.delay();
        let mut wait = Duration::from_millis(200);
        while self.chance(self.weather.loss) && wait < Duration::from_secs(10) {
            at += wait;
            wait *= 2;
        }
        at
    }
}
