//! Whether the node's port and the group can be opened, whether another program may take the port, and which
//! programs use ports that `--ports` chooses from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mingle_core::{Error, JobId};

use super::finding::{Finding, Severity};
use crate::advice;
use crate::host::HERE;
use crate::process;

const CHECK: &str = "master port";
/// The most used ports that are named.
const NAMED: usize = 8;

/// Why the node's port or the group could not be opened.
pub(super) fn failed(error: &Error) -> Finding {
    match error {
        Error::PortTaken { port, .. } => {
            let (sockets, processes) = (table(&["tcp", "tcp6", "udp", "udp6"]), processes());
            let user = users(&sockets, &processes).get(port).copied().flatten();
            let taken = format!("taken by {}", user.map_or_else(|| "another program".to_owned(), program));
            let cure = format!(
                "end that program (root sees it by ss -lptn 'sport = :{port}'), choose another --master-port, or leave \
                 the option away for a free port"
            );
            Finding::new(Severity::Problem, CHECK, format!("port {port}"), taken, cure)
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

/// Which of the ports that `--ports` chooses from are in use, and by which programs.
pub(super) fn own() -> Finding {
    let (low, high) = JobId::OWN_PORTS.into_inner();
    let seen = format!("used: {}", named(&users(&table(&["tcp", "tcp6"]), &processes())));
    Finding::ok("own ports", format!("ports {low}-{high}, of which --ports holds some"), seen)
}

fn named(users: &BTreeMap<u16, Option<i32>>) -> String {
    let by = |user: i32| format!(" by {}", program(user));
    let used = users.range(JobId::OWN_PORTS);
    let used = used.map(|(port, user)| format!("{port}{}", user.map(by).unwrap_or_default()));
    let mut used: Vec<String> = used.collect();
    if used.len() > NAMED {
        let more = used.split_off(NAMED).len();
        used.push(format!("{more} more"));
    }
    if used.is_empty() { "none".to_owned() } else { used.join(", ") }
}

/// The tables of sockets in /proc/net. A table is longer than other files.
fn table(names: &[&str]) -> String {
    names.iter().filter_map(|name| fs::read_to_string(format!("/proc/net/{name}")).ok()).collect()
}

/// The ports in a table of sockets, and the process that has the first socket of each, if it is known:
/// sockets that listen come first.
fn users(table: &str, processes: &BTreeMap<PathBuf, i32>) -> BTreeMap<u16, Option<i32>> {
    let socket = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let port = u16::from_str_radix(words.next()?.rsplit_once(':')?.1, 16).ok()?;
        Some((port, processes.get(Path::new(&format!("socket:[{}]", words.nth(7)?))).copied()))
    };
    table.lines().rev().filter_map(socket).collect()
}

/// The process that has each open file, a parent rather than its children. Only root sees those of all users.
fn processes() -> BTreeMap<PathBuf, i32> {
    let all: Vec<i32> = process::all().collect();
    let files = |pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let of = |pid| files(pid).filter_map(move |file| Some((fs::read_link(file.path()).ok()?, pid)));
    all.into_iter().rev().flat_map(of).collect()
}

fn program(pid: i32) -> String {
    let name = HERE.text(&format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{name} (process {pid})")
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
    fn the_ports_that_other_programs_use_are_named() {
        let sockets = |ports: &[u16]| {
            let line = |port| format!("0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 0 0 1{port} 1 0\n");
            ports.iter().map(line).collect::<String>()
        };
        let own = nix::unistd::getpid().as_raw();
        let processes = BTreeMap::from([21_001, 21_002].map(|at| (format!("socket:[1{at}]").into(), own)));
        let seen = |ports: &[u16]| named(&users(&(sockets(ports) + "  sl  local_address\n"), &processes));
        let used = seen(&[21_002, 19_999, 21_000, 29_400, 25_000, 21_000]);
        assert_eq!(used, format!("21000, 21002 by {}, 25000", program(own)));
        assert_eq!(seen(&[]), "none");
        assert!(seen(&(0..20).map(|at| 20_000 + 2 * at).collect::<Vec<_>>()).ends_with("20014, 12 more"));
    }
}
