//! The kernel's counters of a process and of a network namespace.

use std::fs;

/// The resources that a process has used so far.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Processor time, in seconds.
    pub processor: f64,
    /// How often it has slept, and so been woken.
    pub wakes: f64,
    /// Resident memory, in KiB.
    pub memory: f64,
}

impl Usage {
    /// The usage of a process with all its threads.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn of(process: u32) -> Self {
        let mut usage = Self { processor: 0.0, wakes: 0.0, memory: 0.0 };
        for thread in fs::read_dir(format!("/proc/{process}/task")).expect("a process that runs") {
            let folder = thread.expect("a thread").path();
            let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
            let nanoseconds = read("schedstat").split(' ').next().and_then(|text| text.parse::<f64>().ok());
            usage.processor += nanoseconds.unwrap_or(0.0) / 1e9;
            usage.wakes += field(&read("status"), "voluntary_ctxt_switches:");
        }
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        usage.memory = field(&status, "VmRSS:");
        usage
    }
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// The number of UDP datagrams that all processes of this thread's network namespace have sent.
pub fn datagrams_sent() -> f64 {
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
    fn the_usage_of_this_process_is_not_zero() {
        let usage = Usage::of(std::process::id());
        assert!(usage.memory > 100.0 && usage.processor > 0.0, "{usage:?}");
    }

    #[test]
    fn a_field_is_the_number_after_its_name() {
        let text = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t12\n";
        assert!((11.9..12.1).contains(&field(text, "voluntary_ctxt_switches:")));
    }
}
