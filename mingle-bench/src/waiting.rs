//! The cost of a world while it waits for its last node.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::Lab;
use crate::programs::mingle;

/// After this long all nodes have joined.
const SETTLED: Duration = Duration::from_secs(3);

/// The resources that waiting nodes use.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Wake-ups per second.
    pub wakes: f64,
    /// Datagrams per second of all processes in the namespace.
    pub datagrams: f64,
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
                let mut child = mingle("waiting", 5).spawn().expect("mingle starts");
                thread::sleep(SETTLED);
                let rates = watch(child.id(), length);
                let _ = child.kill();
                let _ = child.wait();
                rates
            })
        })
        .collect();
    let mut rates: Vec<Rates> = rates.iter().map(|rates| rates.recv().expect("a running host")).collect();
    // The leader alone sends datagrams, and on a busy machine it need not be the first.
    rates.sort_by(|a, b| b.datagrams.total_cmp(&a.datagrams));
    [rates[0], rates[1]]
}

fn watch(process: u32, length: Duration) -> Rates {
    let (before, sent, begun) = (wakes(process), datagrams_sent(), Instant::now());
    thread::sleep(length);
    let seconds = begun.elapsed().as_secs_f64();
    Rates { wakes: (wakes(process) - before) / seconds, datagrams: (datagrams_sent() - sent) / seconds }
}

/// How often the threads of a process have slept, and so been woken.
fn wakes(process: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("a process that runs");
    let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).unwrap_or_default();
    threads.flatten().map(|thread| field(&status(thread), "voluntary_ctxt_switches:")).sum()
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// The number of UDP datagrams that all processes of this thread's network namespace have sent.
fn datagrams_sent() -> f64 {
    // The file of the process would be about the namespace of its first thread.
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0.0 };
    let mut pairs = names.split(' ').zip(values.split(' '));
    let found = pairs.find(|(name, _)| *name == "OutDatagrams");
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_the_number_after_its_name() {
        let text = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t12\n";
        assert!((11.9..12.1).contains(&field(text, "voluntary_ctxt_switches:")));
    }
}
