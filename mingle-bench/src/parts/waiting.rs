//! The cost of a world while it waits for its last node.

use std::thread;
use std::time::{Duration, Instant};

use super::Effort;
use super::loopback::Share;
use crate::counters::{Usage, datagrams_sent};
use crate::lab::Lab;
use crate::programs::mingle;
use crate::report::{Row, Table, Target};

/// After this long all nodes have joined.
const SETTLED: Duration = Duration::from_secs(3);
/// After this long the first node leads.
const FIRST: Duration = Duration::from_millis(300);
/// The number of nodes in a large world.
const MANY: u32 = 1000;

/// The resources that waiting nodes use.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Processor time, in percent of one core.
    pub processor: f64,
    /// Wake-ups per second.
    pub wakes: f64,
    /// Datagrams per second of all processes in the namespace.
    pub datagrams: f64,
    /// Resident memory, in KiB.
    pub memory: f64,
}

/// A leader and followers in namespaces, a leader with a thousand members, and a thousand nodes that wait for
/// rank 0.
pub fn measure(effort: Effort) -> Table {
    let mut table = Table::new("waiting", "A world waits for its last node");
    let length = Duration::from_secs(effort.choose(5, 60));
    let sent = [Target::Median(2.0)];

    let [leader, follower] = few(length);
    show(&mut table, "leader with four of five nodes", leader, &sent, &[]);
    show(&mut table, "follower in a world of five", follower, &sent, &[Target::Median(1.5)]);

    let nodes = effort.choose(100, MANY);
    let (leader, per_member) = leader_of_many(nodes, length);
    let name = format!("leader with {nodes} of {} nodes", nodes + 1);
    show(&mut table, &name, leader, &[], &[]);
    let memory = Row::new(format!("{name}: memory per member"), "KiB", [per_member].into_iter().collect());
    table.rows.push(memory.targets(&[Target::Median(16.0)]));
    let world = Row::new(
        format!("all {nodes} nodes of that world"),
        "datagrams/s",
        [leader.datagrams].into_iter().collect(),
    );
    table.rows.push(world.targets(&sent));

    let without = without_rank_0(nodes, length);
    let world = Row::new(
        format!("all {nodes} nodes of a world without rank 0"),
        "datagrams/s",
        [without].into_iter().collect(),
    );
    table.rows.push(world.targets(&sent));
    table.note(format!("Each was measured once, for {} s.", length.as_secs()));
    table
}

fn show(table: &mut Table, who: &str, rates: Rates, sent: &[Target], wakes: &[Target]) {
    let mut row = |unit, figure: f64, targets: &[Target]| {
        table.rows.push(Row::new(who, unit, [figure].into_iter().collect()).targets(targets));
    };
    let is_follower = !wakes.is_empty();
    row("% of a core", rates.processor, if is_follower { &[Target::Median(0.1)] } else { &[] });
    row("wake-ups/s", rates.wakes, wakes);
    if !sent.is_empty() {
        row("datagrams/s", rates.datagrams, sent);
    }
    row("KiB resident", rates.memory, if is_follower { &[Target::Median(8192.0)] } else { &[] });
}

/// Four processes of a world of five, each in its own namespace: the rates of the leader and of one follower.
///
/// # Panics
/// If they cannot be started.
pub fn few(length: Duration) -> [Rates; 2] {
    let lab = Lab::new(4);
    let rates: Vec<_> = (0..lab.len())
        .map(|host| {
            lab.on(host, move || {
                if host > 0 {
                    // The first node leads.
                    thread::sleep(FIRST);
                }
                let mut child = mingle("waiting", 5).spawn().expect("mingle starts");
                thread::sleep(SETTLED);
                let rates = watch(child.id(), length);
                let _ = child.kill();
                let _ = child.wait();
                rates
            })
        })
        .collect();
    [0, 1].map(|host| rates[host].recv().expect("a running host"))
}

/// The rates of a leader in its own process, and the memory per member there, in KiB.
fn leader_of_many(nodes: u32, length: Duration) -> (Rates, f64) {
    let mut leader = Share::start("many", [0, 1, nodes + 1], false).expect("a leader");
    leader.begin().expect("a running process");
    thread::sleep(SETTLED);
    let alone = Usage::of(leader.id());
    let mut others = Share::start("many", [1, nodes - 1, nodes + 1], false).expect("members");
    others.begin().expect("a running process");
    thread::sleep(SETTLED * 2);
    let rates = watch(leader.id(), length);
    (rates, (rates.memory - alone.memory) / f64::from(nodes - 1))
}

/// The datagrams per second of a world in which all nodes have given ranks and none has rank 0.
fn without_rank_0(nodes: u32, length: Duration) -> f64 {
    let mut share = Share::start("ranked", [1, nodes, nodes + 1], true).expect("nodes");
    share.begin().expect("a running process");
    thread::sleep(SETTLED * 2);
    watch(share.id(), length).datagrams
}

fn watch(process: u32, length: Duration) -> Rates {
    let (before, sent, begun) = (Usage::of(process), datagrams_sent(), Instant::now());
    thread::sleep(length);
    let (after, seconds) = (Usage::of(process), begun.elapsed().as_secs_f64());
    Rates {
        processor: (after.processor - before.processor) / seconds * 100.0,
        wakes: (after.wakes - before.wakes) / seconds,
        datagrams: (datagrams_sent() - sent) / seconds,
        memory: after.memory,
    }
}
