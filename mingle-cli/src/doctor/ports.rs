//! Which program holds a port, and whether another may take it.

use mingle_core::Error;

use super::finding::{Finding, Status};

const CHECK: &str = "master port";

/// The inodes of the TCP sockets that listen on `port`, in `/proc/net/tcp` or `tcp6`.
pub(super) fn listeners(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A"; // TCP_LISTEN, include/net/tcp_states.h
    let wanted = format!(":{port:04X}");
    let inode = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[_, local, _, state, _, _, _, _, _, inode, ..] = words.as_slice() else { return None };
        (local.ends_with(&wanted) && state == LISTEN).then(|| inode.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(inode).collect()
}

/// Why the node's port or the group could not be opened. `holder` names the program that has the port.
pub(super) fn failed(error: &Error, holder: Option<&str>) -> Finding {
    match error {
        Error::PortTaken { port, .. } => {
            let by = holder.map(|holder| format!(" by {holder}")).unwrap_or_default();
            let cure =
                "end that program, choose another --master-port, or leave the option away for a free port";
            Finding::new(Status::Problem, CHECK, format!("port {port}"), format!("taken{by}"), cure)
        }
        Error::Socket { what, source } => {
            let cure =
                "choose another --discovery-port or --master-port, or end the program that has the port";
            Finding::new(Status::Problem, "sockets", what, source.to_string(), cure)
        }
        Error::DiscoveryPortTaken { source, .. } => {
            let cure = "choose another --discovery-port, or end the program that has the port";
            Finding::new(Status::Problem, "sockets", error.to_string(), source.to_string(), cure)
        }
        other => {
            let cure = "check the interfaces above, or choose one with --interface";
            Finding::new(Status::Problem, "sockets", "the sockets of a rendezvous", other.to_string(), cure)
        }
    }
}

/// The port is free; `range` is `net/ipv4/ip_local_port_range`.
pub(super) fn free(port: u16, given: bool, range: Option<&str>) -> Vec<Finding> {
    let seen = if given { "free" } else { "free, the first free port of this job" };
    let mut findings = vec![Finding::ok(CHECK, format!("port {port}"), format!("{seen}, for TCP and UDP"))];
    let limits: Vec<u16> =
        range.unwrap_or_default().split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    if let &[low, high] = limits.as_slice()
        && (low..=high).contains(&port)
    {
        findings.push(Finding::new(
            Status::Note,
            "port range",
            "net.ipv4.ip_local_port_range",
            format!("{low}-{high} includes {port}: any outgoing connection of this host may take that port"),
            format!("sysctl -w net.ipv4.ip_local_reserved_ports={port}, or choose a --master-port outside that range"),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    // As Linux 6.18 prints it: 127.0.0.1:29500 listens, a connection from 29501 does not.
    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
       0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
       1: 0100007F:733D 0100007F:733C 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1\n";

    #[test]
    fn a_listener_is_found_and_a_connection_is_not() {
        assert_eq!(listeners(TCP, 29500), [4711]);
        assert!(listeners(TCP, 29501).is_empty() && listeners("", 29500).is_empty());
    }

    #[test]
    fn a_taken_port_is_a_problem_that_names_its_holder() {
        let error = Error::PortTaken { port: 29500, source: io::ErrorKind::AddrInUse.into() };
        let finding = failed(&error, Some("python3 (process 7)"));
        assert_eq!((finding.status, &*finding.seen), (Status::Problem, "taken by python3 (process 7)"));
        assert!(finding.cure.unwrap().contains("--master-port"));
    }

    #[test]
    fn a_port_that_any_connection_may_take_is_worth_a_note() {
        assert_eq!(free(29500, true, Some("32768\t60999\n")).len(), 1);
        assert_eq!(free(29500, true, Some("1024\t65000\n"))[1].status, Status::Note);
        assert_eq!(free(29500, true, None).len(), 1);
    }
}
