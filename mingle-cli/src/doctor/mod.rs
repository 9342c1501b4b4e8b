//! `mingle doctor`: what would keep a world from forming here, and what helps.
//!
//! ```text
//! system                  reads files and runs programs
//! live, exchange, transfer  use sockets; everything else is a function of what these and `system` found
//! interfaces ... host     a topic each, from text to findings
//! nft, iptables           rules, for `firewall` to judge
//! notice, matrix, table   several hosts at once: their messages, which reaches which, and how that is shown
//! diagnosis, duplicates   what breaks the rest
//! rounds                  who sends to whom when, and which host is slow
//! ```

mod diagnosis;
mod duplicates;
mod exchange;
mod finding;
mod firewall;
mod host;
mod interfaces;
mod iptables;
mod kernel;
mod live;
mod matrix;
mod multicast;
mod nft;
mod notice;
mod ports;
mod rounds;
mod surroundings;
mod system;
mod table;
mod transfer;

use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::time::Duration;

use mingle_core::rdma::{Machine, Transport};
use mingle_core::tools::{self, Interface, Judged, Prover, Station, host_name};
use mingle_core::{Error, Failure, JobId, Network, World, WorldSize};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::args::DoctorArgs;
use crate::config::values::{self, Timeout, timeout};
use crate::config::{Config, Reader};
use crate::exit::Stop;
use crate::network::NetworkArgs;
use crate::scheduler::{Provided, Scheduler};
use crate::stderr::{self, printable};
use crate::stdout::Stdout;
use crate::{advice, environment, join, wants_json};
use finding::{Finding, Status};
use firewall::{Hook, Packet};
use interfaces::Nic;
use live::{Meeting, Wires};
use matrix::Board;
use notice::{Card, ENDPOINTS, LARGEST, Place};
use system::Files;

/// The job whose group and ports are tried without --job-id.
const TRIAL_JOB: &str = "mingle doctor";
/// How long to wait for the other hosts, by default.
const WAIT: Duration = Duration::from_secs(30);
/// How long a program that prints firewall rules may take. After a rendezvous the limit is shorter, since the
/// user has not asked for the report.
const RULES: Duration = Duration::from_secs(2);
const RULES_AFTER: Duration = Duration::from_millis(500);
/// The most lines after a rendezvous that timed out.
const SHORT: usize = 6;

/// Examines this host, and with --world the other hosts, and prints the report.
pub(crate) fn run(args: DoctorArgs) -> Result<(), Stop> {
    let is_json = wants_json(args.format.as_deref())?;
    let Examined { job, world, network, limit, transfers } = Examined::read(args)?;
    let runtime = join::runtime()?;
    let mut visit = Visit::begin(&job, &network, &runtime, RULES)?;
    visit.name();
    let mut board = None;
    if let Some(world) = world
        && let Some((station, wires)) = visit.opened.take()
    {
        let id = visit.id;
        let held = runtime.block_on(async {
            let prover = Prover::open(id, &job, world.max(), &network)?;
            let card = card(id, &station, prover.port(), transfers);
            let count = |world: World| usize::try_from(world.get()).unwrap_or(usize::MAX);
            let mut start = Board::new(card, count(world.max()), network.prefers_ipv6);
            start.set_least(count(world.min()));
            start.tries_broadcast = network.broadcast;
            let meeting = Meeting { station: &station, wires, prover, tag: job.tag(), limit, transfers };
            meeting.hold(start).await
        });
        // Looking up the name of a seed may take many seconds more, and its answer is not needed.
        runtime.shutdown_background();
        let held = held.map_err(Stop::Rendezvous)?;
        if held.is_complete() {
            // The packets of all have passed these rules.
            visit.findings.iter_mut().for_each(Finding::excuse_rules);
        }
        visit.findings.extend(diagnosis::examine(&held));
        board = Some(held);
    }
    report(&visit.findings, board.as_ref(), world.is_some(), is_json)
}

