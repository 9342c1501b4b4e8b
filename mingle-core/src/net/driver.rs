//! The loop between the sockets and the state machine.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rand::TryRng;
use rand::rngs::SysRng;
use tokio::task::AbortHandle;

use super::connection::Happened;
use super::connections::{Accepted, Connections, What};
use super::directory::Advertiser;
use super::endpoint::{Endpoint, OpenFiles, bind_at};
use super::links::Links;
use super::running::RunningWorld;
use super::seed_dir::{OwnFile, SeedDir};
use super::seeds::Sources;
use super::watched::{Watched, readable};
use super::{Assignment, Builder};
use crate::error::Error;
use crate::host::{self, Family, Interface, endpoints, holder_of};
use crate::model::{Endpoints, HostName, NodeId};
use crate::proto::{Config, Event, Formed, MAX_DATAGRAM, Node, Output, Time, Tried, Warning};
use crate::wire::{Attributes, NodeInfo};

/// Most own addresses that are looked at; others are told fewer.
const ADDRESSES: usize = 64;
/// Most datagrams that are read from a socket before timers get their turn.
pub(super) const BATCH: usize = 256;
/// A timer that fires so late has been slept through: what has arrived meanwhile comes first.
pub(super) const PAUSED: Duration = Duration::from_millis(100);
/// How often other tasks get their turn then.
const SETTLE: usize = 4;
/// Most datagrams that are read after a pause. A receive buffer rarely holds more.
pub(super) const BACKLOG: usize = 8192;
/// Switches that snoop on IGMP without a querier forget a member after 260 s.
pub(super) const REJOIN: Duration = Duration::from_secs(60);
/// How long a host that has no usable interface yet is waited for.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// How often the host's addresses are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// So much later where nothing else wakes the process, which most of what a waiting world hears does.
const AT_LEISURE: Duration = Duration::from_secs(2);
/// After a restart the members of the former world are looked for where they were, for so long; then for so long after
/// each of such pauses, since one that has been cut off says nothing by itself.
const FORMER: Duration = Duration::from_secs(60);
const FORMER_ON: Duration = Duration::from_secs(1);
const FORMER_OFF: Duration = Duration::from_secs(15);
/// After so long without a word of anybody's, people are told what may be the matter.
const QUIET: Duration = Duration::from_secs(15);

pub(super) async fn join(builder: Builder) -> Result<Assignment, Error> {
    let interfaces = usable(&builder).await?;
    let endpoint = bind_at(builder.loopback, builder.master_port, builder.job.ports(), builder.ttl)?;
    let origin = clock();
    let mut driver = Driver::new(builder, interfaces, endpoint, origin)?;
    driver.begin_to_follow().await?;
    driver.rendezvous().await
}

/// The interfaces to use, for which a host that is just starting gets some time. A world of one needs none, so
/// it makes do with the loopback address.
pub(super) async fn usable(builder: &Builder) -> Result<Vec<Interface>, Error> {
    let until = clock() + builder.timeout.map_or(GRACE, |timeout| timeout.min(GRACE));
    let mut told = false;
    loop {
        match select(builder) {
            Err(_) if builder.world.get() == 1 && builder.interfaces.is_empty() => return Ok(Vec::new()),
            Err(Error::NoInterface { reasons, is_filtered }) if clock() < until => {
                if !std::mem::replace(&mut told, true) {
                    tell(builder, Event::Warning(Warning::NoInterface { reasons, is_filtered }));
                }
                tokio::time::sleep(GRACE / 20).await;
            }
            selected => return selected,
        }
    }
}

pub(super) fn select(builder: &Builder) -> Result<Vec<Interface>, Error> {
    if let Some(address) = builder.loopback {
        return Ok(vec![Interface::loopback(address)]);
    }
    Ok(host::find(&builder.interfaces)?)
}

