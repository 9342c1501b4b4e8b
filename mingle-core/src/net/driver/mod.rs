//! The loop between the sockets and the state machine.
//!
//! ```text
//! interfaces   which interfaces are used, and what happens when their addresses change
//! peers        addresses at which other nodes may be: seeds and folder
//! receive      reading sockets, and catching up after this process was stopped
//! upkeep       what is done every few seconds beside the protocol
//! running      a node that stays with its worlds
//! round        its way to the next world
//! ```

mod interfaces;
mod peers;
mod receive;
mod round;
mod running;
mod upkeep;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::host::{Interface, holder_of, host_name};
use crate::model::{Endpoints, NodeId, Rank, Trait, Traits};
use crate::net::assignment::Assignment;
use crate::net::clock::{clock, random};
use crate::net::discovery::seed_dir::SeedDir;
use crate::net::error::Error;
use crate::net::rendezvous::Rendezvous;
use crate::net::sockets::connection::TaskEvent;
use crate::net::sockets::connections::{Connections, longest};
use crate::net::sockets::endpoint::{bind_endpoint, listen_for_paths};
use crate::net::sockets::links::Links;
use crate::net::sockets::open_files::OpenFiles;
use crate::proto::world::World;
use crate::proto::{Config, Event, Failure, Formed, Node, Output, Reach, Time, Warning};
use crate::wire::session::Hellos;
use crate::wire::{Attributes, NodeInfo};
use interfaces::{own_endpoints, usable};
use peers::Peers;
use receive::BATCH;
use upkeep::Upkeep;

pub(super) use running::RunningWorld;

/// The least time between two growths of a world: each stops all commands.
const GROWTHS: Duration = Duration::from_secs(300);
/// The most nodes of a world whose leader has sessions with all under the usual limit of open files, 1,024.
const SMALL: u32 = 512;

pub(super) async fn join(settings: Rendezvous) -> Result<Assignment, Error> {
    let mut driver = Driver::new(settings).await?;
    driver.warn_of_interfaces();
    driver.open_seed_dir().await?;
    Met::Nobody(Box::new(driver)).world().await
}

/// What has become of a node that looked for others.
enum Met {
    World(Box<Assignment>),
    /// Nobody that it has met is left: it looks for others as at the start.
    Nobody(Box<Driver>),
}

impl Met {
    /// Looks for others until a world has formed, or has failed to.
    async fn world(mut self) -> Result<Assignment, Error> {
        loop {
            self = match self {
                Self::World(assignment) => return Ok(*assignment),
                Self::Nobody(driver) => Box::pin(driver.meet()).await?,
            }
        }
    }
}

/// The sockets of one rendezvous, and the node that uses them. Dropping it closes them all.
struct Driver {
    settings: Rendezvous,
    links: Links,
    connections: Connections,
    /// Those with the other nodes of a world that stays.
    sessions: Connections,
    peers: Peers,
    /// The zero of the node's clock.
    origin: Instant,
    /// When the timeout began.
    began: Instant,
    /// The node's own port, TCP and UDP.
    port: u16,
    /// The ID of the node that is running.
    id: NodeId,
    /// The endpoints that it has published.
    endpoints: Endpoints,
    /// How the job reaches this node, as it has told its leader.
    reach: Reach,
    /// The port for paths; 0 if there are none.
    path_port: u16,
    /// None once the world runs: programs that close every possible file rely on a low limit.
    open_files: Option<OpenFiles>,
    /// It has waited for a seat in the world of others: also where it looks for others then, it tells of no
    /// restarts that it has counted before.
    was_guest: bool,
}

impl Driver {
    async fn new(mut settings: Rendezvous) -> Result<Self, Error> {
        let origin = clock();
        let interfaces = usable(&settings).await?;
        let endpoint = bind_endpoint(&settings.network, &settings.job)?;
        let links = open_links(&settings, interfaces, endpoint.sockets)?;
        let open_files = OpenFiles::raise();
        let (connections, path_port) = connections(&settings, endpoint.listeners, endpoint.port)?;
        let sessions = sessions(&mut settings)?;
        let endpoints = own_endpoints(&settings.network, &links, endpoint.port);
        Ok(Self {
            path_port,
            id: NodeId(random()?),
            reach: Reach::default(),
            endpoints,
            settings,
            links,
            connections,
            sessions,
            peers: Peers::default(),
            origin,
            began: origin,
            port: endpoint.port,
            open_files: Some(open_files),
            was_guest: false,
        })
    }

