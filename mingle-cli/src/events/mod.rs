//! `--events`: the events of a run, a line of JSON each, for a launcher to follow.

mod goodput;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use mingle_core::error::{Cause, RankRange};
use mingle_core::proto::{Over, Peer, Progress};
use mingle_core::tools::host_name;
use mingle_core::{Assignment, Change, End, Event, Formed, HostName, Rank, Rendezvous, Warning, WorldSize};
use nix::libc::{O_NONBLOCK, PIPE_BUF};
use serde_json::{Value, json};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use crate::config::Settings;
use crate::exit::Stop;
use crate::stdout::{Stdout, json_text};
use crate::{advice, caller, stderr};
use goodput::Goodput;

/// How many characters of a message fit, whatever they are: each is 12 bytes at most. The other fields of a
/// line with a message are short.
const CUT: usize = 300;
/// The most warnings that are kept.
const WARNINGS: usize = 32;

/// The file of `--events`, if there is one, and the state that shows which events bring a change.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Option<File>,
    /// When this process started, and when it began to look for this world.
    started: Instant,
    begun: Instant,
    leader: Option<Peer>,
    joined: u32,
    missing: Vec<RankRange>,
    /// The first warnings.
    pub(crate) warnings: Vec<Warning>,
    /// How long the last formation took, in milliseconds.
    pub(crate) formed_ms: Option<u64>,
    goodput: Goodput,
}

impl Journal {
    /// Writes the events of `work`, its failure included.
    pub(crate) fn during<T>(
        config: &mut Settings,
        started: Instant,
        work: impl FnOnce(&mut Settings, &mut Self) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        stderr::begin(config.quiet, config.verbose);
        let mut journal = Self::open(config.events.as_deref(), started)?;
        let Rendezvous { job, world, .. } = &config.rendezvous;
        let mut facts = json!({ "job": job.as_str(), "host": host_name(), "pid": std::process::id() });
        add_world(&mut facts, Some(*world));
        journal.write("started", facts);
        work(config, &mut journal).inspect_err(|stop| journal.write("failed", stop.document()))
    }

    fn open(path: Option<&Path>, started: Instant) -> Result<Self, Stop> {
        Ok(Self {
            file: path.map(open).transpose()?,
            started,
            begun: started,
            leader: None,
            joined: 0,
            missing: Vec::new(),
            warnings: Vec::new(),
            formed_ms: None,
            goodput: Goodput::default(),
        })
    }

    /// Writes an event on the way to a world.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Leading => {
                self.meet(None);
                self.write("leading", json!({}));
            }
            Event::SteppedDown => {
                self.meet(None);
                self.write("leading_ended", json!({}));
            }
            Event::Following(leader) if self.leader.as_ref() != Some(leader) => {
                self.meet(Some(leader.clone()));
                self.write("leader_changed", json!({ "leader": peer(leader) }));
            }
            Event::LostLeader(leader) => {
                self.meet(None);
                self.write("leader_lost", json!({ "leader": peer(leader) }));
            }
            Event::Progress(progress) => self.progress(progress),
            // Nothing is wrong where nodes start late.
            Event::Warning(Warning::Waiting { report, .. }) if report.cause() == Cause::Incomplete => {}
            Event::Warning(warning) => {
                if self.warnings.len() < WARNINGS {
                    self.warnings.push(warning.clone());
                }
                self.write("warning", json!({ "message": advice::warning(warning) }));
            }
            Event::Preparing { round } => self.write("preparing", json!({ "round": round })),
            Event::FirstCause(over) => self.write("cause", end(over)),
            // The caller writes the end.
            _ => {}
        }
    }

    /// A new leader counts its members from the start.
    fn meet(&mut self, leader: Option<Peer>) {
        self.leader = leader;
        self.joined = 0;
        self.missing.clear();
    }

    fn progress(&mut self, progress: &Progress) {
        let Progress { joined, world, newest, missing, .. } = progress;
        let was = std::mem::replace(&mut self.joined, *joined);
        let has_moved = *missing != std::mem::replace(&mut self.missing, missing.clone());
        let (new, gone) = (joined.saturating_sub(was), was.saturating_sub(*joined));
        let mut facts = json!({ "joined": joined, "missing": rank_ranges(missing) });
        add_world(&mut facts, Some(*world));
        if new > 0 {
            let new = usize::try_from(new).unwrap_or(usize::MAX);
            let hosts: Vec<&str> = newest.iter().take(new).map(HostName::as_str).collect();
            facts["new"] = new.into();
            facts["hosts"] = hosts.into();
            self.write("joined", facts);
        } else if gone > 0 {
            facts["gone"] = gone.into();
            self.write("left", facts);
        } else if has_moved {
            self.write("missing", facts);
        }
    }

    /// The world has formed.
    pub(crate) fn formed(&mut self, assignment: &Assignment) {
        self.formed_ms = Some(since(self.begun));
        let Formed { rank, world, master, sameness, .. } = &assignment.formed;
        let mut facts = json!({
            "rank": rank.get(),
            "world": world.get(),
            "master": { "address": master.ip(), "port": master.port() },
            "differences": sameness.lines(),
            "timings": { "formed_ms": self.formed_ms },
        });
        if let Some(lost) = self.goodput.formed(now()) {
            facts["lost"] = lost;
            facts["without"] = assignment.without.iter().map(|(rank, _)| rank.get()).collect();
        }
        self.write("formed", facts);
    }

    /// The world is over for this reason: its commands stop.
    pub(crate) fn lost(&mut self, why: &str) {
        self.goodput.ended(now(), Some(why));
    }

    /// How long the commands of a job with restarts have run, and how long no world was there.
    pub(crate) fn sum(&mut self) {
        self.goodput.ended(now(), None);
        if let Some(facts) = self.goodput.facts() {
            self.write("goodput", facts);
        }
        if let Some(line) = self.goodput.line() {
            stderr::say(format_args!("{line}"));
        }
    }

    /// The command of `mingle run` starts, as this process or its child.
    pub(crate) fn command_started(&mut self, pid: u32) {
        self.write("command_started", json!({ "pid": pid }));
    }

    /// The command has ended on this node.
    pub(crate) fn command_ended(&mut self, end: End) {
        let facts = match end {
            End::Exited(code) => json!({ "code": code }),
            End::Killed(signal) => json!({ "signal": signal }),
            _ => json!({}),
        };
        self.write("command_ended", facts);
    }

    /// A change of a world in which this node stays.
    pub(crate) fn change(&mut self, change: &Change) {
        let of = |rank: &Rank, node| json!({ "rank": rank.get(), "node": peer(node) });
        match change {
            Change::Over(over) => {
                self.lost(&over.to_string());
                self.write("over", end(over));
            }
            Change::Cause(over) => self.write("cause", end(over)),
            Change::Suspected(rank, node) => self.write("suspected", of(rank, node)),
            Change::Back(rank, node) => self.write("back", of(rank, node)),
            Change::CutOff => self.write("cut_off", json!({})),
            Change::Waiting(nodes) => self.write("waiting", json!({ "nodes": nodes })),
            Change::Finished => self.write("finished", json!({})),
            _ => {}
        }
    }

    /// All nodes restart.
    pub(crate) fn restart(&mut self, generation: u32) {
        self.meet(None);
        self.begun = now();
        self.formed_ms = None;
        self.write("restart", json!({ "generation": generation }));
    }

    /// One write for each line, so that lines of several processes do not mix and no reader sees half a line.
    fn write(&mut self, event: &str, mut facts: Value) {
        facts["event"] = event.into();
        facts["ms"] = since(self.started).into();
        caller::tell("event", || facts.clone(), None);
        let Some(file) = &mut self.file else { return };
        facts["time"] = utc().into();
        let mut line = json_text(&facts);
        // A pipe takes a line of this length as a whole or not at all, and of a longer one a part.
        if line.len() > PIPE_BUF
            && let Some(Value::String(message)) = facts.get_mut("message")
        {
            *message = message.chars().take(CUT).collect::<String>() + "...";
            line = json_text(&facts);
        }
        match file.write_all(line.as_bytes()) {
            // A full pipe: the line is lost, since no world waits for a reader.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                self.file = None;
                stderr::say(format_args!("warning: the file of --events gets no more lines: {error}"));
            }
            Ok(()) => {}
        }
    }
}

