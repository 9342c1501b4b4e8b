//! Many nodes within one process, each with an address of its own in 127.0.0.0/8.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use mingle_core::{Error, JobId, Network, Rendezvous, World};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::task::LocalSet;

use super::Effort;
use crate::floor;
use crate::programs::Watched;
use crate::report::{Row, Table, Target};
use crate::sample::Sample;

/// Two sockets to hear by, a listener, and both ends of a connection.
const FILES: u32 = 5;

/// The address of a node.
pub fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + node + 1)
}

/// Worlds of 4 to 4,096, each beside a floor that opens as many connections.
pub fn measure(effort: Effort) -> Table {
    let mut table =
        Table::new("loopback", "All nodes in one process on loopback, each with an address of its own");
    let sizes: &[(u32, usize, &[Target])] = &[
        (4, effort.choose(5, 30), &[Target::Ratio(2.0)]),
        (64, effort.choose(3, 30), &[Target::Ratio(2.0)]),
        (256, effort.choose(3, 20), &[Target::Ratio(2.0)]),
        (1024, effort.choose(1, 10), &[Target::Ratio(2.0), Target::Median(250.0)]),
        (4096, effort.choose(0, 3), &[Target::Ratio(2.0), Target::Median(1000.0)]),
    ];
    for &(nodes, rounds, targets) in sizes {
        let (mut floors, mut worlds) = (Sample::default(), Sample::default());
        for round in 0..rounds {
            match floor::within(nodes) {
                Ok(time) => floors.add_time(time),
                Err(error) => table.note(format!("The floor of {nodes} nodes: {error}.")),
            }
            match form(&format!("loopback-{nodes}-{round}"), nodes) {
                Ok(time) => worlds.add_time(time),
                Err(error) => table.note(format!("A world of {nodes} nodes: {error}.")),
            }
        }
        let floor = floors.median();
        table.rows.push(Row::new(format!("{nodes} nodes, floor"), "ms", floors).beside(floor).size(nodes));
        table.rows.push(
            Row::new(format!("{nodes} nodes"), "ms", worlds).beside(floor).size(nodes).targets(targets),
        );
        if shares(nodes) > 1 && rounds > 0 {
            table.note(format!(
                "{nodes} nodes took {} processes: one may open too few files here.",
                shares(nodes)
            ));
        }
    }
    table
}

/// How many processes it takes: a process may open only so many files.
fn shares(nodes: u32) -> u32 {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(_, hard)| hard);
    // The first holds the leader's end of all connections.
    let fitting = |shares: &u32| u64::from(nodes / shares * (FILES - 1) + nodes + 64) <= limit;
    (1..=nodes).find(fitting).unwrap_or(nodes)
}

/// Forms a world in a fresh process, or in as few as can open so many files: from the word to begin to the last end.
fn form(job: &str, nodes: u32) -> io::Result<Duration> {
    let shares = shares(nodes);
    let started = |share| {
        let first = nodes * share / shares;
        Share::start(job, [first, nodes * (share + 1) / shares - first, nodes], false)
    };
    let mut shares = (0..shares).map(started).collect::<io::Result<Vec<_>>>()?;
    let _watched: Vec<_> = shares.iter().map(|share| Watched::new(share.id())).collect();
    let begun = Instant::now();
    for share in &mut shares {
        share.say()?;
    }
    for share in &mut shares {
        share.expect("formed")?;
    }
    Ok(begun.elapsed())
}

/// A process with a part of the nodes. It is killed when this goes out of scope.
#[derive(Debug)]
pub struct Share {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Share {
    /// Starts the process, which is ready when this returns, and waits for a word to begin. `nodes` and `ranks` are
    /// those of [`take_part`].
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(job: &str, nodes: [u32; 3], ranks: bool) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--share", job, if ranks { "ranks" } else { "" }])
            .args(nodes.map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut share = Self { child, output };
        share.expect("ready")?;
        Ok(share)
    }

    /// Lets its nodes begin.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn say(&mut self) -> io::Result<()> {
        self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(b"begin\n")
    }

    fn expect(&mut self, word: &str) -> io::Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim_end() {
            told if told == word => Ok(()),
            "" => Err(io::Error::other("no answer within a minute, or none any more")),
            told => Err(io::Error::other(format!("{told:?} instead of {word:?}"))),
        }
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What such a process does: the nodes from `first` on, all in one thread. With `ranks` each is given its number as its
/// rank.
///
/// # Errors
/// Where a node does not form its world.
pub fn take_part(job: &str, [first, count, world]: [u32; 3], ranks: bool) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let (job, world): (JobId, _) =
        (job.parse().map_err(|e| told(&e))?, World::new(world).map_err(|e| told(&e))?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| told(&e))?;
    // Raised once here, or the first node to end would lower it for all others.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(|e| told(&e))?;
    }
    println("ready");
    io::stdin().read_line(&mut String::new()).map_err(|e| told(&e))?;
    let nodes = LocalSet::new();
    let formed: Vec<_> = (first..first + count)
        .map(|number| {
            let rank = ranks.then(|| world.rank(number).ok()).flatten();
            let mut network = Network::default();
            network.loopback = Some(address(number));
            let node = Rendezvous::builder(job.clone(), world).network(network).rank(rank);
            nodes.spawn_local(node.join())
        })
        .collect();
    let all = async {
        for node in formed {
            node.await.map_err(|e| told(&e))?.map_err(|e: Error| told(&e))?;
        }
        Ok(())
    };
    runtime.block_on(nodes.run_until(all)).inspect(|()| println("formed"))
}

/// To whoever started this process.
fn println(word: &str) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{word}").and_then(|()| out.flush());
}