    async fn meet(mut self) -> Result<Met, Error> {
        // On the heap: the node is large.
        let mut node = Box::new(self.node()?);
        let formed = Box::pin(self.run(&mut node)).await;
        let is_master = matches!(&formed, Ok(Some(formed)) if formed.rank == Rank(0));
        if let Ok(None) = &formed {
            // It waits for a seat, and for the proofs of a round.
            self.hang_up_all();
        } else {
            self.connections.close_all(is_master).await;
        }
        let (formed, leader) = (formed?, node.runs().cloned());
        let shared = node.into_shared();
        match (formed, leader) {
            (Some(formed), _) => {
                let (stays, mut assignment) = (self.settings.stays, self.assignment(formed));
                assignment.running = stays.then(|| RunningWorld::first(self, shared, &assignment.formed));
                Ok(Met::World(Box::new(assignment)))
            }
            (None, Some(leader)) => RunningWorld::new(self, World::guest(shared, leader)).meet().await,
            (None, None) => unreachable!("only a node that stays waits for a seat"),
        }
    }

    /// A new node for the rest of the time.
    fn node(&mut self) -> Result<Node, Error> {
        let config = self.config();
        let hellos = Hellos::new(config.tag, config.keys.as_ref());
        // Nobody is answered at the session port before the node is in a world, or waits for one.
        self.sessions.speak_as(config.id, hellos.clone());
        self.connections.speak_as(config.id, hellos);
        let mut node = Node::new(config, random().map(u64::from_le_bytes)?, self.now());
        self.connections.set_target(node.path_target());
        node.handle_seeds(self.now(), self.peers.seeds.concat());
        Ok(node)
    }

    /// What this node brings to a rendezvous.
    fn config(&mut self) -> Config {
        self.reach = self.own_reach(&self.endpoints);
        let settings = &self.settings;
        let wants_roster = settings.attributes.wants_roster || settings.stays || settings.tries;
        let node = NodeInfo {
            rank: settings.rank.filter(|_| !settings.world.is_range()),
            host: settings.host.clone().unwrap_or_else(host_name),
            endpoints: self.endpoints.clone(),
            reach: self.reach.clone(),
            attributes: Attributes { wants_roster, ..settings.attributes.clone() },
        };
        let mut config = Config::new(self.id, settings.tag(), settings.world, node);
        config.keys = settings.secret.as_ref().map(|secret| secret.keys(&settings.job));
        config.prefers_ipv6 = settings.network.prefers_ipv6;
        config.traits = self.traits().into();
        config.tried = self.tried();
        config.without_multicast = self.settings.network.without_multicast(self.links.interfaces());
        config.listed = settings.network.seeds.iter().map(|seed| seed.host().to_owned()).collect();
        config.last_call = settings.last_call;
        (config.gone_after, config.stop_timeout) = (settings.gone_after, settings.stop_timeout);
        config.grow_after = settings.grows.then_some(GROWTHS);
        config.stands_by = settings.stays;
        config.tries = settings.tries;
        config.timeout = settings.timeout.map(|timeout| timeout.saturating_sub(self.began.elapsed()));
        config
    }

    /// What should be the same on all nodes, with the MTU of the interface that this node prefers, which may
    /// have come up after the start.
    fn traits(&self) -> Traits {
        let traits = self.settings.traits.clone();
        match self.links.interfaces().first() {
            Some(first) if first.mtu > 0 && !traits.is_empty() => {
                traits.with(Trait::shown("MTU", first.mtu.to_string()))
            }
            _ => traits,
        }
    }

    /// Puts another node with a new ID in the place of this one.
    fn replace(&mut self, node: &mut Node) -> Result<(), Error> {
        self.connections.hang_up_all();
        self.renew()?;
        *node = self.node()?;
        Ok(())
    }

    /// Takes a new ID, and leaves a file under it in the shared folder.
    fn renew(&mut self) -> Result<(), Error> {
        self.id = NodeId(random()?);
        let folder = self.seed_dir();
        self.peers.own_file = folder.as_ref().map(SeedDir::own_file);
        self.follow_seeds(folder);
        Ok(())
    }

    /// The time on the node's clock.
    fn now(&self) -> Time {
        clock().duration_since(self.origin)
    }

    fn warn(&self, warning: Warning) {
        self.settings.notify(Event::Warning(warning));
    }

    /// Runs the node until its world has formed. None: the job runs without this node, which waits for a
    /// seat.
    async fn run(&mut self, node: &mut Node) -> Result<Option<Formed>, Error> {
        let mut upkeep = Upkeep::new(&self.settings);
        loop {
            self.fire_timers(node).await;
            match self.carry_out_all(node) {
                Some(Ok(formed)) => return Ok(Some(formed)),
                Some(Err(failure)) => return Err(Error::Failed(failure)),
                None if node.runs().is_some() => return Ok(None),
                None => {}
            }
            self.advertise(node, &mut upkeep);
            let due = node.poll_timeout().and_then(|at| self.origin.checked_add(at));
            let due = due.into_iter().fold(upkeep.due(&self.links), Instant::min);
            tokio::select! {
                // Datagrams first: a message of the leader may explain why a connection closes.
                biased;
                () = self.links.readable() => {
                    // A flood of datagrams must not starve the connections.
                    if self.receive(node, BATCH) {
                        self.settle(node).await;
                    }
                }
                event = self.connections.next() => if let Some(event) = event {
                    self.handle(node, event);
                    // All that has arrived is acknowledged at once.
                    while let Some(event) = self.connections.next_waiting() {
                        self.handle(node, event);
                    }
                },
                () = tokio::time::sleep_until(due.into()) => {}
            }
            self.keep_up(node, &mut upkeep)?;
        }
    }

