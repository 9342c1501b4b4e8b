//! /etc/hosts: a line `ADDRESS NAME` for each node, between two marker lines that name the job.
//!
//! Each node reports its own host name, and a node may be wrong or hostile. Names that mean the local host on
//! every host, and names that read as addresses, are left out.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Input, Launcher, Syntax, Unfit};
use crate::env::job_to_env;

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "hosts",
    about: "a block of lines for /etc/hosts",
    syntax: Syntax::Text(|input, _| block(input)),
    needs_roster: true,
    ..Launcher::PLAIN
};

/// The names that Debian and systemd use for the local host and its link (hosts(5), RFC 6761).
const OWN: &str = "\
    localhost localdomain ip6-localhost ip6-loopback ip6-localnet ip6-mcastprefix ip6-allnodes ip6-allrouters";

fn block(input: Input<'_>) -> Result<String, Unfit> {
    let (job, roster) = (job_to_env(input.facts.job), input.roster()?);
    let mut names = BTreeSet::new();
    let lines = roster.members().iter().filter_map(|member| {
        // Resolvers ignore case.
        let name = member.host.as_str().to_ascii_lowercase();
        let line = format!("{} {}\n", member.address.ip(), member.host);
        (is_usable(&name) && names.insert(name)).then_some(line)
    });
    let lines: String = lines.collect();
    Ok(format!("# mingle {job} begin\n{lines}# mingle {job} end\n"))
}

/// Whether other hosts can use this name, in lower case, for its host: it is no name of the local host, and
/// programs read it neither as an address nor as an option.
pub(super) fn is_usable(name: &str) -> bool {
    let ends = [name.split('.').next(), name.split('.').next_back()];
    let is_own = OWN.split(' ').any(|own| ends.contains(&Some(own)));
    // inet_aton reads 1, 10.1 and 0x7f as addresses.
    let is_number = name.split('.').all(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        && name.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | 'x'));
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    starts_well && !is_own && !is_number && name.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_local_host_addresses_and_options_are_not_usable() {
        for name in
            ["localhost", "localhost.localdomain", "a.localhost", "ip6-allnodes", "10.0.0.1", "1", "0x7f.1"]
        {
            assert!(!is_usable(name), "{name}");
        }
        for name in ["-n", ".a", "_"] {
            assert!(!is_usable(name), "{name}");
        }
        for name in
            ["node-a", "gpu01.example.org", "7node", "localhosts", "0xyz", "face", "dead.beef", "1.face"]
        {
            assert!(is_usable(name), "{name}");
        }
    }
}
