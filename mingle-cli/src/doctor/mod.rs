//! `mingle doctor`: what would keep a world from forming here, and what helps.
//!
//! ```text
//! interfaces ... host        a topic each
//! meeting                    several hosts at once: they form a world in which no command runs
//! notice, exchange, transfer what they send to all, to rank 0, and for rates
//! board, table               what they have found, and how that is shown
//! diagnosis, route           what breaks the rest
//! rails, wiring              the ports for RDMA of this host, and how those of all hosts are joined
//! rates                      which host is slow
//! ```

mod board;
mod diagnosis;
mod exchange;
mod finding;
mod firewall;
mod host;
mod interfaces;
mod kernel;
mod meeting;
mod multicast;
mod notice;
mod rails;
mod rates;
mod route;
mod surroundings;
mod table;
mod transfer;
mod wiring;

use std::ffi::OsString;
use std::num::NonZeroU8;
use std::time::Duration;

use mingle_core::tools::{self, Judged, Station, host_name};
use mingle_core::{Error, Failure, JobId, Network, Rendezvous, Warning};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::args::{DoctorArgs, JoinArgs};
use crate::config::values::world_size;
use crate::config::{Reader, Settings};
use crate::events::{self, Journal};
use crate::exit::Stop;
use crate::nccl_conf::environment_or_files;
use crate::prepare::prepare;
use crate::runtime::runtime;
use crate::stderr::{self, printable};
use crate::stdout::Stdout;
use crate::{advice, fabric};
use board::Board;
use finding::{Finding, Severity};
use meeting::Meeting;
use notice::LARGEST;
use wiring::Wiring;

/// The job whose group and ports are tried without --job-id.
const TRIAL_JOB: &str = "mingle doctor";
/// How long to wait for the other hosts, by default.
const WAIT: Duration = Duration::from_secs(30);
/// The most lines after a rendezvous that timed out.
const SHORT: usize = 6;

/// Variables for what the doctor does not do: they are not read.
const UNUSED: [&str; 8] = [
    "MINGLE_EVENTS",
    "MINGLE_LAST_CALL",
    "MINGLE_OUTPUT",
    "MINGLE_PATHS",
    "MINGLE_PORTS",
    "MINGLE_RANK",
    // Several tasks of a node have one rank, which is not taken; nor is that of a pod, whatever --world is.
    "SLURM_STEP_NUM_TASKS",
    "JOB_COMPLETION_INDEX",
];

/// Examines this host, and with --world the other hosts, and prints the report.
pub(crate) fn run(args: DoctorArgs) -> Result<(), Stop> {
    let is_json = args.format.as_deref() == Some("json");
    let transfers = args.bandwidth;
    let (mut config, meets) = settings(args)?;
    let runtime = runtime()?;
    let examined = examine(&runtime, &mut config, meets, transfers);
    // Looking up a name may take many seconds more, and its answer is not needed.
    runtime.shutdown_background();
    let (mut findings, met) = examined?;
    // Last, since it counts the packets that were dropped meanwhile.
    findings.extend(kernel::examine(&interfaces(&config.rendezvous.network)?));
    report(&findings, met, meets, is_json)
}

/// Examines this host, and if it `meets` the others, what passes between them.
fn examine(
    runtime: &Runtime,
    config: &mut Settings,
    meets: bool,
    transfers: bool,
) -> Result<(Vec<Finding>, Option<Outcome>), Stop> {
    let started = events::now();
    let id = tools::random().map(u32::from_be_bytes).map_err(Stop::Rendezvous)?;
    let Rendezvous { job, network, .. } = config.rendezvous.clone();
    let machine = fabric::machine(config.fabric.root.as_ref())?;
    let (mut findings, opens) = visit(id, &job, &network, runtime)?;
    findings.push(runtime.block_on(firewall::examine()));
    findings.extend(runtime.block_on(host::examine(host_name().as_str(), &machine)));
    if !meets || !opens {
        return Ok((findings, None));
    }
    let (outcome, more) = Journal::during(config, started, |config, journal| {
        prepare(config)?;
        runtime.block_on(async {
            let mut meeting = Meeting::open(config, id, machine, transfers).await?;
            let held = meeting.hold(config, journal).await;
            conclude(held, &meeting, journal, &network).await
        })
    })?;
    findings.extend(more);
    Ok((findings, Some(outcome)))
}

/// What has become of a meeting: what the hosts have found, and the exit code if hosts are missing; or the
/// exit code of a rendezvous that fails.
type Outcome = Result<(Board, u8), u8>;

/// The findings on the hosts that have met, and on those that were heard and have not come.
async fn conclude(
    held: Result<Board, Stop>,
    meeting: &Meeting,
    journal: &Journal,
    network: &Network,
) -> Result<(Outcome, Vec<Finding>), Stop> {
    let (outcome, mut findings) = match held {
        Ok(board) => {
            let still = |warning: &&Warning| !diagnosis::is_settled(warning, &board);
            let warnings: Vec<Warning> = journal.warnings.iter().filter(still).cloned().collect();
            let findings = diagnosis::examine(&board, &warnings);
            let codes = warnings.iter().filter_map(advice::code_of);
            let code = codes.min().filter(|_| !board.is_full() && !board.is_broken());
            (Ok((board, code.unwrap_or(advice::DEADLINE))), findings)
        }
        Err(Stop::Rendezvous(error)) => (Err(advice::class(&error).0), vec![diagnosis::explain(&error)]),
        Err(stop) => return Err(stop),
    };
    let has_come = |id| outcome.as_ref().is_ok_and(|(board, _)| board.hosts.iter().any(|host| host.id == id));
    let ears = meeting.ears.lock().await;
    let others = ears.hosts.iter().filter(|heard| !has_come(heard.id));
    findings.extend(diagnosis::of_others(host_name().as_str(), others, network));
    Ok((outcome, findings))
}