    /// Carries out all that the node wants, and reports its events. Returns how it has ended, if it has: what
    /// it has said last is written then.
    fn carry_out_all(&mut self, node: &mut Node) -> Option<Result<Formed, Failure>> {
        let mut ended = None;
        while let Some(output) = node.poll_output() {
            match output {
                Output::Event(Event::Formed(formed)) => ended = Some(Ok(formed)),
                Output::Event(Event::Failed(failure)) => ended = Some(Err(failure)),
                Output::Carry(order) => self.connections.carry_out(order, |peer| node.follows(peer)),
                other => self.carry_out(other),
            }
        }
        ended
    }

    fn handle(&mut self, node: &mut Node, event: TaskEvent) {
        let now = self.now();
        match event {
            TaskEvent::Seeds { in_folder, seeds } => {
                self.peers.seeds[usize::from(in_folder)] = seeds;
                node.handle_seeds(now, self.peers.seeds.concat());
            }
            TaskEvent::Warning(warning) => self.warn(warning),
            TaskEvent::Path(dial, news) => node.handle_path(now, dial, &news),
            TaskEvent::Asked { peer, meant, answer } => {
                if let Some(number) = node.handle_asked(now, peer, meant) {
                    // Sending fails if the connection has just closed.
                    let _ = answer.send((number, longest(node.follows(peer))));
                }
            }
            TaskEvent::Opened { peer, way, conn, numbers, .. } => {
                node.handle_opened(now, peer, way, conn, numbers);
            }
            TaskEvent::DialFailed(peer, dial, failed) => node.handle_dial_failed(now, peer, dial, failed),
            TaskEvent::Read(conn, frame, _permit) => _ = node.handle_frame(now, conn, frame),
            TaskEvent::Closed(conn, ending) => node.handle_closed(now, conn, ending),
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { to, datagram } => self.links.send(to, &datagram),
            Output::Multicast { datagram } => {
                for warning in self.links.multicast(&datagram) {
                    self.warn(warning);
                }
            }
            Output::Carry(order) => self.connections.carry_out(order, |_| false),
            Output::DialPath(path) => self.connections.prove(path),
            Output::HangUp(dial) => self.connections.hang_up(dial),
            Output::StopAccepting => self.connections.stop_accepting(),
            Output::Event(event) => self.settings.notify(event),
        }
    }

    /// What the caller gets of a world: the interface of this node's address, and the master's listener if
    /// the caller wants it.
    fn assignment(&mut self, formed: Formed) -> Assignment {
        let holder = holder_of(self.links.interfaces(), formed.local);
        let interface = holder.map(|holder| holder.name_in(formed.local.is_ipv6()).to_owned());
        let listener = self.connections.take_listener(formed.master.is_ipv6());
        let listener = listener.filter(|_| formed.rank.get() == 0);
        let (job, without) = (self.settings.job.clone(), Vec::new());
        Assignment { job, formed, interface, listener, without, running: None }
    }
}

/// Accepts on these listeners of the node's own port, and on a port for paths, which it returns. A world
/// of a single node has no port for paths.
fn connections(
    settings: &Rendezvous,
    own: Vec<TcpListener>,
    own_port: u16,
) -> Result<(Connections, u16), Error> {
    let (paths, path_port) = if settings.is_alone() {
        (Vec::new(), 0)
    } else if settings.own_ports {
        (Vec::new(), own_port)
    } else {
        listen_for_paths(settings.network.loopback)?
    };
    let mut connections = Connections::open(own, paths, settings.world.max())?;
    connections.keeps_own = settings.keep_listener;
    Ok((connections, path_port))
}

/// Accepts the sessions of a world that stays at a port of their own, of which the others learn.
fn sessions(settings: &mut Rendezvous) -> Result<Connections, Error> {
    let loopback = settings.network.loopback;
    let (own, port) = if settings.stays { listen_for_paths(loopback)? } else { (Vec::new(), 0) };
    settings.attributes.session_port = port;
    Ok(Connections::open(own, Vec::new(), settings.world.max())?.for_sessions())
}

/// Opens the datagram sockets, and warns of the interfaces that could not join a group.
fn open_links(
    settings: &Rendezvous,
    interfaces: Vec<Interface>,
    own: Vec<std::net::UdpSocket>,
) -> Result<Links, Error> {
    let groups = settings.network.joined_groups(&settings.job);
    let links = Links::open(groups, &settings.network, settings.is_alone(), interfaces, own)?;
    for warning in links.warnings().into_iter().filter(|_| !settings.is_alone()) {
        settings.notify(Event::Warning(warning));
    }
    Ok(links)
}
