//! The loop between the sockets and the state machine.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::task::Poll;
use std::time::{Duration, Instant};

use rand::TryRng;
use rand::rngs::SysRng;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

use super::connection::Happened;
use super::connections::{Accepted, Connections, What};
use super::endpoint::{Endpoint, OpenFiles, bind_endpoint};
use super::interface::{self, Family, Interface, endpoints, holder_of};
use super::links::Links;
use super::seed_dir::{OwnFile, SeedDir};
use super::seeds::Sources;
use super::{Assignment, Builder};
use crate::error::Error;
use crate::id::{HostName, NodeId};
use crate::proto::{Config, Event, Formed, MAX_DATAGRAM, Node, Output, Time};

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
/// How long a host that has no usable interface yet is waited for.
const GRACE: Duration = Duration::from_secs(5);
/// How often the host's addresses are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// After so long without a word of anybody's, people are told what may be the matter.
const QUIET: Duration = Duration::from_secs(15);

pub(super) async fn join(builder: Builder) -> Result<Assignment, Error> {
    let interfaces = usable(&builder).await?;
    let endpoint = bind_endpoint(builder.master_port, builder.job.ports(), builder.ttl)?;
    let origin = clock();
    let mut driver = Driver::new(builder, interfaces, endpoint, origin)?;
    let node = driver.node()?;
    let outcome = driver.run(node).await;
    driver.close().await;
    match outcome {
        Ok(formed) => Ok(driver.assignment(formed)),
        Err(failure) => Err(failure),
    }
}

/// The interfaces to use, for which a host that is just starting gets some time. A world of one needs none, so
/// it makes do with the loopback address.
async fn usable(builder: &Builder) -> Result<Vec<Interface>, Error> {
    let until = clock() + builder.timeout.map_or(GRACE, |timeout| timeout.min(GRACE));
    let mut told = false;
    loop {
        match select(builder) {
            Err(_) if builder.world.get() == 1 && builder.interfaces.is_empty() => return Ok(Vec::new()),
            Err(Error::NoInterface(why)) if clock() < until => {
                if !std::mem::replace(&mut told, true) {
                    tell(builder, Event::Warning(format!("no usable network interface yet: {why}")));
                }
                tokio::time::sleep(GRACE / 20).await;
            }
            selected => return selected,
        }
    }
}

fn select(builder: &Builder) -> Result<Vec<Interface>, Error> {
    let all = interface::list()
        .map_err(|source| Error::Socket { what: "cannot list the network interfaces".to_owned(), source })?;
    interface::select(&all, &builder.interfaces)
}

fn tell(builder: &Builder, event: Event) {
    if let Some(events) = &builder.events {
        // A receiver that is gone has lost interest.
        let _ = events.send(event);
    }
}

pub(super) fn host_name() -> HostName {
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
    links: Links,
    origin: Instant,
    port: u16,
    /// The node that is running.
    id: NodeId,
    /// This node's addresses, as it has told them.
    endpoints: Vec<SocketAddr>,
    /// Where others may be, as it was told last.
    seeds: Vec<SocketAddr>,
    /// What tells it, and this node's file in the shared folder.
    sources: Option<(AbortHandle, Option<OwnFile>)>,
    connections: Connections,
    _open_files: OpenFiles,
}

impl Driver {
    fn new(
        builder: Builder,
        interfaces: Vec<Interface>,
        endpoint: Endpoint,
        origin: Instant,
    ) -> Result<Self, Error> {
        let links = Links::open(&builder, interfaces, endpoint.sockets)?;
        let connections = Connections::open(endpoint.listeners, builder.keep_listener)?;
        let driver = Self {
            builder,
            links,
            origin,
            port: endpoint.port,
            id: NodeId(random()?),
            endpoints: Vec::new(),
            seeds: Vec::new(),
            sources: None,
            connections,
            _open_files: OpenFiles::raise(),
        };
        for warning in driver.links.warnings() {
            driver.tell(Event::Warning(warning));
        }
        Ok(driver)
    }

    /// A new node for what is left of the time.
    fn node(&mut self) -> Result<Node, Error> {
        let id = NodeId(random()?);
        self.id = id;
        self.endpoints = self.own_endpoints();
        let builder = &self.builder;
        let config = Config {
            id,
            tag: builder.job.tag(),
            keys: builder.secret.as_ref().map(|secret| secret.keys(&builder.job)),
            world: builder.world,
            rank: builder.rank,
            host: builder.host.clone().unwrap_or_else(host_name),
            endpoints: self.endpoints.clone(),
            prefers_ipv6: builder.prefers_ipv6,
            slots: builder.slots,
            rank_by: builder.rank_by,
            roster: builder.roster,
            fabric: builder.fabric,
            settings: builder.settings,
            may_be_master: true,
            timeout: builder.timeout.map(|timeout| timeout.saturating_sub(self.now())),
        };
        let seed = random::<8>().map(u64::from_le_bytes)?;
        let first = self.sources.is_none();
        if let Err(error) = self.look_for_seeds(id) {
            if first {
                return Err(error);
            }
            self.tell(Event::Warning(error.to_string()));
        }
        let mut node = Node::new(config, seed, self.now());
        node.handle_seeds(self.now(), self.seeds.clone());
        Ok(node)
    }