/// This host as the others know it. `port` is that for paths.
fn card(id: u32, station: &Station, port: u16, transfers: bool) -> Card {
    let files = Files { root: PathBuf::from("/") };
    let place = |at: SocketAddr| {
        let has = |interface: &&Interface| interface.addresses.iter().any(|own| own.ip == at.ip());
        let interface = station.interfaces().iter().find(has);
        let mac = interface.and_then(|interface| files.hardware_address(&interface.name));
        Place { at, link: station.link(at.ip()), mac }
    };
    let places = station.endpoints(ENDPOINTS).into_iter().map(place).collect();
    Card { id, host: host_name().as_str().to_owned(), places, port, transfers, done: false }
}

/// Prints what the doctor finds wrong on this host, in a few lines, after a rendezvous that timed out.
pub(crate) fn after(stop: &Stop, config: &Config) {
    if !matches!(stop, Stop::Rendezvous(Error::Failed(Failure::Deadline(_)))) {
        return;
    }
    let Ok(runtime) = join::runtime() else { return };
    let Ok(visit) = Visit::begin(&config.job, &config.network, &runtime, RULES_AFTER) else { return };
    let mut bad: Vec<&Finding> = visit
        .findings
        .iter()
        .filter(|finding| finding.status > Status::Note && finding.is_of_network())
        .collect();
    bad.sort_by_key(|finding| std::cmp::Reverse(finding.status));
    for finding in bad.iter().take(SHORT) {
        let cure = finding.cure.as_deref().unwrap_or_default();
        stderr::say(format_args!("doctor: {}: {}; {cure}", finding.looked, finding.seen));
    }
    stderr::say(format_args!(
        "doctor: 'mingle doctor --job-id <ID> --world {}' on all nodes at once shows which node reaches which",
        config.world
    ));
}

/// The subject of an examination: this host, and with a world of other hosts the network between them.
struct Examined {
    job: JobId,
    /// How many hosts run the doctor at once, if several do.
    world: Option<WorldSize>,
    network: Network,
    /// How long to wait for the other hosts; none means for ever.
    limit: Option<Duration>,
    /// Whether to run transfers between the hosts.
    transfers: bool,
}

impl Examined {
    fn read(args: DoctorArgs) -> Result<Self, Stop> {
        let reader = Reader(|name: &str| std::env::var_os(name));
        let network = NetworkArgs::from(&args).of_node(&reader)?;
        let (job, world) = (reader.job(args.job_id)?, reader.world(args.world)?);
        if world.is_some() && job.is_none() {
            return Err(Stop::Usage(
                "--job-id is missing: --world compares several hosts, which find each other by the job ID"
                    .to_owned(),
            ));
        }
        if let Some(world) = world.filter(|world| !(2..=LARGEST).contains(&world.max().get())) {
            return Err(Stop::Usage(format!(
                "--world {world}: the doctor compares 2 to {LARGEST} hosts; run it on a part of them, or without --world"
            )));
        }
        if args.bandwidth && world.is_none() {
            return Err(Stop::Usage(
                "--world is missing: --bandwidth runs transfers between several hosts".to_owned(),
            ));
        }
        // The doctor sends nothing sealed, but a secret that mingle would refuse is a finding.
        let (_, warnings) = reader.secret(None)?;
        for warning in warnings {
            stderr::say(format_args!("warning: {warning}"));
        }
        let limit = reader.read(args.timeout, "timeout", timeout)?;
        let limit = limit.map_or(Some(WAIT), |Timeout(limit)| limit);
        let trial = || TRIAL_JOB.parse().map_err(|error| Stop::Usage(format!("{TRIAL_JOB}: {error}")));
        Ok(Self { job: job.map_or_else(trial, Ok)?, world, network, limit, transfers: args.bandwidth })
    }
}

/// The examination of one host.
struct Visit {
    findings: Vec<Finding>,
    /// Tells this run from those on other hosts.
    id: u32,
    /// The sockets, where they could be opened.
    opened: Option<(Station, Wires)>,
}

