//! Whether the node's port and the group can be opened, and whether another program may take the port.

use mingle_core::Error;

use super::finding::{Finding, Severity};
use crate::advice;

const CHECK: &str = "master port";

/// Why the node's port or the group could not be opened.
pub(super) fn failed(error: &Error) -> Finding {
    match error {
        Error::PortTaken { port, .. } => {
            let cure = format!(
                "end that program (root sees it by ss -lptn 'sport = :{port}'), choose another --master-port, or leave \
                 the option away for a free port"
            );
            Finding::new(Severity::Problem, CHECK, format!("port {port}"), "taken by another program", cure)
        }
        other => {
            let cure = match other {
                Error::Socket { .. } => "choose another port, or end the program that has it (ss -lpn)",
                Error::DiscoveryPortTaken { .. } => {
                    "choose another port by --multicast, or end the program that has the port (ss -lpun)"
                }
                _ => "check the interfaces above, or choose one with --interface",
            };
            let seen = advice::fact(other);
            Finding::new(Severity::Problem, "sockets", "the sockets of a rendezvous", seen, cure)
        }
    }
}

/// The port is free; `range` is `net/ipv4/ip_local_port_range`.
pub(super) fn free(port: u16, given: bool, range: Option<&str>) -> Finding {
    let seen = if given { "free" } else { "free, the first free port of this job" };
    let limits: Vec<u16> =
        range.unwrap_or_default().split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    match *limits {
        [low, high] if (low..=high).contains(&port) => {
            let range = format!("net.ipv4.ip_local_port_range ({low}-{high})");
            let seen = format!("{seen}, but {range} includes it: any outgoing connection may take it");
            let cure = format!(
                "sysctl -w net.ipv4.ip_local_reserved_ports={port}, or choose a --master-port outside that range"
            );
            Finding::new(Severity::Note, CHECK, format!("port {port}"), seen, cure)
        }
        _ => Finding::ok(CHECK, format!("port {port}"), format!("{seen}, for TCP and UDP")),
    }
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
}
