//! The text that names a host where another node may be, or several.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// The most brackets in a name after the first.
const BRACKETS: usize = 3;
/// The most hosts that one text with brackets may name.
const HOSTS: usize = 65_536;

/// A host where another node may be: a name or an address, with a port or without.
///
/// A rendezvous tries all IPv4 and IPv6 addresses of a name, and looks the name up again until the world has
/// formed: a Kubernetes headless service resolves to all pods, some of which start later. If the seed has no
/// port, or a port outside of these, the rendezvous tries
/// [`Network::master_port`](crate::Network::master_port), if set, and the first eight of
/// [`Network::ports`](crate::Network::ports).
///
/// ```
/// use mingle_core::Seed;
/// let seed: Seed = "trainer.default.svc:29400".parse()?;
/// assert_eq!(seed.to_string(), "trainer.default.svc:29400");
/// assert_eq!("fd00::1".parse::<Seed>()?.to_string(), "fd00::1");
/// assert_eq!("[fd00::1]:29400".parse::<Seed>()?.to_string(), "[fd00::1]:29400");
/// let nodes = Seed::list("gpu[08-10,12],login:29400")?;
/// let nodes: Vec<_> = nodes.iter().map(Seed::to_string).collect();
/// assert_eq!(nodes, ["gpu08", "gpu09", "gpu10", "gpu12", "login:29400"]);
/// # Ok::<(), mingle_core::error::InvalidSeed>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed {
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

/// Why a text is not a [`Seed`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSeed {
    /// The text names no host.
    #[error(
        "{0:?} is no host: write a name or an address, with :PORT where it is known, such as node1:29500"
    )]
    Host(String),
    /// The text after the colon is not a port.
    #[error("{0:?} is no port: a port is a number from 1 to 65535")]
    Port(String),
    /// The brackets hold something other than ranges of numbers, or too many of them.
    #[error("{0:?} is no list of hosts such as gpu[01-04,07], of {max} at most", max = HOSTS)]
    Brackets(String),
    /// The address identifies no host.
    #[error("{0} {why}; give another address, or a name", why = misleads(*.0).unwrap_or_default())]
    Address(IpAddr),
}

impl Seed {
    /// Reads a list of seeds, separated by commas or white space, such as the lines that a command has
    /// printed. A host may have numbers in brackets, as in Slurm's node lists (`SLURM_JOB_NODELIST`). The
    /// list may be empty; an item may name at most 65,536 hosts.
    ///
    /// # Errors
    /// [`InvalidSeed`] for the first invalid item.
    pub fn list(text: &str) -> Result<Vec<Self>, InvalidSeed> {
        let mut depth = 0_u32;
        let parts = text.split(|c| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (c == ',' || c.is_whitespace()) && depth == 0
        });
        let mut seeds = Vec::new();
        for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
            for host in expand(part)? {
                seeds.push(host.parse()?);
            }
        }
        Ok(seeds)
    }

    /// Refuses an address that does not identify a host.
    fn checked(self) -> Result<Self, InvalidSeed> {
        let wrong = self.address().filter(|ip| misleads(*ip).is_some());
        wrong.map_or(Ok(self), |ip| Err(InvalidSeed::Address(ip)))
    }

    /// The name or the address, without the port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The address, unless the host is a name.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok().map(|address: IpAddr| address.to_canonical())
    }
}

impl FromStr for Seed {
    type Err = InvalidSeed;

    fn from_str(text: &str) -> Result<Self, InvalidSeed> {
        let invalid = || InvalidSeed::Host(text.to_owned());
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match bracketed {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(invalid)?)),
            None if text.parse::<Ipv6Addr>().is_ok() => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map(|port| match port.parse() {
            Ok(number @ 1..) => Ok(number),
            _ => Err(InvalidSeed::Port(port.to_owned())),
        });
        // RFC 1123, 2.1, and the underscore that Kubernetes and Docker Compose allow.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        // Brackets are for IPv6. Digits and dots that are no address are a mistake, not a name.
        let not_ipv6 = host.parse::<Ipv6Addr>().is_err();
        let numeric = host.chars().all(|c| c.is_ascii_digit() || c == '.') && host.parse::<IpAddr>().is_err();
        if host.len() > 253 || numeric || !host.chars().all(plain) || (bracketed.is_some() && not_ipv6) {
            return Err(invalid());
        }
        let host = host.parse().map_or_else(|_| host.to_owned(), |address: IpAddr| address.to_string());
        Self { host, port: port.transpose()? }.checked()
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) if self.host.contains(':') => write!(f, "[{}]:{port}", self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// Why an address does not identify a host; none if it does.
pub(super) fn misleads(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            Some("is link-local, and means a host only together with an interface")
        }
        ip if ip.is_unspecified() => Some("is where a program listens on all addresses, and no host's"),
        _ => None,
    }
}

