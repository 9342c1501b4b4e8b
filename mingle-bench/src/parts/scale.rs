//! Large worlds in virtual time, in the simulator of the library's tests.

use std::time::Duration;

use mingle_core::proto::Time;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::Effort;
use crate::report::{Row, Table, Target};
use crate::sim::network::{Host, Network, Weather};

/// The delay between two nodes, as within one data centre.
const DELAY: Duration = Duration::from_micros(100);

/// How the nodes of a world start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// All at the same moment.
    Together,
    /// At random moments within a second.
    Within,
    /// One each millisecond, the highest address first: each new node would be the better leader.
    WorstOrder,
}

impl Start {
    const ALL: [Self; 3] = [Self::Together, Self::Within, Self::WorstOrder];

    fn name(self) -> &'static str {
        match self {
            Self::Together => "at once",
            Self::Within => "within 1 s",
            Self::WorstOrder => "in turn, the lowest address last",
        }
    }
}

/// The cost of a world.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Cost {
    /// From the last start to the last end, in milliseconds.
    pub time: f64,
    /// The average that a node sends. A multicast counts once.
    pub datagrams: f64,
    pub bytes: f64,
    pub connections: f64,
    pub leader_sent: f64,
    pub leader_received: f64,
    pub leader_bytes: f64,
}

/// Worlds of 1,000 to 100,000 nodes.
pub fn measure(effort: Effort) -> Table {
    let mut table =
        Table::new("scale", "Simulated worlds with 0.1 ms between any two nodes and without loss");
    // One by one, the first of 100,000 nodes would time out before the last has started.
    let worlds: [(u32, &[Start]); 3] =
        [(1000, &Start::ALL), (10_000, &Start::ALL), (100_000, &[Start::Together])];
    for &(nodes, starts) in &worlds[..effort.choose(1, worlds.len())] {
        let soon: &[Target] = if nodes > 10_000 { &[] } else { &[Target::Median(100.0)] };
        for &start in starts {
            let what = |which: &str| format!("{nodes} nodes {}: {which}", start.name());
            let Some(cost) = form(nodes, start) else {
                table.note(format!("{nodes} nodes that start {} do not form in time.", start.name()));
                continue;
            };
            let mut row = |which: &str, unit, figure, targets: &[Target]| {
                table.rows.push(Row::new(what(which), unit, [figure].into_iter().collect()).targets(targets));
            };
            row("from the last start to the last end", "virtual ms", cost.time, soon);
            row("sent per node", "datagrams", cost.datagrams, &[Target::Median(12.0)]);
            row("sent per node", "bytes", cost.bytes, &[]);
            row("opened per node", "connections", cost.connections, &[Target::Median(3.0)]);
            row("sent by the leader per node", "bytes", cost.leader_bytes / f64::from(nodes), &[]);
            row("sent by the leader per node", "datagrams", cost.leader_sent / f64::from(nodes), &[]);
            row("received by the leader per node", "datagrams", cost.leader_received / f64::from(nodes), &[]);
        }
    }
    table.note("A seed determines a run, so each world was run once.".to_owned());
    table
}

/// Forms a world; the result is always the same. `None` if the world does not form within 120 virtual
/// seconds.
pub fn form(nodes: u32, start: Start) -> Option<Cost> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(nodes));
    let mut net = Network::new(51, Weather { delay: (DELAY, DELAY), ..Weather::fine() });
    net.tracing = false;
    for number in 1..=nodes {
        let at = match start {
            Start::Together => Time::ZERO,
            Start::Within => rng.random_range(Time::ZERO..=Duration::from_secs(1)),
            Start::WorstOrder => Duration::from_millis(u64::from(nodes - number)),
        };
        net.add(number, nodes, None, at);
    }
    net.run(Duration::from_secs(120)).then_some(())?;
    let formed = |host: &Host| matches!(host.outcome, Some(Ok(_)));
    (net.broken.is_empty() && net.hosts.iter().all(formed)).then_some(())?;

    let leader = net.commits().next()?.leader;
    let leader = &net.hosts[*net.history.host_of.get(&leader)?];
    let mean =
        |of: fn(&Host) -> u64| net.hosts.iter().map(|host| number(of(host))).sum::<f64>() / f64::from(nodes);
    let last = |of: fn(&Host) -> Option<Time>| net.hosts.iter().filter_map(of).max();
    let took = last(|host| host.ended)?.saturating_sub(last(|host| host.started)?);
    Some(Cost {
        time: took.as_secs_f64() * 1e3,
        datagrams: mean(|host| host.sent),
        bytes: mean(|host| host.sent_bytes),
        connections: mean(|host| host.dials),
        leader_sent: number(leader.sent),
        leader_received: number(leader.received),
        leader_bytes: number(leader.sent_bytes),
    })
}

#[expect(clippy::cast_precision_loss, reason = "no count here needs more than 52 bits")]
fn number(count: u64) -> f64 {
    count as f64
}