    fn own_endpoints(&self) -> Vec<SocketAddr> {
        let family = if self.builder.prefers_ipv6 { Family::V6 } else { Family::V4 };
        let own = endpoints(self.links.interfaces(), self.port, ADDRESSES, family);
        if own.is_empty() { vec![SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))] } else { own }
    }

    /// Starts to follow the seeds, where there are any. This node's own file is in the shared folder first, so
    /// that a folder which cannot be written to is an error at once.
    fn look_for_seeds(&mut self, id: NodeId) -> Result<(), Error> {
        let old = self.sources.take().and_then(|(following, own)| {
            following.abort();
            own
        });
        if self.builder.world.get() == 1 {
            return Ok(());
        }
        let folder = self.builder.seed_dir.as_ref().map(|folder| {
            SeedDir::open(folder, self.builder.job.tag(), id, &self.endpoints).map_err(|source| {
                Error::Socket {
                    what: format!("cannot write to the seed folder {}", folder.display()),
                    source,
                }
            })
        });
        let (folder, own) = folder.transpose()?.unzip();
        // The same file, where the node is the same: it has been replaced, and must not be removed.
        if let Some(old) = old {
            if own.as_ref() == Some(&old) { old.leave() } else { drop(old) }
        }
        let sources = Sources {
            seeds: self.builder.seeds.clone(),
            folder,
            ports: Sources::ports(self.builder.master_port, self.builder.job.ports()),
        };
        if !sources.is_empty() {
            let following = self.connections.run_beside(|tell| sources.follow(tell));
            self.sources = Some((following, own));
        }
        Ok(())
    }

    fn now(&self) -> Time {
        clock().duration_since(self.origin)
    }

    fn tell(&self, event: Event) {
        tell(&self.builder, event);
    }

    async fn run(&mut self, mut node: Node) -> Result<Formed, Error> {
        let mut rejoin = self.origin + REJOIN;
        let mut look = self.origin + LOOK;
        let mut quiet = Some(self.origin + QUIET).filter(|_| self.builder.world.get() > 1);
        loop {
            self.fire(&mut node).await;
            while let Some(output) = node.poll_output() {
                match output {
                    Output::Event(Event::Formed(formed)) => return Ok(formed),
                    Output::Event(Event::Failed(failure)) => return Err(Error::Failed(failure)),
                    Output::Event(event) => self.tell(event),
                    other => self.carry_out(other),
                }
            }
            let due = node.poll_timeout().and_then(|at| self.origin.checked_add(at));
            let due = [Some(rejoin), Some(look), quiet, due].into_iter().flatten().min().unwrap_or(look);
            let due = self.connections.again().map_or(due, |again| due.min(again));
            tokio::select! {
                // Datagrams first: a word of the leader's may explain why a connection closes.
                biased;
                () = readable(self.links.receivers()) => {
                    // A flood must not keep connections from being heard.
                    if self.receive(&mut node, BATCH) {
                        self.settle(&mut node).await;
                    }
                }
                what = self.connections.next() => match what {
                    What::Happened(happened) => self.happened(&mut node, happened),
                    What::Accepted(accepted) => self.accepted(accepted),
                },
                () = tokio::time::sleep_until(due.into()) => {}
            }
            if clock() >= rejoin {
                rejoin = clock() + REJOIN;
                self.links.rejoin();
            }
            if clock() >= look {
                look = clock() + LOOK;
                self.look_at_interfaces(&mut node)?;
            }
            if quiet.is_some_and(|at| clock() >= at) {
                quiet = None;
                if !node.has_heard() {
                    self.tell(Event::Warning(self.about_silence()));
                }
            }
        }
    }

    fn about_silence(&self) -> String {
        let ways = if self.sources.is_none() {
            "multicast does not pass here: give each node --seed HOST of another, a shared --seed-dir, or on one \
             link --broadcast"
        } else if self.seeds.is_empty() {
            "multicast does not pass here, and no address of a seed is known so far"
        } else {
            "neither multicast nor UDP to the seeds passes: check firewalls for the job's ports"
        };
        let seconds = QUIET.as_secs();
        format!(
            "nobody else was heard within {seconds} s; if the others have started, {ways}; see 'mingle doctor'"
        )
    }

    /// Addresses come and go: a pod gets its second network, DHCP answers.
    fn look_at_interfaces(&mut self, node: &mut Node) -> Result<(), Error> {
        // What has all gone may come again, and what goes on in a round has an end of its own.
        let Ok(interfaces) = select(&self.builder) else { return Ok(()) };
        if self.builder.world.get() == 1 || interfaces == self.links.interfaces() || node.is_bound() {
            return Ok(());
        }
        if let Err(error) = self.links.change(interfaces) {
            self.tell(Event::Warning(error.to_string()));
        }
        let (own, was) = (self.own_endpoints(), &self.endpoints);
        if own == *was {
            return Ok(());
        }
        tracing::debug!(?own, "the addresses of this host have changed");
        let loopback =
            |endpoints: &[SocketAddr]| endpoints.iter().all(|endpoint| endpoint.ip().is_loopback());
        if own.first() == was.first() && loopback(&own) == loopback(was) {
            node.handle_endpoints(self.now(), own.clone());
            self.endpoints = own;
            // Its file in the shared folder tells them, too.
            if let Err(error) = self.look_for_seeds(self.id) {
                self.tell(Event::Warning(error.to_string()));
            }
        } else {
            // Others know this node by the address that it prefers, which has gone: another takes its place.
            self.tell(Event::Warning("the addresses of this host have changed; it starts again".to_owned()));
            // The connections of its members cannot be closed from an address that is gone.
            node.handle_departure(self.now());
            while let Some(output) = node.poll_output() {
                self.carry_out(output);
            }
            self.connections.hang_up_all();
            *node = self.node()?;
        }
        Ok(())
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
            let Some(accepted) = self.connections.accept_now().await else { break };
            self.accepted(accepted);
        }
        self.look_at_happenings(node);
        for happened in self.connections.take_waiting() {
            self.happened(node, happened);
        }
    }

    /// Tells the node of connections that stand now. A datagram can be the answer to a token whose
    /// connection has been told of but not been heard of yet; then the node would not know by which of
    /// its addresses it went.
    fn look_at_happenings(&mut self, node: &mut Node) {
        let now = self.now();
        self.connections.look(|dial, local| node.handle_dialed(now, dial, local));
    }

    /// Reads at most so many datagrams from each socket. Returns whether there may be more.
    fn receive(&mut self, node: &mut Node, most: usize) -> bool {
        self.look_at_happenings(node);
        let mut more = false;
        let mut buffer = [0; MAX_DATAGRAM + 1];
        for socket in self.links.receivers() {
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
                if self.connections.forget_dial(dial) {
                    node.handle_hung_up(now, dial);
                }
            }
            Happened::Seeds(seeds) => {
                node.handle_seeds(now, seeds.clone());
                self.seeds = seeds;
            }
            Happened::Warning(warning) => self.tell(Event::Warning(warning)),
            Happened::Token(conn, local, token) => {
                if self.connections.introduce(conn) {
                    node.handle_token(now, conn, local, &token);
                }
            }
            Happened::Closed(conn) => {
                if self.connections.forget(conn) {
                    node.handle_closed(now, conn);
                }
            }
        }
    }

    fn accepted(&mut self, accepted: Accepted) {
        if let Some(warning) = self.connections.accepted(accepted) {
            self.tell(Event::Warning(warning));
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { to, datagram } => self.links.send(to, &datagram),
            Output::Multicast { datagram } => {
                for warning in self.links.multicast(&datagram) {
                    self.tell(Event::Warning(warning));
                }
            }
            Output::Dial { dial, to, token } => self.connections.dial(dial, to, token),
            Output::HangUp(dial) => self.connections.hang_up(dial),
            Output::Close(conn) => self.connections.close(conn),
            Output::StopAccepting => self.connections.stop_accepting(),
            Output::Event(event) => self.tell(event),
        }
    }

    /// Closes all connections, and hears of nothing any more.
    async fn close(&mut self) {
        self.connections.close_all().await;
        self.sources = None;
    }

    fn assignment(self, formed: Formed) -> Assignment {
        let listener = self.connections.into_listener(formed.master.is_ipv6());
        let listener = listener.filter(|_| formed.rank.get() == 0);
        Assignment {
            job: self.builder.job,
            rank: formed.rank,
            world: formed.world,
            master: formed.master,
            local: formed.local,
            interface: holder_of(self.links.interfaces(), formed.local)
                .map(|interface| interface.name.clone()),
            digest: formed.digest,
            roster: formed.roster,
            verdict: formed.verdict,
            listener,
        }
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

#[allow(clippy::disallowed_methods, reason = "the driver is where the protocol gets its time from")]
pub(super) fn clock() -> Instant {
    Instant::now()
}
