//! `mingle doctor`: what would keep a world from forming here, and what helps.
//!
//! ```text
//! interfaces ... host        a topic each, from what `system` reads to findings
//! live, exchange, transfer   several hosts at once: what each does, and their connections
//! notice, matrix, table      what they tell each other, which reaches which, and how that is shown
//! diagnosis, duplicates, route   what breaks the rest
//! rails, wiring              the ports for RDMA of this host, and how those of all hosts are joined
//! rates                      which host is slow
//! ```

mod diagnosis;
mod duplicates;
mod exchange;
mod finding;
mod firewall;
mod host;
mod interfaces;
mod kernel;
mod live;
mod matrix;
mod multicast;
mod notice;
mod ports;
mod rails;
mod rates;
mod route;
mod surroundings;
mod system;
mod table;
mod transfer;
mod wiring;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::time::Duration;

use mingle_core::tools::{self, Interface, Judged, Prover, Station, host_name};
use mingle_core::{Error, Failure, JobId, Network, Rendezvous, WorldSize};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::args::DoctorArgs;
use crate::config::values::world_size;
use crate::config::{Reader, Settings};
use crate::exit::Stop;
use crate::fabric;
use crate::host::HERE;
use crate::runtime::runtime;
use crate::scheduler::{HostList, Scheduler};
use crate::stderr::{self, printable};
use crate::stdout::Stdout;
use finding::{Finding, Severity};
use live::Meeting;
use matrix::Board;
use notice::{ENDPOINTS, HostPlace, LARGEST, Record};
use wiring::Wiring;

/// The job whose group and ports are tried without --job-id.
const TRIAL_JOB: &str = "mingle doctor";
/// How long to wait for the other hosts, by default.
const WAIT: Duration = Duration::from_secs(30);
/// The most lines after a rendezvous that timed out.
const SHORT: usize = 6;

/// Examines this host, and with --world the other hosts, and prints the report.
pub(crate) fn run(args: DoctorArgs) -> Result<(), Stop> {
    let is_json = args.format.as_deref() == Some("json");
    let (transfers, reader) = (args.bandwidth, Reader(&|name: &str| std::env::var_os(name)));
    let (job, world, network, limit) = subject(args, &reader)?;
    let runtime = runtime()?;
    let id = tools::run_id().map_err(Stop::Rendezvous)?;
    let (mut findings, opened) = visit(id, &job, &network, &runtime)?;
    findings.push(runtime.block_on(firewall::examine()));
    findings.extend(host::examine(host_name().as_str()));
    let mut board = None;
    if let Some(world) = world
        && let Some(station) = opened
    {
        let machine = fabric::machine(reader.root().as_ref())?;
        let held = runtime.block_on(async {
            let prover = Prover::open(id, &job, world.max(), &network)?;
            let own = record(id, &station, prover.port(), transfers);
            let start = Board::new(own, world, &network);
            Ok(Meeting::open(station, prover, &job, start, machine).await?.hold(limit).await)
        });
        // Looking up the name of a seed may take many seconds more, and its answer is not needed.
        runtime.shutdown_background();
        let held = held.map_err(Stop::Rendezvous)?;
        findings.extend(diagnosis::examine(&held));
        board = Some(held);
    }
    // Last, since it counts the packets that were dropped meanwhile.
    findings.extend(kernel::examine(&interfaces(&network)?));
    report(&findings, board.as_ref(), world.is_some(), is_json)
}

fn interfaces(network: &Network) -> Result<Vec<Judged>, Stop> {
    tools::interfaces(network).map_err(|error| Stop::System("list the network interfaces", error))
}

/// This host as the others know it. `port` is that for paths.
fn record(id: u32, station: &Station, port: u16, transfers: bool) -> Record {
    let place = |at: SocketAddr| {
        let has = |interface: &&Interface| interface.addresses.iter().any(|own| own.addr() == at.ip());
        let by = station.interfaces().iter().find(has).map_or("", |interface| interface.name.as_str());
        let mac = system::hardware_address(by);
        HostPlace { at, link: station.link(at.ip()), by: by.to_owned(), mac }
    };
    let places = station.endpoints(ENDPOINTS).into_iter().map(place);
    let places = places.filter(|place| notice::is_name(&place.by)).collect();
    let (host, about) = (host_name(), BTreeMap::new());
    Record { id, host, places, port, transfers, done: false, about, rails: None }
}

