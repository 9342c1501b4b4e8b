//! `mingle watch`: an observer, which shows how a job forms and runs, or which jobs form. It takes part in
//! none.
//!
//! ```text
//! job      one job: which nodes are here, which are missing, which leads, which run
//! jobs     all jobs that are not private
//! ```

mod job;
mod jobs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroU8;
use std::time::{Duration, Instant};

use mingle_core::tools::{Observer, Sighting};
use mingle_core::{JobId, Network, Secret};
use serde_json::Value;
use terminal_size::{Height, Width, terminal_size_of};
use tokio::time::{interval, sleep};

use crate::advice;
use crate::args::WatchArgs;
use crate::config::values::timeout;
use crate::config::{LONGEST, Reader};
use crate::events::utc;
use crate::exit::Stop;
use crate::runtime::runtime;
use crate::scheduler::Environment;
use crate::stderr::{self, printable, redraws};
use crate::stdout::Stdout;
use job::WatchedJob;
use jobs::Jobs;

/// How long to listen for one document. A leader sends every 1.25 s at least.
const SHOT: Duration = Duration::from_secs(2);
/// How often changes are shown.
const SHOW: Duration = Duration::from_millis(250);
/// A node that has sent regularly, and then nothing for this long, has finished or is gone.
const SILENT: Duration = Duration::from_secs(5);
/// The most lines for the changes at one time: a stranger can cause any number.
const MOST_LINES: usize = 1024;

/// The subject that is watched: one job or all jobs. Times are since the start.
trait Scene {
    fn see(&mut self, now: Duration, sighting: Sighting);
    /// The whole state, for people.
    fn lines(&self, now: Duration) -> Vec<String>;
    /// The whole state, for programs.
    fn document(&self, now: Duration) -> Value;
    /// The message where nothing was heard.
    fn silence(&self) -> Option<String>;
}

/// Shows what is heard, until the time has passed or the reader has gone.
pub(crate) fn run(args: WatchArgs) -> Result<(), Stop> {
    let is_json = args.format.as_deref() == Some("json");
    let (job, secret, network, limit) = subject(args, &|name| std::env::var_os(name))?;
    let limit = limit.unwrap_or(if is_json { SHOT } else { LONGEST });
    runtime()?.block_on(async {
        let (opened, scene): (_, Box<dyn Scene>) = match job {
            Some(job) => (Observer::of_job(&job, secret.as_ref(), &network), Box::new(WatchedJob::new(job))),
            None => (Observer::of_all_jobs(&network), Box::new(Jobs::default())),
        };
        let observer = opened.map_err(Stop::Rendezvous)?;
        stderr::warn(observer.warnings().iter().map(advice::warning));
        watch(observer, scene, is_json, limit).await
    })
}

/// The job to watch, or none for all, and its secret; the network, and for how long.
type Subject = (Option<JobId>, Option<Secret>, Network, Option<Duration>);

fn subject(args: WatchArgs, environment: Environment<'_>) -> Result<Subject, Stop> {
    let reader = Reader(environment);
    let network = args.air.read(&reader)?;
    let job = reader.job(args.job_id)?;
    if job.is_none() && args.secret_file.is_some() {
        return Err(Stop::Usage(
            "--job-id is missing: a secret opens the datagrams of one job, so name the job beside --secret-file"
                .to_owned(),
        ));
    }
    let (secret, warnings) =
        if job.is_some() { reader.secret(args.secret_file)? } else { (None, Vec::new()) };
    stderr::warn(warnings);
    // Not the variable, which says how long a node waits.
    let limit = |text: &str| timeout(text).map(|limit| limit.unwrap_or(LONGEST));
    let limit = Reader(&|_: &str| None).read(args.timeout, "timeout", limit)?;
    Ok((job, secret, network, limit))
}

