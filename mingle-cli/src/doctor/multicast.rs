//! Whether this host's own multicast comes back to it.

use std::net::SocketAddr;

use super::finding::{Finding, Severity};

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
        (Err(error), _) => Finding::new(
            Severity::Problem,
            check,
            looked,
            format!("cannot be sent: {error}"),
            "look for a firewall rule on output, or exclude the interface with --interface",
        ),
        // A datagram that the kernel loops back passes the host's rules as if it came from outside by this
        // interface.
        (Ok(()), false) => Finding::new(
            Severity::Problem,
            check,
            looked,
            "did not come back: this host itself drops it",
            format!("let {what} pass on this host, or give --seed on each node"),
        ),
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
