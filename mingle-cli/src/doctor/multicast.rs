//! Whether this host's own multicast comes back to it.

use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::Warning;
use mingle_core::proto::JobTag;
use mingle_core::tools::{Cast, Interface, Station, host_name};
use tokio::time::{Instant, timeout_at};

use super::finding::{Finding, Severity};
use super::notice::{Hello, decode, encode};
use crate::advice;

/// How long to wait for this host's own multicast, which comes back within microseconds or never.
const BACK: Duration = Duration::from_millis(500);

/// One attempt to send with real sockets on one interface.
struct Trial {
    by: Interface,
    /// The group; none is broadcast.
    to: Option<SocketAddr>,
    came_back: bool,
}

/// Sends by each interface to its group, and by broadcast with --broadcast, and waits for these datagrams to
/// come back, each from an address of its interface. The findings on that, and on the interfaces that could
/// not join the group or send to it.
pub(super) async fn examine(station: &mut Station, tag: JobTag, me: u32, broadcasts: bool) -> Vec<Finding> {
    let failed = station.send_to_all(&encode(tag, &Hello { id: me, host: host_name(), port: None }));
    let mut tried = Vec::new();
    for by in station.interfaces() {
        let has_ipv4 = by.addresses.iter().any(|own| own.addr().is_ipv4());
        let tries = [station.group_of(by).map(Some), (broadcasts && has_ipv4).then_some(None)];
        let has_failed = |to: SocketAddr| {
            failed.iter().any(|warning| match warning {
                Warning::NotSent { group, interface, .. } => *group == to.ip() && *interface == by.name,
                _ => false,
            })
        };
        let tries = tries.into_iter().flatten().filter(|to| !to.is_some_and(has_failed));
        tried.extend(tries.map(|to| Trial { by: by.clone(), to, came_back: false }));
    }
    let deadline = Instant::now() + BACK;
    while tried.iter().any(|trial| !trial.came_back) {
        let Ok((from, cast, bytes)) = timeout_at(deadline, station.receive()).await else { break };
        let is_own = decode(tag, &bytes).is_some_and(|heard| heard.id == me);
        for trial in tried.iter_mut().filter(|_| is_own) {
            let way = if trial.to.is_some() { Cast::Multicast } else { Cast::Broadcast };
            let is_its = trial.by.addresses.iter().any(|own| own.addr() == from.ip());
            trial.came_back |=
                is_its && cast == way && trial.to.is_none_or(|to| to.is_ipv6() == from.is_ipv6());
        }
    }
    let cure =
        "check whether it has MULTICAST (ip link), or exclude it with --interface; --seed needs no multicast";
    let warned = |warning: &Warning| {
        Finding::new(Severity::Warning, "group", "multicast", advice::warning(warning), cure)
    };
    station.warnings().iter().chain(&failed).map(warned).chain(tried.iter().map(back)).collect()
}

fn back(trial: &Trial) -> Finding {
    let interface = &trial.by.name;
    let (check, looked, what) = match trial.to {
        Some(to) => (
            "own multicast",
            format!("own multicast to {to} by {interface}"),
            format!("UDP to {} port {}", to.ip(), to.port()),
        ),
        None => ("broadcast", format!("own broadcast by {interface}"), "broadcasts".to_owned()),
    };
    if trial.came_back {
        return Finding::ok(check, looked, "came back");
    }
    // A datagram that the kernel loops back passes the host's rules as if it came from outside by this
    // interface.
    let seen = "did not come back: this host itself drops it";
    let cure = format!("let {what} pass on this host, or give --seed on each node");
    Finding::new(Severity::Problem, check, looked, seen, cure)
}