async fn watch(
    mut observer: Observer,
    mut scene: Box<dyn Scene>,
    is_json: bool,
    limit: Duration,
) -> Result<(), Stop> {
    #[expect(clippy::disallowed_methods, reason = "the real world, whose time is shown")]
    let now = Instant::now;
    let started = now();
    let mut screen = if is_json { None } else { Some(Screen::new()?) };
    let mut tick = interval(SHOW);
    let mut end = std::pin::pin!(sleep(limit));
    let mut is_read = true;
    while is_read {
        tokio::select! {
            sighting = observer.next() => scene.see(now() - started, sighting),
            _ = tick.tick() => if let Some(screen) = &mut screen {
                is_read = screen.show(scene.lines(now() - started))?;
            },
            () = &mut end => break,
        }
    }
    match screen {
        None => Stdout::json(&scene.document(now() - started))?,
        Some(mut screen) if is_read => is_read = screen.show(scene.lines(now() - started))?,
        Some(_) => {}
    }
    match NonZeroU8::new(3).zip(scene.silence()).filter(|_| is_read) {
        Some((code, summary)) => Err(Stop::Findings { code, summary }),
        None => Ok(()),
    }
}

/// Where changes are shown.
enum Screen {
    /// In rows that are redrawn in place; the number is that of the rows drawn last.
    Live(File, usize),
    /// In a line for each change of the lines shown last.
    Lines(File, BTreeSet<String>),
}

impl Screen {
    fn new() -> Result<Self, Stop> {
        let out = Stdout::stream()?;
        Ok(if redraws(&out) { Self::Live(out, 0) } else { Self::Lines(out, BTreeSet::new()) })
    }

    /// Shows the state, or its changes. Returns whether the output still has a reader.
    fn show(&mut self, lines: Vec<String>) -> Result<bool, Stop> {
        let (out, text) = match self {
            Self::Live(out, drawn) => {
                let rows = fitted(lines, window(out));
                let lead = if *drawn == 0 { String::new() } else { format!("\x1b[{drawn}A\x1b[J") };
                *drawn = rows.len();
                (out, lead + &rows.concat())
            }
            Self::Lines(out, before) => {
                let time = utc();
                let news: Vec<String> =
                    lines.iter().filter(|line| !before.contains(*line)).cloned().collect();
                *before = lines.into_iter().collect();
                let news = cut(news, MOST_LINES).into_iter();
                let news: Vec<String> = news.map(|line| format!("{time} {}\n", printable(&line))).collect();
                (out, news.concat())
            }
        };
        // One write, so that a terminal never shows half of the rows.
        match out.write_all(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Stop::Stdout(error)),
            Ok(()) => Ok(true),
        }
    }
}

/// At most this many lines, the last of which counts the others.
fn cut(mut lines: Vec<String>, most: usize) -> Vec<String> {
    if lines.len() > most {
        let hidden = lines.len() - (most - 1);
        lines.truncate(most - 1);
        lines.push(format!("and {hidden} more lines"));
    }
    lines
}

/// The columns and rows of the terminal; unlimited where it does not report them.
fn window(terminal: &File) -> (usize, usize) {
    terminal_size_of(terminal)
        .map_or((usize::MAX, usize::MAX), |(Width(columns), Height(rows))| (columns.into(), rows.into()))
}

/// The lines, cut to the window, a row for each: a longer line would take two rows, and rows that have left
/// the window at the top cannot be redrawn.
fn fitted(lines: Vec<String>, (width, height): (usize, usize)) -> Vec<String> {
    // The cursor is below the last row.
    let lines = cut(lines, height.saturating_sub(1).max(1)).into_iter();
    // The text is ASCII: a character is a column.
    lines.map(|line| printable(&line).chars().take(width).chain(['\n']).collect()).collect()
}

fn is_silent(now: Duration, last: Duration) -> bool {
    now.saturating_sub(last) > SILENT
}

/// Whether the key is in the map, or there is room for it among at most `most`. Silent entries make room.
fn has_room<K: Ord, V>(
    all: &mut BTreeMap<K, V>,
    key: &K,
    most: usize,
    is_silent: impl Fn(&V) -> bool,
) -> bool {
    if all.len() < most || all.contains_key(key) {
        return true;
    }
    all.retain(|_, value| !is_silent(value));
    all.len() < most
}

#[cfg(test)]
mod tests;
