//! `mingle watch`: how a job gathers, or which jobs do, seen by somebody who only listens.
//!
//! ```text
//! job      one job: who is there, who is missing, who gathers
//! jobs     all jobs that are not private
//! ```

mod job;
mod jobs;

use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::time::{Duration, Instant, SystemTime};

use mingle_core::net::observe::Ears;
use serde_json::Value;
use tokio::time::{interval, sleep};

use crate::args::{JoinArgs, WatchArgs};
use crate::config::{Config, LONGEST};
use crate::events::clock;
use crate::exit::Stop;
use crate::stderr::{self, printable};
use crate::stdout::Stdout;
use crate::{join, wants_json};
use job::Job;
use jobs::Jobs;

/// What stands for a job where none is given: only the port and the interfaces count.
const NO_JOB: &str = "mingle watch";
/// How long is listened for one document. Whoever gathers speaks every 1.25 s at least.
const SHOT: Duration = Duration::from_secs(2);
/// How often what has changed is shown.
const SHOW: Duration = Duration::from_millis(250);
/// Who has spoken regularly and not for so long has nothing more to say, or cannot.
const SILENT: Duration = Duration::from_secs(5);

/// What is watched. Times are since the start.
trait Scene {
    fn hear(&mut self, now: Duration, from: SocketAddr, datagram: &[u8]);
    /// What has changed since this was asked last, a line each.
    fn news(&mut self, now: Duration) -> Vec<String>;
    /// All of it, for a terminal.
    fn table(&self, now: Duration) -> String;
    /// All of it, for programs.
    fn document(&self, now: Duration) -> Value;
    fn has_heard(&self) -> bool;
    /// What to say where nothing was heard.
    fn silence(&self) -> String;
}

/// Shows what is heard, until the time is up or the reader has gone.
pub(crate) fn run(args: WatchArgs) -> Result<(), Stop> {
    let is_json = wants_json(args.format.as_deref())?;
    let (config, has_job) = configure(args)?;
    for warning in &config.warnings {
        stderr::say(format_args!("warning: {warning}"));
    }
    let network = config.network();
    let limit = config.limit(if is_json { SHOT } else { LONGEST }).unwrap_or(LONGEST);
    let runtime = join::runtime()?;
    runtime.block_on(async {
        let opened = if has_job {
            Ears::of_job(&network.place, &network.interfaces)
        } else {
            Ears::of_all_jobs(Some(network.place.group.port()), &network.interfaces)
        };
        let ears = opened.map_err(Stop::Rendezvous)?;
        for warning in ears.warnings() {
            stderr::say(format_args!("warning: {warning}"));
        }
        if has_job {
            let job = Job::new(network.place.job.clone(), config.keys().as_ref());
            watch(ears, job, is_json, limit).await
        } else {
            watch(ears, Jobs::default(), is_json, limit).await
        }
    })
}

/// Where to listen, and whether to one job.
fn configure(args: WatchArgs) -> Result<(Config, bool), Stop> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let has_job = args.job_id.is_some() || is_set("MINGLE_JOB_ID");
    if !has_job && args.secret_file.is_some() {
        return Err(Stop::Usage(
            "--job-id is missing: a secret opens the words of one job, so name it beside --secret-file"
                .to_owned(),
        ));
    }
    let mut low = JoinArgs::from(args);
    // Whoever listens needs no size.
    low.world = Some("1".to_owned());
    if !has_job {
        low.job_id = Some(NO_JOB.to_owned());
    }
    // They are of a node that takes part.
    let of_nodes = ["MINGLE_RANK", "MINGLE_TIMEOUT", "MINGLE_MASTER_PORT"];
    let of_jobs = ["MINGLE_SECRET", "MINGLE_SECRET_FILE"];
    let variable = |name: &str| {
        let is_others = of_nodes.contains(&name) || !has_job && of_jobs.contains(&name);
        if is_others { None } else { std::env::var_os(name) }
    };
    let config = Config::new(low, variable);
    Ok((config?, has_job))
}

async fn watch(mut ears: Ears, mut scene: impl Scene, is_json: bool, limit: Duration) -> Result<(), Stop> {
    #[expect(clippy::disallowed_methods, reason = "the real world, whose time is shown")]
    let now = Instant::now;
    let started = now();
    let mut screen = Screen::new(is_json)?;
    let mut tick = interval(SHOW);
    let mut end = std::pin::pin!(sleep(limit));
    let mut is_read = true;
    while is_read {
        tokio::select! {
            (from, datagram) = ears.hear() => scene.hear(now() - started, from, &datagram),
            _ = tick.tick() => is_read = screen.show(&mut scene, now() - started)?,
            () = &mut end => break,
        }
    }
    if is_json {
        Stdout::json(&scene.document(now() - started))?;
    } else if is_read {
        screen.show(&mut scene, now() - started)?;
    }
    match NonZeroU8::new(3).filter(|_| is_read && !scene.has_heard()) {
        Some(code) => Err(Stop::Findings { code, summary: scene.silence() }),
        None => Ok(()),
    }
}

/// Where it is shown as it goes.
enum Screen {
    /// Only the end is of interest.
    Dark,
    /// One table that is drawn again in its place; so many lines of it stand there.
    Live(std::fs::File, usize),
    /// A line for each change.
    Lines(std::fs::File),
}

impl Screen {
    fn new(is_json: bool) -> Result<Self, Stop> {
        let can_draw = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        Ok(match is_json {
            true => Self::Dark,
            false if can_draw && io::stdout().is_terminal() => Self::Live(Stdout::stream()?, 0),
            false => Self::Lines(Stdout::stream()?),
        })
    }

    /// Whether somebody still reads it.
    fn show(&mut self, scene: &mut impl Scene, now: Duration) -> Result<bool, Stop> {
        let written = match self {
            Self::Dark => Ok(()),
            Self::Live(out, drawn) => {
                let lead = if *drawn == 0 { String::new() } else { format!("\x1b[{drawn}A\x1b[J") };
                let table = scene.table(now);
                *drawn = table.lines().count();
                // At once, so that a terminal never shows half of it.
                out.write_all((lead + &printable(&table)).as_bytes())
            }
            Self::Lines(out) => {
                #[expect(clippy::disallowed_methods, reason = "the real world, whose calendar is shown")]
                let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let time = clock::rfc_3339(time);
                let lines: Vec<String> =
                    scene.news(now).iter().map(|line| format!("{time} {}\n", printable(line))).collect();
                out.write_all(lines.concat().as_bytes())
            }
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Stop::Stdout(error)),
            Ok(()) => Ok(true),
        }
    }
}

/// Lines under a heading, each column as wide as it must be.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