/// Opens them, and tells people what is wrong with them.
pub(super) fn links(
    builder: &Builder,
    interfaces: Vec<Interface>,
    own: Vec<UdpSocket>,
) -> Result<Links, Error> {
    let links = Links::open(builder, interfaces, own)?;
    for warning in links.warnings() {
        tell(builder, Event::Warning(warning));
    }
    Ok(links)
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
pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let what = || "cannot read random bytes from the operating system".to_owned();
    let failed = |error| Error::Socket { what: what(), source: io::Error::other(error) };
    SysRng.try_fill_bytes(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Where others may reach this node. A world of one may have no interface, and makes do with the loopback address.
fn own_endpoints(builder: &Builder, links: &Links, port: u16) -> Endpoints {
    let family = Family::preferred(builder.prefers_ipv6);
    let own = endpoints(links.interfaces(), port, ADDRESSES, family);
    Endpoints::new(own).unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
}

/// The sockets of one rendezvous. Dropping it closes them all.
pub(super) struct Driver {
    pub(super) builder: Builder,
    pub(super) links: Links,
    pub(super) origin: Instant,
    pub(super) port: u16,
    /// The node that is running.
    pub(super) id: NodeId,
    /// This node's addresses, as it has told them.
    pub(super) endpoints: Endpoints,
    /// Where others may be, as it was told last.
    seeds: Vec<SocketAddr>,
    /// Where the members of the world before this one were.
    pub(super) former: Vec<SocketAddr>,
    /// Whether they are seeds now.
    pub(super) asks_former: bool,
    /// What tells it.
    following: Option<AbortHandle>,
    /// This node's file in the shared folder.
    pub(super) own_file: Option<OwnFile>,
    pub(super) connections: Connections,
    pub(super) open_files: Option<OpenFiles>,
}

impl Driver {
    fn new(
        builder: Builder,
        interfaces: Vec<Interface>,
        endpoint: Endpoint,
        origin: Instant,
    ) -> Result<Self, Error> {
        let links = links(&builder, interfaces, endpoint.sockets)?;
        let connections = Connections::open(endpoint.listeners, builder.keep_listener)?;
        Ok(Self {
            id: NodeId(random()?),
            endpoints: own_endpoints(&builder, &links, endpoint.port),
            builder,
            links,
            origin,
            port: endpoint.port,
            seeds: Vec::new(),
            former: Vec::new(),
            asks_former: true,
            following: None,
            own_file: None,
            connections,
            open_files: Some(OpenFiles::raise()),
        })
    }

    /// Takes part in it until its end.
    pub(super) async fn rendezvous(mut self) -> Result<Assignment, Error> {
        let node = self.node()?;
        let outcome = self.run(node).await;
        // Nobody hears of this node any more, unless it stays.
        self.connections.close_all().await;
        let (node, formed) = outcome?;
        Ok(self.assignment(node, formed))
    }

    /// A new node for what is left of the time.
    fn node(&self) -> Result<Node, Error> {
        let builder = &self.builder;
        let wants_roster = builder.attributes.wants_roster || builder.stays;
        let config = Config {
            id: self.id,
            tag: builder.job.tag(),
            keys: builder.secret.as_ref().map(|secret| secret.keys(&builder.job)),
            world: builder.world,
            lineage: builder.lineage,
            node: NodeInfo {
                rank: builder.rank,
                host: builder.host.clone().unwrap_or_else(host_name),
                endpoints: self.endpoints.clone(),
                attributes: Attributes { wants_roster, ..builder.attributes.clone() },
            },
            prefers_ipv6: builder.prefers_ipv6,
            rank_by: builder.rank_by,
            timeout: builder.timeout.map(|timeout| timeout.saturating_sub(self.now())),
        };
        let seed = random::<8>().map(u64::from_le_bytes)?;
        let mut node = Node::new(config, seed, self.now());
        node.handle_seeds(self.now(), self.all_seeds());
        Ok(node)
    }

    fn all_seeds(&self) -> Vec<SocketAddr> {
        let former = self.former.iter().filter(|_| self.asks_former);
        self.seeds.iter().chain(former).copied().collect()
    }

    /// Another node takes its place, with an ID of its own.
    fn replace(&mut self, node: &mut Node) -> Result<(), Error> {
        self.connections.hang_up_all();
        self.renew()?;
        *node = self.node()?;
        Ok(())
    }

    /// A new ID, under which the shared folder tells of this node.
    pub(super) fn renew(&mut self) -> Result<(), Error> {
        self.id = NodeId(random()?);
        let folder = self.seed_dir();
        self.own_file = folder.as_ref().map(SeedDir::own_file);
        self.follow(folder);
        Ok(())
    }

    pub(super) fn own_endpoints(&self) -> Endpoints {
        own_endpoints(&self.builder, &self.links, self.port)
    }

    /// Only here is a folder that cannot be written to an error: this node's file is in it first.
    async fn begin_to_follow(&mut self) -> Result<(), Error> {
        let opened = match self.seed_dir() {
            Some(folder) => Some(folder.open().await?),
            None => None,
        };
        let (folder, own_file) = opened.unzip();
        self.own_file = own_file;
        self.follow(folder);
        Ok(())
    }

    /// The shared folder as the node that is running sees it.
    pub(super) fn seed_dir(&self) -> Option<SeedDir> {
        let folder = self.builder.seed_dir.as_ref().filter(|_| self.builder.world.get() > 1)?;
        Some(SeedDir::new(folder, self.builder.job.tag(), self.id, &self.endpoints))
    }

    /// Follows the seeds from now on, where there are any.
    pub(super) fn follow(&mut self, folder: Option<SeedDir>) {
        if let Some(following) = self.following.take() {
            following.abort();
        }
        let builder = &self.builder;
        let sources = Sources::new(&builder.seeds, folder, builder.master_port, &builder.job);
        if builder.world.get() > 1 && !sources.is_empty() {
            self.following = Some(self.connections.run_beside(|tell| sources.follow(tell)));
        }
    }

    pub(super) fn now(&self) -> Time {
        clock().duration_since(self.origin)
    }

    pub(super) fn tell(&self, event: Event) {
        tell(&self.builder, event);
    }

    async fn run(&mut self, mut node: Node) -> Result<(Node, Formed), Error> {
        let mut rejoin = self.origin + REJOIN;
        let mut look = self.origin + LOOK;
        let mut former = self.origin + FORMER;
        let mut advertiser = Advertiser::new(&self.builder);
        let mut quiet = Some(self.origin + QUIET).filter(|_| self.builder.world.get() > 1);
        loop {
            self.fire(&mut node).await;
            while let Some(output) = node.poll_output() {
                if let (Output::Event(event), Some(advertiser)) = (&output, &mut advertiser) {
                    advertiser.observe(event, clock());
                }
                match output {
                    Output::Event(Event::Formed(formed)) => return Ok((node, formed)),
                    Output::Event(Event::Failed(failure)) => return Err(Error::Failed(failure)),
                    Output::Event(Event::Superseded(lineage)) => {
                        self.tell(Event::Superseded(lineage));
                        self.builder.lineage = lineage;
                        self.replace(&mut node)?;
                    }
                    Output::Event(event) => self.tell(event),
                    other => self.carry_out(other),
                }
            }
            let due = node.poll_timeout().and_then(|at| self.origin.checked_add(at));
            let former_due = Some(former).filter(|_| !self.former.is_empty());
            let advertiser_due = advertiser.as_ref().and_then(Advertiser::due);
            let due = [Some(rejoin), former_due, quiet, advertiser_due, self.connections.again(), due]
                .into_iter()
                .flatten()
                .fold(look + AT_LEISURE, Instant::min);
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
                    What::Accepted(accepted) => {
                        self.accepted(accepted);
                        self.accept_waiting().await;
                    }
                },
                () = tokio::time::sleep_until(due.into()) => {}
            }
            if let Some(notice) = advertiser.as_mut().and_then(|advertiser| advertiser.speak(clock())) {
                self.links.notify(self.builder.discovery_port, &notice);
            }
            if clock() >= rejoin {
                rejoin = clock() + REJOIN;
                self.links.rejoin();
            }
            if clock() >= look {
                look = clock() + LOOK;
                self.look_at_interfaces(&mut node)?;
            }
            if !self.former.is_empty() && clock() >= former {
                // At first all the time, later for a moment now and then.
                self.asks_former = !self.asks_former;
                former = clock() + if self.asks_former { FORMER_ON } else { FORMER_OFF };
                node.handle_seeds(self.now(), self.all_seeds());
            }
            if quiet.is_some_and(|at| clock() >= at) {
                quiet = None;
                if !node.has_heard() {
                    self.tell(Event::Warning(Warning::NobodyHeard { after: QUIET, tried: self.tried() }));
                }
            }
        }
    }

    /// How this node has looked for others so far.
    fn tried(&self) -> Tried {
        match (&self.following, self.builder.broadcast) {
            (None, true) => Tried::Broadcast,
            (None, false) => Tried::Multicast,
            (Some(_), _) if self.seeds.is_empty() => Tried::NoSeedKnown,
            (Some(_), _) => Tried::Seeds,
        }
    }

    /// Addresses come and go: a pod gets its second network, DHCP answers.
    fn look_at_interfaces(&mut self, node: &mut Node) -> Result<(), Error> {
        // What goes on in a round has an end of its own.
        if self.builder.world.get() == 1 || node.is_bound() {
            return Ok(());
        }
        // What has all gone may come again.
        let Ok(interfaces) = select(&self.builder) else { return Ok(()) };
        if self.links.are_on(&interfaces) {
            return Ok(());
        }
        let again = interfaces == self.links.interfaces();
        match self.links.change(interfaces) {
            Err(error) if again => tracing::debug!(%error, "taking the same interfaces once more"),
            Err(error) => self.tell(Event::Warning(Warning::Interfaces { error: error.chain() })),
            Ok(()) => {}
        }
        let own = self.own_endpoints();
        if own == self.endpoints {
            return Ok(());
        }
        tracing::debug!(?own, "the addresses of this host have changed");
        let was = std::mem::replace(&mut self.endpoints, own);
        let loopback =
            |endpoints: &[SocketAddr]| endpoints.iter().all(|endpoint| endpoint.ip().is_loopback());
        if self.endpoints.preferred() == was.preferred() && loopback(&self.endpoints) == loopback(&was) {
            node.handle_endpoints(self.now(), self.endpoints.clone());
            // Its file in the shared folder tells them, too.
            self.follow(self.seed_dir());
        } else {
            // Others know this node by the address that it prefers, which has gone: another takes its place.
            self.tell(Event::Warning(Warning::AddressesChanged));
            // The connections of its members cannot be closed from an address that is gone.
            node.handle_departure(self.now());
            while let Some(output) = node.poll_output() {
                self.carry_out(output);
            }
            self.replace(node)?;
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
        } else {
            // What the node would say may have been answered already, and the runtime has not looked yet: of a
            // thousand nodes of one thread, each would call to all the others.
            self.look_at_happenings(node);
            for socket in self.links.sockets() {
                self.take(BATCH, |buffer| socket.recv_from(buffer), &mut |now, from, datagram| {
                    node.handle_datagram(now, from, datagram);
                });
            }
        }
        node.handle_timeout(self.now());
    }

    /// Gives the runtime and the connections their turn: the runtime looks at the sockets, and at other
    /// tasks, only while this one yields.
    async fn settle(&mut self, node: &mut Node) {
        tokio::task::yield_now().await;
        self.accept_waiting().await;
        self.look_at_happenings(node);
        for happened in self.connections.take_waiting() {
            self.happened(node, happened);
        }
    }

    /// Those that wait already, together: where there is one there are often more.
    async fn accept_waiting(&mut self) {
        for _ in 0..BATCH {
            let Some(accepted) = self.connections.accept_now().await else { break };
            self.accepted(accepted);
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
        let receivers = self.links.receivers();
        self.read(receivers, most, |now, from, datagram| node.handle_datagram(now, from, datagram))
    }

    /// The same for whoever takes them, from these sockets in their order.
    pub(super) fn read<'a>(
        &self,
        receivers: impl IntoIterator<Item = &'a Watched>,
        most: usize,
        mut handle: impl FnMut(Time, SocketAddr, &[u8]),
    ) -> bool {
        let mut more = false;
        for socket in receivers {
            more |= self.take(most, |buffer| socket.try_recv_from(buffer), &mut handle);
        }
        more
    }

    /// Reads at most so many datagrams. Returns whether there may be more.
    fn take(
        &self,
        most: usize,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<(usize, SocketAddr)>,
        handle: &mut impl FnMut(Time, SocketAddr, &[u8]),
    ) -> bool {
        let mut buffer = [0; MAX_DATAGRAM + 1];
        for _ in 0..most {
            match receive(&mut buffer) {
                Ok((length, _)) if length > MAX_DATAGRAM => {}
                Ok((length, from)) => handle(self.now(), from, &buffer[..length]),
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        tracing::debug!(%error, "receiving");
                    }
                    return false;
                }
            }
        }
        true
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
                self.seeds = seeds;
                node.handle_seeds(now, self.all_seeds());
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

    pub(super) fn carry_out(&mut self, output: Output) {
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

    fn assignment(mut self, node: Node, formed: Formed) -> Assignment {
        let interface =
            holder_of(self.links.interfaces(), formed.local).map(|interface| interface.name.clone());
        let job = self.builder.job.clone();
        let listener = self.connections.take_listener(formed.master.is_ipv6());
        let machine = if self.builder.stays { node.into_running(&formed) } else { None };
        Assignment {
            job,
            rank: formed.rank,
            world: formed.world,
            master: formed.master,
            local: formed.local,
            interface,
            digest: formed.digest,
            listener: listener.filter(|_| formed.rank.get() == 0),
            running: machine.map(|machine| RunningWorld::new(self, machine)),
            roster: formed.roster,
            verdict: formed.verdict,
            slots: formed.slots,
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the driver is where the protocol gets its time from")]
pub(super) fn clock() -> Instant {
    Instant::now()
}