/// Expands `gpu[01-03,07]` to four hosts. Brackets at the beginning belong to an IPv6 address.
fn expand(text: &str) -> Result<Vec<String>, InvalidSeed> {
    let brackets = text.split_once('[').filter(|(before, _)| !before.is_empty());
    let Some((before, rest)) = brackets else { return Ok(vec![text.to_owned()]) };
    let invalid = || InvalidSeed::Brackets(text.to_owned());
    let (inside, after) = rest.split_once(']').ok_or_else(invalid)?;
    if after.matches('[').count() > BRACKETS {
        return Err(invalid());
    }
    let tails = expand(&format!("x{after}"))?;
    let mut hosts = Vec::new();
    for run in inside.split(',') {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| digits).ok_or_else(invalid)
        };
        let (low, high, width) = (number(first)?, number(last)?, first.len());
        if high < low || usize::try_from(high - low).unwrap_or(HOSTS) >= HOSTS {
            return Err(invalid());
        }
        for n in low..=high {
            for tail in &tails {
                hosts.push(format!("{before}{n:0width$}{}", &tail[1..]));
            }
            if hosts.len() > HOSTS {
                return Err(invalid());
            }
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_name_or_an_address_with_a_port_or_without() {
        for text in
            ["node1", "node1:29500", "10.0.0.1", "10.0.0.1:1", "fd00::1", "[fd00::1]:65535", "a_b.svc-1"]
        {
            assert_eq!(text.parse::<Seed>().unwrap().to_string(), text);
        }
        assert_eq!("[fd00::1]".parse::<Seed>().unwrap().to_string(), "fd00::1");
        assert_eq!("[FD00:0::1]:7".parse::<Seed>().unwrap().to_string(), "[fd00::1]:7");
        for wrong in [
            "",
            ":1",
            "a b",
            "a/b",
            "a:b:c",
            "[fd00::1",
            "[x]:1",
            "[fd00::1]x",
            "$(reboot)",
            "é",
            "10.0.0.300",
            "10.1",
        ] {
            assert!(wrong.parse::<Seed>().is_err(), "{wrong}");
        }
        for wrong in ["fe80::1", "[fe80::1]:29500", "::", "0.0.0.0:29500"] {
            assert!(matches!(wrong.parse::<Seed>(), Err(InvalidSeed::Address(_))), "{wrong}");
        }
        for wrong in ["a:0", "a:65536", "a:", "a:-1"] {
            assert!(matches!(wrong.parse::<Seed>(), Err(InvalidSeed::Port(_))), "{wrong}");
        }
    }

    #[test]
    fn a_slurm_node_list_expands_to_its_hosts() {
        let names = |text| Seed::list(text).unwrap().iter().map(Seed::to_string).collect::<Vec<_>>();
        assert_eq!(names("a[1-3]"), ["a1", "a2", "a3"]);
        assert_eq!(names("r[1-2]n[08-09].lan, b"), ["r1n08.lan", "r1n09.lan", "r2n08.lan", "r2n09.lan", "b"]);
        assert_eq!(names("[fd00::1]:7,x[5]:9"), ["[fd00::1]:7", "x5:9"]);
        assert_eq!(names(""), [""; 0]);
        assert_eq!(
            names("10.0.0.1\n\n node2:29503\r\n\ta[1-2] [fd00::1]:7\n"),
            ["10.0.0.1", "node2:29503", "a1", "a2", "[fd00::1]:7"]
        );
        for wrong in [
            "a[1-",
            "a[]",
            "a[2-1]",
            "a[x]",
            "a[1-99999]",
            "a[0-4000]b[0-4000]",
            "a[1]]",
            &"a[1]".repeat(40_000),
        ] {
            assert!(Seed::list(wrong).is_err(), "{wrong}");
        }
    }
}
