//! Whether the node's port and the group can be opened, whether another program may take the port, and which
//! of the ports that `--ports` chooses from are in use.

use mingle_core::{Error, JobId};

use super::finding::{Finding, Severity};

const CHECK: &str = "master port";
/// The most ranges of used ports that are named.
const NAMED: usize = 8;

/// Why the node's port or the group could not be opened.
pub(super) fn failed(error: &Error) -> Finding {
    match error {
        Error::PortTaken { port, .. } => {
            let cure = format!(
                "see which program has it (ss -lptn 'sport = :{port}') and end that, choose another --master-port, or \
                 leave the option away for a free port"
            );
            Finding::new(Severity::Problem, CHECK, format!("port {port}"), "taken by another program", cure)
        }
        Error::Socket { what, source } => {
            let cure = "choose another port, or end the program that has it (ss -lpn)";
            Finding::new(Severity::Problem, "sockets", what, source.to_string(), cure)
        }
        Error::DiscoveryPortTaken { source, .. } => {
            let cure = "choose another port by --multicast, or end the program that has the port (ss -lpun)";
            Finding::new(Severity::Problem, "sockets", error.to_string(), source.to_string(), cure)
        }
        other => {
            let cure = "check the interfaces above, or choose one with --interface";
            Finding::new(Severity::Problem, "sockets", "the sockets of a rendezvous", other.to_string(), cure)
        }
    }
}

/// The port is free; `range` is `net/ipv4/ip_local_port_range`.
pub(super) fn free(port: u16, given: bool, range: Option<&str>) -> Finding {
    let seen = if given { "free" } else { "free, the first free port of this job" };
    let limits: Vec<u16> =
        range.unwrap_or_default().split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    match *limits {
        [low, high] if (low..=high).contains(&port) => Finding::new(
            Severity::Note,
            CHECK,
            format!("port {port}"),
            format!(
                "{seen}, but net.ipv4.ip_local_port_range ({low}-{high}) includes it: any outgoing connection may take it"
            ),
            format!(
                "sysctl -w net.ipv4.ip_local_reserved_ports={port}, or choose a --master-port outside that range"
            ),
        ),
        _ => Finding::ok(CHECK, format!("port {port}"), format!("{seen}, for TCP and UDP")),
    }
}

/// Which of the ports that `--ports` chooses from other programs use. `sockets` are net/tcp and net/tcp6, in
/// which each line has the local port of a socket.
pub(super) fn own(sockets: &str) -> Finding {
    let local = |line: &str| {
        let (_, port) = line.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok().filter(|port| JobId::OWN_PORTS.contains(port))
    };
    let mut used: Vec<u16> = sockets.lines().filter_map(local).collect();
    used.sort_unstable();
    used.dedup();
    let range = |ports: &[u16]| match ports {
        [first, .., last] => format!("{first}-{last}"),
        _ => ports.first().map(u16::to_string).unwrap_or_default(),
    };
    let mut ranges: Vec<String> = used.chunk_by(|port, next| port + 1 == *next).map(range).collect();
    if ranges.len() > NAMED {
        let more = ranges.split_off(NAMED).len();
        ranges.push(format!("{more} more"));
    }
    let seen = if ranges.is_empty() { "none".to_owned() } else { ranges.join(", ") };
    let (low, high) = JobId::OWN_PORTS.into_inner();
    Finding::ok(
        "own ports",
        format!("ports {low}-{high}, of which --ports holds some"),
        format!("used: {seen}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_any_connection_may_take_is_worth_a_note() {
        let status = |range| free(29500, true, range).status;
        assert_eq!((status(Some("32768\t60999\n")), status(None)), (Severity::Ok, Severity::Ok));
        assert_eq!(status(Some("1024\t65000\n")), Severity::Note);
    }

    #[test]
    fn the_ports_that_other_programs_use_are_named_as_ranges() {
        let line = |port: u16| format!("   0: 0100007F:{port:04X} 00000000:0000 0A 00000000:00000000\n");
        let sockets = |ports: &[u16]| ports.iter().map(|port| line(*port)).collect::<String>();
        let used =
            sockets(&[21_002, 19_999, 21_000, 21_001, 29_400, 25_000, 21_000]) + "  sl  local_address\n";
        assert_eq!(own(&used).seen, "used: 21000-21002, 25000");
        assert_eq!(own("").seen, "used: none");
        let many: Vec<u16> = (0..20).map(|at| 20_000 + 2 * at).collect();
        assert!(own(&sockets(&many)).seen.ends_with("20012, 20014, 12 more"));
    }
}