/// Prints what the doctor finds wrong on this host, in a few lines, after a rendezvous that timed out.
pub(crate) fn after(stop: &Stop, config: &Settings) {
    if !matches!(stop, Stop::Rendezvous(Error::Failed(Failure::Deadline(_)))) {
        return;
    }
    let (Ok(runtime), Ok(id)) = (runtime(), tools::run_id()) else { return };
    let Rendezvous { job, world, network, .. } = &config.rendezvous;
    let Ok((mut findings, _)) = visit(id, job, network, &runtime) else { return };
    findings.extend(interfaces(network).iter().flat_map(|all| kernel::examine(all)));
    findings.retain(|finding| finding.status > Severity::Note);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.status));
    for finding in findings.iter().take(SHORT) {
        let cure = finding.cure.as_deref().unwrap_or_default();
        stderr::say(format_args!("doctor: {}: {}; {cure}", finding.looked, finding.seen));
    }
    // Job IDs may have spaces and quotes.
    let job = job.to_string().replace('\'', r"'\''");
    let Network { interfaces, seeds, seed_dir, .. } = network;
    let is_usual = interfaces.is_empty() && seeds.is_empty() && seed_dir.is_none();
    let options = if is_usual { "" } else { ", with your --interface, --seed and --seed-dir" };
    stderr::say(format_args!(
        "doctor: to see which node reaches which, run this on all nodes at once{options}: mingle doctor --job-id '{job}' --world {world}"
    ));
}

/// The subject of an examination: the job, how many hosts run the doctor at once if several do, the network
/// between them, and how long to wait for the others; none means for ever.
type Subject = (JobId, Option<WorldSize>, Network, Option<Duration>);

fn subject(args: DoctorArgs, reader: &Reader<'_>) -> Result<Subject, Stop> {
    let mut network = args.network.read(reader)?;
    let (job, world) = (reader.job(args.job_id)?, reader.read(args.world, "world", world_size)?);
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
    let scheduler = Scheduler::new(&|name: &str| std::env::var_os(name));
    if network.seeds.is_empty()
        && world.is_some()
        && let Some(provided) = scheduler.seeds()?
    {
        stderr::say(format_args!("seed {provided}"));
        let HostList(seeds) = provided.value;
        network.seeds = seeds;
    }
    // The doctor sends nothing sealed, but a secret that mingle would refuse is a finding.
    stderr::warn(reader.secret(None)?.1);
    let limit = reader.time(args.timeout, "timeout", WAIT)?;
    let trial = || TRIAL_JOB.parse().map_err(|error| Stop::Usage(format!("{TRIAL_JOB}: {error}")));
    Ok((job.map_or_else(trial, Ok)?, world, network, limit))
}

/// Examines what a rendezvous needs on this host: opens its sockets, where that is possible, and tries them.
/// `id` tells this run from those on other hosts.
fn visit(
    id: u32,
    job: &JobId,
    network: &Network,
    runtime: &Runtime,
) -> Result<(Vec<Finding>, Option<Station>), Stop> {
    let all = interfaces(network)?;
    let mut findings = interfaces::examine(&all, !network.interfaces.is_empty());
    let used = all.iter().filter(|nic| nic.refused.is_none()).map(|nic| nic.interface.clone()).collect();
    let opened = {
        // Watching sockets needs a runtime.
        let _entered = runtime.enter();
        Station::of_node(used, job, network)
    };
    let station = match opened {
        Ok(mut station) => {
            let range = HERE.text("/proc/sys/net/ipv4/ip_local_port_range");
            findings.push(ports::free(station.port(), network.master_port.is_some(), range.as_deref()));
            findings.push(ports::own());
            let tried = multicast::examine(&mut station, job.tag(), id, network.broadcast);
            findings.extend(runtime.block_on(tried));
            Some(station)
        }
        Err(error) => {
            findings.push(ports::failed(&error));
            None
        }
    };
    findings.extend(surroundings::examine(&all));
    Ok((findings, station))
}

fn report(findings: &[Finding], board: Option<&Board>, meets: bool, is_json: bool) -> Result<(), Stop> {
    let worst = findings.iter().any(|finding| finding.status == Severity::Problem);
    let (code, verdict) = match board {
        // The hosts have tried: findings about one of them do not matter then.
        Some(board) if board.can_form() => (0, "a world can form"),
        Some(board) if !board.is_full() => (3, "not all hosts came"),
        None if !worst && !meets => (0, "nothing on this host keeps a world from forming"),
        _ => (5, "a world cannot form"),
    };
    let count = finding::count(findings);
    let summary = if count.is_empty() { verdict.to_owned() } else { format!("{verdict}; {count}") };
    if is_json {
        Stdout::json(&json!({
            "code": code,
            "can_form": code == 0,
            "findings": findings,
            "matrix": board.map(table::document),
            "wiring": board.map(|board| Wiring::of(board).document()),
        }))?;
    } else {
        let matrix = board.map(|board| format!("\n{}{}", table::text(board), Wiring::of(board).text()));
        let matrix = matrix.unwrap_or_default();
        let text = format!("{}{matrix}\n{summary}\n", finding::text(findings));
        Stdout::print(&printable(&text))?;
    }
    match NonZeroU8::new(code) {
        None => Ok(()),
        Some(code) => Err(Stop::Findings { code, summary }),
    }
}
