//! /etc/hosts: a line `ADDRESS NAME` each, between two lines that say whose they are.
//!
//! A host's name is whatever its node says. Those that every program takes for this very host, and those that
//! read as addresses, are left out, whoever sends them.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::env::job_to_env;
use crate::model::{JobId, Roster};

/// The names that Debian and systemd give the host itself and its link (hosts(5), RFC 6761).
const OWN: [&str; 8] = [
    "localhost",
    "localdomain",
    "ip6-localhost",
    "ip6-loopback",
    "ip6-localnet",
    "ip6-mcastprefix",
    "ip6-allnodes",
    "ip6-allrouters",
];

pub(super) fn block(job: &JobId, roster: &Roster) -> String {
    let job = job_to_env(job);
    let mut text = format!("# mingle {job} begin\n");
    let mut names: Vec<String> = Vec::new();
    for member in roster.members() {
        // A resolver does not look at the case.
        let name = member.host.as_str().to_ascii_lowercase();
        if is_usable(&name) && !names.contains(&name) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {}", member.address.ip(), member.host.as_str());
            names.push(name);
        }
    }
    text + &format!("# mingle {job} end\n")
}

/// Whether a name can stand for its host: no host's own name for itself, and nothing that reads as a number or as an
/// option of some program.
pub(super) fn is_usable(name: &str) -> bool {
    let is_own = name.split('.').next_back().is_some_and(|last| OWN.contains(&last))
        || name.split('.').next().is_some_and(|first| OWN.contains(&first));
    // inet_aton takes 1, 10.1 and 0x7f for addresses as well.
    let is_number = name.split('.').all(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        && name.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | 'x'));
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    starts_well && !is_own && !is_number && name.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_node_can_name_itself_after_this_host() {
        for name in
            ["localhost", "localhost.localdomain", "a.localhost", "ip6-allnodes", "10.0.0.1", "1", "0x7f.1"]
        {
            assert!(!is_usable(name), "{name}");
        }
        for name in ["-n", ".a", "_"] {
            assert!(!is_usable(name), "{name}");
        }
        for name in ["node-a", "gpu01.example.org", "7node", "localhosts", "0xyz"] {
            assert!(is_usable(name), "{name}");
        }
    }
}
