//! Many nodes within one process, each with its own address in 127.0.0.0/8.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use mingle_core::{Error, JobId, Network, Paths, Rendezvous, World};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::task::LocalSet;

use super::Effort;
use crate::floor;
use crate::programs::Watched;
use crate::report::{Row, Table, Target};
use crate::sample::Sample;

/// The open files of a node: two UDP sockets, a listener, and both ends of a connection.
const FILES: u32 = 5;

/// The address of a node.
pub fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + node + 1)
}

/// Worlds of 4 to 4,096 nodes, each beside a floor that opens as many connections.
pub fn measure(effort: Effort) -> Table {
    let mut table = Table::new("loopback", "All nodes in one process on loopback, each with its own address");
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
                "{nodes} nodes needed {} processes, since one process may not open enough files on this machine.",
                shares(nodes)
            ));
        }
    }
    table
}

/// The number of processes that the nodes need: a process may open only a limited number of files.
fn shares(nodes: u32) -> u32 {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(_, hard)| hard);
    // The first process has the leader's end of all connections.
    let fitting = |shares: &u32| u64::from(nodes / shares * (FILES - 1) + nodes + 64) <= limit;
    (1..=nodes).find(fitting).unwrap_or(nodes)
}

/// Forms a world in a new process, or in as few as can open enough files. Returns the time from the start
/// signal to the last node's end.
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
        share.begin()?;
    }
    for share in &mut shares {
        share.expect("formed")?;
    }
    Ok(begun.elapsed())
}

/// A process with a part of the nodes. Dropping it kills the process.
#[derive(Debug)]
pub struct Share {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Share {
    /// Starts the process and waits until it is ready. It then waits for [`Share::begin`]. `nodes` and
    /// `ranks` are those of [`take_part`].
    ///
    /// # Errors
    /// If it cannot be started.
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
    /// If it has ended.
    pub fn begin(&mut self) -> io::Result<()> {
        self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(b"begin\n")
    }

    fn expect(&mut self, expected: &str) -> io::Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim_end() {
            line if line == expected => Ok(()),
            "" => Err(io::Error::other("it has ended, or has not answered within a minute")),
            line => Err(io::Error::other(format!("{line:?} instead of {expected:?}"))),
        }
    }

    /// The ID of the process.
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

/// Runs `count` nodes from number `first` on, all in one thread. With `ranks` each node's number is its given
/// rank.
///
/// # Errors
/// If a node does not form its world.
pub fn take_part(job: &str, [first, count, world]: [u32; 3], ranks: bool) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (job, world): (JobId, _) =
        (job.parse().map_err(|e| text(&e))?, World::new(world).map_err(|e| text(&e))?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| text(&e))?;
    // Raise the limit once here: otherwise the first node to end would lower it for all others.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(|e| text(&e))?;
    }
    println("ready");
    io::stdin().read_line(&mut String::new()).map_err(|e| text(&e))?;
    let nodes = LocalSet::new();
    let formed: Vec<_> = (first..first + count)
        .map(|number| {
            let rank = ranks.then(|| world.rank(number).ok()).flatten();
            let mut network = Network::default();
            network.loopback = Some(address(number));
            // One thread would open the 21,000 paths of 1,024 nodes.
            let paths = Paths::Master;
            let node = Rendezvous::builder(job.clone(), world).network(network).rank(rank).paths(paths);
            nodes.spawn_local(node.join())
        })
        .collect();
    let all = async {
        for node in formed {
            node.await.map_err(|e| text(&e))?.map_err(|e: Error| text(&e))?;
        }
        Ok(())
    };
    runtime.block_on(nodes.run_until(all)).inspect(|()| println("formed"))
}

/// Prints a line for the process that started this one.
fn println(line: &str) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