impl Visit {
    fn begin(job: &JobId, network: &Network, runtime: &Runtime, rules: Duration) -> Result<Self, Stop> {
        let files = Files { root: PathBuf::from("/") };
        let judged =
            tools::interfaces(network).map_err(|error| Stop::System("list the network interfaces", error))?;
        let nics: Vec<Nic> = judged.iter().map(Nic::new).collect();
        let mut visit = Self {
            findings: interfaces::examine(&nics, !network.interfaces.is_empty()),
            id: tools::run_id().map_err(Stop::Rendezvous)?,
            opened: None,
        };
        let port = visit.sockets(job, network, runtime, &files, &judged)?;
        visit.kernel(&files, &nics);
        visit.findings.extend(system::firewall(&files, &packets(job, network, &nics, port), rules));
        visit.surroundings(&files, &nics);
        Ok(visit)
    }

    /// The name of this host, for which the resolver may need seconds.
    fn name(&mut self) {
        let files = Files { root: PathBuf::from("/") };
        let name = host_name();
        // The static program looks names up itself.
        let is_static = cfg!(target_feature = "crt-static");
        let unasked = host::plugins(files.read("etc/nsswitch.conf").filter(|_| is_static).as_deref());
        let (hosts, lookup) = (files.read("etc/hosts"), system::lookup(name.as_str()));
        self.findings.push(host::name(name.as_str(), hosts.as_deref(), lookup, &unasked));
    }

    /// Opens the sockets of a rendezvous and tries them. Returns the port to look at.
    fn sockets(
        &mut self,
        job: &JobId,
        network: &Network,
        runtime: &Runtime,
        files: &Files,
        judged: &[Judged],
    ) -> Result<u16, Stop> {
        let used: Vec<Interface> =
            judged.iter().filter(|j| j.refused.is_none()).map(|j| j.interface.clone()).collect();
        let first = network.master_port.or_else(|| network.ports(job).next()).unwrap_or_default();
        let given = network.master_port.is_some();
        let station = match Station::open(used, job, network) {
            Ok(station) => station,
            Err(error) => {
                self.findings.push(ports::failed(&error, files.holder(first).as_deref()));
                return Ok(first);
            }
        };
        let range = files.read("proc/sys/net/ipv4/ip_local_port_range");
        self.findings.extend(ports::free(station.port(), given, range.as_deref()));
        let (wires, tried) = runtime
            .block_on(async {
                let mut wires = Wires::open(&station)?;
                let tried = live::own_multicast(&station, &mut wires, job.tag(), self.id).await;
                std::io::Result::Ok((wires, tried))
            })
            .map_err(|error| Stop::System("use the sockets", error))?;
        let warnings: Vec<String> = station.warnings().map(advice::warning).collect();
        let read = |path: &str| files.read(path);
        let (igmp, snmp6, igmp6) = (read("proc/net/igmp"), read("proc/net/snmp6"), read("proc/net/igmp6"));
        self.findings.extend(multicast::examine(multicast::Seen {
            igmp: igmp.as_deref(),
            snmp6: snmp6.as_deref(),
            igmp6: igmp6.as_deref(),
            tried: &tried,
            warnings: &warnings,
        }));
        let port = station.port();
        self.opened = Some((station, wires));
        Ok(port)
    }

    fn kernel(&mut self, files: &Files, nics: &[Nic]) {
        let setting = |name: &str| files.read(&format!("proc/sys/{name}"));
        let routes = kernel::routes(&files.read("proc/net/route").unwrap_or_default());
        let drops = files.read("proc/net/netstat").and_then(|text| kernel::reverse_path_drops(&text));
        self.findings.extend(kernel::examine(nics, &setting, &routes, drops));
    }