/// Opens the file of `--events`, or creates it: any file that can be appended to, except stdout.
fn open(path: &Path) -> Result<File, Stop> {
    let wrong = |reason| Stop::Usage(format!("--events (or MINGLE_EVENTS) {}: {reason}", path.display()));
    // Non-blocking: a pipe without a reader is an error, and a full pipe does not block this node.
    let opened = OpenOptions::new().append(true).create(true).custom_flags(O_NONBLOCK).open(path);
    let file = opened.map_err(|error| {
        wrong(format!(
            "cannot be opened for appending: {error}; give a file in a folder that exists, or a pipe that has a reader"
        ))
    })?;
    if file.metadata().is_ok_and(|file| Stdout::is(&file)) {
        let what = "is stdout, where the result goes that a shell may evaluate; give another file";
        return Err(wrong(what.to_owned()));
    }
    Ok(file)
}

/// Why a world ended.
fn end(over: &Over) -> Value {
    let (rank, peer) = (over.rank.map(Rank::get), over.peer.as_ref().map(peer));
    let (end, code) = match over.end {
        End::Exited(code) => ("exited", Some(code)),
        End::Killed(signal) => ("killed", Some(signal)),
        End::Gone => ("gone", None),
        End::Left => ("left", None),
        End::Grows => ("grows", None),
        _ => ("unknown", None),
    };
    let (how, message) = (over.end.to_string(), over.to_string());
    json!({ "rank": rank, "node": peer, "how": how, "end": end, "code": code, "message": message })
}

/// The first and the last rank of each of these ranges.
pub(crate) fn rank_ranges(ranges: &[RankRange]) -> Vec<[u32; 2]> {
    ranges.iter().map(|RankRange { first, last }| [*first, *last]).collect()
}

/// Adds the most nodes of a world, if it is known, and the fewest if it may have one of several sizes.
pub(crate) fn add_world(facts: &mut Value, world: Option<WorldSize>) {
    facts["world"] = world.map(|world| world.max().get()).into();
    if let Some(world) = world.filter(|world| world.is_range()) {
        facts["world_min"] = world.min().get().into();
    }
}

#[expect(clippy::disallowed_methods, reason = "the times that messages, events and rates report")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

fn since(origin: Instant) -> u64 {
    milliseconds(origin.elapsed())
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The time of the calendar as in RFC 3339, such as `2026-11-21T21:07:52.123456Z`.
pub(crate) fn utc() -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// A node for programs.
pub(crate) fn peer(peer: &Peer) -> Value {
    json!({ "host": peer.host.as_str(), "address": peer.address.ip(), "port": peer.address.port() })
}

#[cfg(test)]
mod tests;
