//! The loop between the sockets and the state machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket as StdUdpSocket};
use std::task::Poll;
use std::time::{Duration, Instant};

use rand::TryRng;
use rand::rngs::SysRng;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};

use super::connection::{self, Happened};
use super::endpoint::{Endpoint, OpenFiles, bind_endpoint};
use super::interface::{self, Interface, endpoints, holder_of};
use super::multicast::{Groups, send_multicast};
use super::{Assignment, Builder};
use crate::error::Error;
use crate::id::{HostName, NodeId};
use crate::proto::{Config, ConnId, DialId, Event, Failure, Formed, MAX_DATAGRAM, Node, Output, Time};

/// Most own addresses that are looked at; others are told fewer.
const ADDRESSES: usize = 64;
/// Most datagrams that are read from a socket before timers get their turn.
const BATCH: usize = 64;
/// A timer that fires so late has been slept through: what has arrived meanwhile comes first.
const PAUSED: Duration = Duration::from_millis(100);
/// How often other tasks get their turn then.
const SETTLE: usize = 4;
/// Most datagrams that are read after a pause. A receive buffer rarely holds more.
const BACKLOG: usize = 8192;
/// Switches that snoop on IGMP without a querier forget a member after 260 s.
const REJOIN: Duration = Duration::from_secs(60);
/// Most accepted connections without a token; then the oldest goes.
const STRANGERS: usize = 1024;
/// Between two tries to accept where the first has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn join(builder: Builder) -> Result<Assignment, Error> {
    let interfaces = usable(&builder)?;
    let endpoint = bind_endpoint(builder.master_port, builder.job.ports(), builder.ttl)?;
    let config = configure(&builder, &interfaces, endpoint.port)?;
    let seed = random::<8>().map(u64::from_le_bytes)?;
    let mut driver = Driver::new(builder, interfaces, endpoint)?;
    let outcome = driver.run(Node::new(config, seed, Time::ZERO)).await;
    driver.close().await;
    match outcome {
        Ok(formed) => Ok(driver.assignment(formed)),
        Err(failure) => Err(Error::Failed(failure)),
    }
}

/// The interfaces to use. A world of one needs none, so it makes do with the loopback address.
fn usable(builder: &Builder) -> Result<Vec<Interface>, Error> {
    let all = interface::list()
        .map_err(|source| Error::Socket { what: "cannot list the network interfaces".to_owned(), source })?;
    match interface::select(&all, &builder.interfaces) {
        Err(_) if builder.world.get() == 1 && builder.interfaces.is_empty() => Ok(Vec::new()),
        other => other,
    }
}

