//! Whether this host's own multicast comes back to it.

use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::Warning;
use mingle_core::proto::JobTag;
use mingle_core::tools::{Cast, Station};
use tokio::time::{Instant, timeout_at};

use super::finding::{Finding, Severity};
use super::notice::{HostNotice, decode, encode};

/// How long to wait for this host's own multicast, which comes back within microseconds or never.
const BACK: Duration = Duration::from_millis(500);

/// One attempt to send with real sockets on one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trial {
    pub(super) interface: String,
    /// The group; none is broadcast.
    pub(super) to: Option<SocketAddr>,
    /// Whether the kernel has sent it.
    pub(super) sent: Result<(), String>,
    pub(super) came_back: bool,
}

/// Sends by each interface to its group, and by broadcast with --broadcast, and waits for these datagrams to
/// come back, each from an address of its interface.
pub(super) async fn own(station: &mut Station, tag: JobTag, me: u32, broadcasts: bool) -> Vec<Trial> {
    let failed = station.send_to_all(&encode(tag, &HostNotice::News(me, Vec::new())));
    let mut tried = Vec::new();
    for by in station.interfaces() {
        let error = |to: SocketAddr| {
            failed.iter().find_map(|warning| match warning {
                Warning::NotSent { group, interface, error }
                    if *group == to.ip() && *interface == by.name =>
                {
                    Some(error.clone())
                }
                _ => None,
            })
        };
        let has_ipv4 = by.addresses.iter().any(|own| own.addr().is_ipv4());
        let tries = [station.group_of(by).map(Some), (broadcasts && has_ipv4).then_some(None)];
        tried.extend(tries.into_iter().flatten().map(|to| {
            let sent = to.and_then(error).map_or(Ok(()), Err);
            (by.clone(), Trial { interface: by.name.clone(), to, sent, came_back: false })
        }));
    }
    let deadline = Instant::now() + BACK;
    while tried.iter().any(|(_, tried)| tried.sent.is_ok() && !tried.came_back) {
        let Ok((from, cast, bytes)) = timeout_at(deadline, station.receive()).await else { break };
        let is_own = matches!(decode(tag, &bytes), Some(HostNotice::News(id, _)) if id == me);
        for (by, trial) in tried.iter_mut().filter(|_| is_own) {
            let way = if trial.to.is_some() { Cast::Multicast } else { Cast::Broadcast };
            let is_its = by.addresses.iter().any(|own| own.addr() == from.ip());
            trial.came_back |=
                is_its && cast == way && trial.to.is_none_or(|to| to.is_ipv6() == from.is_ipv6());
        }
    }
    tried.into_iter().map(|(_, tried)| tried).collect()
}

/// The findings on the trials, and on the interfaces that could not join the group.
pub(super) fn examine<'a>(
    tried: &'a [Trial],
    unjoined: impl Iterator<Item = String> + 'a,
) -> impl Iterator<Item = Finding> + 'a {
    let cure =
        "check whether it has MULTICAST (ip link), or exclude it with --interface; --seed needs no multicast";
    let unjoined = unjoined
        .map(move |warning| Finding::new(Severity::Warning, "group", "joining the group", warning, cure));
    unjoined.chain(tried.iter().map(back))
}

fn back(tried: &Trial) -> Finding {
    let interface = &tried.interface;
    let (check, looked, what) = match tried.to {
        Some(to) => (
            "own multicast",
            format!("own multicast to {to} by {interface}"),
            format!("UDP to {} port {}", to.ip(), to.port()),
        ),
        None => ("broadcast", format!("own broadcast by {interface}"), "broadcasts".to_owned()),
    };
    match (&tried.sent, tried.came_back) {
        (_, true) => Finding::ok(check, looked, "came back"),
        (Err(error), _) => {
            let cure = "look for a firewall rule on output, or exclude the interface with --interface";
            Finding::new(Severity::Problem, check, looked, format!("cannot be sent: {error}"), cure)
        }
        // A datagram that the kernel loops back passes the host's rules as if it came from outside by this
        // interface.
        (Ok(()), false) => {
            let seen = "did not come back: this host itself drops it";
            let cure = format!("let {what} pass on this host, or give --seed on each node");
            Finding::new(Severity::Problem, check, looked, seen, cure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_come_back_is_a_problem() {
        let deaf = Trial {
            interface: "eth0".to_owned(),
            to: Some("239.192.1.2:29499".parse().unwrap()),
            sent: Ok(()),
            came_back: false,
        };
        let mute = Trial { sent: Err("EPERM".to_owned()), ..deaf.clone() };
        let broadcast = Trial { to: None, ..deaf.clone() };
        for (tried, check, text) in [
            (deaf, "own multicast", "did not come back"),
            (mute, "own multicast", "cannot be sent: EPERM"),
            (broadcast, "broadcast", "did not come back"),
        ] {
            let finding = back(&tried);
            assert_eq!((finding.check, finding.status), (check, Severity::Problem));
            assert!(finding.seen.contains(text), "{finding:?}");
        }
    }
}