fn interfaces(network: &Network) -> Result<Vec<Judged>, Stop> {
    tools::interfaces(network).map_err(|error| Stop::System("list the network interfaces", error))
}

/// Prints what the doctor finds wrong on this host, in a few lines, after a rendezvous that timed out.
pub(crate) fn after(stop: &Stop, config: &Settings) {
    if !matches!(stop, Stop::Rendezvous(Error::Failed(Failure::Deadline(_)))) {
        return;
    }
    let (Ok(runtime), Ok(id)) = (runtime(), tools::random().map(u32::from_be_bytes)) else { return };
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
    let is_usual = *network == Network::default() && config.rendezvous.secret.is_none();
    let options = if is_usual { "" } else { ", with the same options of the network and the secret" };
    let (nodes, world) = match world.max().get() {
        most if most > LARGEST => (format!("{LARGEST} of the nodes"), LARGEST.to_string()),
        _ => ("all nodes".to_owned(), world.to_string()),
    };
    stderr::say(format_args!(
        "doctor: to see which node reaches which, run this on {nodes} at once{options}: mingle doctor --job-id '{job}' --world {world}"
    ));
}

/// The settings of a rendezvous with these arguments and variables, and whether several hosts meet.
fn settings(args: DoctorArgs) -> Result<(Settings, bool), Stop> {
    let environment = |name: &str| -> Option<OsString> {
        if UNUSED.contains(&name) { None } else { environment_or_files(name) }
    };
    let reader = Reader(&environment);
    let world = reader.read(args.world.clone(), "world", world_size)?;
    let has_job = reader.job(args.job_id.clone())?.is_some();
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
    let trial = || TRIAL_JOB.to_owned();
    let low = JoinArgs {
        job_id: args.job_id.or_else(|| (!has_job && world.is_none()).then(trial)),
        world: args.world.or_else(|| world.is_none().then(|| "1".to_owned())),
        network: args.network,
        secret_file: args.secret_file,
        ..JoinArgs::default()
    };
    let mut config = Settings::scheduled(low, &environment)?;
    config.rendezvous.timeout = reader.time(args.timeout, "timeout", WAIT)?;
    Ok((config, world.is_some()))
}

/// Examines what a rendezvous needs on this host: opens its sockets and tries them. Returns the findings, and
/// whether the sockets can be opened. `id` tells this run from those on other hosts.
fn visit(id: u32, job: &JobId, network: &Network, runtime: &Runtime) -> Result<(Vec<Finding>, bool), Stop> {
    let all = interfaces(network)?;
    let mut findings = interfaces::examine(&all, !network.interfaces.is_empty());
    let used = interfaces::used(&all).cloned().collect();
    let opened = {
        // Watching sockets needs a runtime.
        let _entered = runtime.enter();
        Station::of_node(used, job, network)
    };
    let opens = opened.is_ok();
    match opened {
        Ok(mut station) => {
            let is_given = network.master_port.is_some();
            let seen = if is_given { "free" } else { "free, the first free port of this job" };
            findings.push(Finding::ok("master port", format!("port {}", station.port()), seen));
            let tried = multicast::examine(&mut station, job.tag(), id, network.broadcast);
            findings.extend(runtime.block_on(tried));
        }
        Err(error) => findings.push(diagnosis::explain(&error)),
    }
    findings.extend(surroundings::examine(&all));
    Ok((findings, opens))
}

fn report(findings: &[Finding], met: Option<Outcome>, meets: bool, is_json: bool) -> Result<(), Stop> {
    let worst = findings.iter().any(|finding| finding.status == Severity::Problem);
    let (code, verdict) = match &met {
        // The hosts have tried: findings about one of them do not matter then.
        Some(Ok((board, _))) if board.can_form() => (0, "a world can form"),
        Some(Ok((board, _))) if board.is_broken() => (5, "a world cannot form"),
        Some(Ok((board, code))) if !board.is_full() => (*code, "not all hosts came"),
        Some(Ok(_)) => (3, "not all hosts have told what they have found"),
        Some(Err(advice::DEADLINE)) => (3, "not all hosts came"),
        Some(Err(code)) => (*code, "a world cannot form"),
        None if !worst && !meets => (0, "nothing on this host keeps a world from forming"),
        _ => (5, "a world cannot form"),
    };
    let board = met.as_ref().and_then(|met| met.as_ref().ok()).map(|(board, _)| board);
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
        let text = format!("{}{matrix}\n{verdict}\n", finding::text(findings));
        Stdout::print(&printable(&text))?;
    }
    match NonZeroU8::new(code) {
        None => Ok(()),
        Some(code) => Err(Stop::Findings { code, summary: verdict.to_owned() }),
    }
}