    fn surroundings(&mut self, files: &Files, nics: &[Nic]) {
        let arp = files.read("proc/net/arp").unwrap_or_default();
        let gateways = kernel::gateways(&files.read("proc/net/route").unwrap_or_default());
        let kernel = files.read("proc/sys/kernel/osrelease").unwrap_or_default();
        let vendor = files.read("sys/class/dmi/id/sys_vendor").unwrap_or_default();
        let place = surroundings::Surroundings {
            kubernetes: environment("KUBERNETES_SERVICE_HOST").is_some()
                || files.exists("var/run/secrets/kubernetes.io"),
            container: files.exists(".dockerenv") || files.exists("run/.containerenv"),
            arp: &arp,
            gateways: &gateways,
            kernel: &kernel,
            vendor: &vendor,
        };
        self.findings.extend(surroundings::examine(place, nics));

        self.findings.extend(host::place(place_of_host()));
        let set = |name: &&&str| environment(name).is_some_and(|value| !value.is_empty());
        let proxies: Vec<&str> = host::PROXIES.iter().filter(set).copied().collect();
        let exempt = environment("no_proxy").or_else(|| environment("NO_PROXY"));
        self.findings.push(host::proxies(&proxies, exempt.as_deref()));
        let (mounts, memory) = (files.read("proc/self/mounts"), files.read("proc/meminfo"));
        self.findings.push(host::shared_memory(mounts.as_deref(), memory.as_deref()));
        let summary = Machine::probe().map_err(|error| error.to_string()).map(|machine| {
            let choice = machine.choose();
            let used = choice.used().count();
            format!("{}, {used} of {} ports", Transport::alone(&choice), choice.ports.len())
        });
        let devices = files.names("dev/infiniband");
        let limits = files.read("proc/self/limits");
        self.findings.extend(host::rdma(limits.as_deref(), devices.as_deref(), summary));
    }
}

/// The place of this host, and the variable that it comes from.
fn place_of_host() -> Result<Option<Provided<mingle_core::Place>>, Stop> {
    let environment = |name: &str| std::env::var_os(name);
    let variable = |value| Provided { variable: "MINGLE_PLACE".into(), value };
    let given = Reader(environment).read(None, "place", values::place)?.map(variable);
    given.map_or_else(|| Scheduler::new(environment).place(), |given| Ok(Some(given)))
}

/// The packets of a rendezvous, on each interface that it uses.
fn packets(job: &JobId, network: &Network, nics: &[Nic], port: u16) -> Vec<Packet> {
    let mut packets = Vec::new();
    for nic in nics.iter().filter(|nic| nic.refused.is_none()) {
        let own = |is_ipv6: bool| nic.addresses.iter().map(|(ip, _)| *ip).find(|ip| ip.is_ipv6() == is_ipv6);
        // One family for each interface, as for multicast.
        let Some(own) = own(network.prefers_ipv6).or_else(|| own(!network.prefers_ipv6)) else { continue };
        let [v4, v6] = network.groups(job);
        let group = if own.is_ipv6() { v6 } else { v4 };
        for hook in [Hook::Input, Hook::Output] {
            for (tcp, to, port) in [(false, group.ip(), group.port()), (false, own, port), (true, own, port)]
            {
                packets.push(Packet { hook, interface: nic.name.clone(), tcp, to, port });
            }
        }
    }
    packets
}

fn report(findings: &[Finding], board: Option<&Board>, meets: bool, is_json: bool) -> Result<(), Stop> {
    let worst = findings.iter().any(|finding| finding.status == Status::Problem);
    let code = match board {
        // The hosts have tried: findings about one of them do not matter then.
        Some(board) if board.can_form() => 0,
        Some(board) if !board.is_full() => 3,
        Some(_) => 5,
        None if worst || meets => 5,
        None => 0,
    };
    let count = finding::count(findings);
    let verdict = match (code, meets) {
        (0, true) => "a world can form",
        (0, false) => "nothing on this host keeps a world from forming",
        (3, _) => "not all hosts came",
        _ => "a world cannot form",
    };
    let summary = if count.is_empty() { verdict.to_owned() } else { format!("{verdict}; {count}") };
    if is_json {
        Stdout::json(&json!({
            "code": code,
            "can_form": code == 0,
            "findings": findings,
            "matrix": board.map(table::document),
        }))?;
    } else {
        let matrix = board.map(|board| format!("\n{}", table::text(board))).unwrap_or_default();
        let text = format!("{}{matrix}\n{summary}\n", finding::text(findings));
        Stdout::plain(printable(&text).into_owned())?;
    }
    match NonZeroU8::new(code) {
        None => Ok(()),
        Some(code) => Err(Stop::Findings { code, summary }),
    }
}