fn configure(builder: &Builder, interfaces: &[Interface], port: u16) -> Result<Config, Error> {
    let mut own = endpoints(interfaces, port, ADDRESSES);
    if own.is_empty() {
        own.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    Ok(Config {
        id: NodeId(random()?),
        tag: builder.job.tag(),
        keys: builder.secret.as_ref().map(|secret| secret.keys(&builder.job)),
        world: builder.world,
        rank: builder.rank,
        host: builder.host.clone().unwrap_or_else(host_name),
        endpoints: own,
        slots: builder.slots,
        rank_by: builder.rank_by,
        roster: builder.roster,
        fabric: builder.fabric,
        settings: builder.settings,
        may_be_master: true,
        timeout: builder.timeout,
    })
}

fn host_name() -> HostName {
    let name = nix::unistd::gethostname().unwrap_or_default();
    HostName::new(&name.to_string_lossy())
}

/// From the operating system: two nodes must never have the same ID.
fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let what = || "cannot read random bytes from the operating system".to_owned();
    let failed = |error| Error::Socket { what: what(), source: io::Error::other(error) };
    SysRng.try_fill_bytes(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The sockets of one rendezvous. Dropping it closes them all.
struct Driver {
    builder: Builder,
    interfaces: Vec<Interface>,
    origin: Instant,
    group: SocketAddrV4,
    groups: Groups,
    /// The node's own port. Sending needs no readiness: what does not fit is lost, as on any network.
    sender: StdUdpSocket,
    /// The node's own port, then the group's.
    receivers: Vec<UdpSocket>,
    listener: Option<TcpListener>,
    accepting: bool,
    /// After an error, when to try again.
    accept_from: Instant,
    told_of_accepting: bool,
    /// A task for every connection.
    tasks: JoinSet<()>,
    dials: BTreeMap<DialId, AbortHandle>,
    conns: BTreeMap<ConnId, AbortHandle>,
    /// Those of `conns` that have sent no token yet.
    strangers: BTreeSet<ConnId>,
    next_conn: u64,
    sender_of_happenings: UnboundedSender<Happened>,
    happenings: UnboundedReceiver<Happened>,
    /// Happenings that have been looked at, and wait for their turn.
    waiting: VecDeque<Happened>,
    /// Interfaces by which a multicast could not be sent; each is told once.
    mute: Vec<u32>,
    _open_files: OpenFiles,
}

impl Driver {
    fn new(builder: Builder, interfaces: Vec<Interface>, endpoint: Endpoint) -> Result<Self, Error> {
        let failed = |source| Error::Socket { what: "cannot watch the sockets".to_owned(), source };
        let group = SocketAddrV4::new(
            builder.group.unwrap_or_else(|| builder.job.group_v4()),
            builder.discovery_port,
        );
        let alone = builder.world.get() == 1;
        let groups = Groups::join(group, if alone { &[] } else { &interfaces })?;
        let own = endpoint.socket.try_clone().map_err(failed)?;
        let mut receivers = vec![UdpSocket::from_std(own).map_err(failed)?];
        for socket in groups.sockets() {
            receivers.push(UdpSocket::from_std(socket.try_clone().map_err(failed)?).map_err(failed)?);
        }
        let (sender_of_happenings, happenings) = unbounded_channel();
        let driver = Self {
            builder,
            interfaces,
            origin: clock(),
            group,
            groups,
            sender: endpoint.socket,
            receivers,
            listener: Some(TcpListener::from_std(endpoint.listener).map_err(failed)?),
            accepting: true,
            accept_from: clock(),
            told_of_accepting: false,
            tasks: JoinSet::new(),
            dials: BTreeMap::new(),
            conns: BTreeMap::new(),
            strangers: BTreeSet::new(),
            next_conn: 0,
            sender_of_happenings,
            happenings,
            waiting: VecDeque::new(),
            mute: Vec::new(),
            _open_files: OpenFiles::raise(),
        };
        for warning in driver.groups.warnings() {
            driver.tell(Event::Warning(warning.clone()));
        }
        if driver.groups.joined() == 0 && !alone {
            driver.tell(Event::Warning(
                "no interface has joined the multicast group: this node hears only who answers it".to_owned(),
            ));
        }
        Ok(driver)
    }

    fn now(&self) -> Time {
        clock().duration_since(self.origin)
    }

    fn tell(&self, event: Event) {
        if let Some(events) = &self.builder.events {
            // A receiver that is gone has lost interest.
            let _ = events.send(event);
        }
    }

    async fn run(&mut self, mut node: Node) -> Result<Formed, Failure> {
        let mut rejoin = self.origin + REJOIN;
        loop {
            self.fire(&mut node).await;
            while let Some(output) = node.poll_output() {
                match output {
                    Output::Event(Event::Formed(formed)) => return Ok(formed),
                    Output::Event(Event::Failed(failure)) => return Err(failure),
                    Output::Event(event) => self.tell(event),
                    other => self.carry_out(other),
                }
            }
            let due = node.poll_timeout().and_then(|at| self.origin.checked_add(at));
            let due = due.map_or(rejoin, |due| rejoin.min(due));
            let now = clock();
            let (due, listener) = match &self.listener {
                Some(listener) if self.accepting && now >= self.accept_from => (due, Some(listener)),
                Some(_) if self.accepting => (due.min(self.accept_from), None),
                _ => (due, None),
            };
            tokio::select! {
                // Datagrams first: a word of the leader's may explain why a connection closes.
                biased;
                () = readable(&self.receivers) => {
                    // A flood must not keep connections from being heard.
                    if self.receive(&mut node, BATCH) {
                        self.settle(&mut node).await;
                    }
                }
                Some(happened) = next(&mut self.waiting, &mut self.happenings) => self.happened(&mut node, happened),
                accepted = accept(listener) => self.accepted(accepted),
                Some(_) = self.tasks.join_next() => {}
                () = tokio::time::sleep_until(due.into()) => {}
            }
            if clock() >= rejoin {
                rejoin = clock() + REJOIN;
                for warning in self.groups.rejoin() {
                    tracing::debug!(warning);
                }
            }
        }
    }

    /// Fires the timers that are due.
    async fn fire(&mut self, node: &mut Node) {
        let now = self.now();
        let Some(due) = node.poll_timeout().filter(|&due| due <= now) else { return };
        if now > due + PAUSED {
            // This process was stopped, or the machine slept: others are not silent, they are unread.
            // A connection is accepted, then its task starts, then it reads.
            for _ in 0..SETTLE {
                self.settle(node).await;
                self.receive(node, BACKLOG);
            }
        }
        node.handle_timeout(self.now());
    }

    /// Gives the runtime and the connections their turn: the runtime looks at the sockets, and at other
    /// tasks, only while this one yields.
    async fn settle(&mut self, node: &mut Node) {
        tokio::task::yield_now().await;
        for _ in 0..BATCH {
            let listener = self.listener.as_ref().filter(|_| self.accepting);
            let Some(accepted) = accept_now(listener).await else { break };
            self.accepted(accepted);
        }
        self.look_at_happenings(node);
        for happened in std::mem::take(&mut self.waiting) {
            self.happened(node, happened);
        }
    }

    /// Tells the node of connections that stand now. A datagram can be the answer to a token whose
    /// connection has been told of but not been heard of yet; then the node would not know by which of
    /// its addresses it went.
    fn look_at_happenings(&mut self, node: &mut Node) {
        while let Ok(happened) = self.happenings.try_recv() {
            match happened {
                Happened::Dialed(dial, local) => node.handle_dialed(self.now(), dial, local),
                later => self.waiting.push_back(later),
            }
        }
    }

    /// Reads at most so many datagrams from each socket. Returns whether there may be more.
    fn receive(&mut self, node: &mut Node, most: usize) -> bool {
        self.look_at_happenings(node);
        let mut more = false;
        let mut buffer = [0; MAX_DATAGRAM + 1];
        for socket in &self.receivers {
            let mut read = 0;
            while read < most {
                match socket.try_recv_from(&mut buffer) {
                    Ok((length, _)) if length > MAX_DATAGRAM => {}
                    Ok((length, from)) => {
                        let now = clock().duration_since(self.origin);
                        node.handle_datagram(now, from, &buffer[..length]);
                    }
                    Err(error) => {
                        if error.kind() != io::ErrorKind::WouldBlock {
                            tracing::debug!(%error, "receiving");
                        }
                        break;
                    }
                }
                read += 1;
            }
            more |= read == most;
        }
        more
    }

    fn happened(&mut self, node: &mut Node, happened: Happened) {
        let now = self.now();
        match happened {
            Happened::Dialed(dial, local) => node.handle_dialed(now, dial, local),
            Happened::HungUp(dial) => {
                // Not one that the node itself has hung up meanwhile.
                if self.dials.remove(&dial).is_some() {
                    node.handle_hung_up(now, dial);
                }
            }
            Happened::Token(conn, local, token) => {
                if self.strangers.remove(&conn) {
                    node.handle_token(now, conn, local, &token);
                }
            }
            Happened::Closed(conn) => {
                self.strangers.remove(&conn);
                if self.conns.remove(&conn).is_some() {
                    node.handle_closed(now, conn);
                }
            }
        }
    }

    fn accepted(&mut self, accepted: io::Result<(tokio::net::TcpStream, SocketAddr)>) {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, say: the oldest stranger makes room. The error comes back at
                // once while its cause lasts, so the next try waits.
                tracing::debug!(%error, "accepting");
                if !std::mem::replace(&mut self.told_of_accepting, true) {
                    self.tell(Event::Warning(format!("cannot accept a connection: {error}")));
                }
                self.evict_stranger();
                self.accept_from = clock() + ACCEPT_PAUSE;
                return;
            }
        };
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        let task = connection::hold(conn, stream, self.sender_of_happenings.clone());
        self.conns.insert(conn, self.tasks.spawn(task));
        self.strangers.insert(conn);
        if self.strangers.len() > STRANGERS {
            self.evict_stranger();
        }
    }

    fn evict_stranger(&mut self) {
        if let Some(conn) = self.strangers.pop_first() {
            self.close_conn(conn);
        }
    }

    fn close_conn(&mut self, conn: ConnId) {
        self.strangers.remove(&conn);
        if let Some(task) = self.conns.remove(&conn) {
            task.abort();
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { to, datagram } => {
                if let Err(error) = self.sender.send_to(&datagram, to) {
                    tracing::debug!(%to, %error, "sending");
                }
            }
            Output::Multicast { datagram } => self.multicast(&datagram),
            Output::Dial { dial, to, token } => {
                let task = connection::dial(dial, to, token, self.sender_of_happenings.clone());
                self.dials.insert(dial, self.tasks.spawn(task));
            }
            Output::HangUp(dial) => {
                if let Some(task) = self.dials.remove(&dial) {
                    task.abort();
                }
            }
            Output::Close(conn) => self.close_conn(conn),
            Output::StopAccepting => {
                self.accepting = false;
                if !self.builder.keep_listener {
                    self.listener = None;
                }
            }
            Output::Event(event) => self.tell(event),
        }
    }

    fn multicast(&mut self, datagram: &[u8]) {
        for interface in &self.interfaces {
            let Some(IpAddr::V4(source)) =
                interface.addresses.iter().map(ipnet::IpNet::addr).find(IpAddr::is_ipv4)
            else {
                continue;
            };
            let sent = send_multicast(&self.sender, self.group, interface.index, source, datagram);
            let Err(error) = sent else { continue };
            tracing::debug!(interface = interface.name, %error, "sending to the group");
            let full = error.kind() == io::ErrorKind::WouldBlock;
            if !full && !self.mute.contains(&interface.index) {
                self.mute.push(interface.index);
                let (group, name) = (self.group, interface.name.escape_debug());
                self.tell(Event::Warning(format!("cannot send to group {group} on {name}: {error}")));
            }
        }
    }

    /// Closes all connections, and hears of nothing any more.
    async fn close(&mut self) {
        // On the master's port, strays and leftovers are reset: nothing may hold it when the job binds it.
        self.tasks.shutdown().await;
        if !self.builder.keep_listener {
            self.listener = None;
        }
    }

    fn assignment(self, formed: Formed) -> Assignment {
        let listener = self.listener.filter(|_| formed.rank.get() == 0).and_then(|l| l.into_std().ok());
        Assignment {
            job: self.builder.job,
            rank: formed.rank,
            world: formed.world,
            master: formed.master,
            local: formed.local,
            interface: holder_of(&self.interfaces, formed.local).map(|interface| interface.name.clone()),
            digest: formed.digest,
            roster: formed.roster,
            verdict: formed.verdict,
            listener,
        }
    }
}

/// What happened to a connection next.
async fn next(
    waiting: &mut VecDeque<Happened>,
    happenings: &mut UnboundedReceiver<Happened>,
) -> Option<Happened> {
    match waiting.pop_front() {
        Some(happened) => Some(happened),
        None => happenings.recv().await,
    }
}

/// Until one of the sockets has something.
async fn readable(sockets: &[UdpSocket]) {
    std::future::poll_fn(|context| {
        let ready = sockets.iter().map(|socket| socket.poll_recv_ready(context));
        // All of them are asked, so that each wakes this task.
        let ready = ready.filter(Poll::is_ready).count();
        if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A connection that waits to be accepted, if there is one.
async fn accept_now(
    listener: Option<&TcpListener>,
) -> Option<io::Result<(tokio::net::TcpStream, SocketAddr)>> {
    let listener = listener?;
    std::future::poll_fn(|context| match listener.poll_accept(context) {
        Poll::Ready(Ok(accepted)) => Poll::Ready(Some(Ok(accepted))),
        // An error comes again when a connection is waited for.
        Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(tokio::net::TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

#[allow(clippy::disallowed_methods, reason = "the driver is where the protocol gets its time from")]
fn clock() -> Instant {
    Instant::now()
}
