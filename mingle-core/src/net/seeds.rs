//! Where others may be, on networks that pass no multicast: names and addresses, and files in a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot::Receiver;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection::Happened;
use super::seed_dir::{Look, SeedDir};
use crate::model::JobId;
use crate::proto::Warning;

/// Ports of the job at which a seed without one is tried: on most hosts a node has the first.
const PORTS: usize = 8;
/// Between two look-ups of names that may change, at first and at last.
const SOON: Duration = Duration::from_millis(250);
const LATE: Duration = Duration::from_secs(2);
/// Names that are looked up at once, how long each is waited for, and for how long each keeps others from being
/// looked up again. So long is a look at the folder waited for, too.
const AT_ONCE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK_UP: Duration = Duration::from_millis(10);
/// A name that does not resolve for so long is told of.
const TELL_AFTER: Duration = Duration::from_secs(5);
/// Most further brackets in a name.
const BRACKETS: usize = 3;
/// Most hosts that one text of brackets stands for.
const HOSTS: usize = 4096;

/// A host that may be a node of the job, or a name of several.
///
/// All IPv4 and IPv6 addresses of a name are tried, and looked up again as long as the world is not full: a
/// Kubernetes headless service resolves to all pods, the first of which exist before the others. Without a
/// port the first eight of [`JobId::ports`](crate::JobId::ports) are tried.
///
/// ```
/// use mingle_core::net::Seed;
/// let seed: Seed = "trainer.default.svc:29400".parse()?;
/// assert_eq!(seed.to_string(), "trainer.default.svc:29400");
/// assert_eq!("fd00::1".parse::<Seed>()?.to_string(), "fd00::1");
/// assert_eq!("[fd00::1]:29400".parse::<Seed>()?.to_string(), "[fd00::1]:29400");
/// let nodes = Seed::list("gpu[08-10,12],login:29400")?;
/// let nodes: Vec<_> = nodes.iter().map(Seed::to_string).collect();
/// assert_eq!(nodes, ["gpu08", "gpu09", "gpu10", "gpu12", "login:29400"]);
/// # Ok::<(), mingle_core::net::InvalidSeed>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed {
    host: String,
    port: Option<u16>,
}

/// Why a text is no [`Seed`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSeed {
    /// It names no host.
    #[error(
        "{0:?} is no host: write a name or an address, with :PORT where it is known, such as node1:29500"
    )]
    Host(String),
    /// The port is none.
    #[error("{0:?} is no port: a port is a number from 1 to 65535")]
    Port(String),
    /// The brackets hold no numbers, or too many.
    #[error("{0:?} is no list of hosts such as gpu[01-04,07], of {max} at most", max = HOSTS)]
    Brackets(String),
    /// It is an address that stands for no host.
    #[error("{0} {why}; give another address, or a name", why = misleads(*.0).unwrap_or_default())]
    Address(IpAddr),
}

impl Seed {
    /// The seeds of a list with commas. A host may have numbers in brackets, as Slurm writes its node lists
    /// (`SLURM_JOB_NODELIST`).
    ///
    /// # Errors
    /// [`InvalidSeed`] for the first that is none.
    pub fn list(text: &str) -> Result<Vec<Self>, InvalidSeed> {
        let mut depth = 0_u32;
        let parts = text.split(|c| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ',' && depth == 0
        });
        let mut seeds = Vec::new();
        for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
            for host in expand(part)? {
                seeds.push(host.parse()?);
            }
        }
        Ok(seeds)
    }

    /// Refuses an address that stands for no host.
    fn checked(self) -> Result<Self, InvalidSeed> {
        let wrong = self.address().filter(|ip| misleads(*ip).is_some());
        wrong.map_or(Ok(self), |ip| Err(InvalidSeed::Address(ip)))
    }

    /// The address, where it is no name.
    fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for Seed {
    type Err = InvalidSeed;

    fn from_str(text: &str) -> Result<Self, InvalidSeed> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Self { host: address.to_string(), port: None }.checked();
        }
        let invalid = || InvalidSeed::Host(text.to_owned());
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(invalid)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| invalid())?;
                let port = rest.strip_prefix(':');
                if port.is_none() && !rest.is_empty() {
                    return Err(invalid());
                }
                (host, port)
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map(|port| match port.parse() {
            Ok(number @ 1..) => Ok(number),
            _ => Err(InvalidSeed::Port(port.to_owned())),
        });
        // RFC 1123, 2.1, and the underscore that Kubernetes and Docker Compose allow.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        // Digits and dots are an address that is none, and no name.
        let numeric = host.chars().all(|c| c.is_ascii_digit() || c == '.') && host.parse::<IpAddr>().is_err();
        if host.is_empty() || host.len() > 253 || numeric || !host.chars().all(plain) {
            return Err(invalid());
        }
        Self { host: host.to_owned(), port: port.transpose()? }.checked()
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

/// Why an address stands for no host, where it does not.
fn misleads(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            Some("is link-local, and means a host only together with an interface")
        }
        ip if ip.is_unspecified() => Some("is where a program listens on all addresses, and no host's"),
        _ => None,
    }
}

/// `gpu[01-03,07]` as four hosts; brackets around an IPv6 address are none of these.
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

/// What the addresses of a rendezvous come from.
#[derive(Debug)]
pub(super) struct Sources {
    seeds: Vec<Seed>,
    folder: Option<SeedDir>,
    /// Where a seed without a port is tried.
    ports: Vec<u16>,
}

impl Sources {
    pub(super) fn new(seeds: &[Seed], folder: Option<SeedDir>, given: Option<u16>, job: &JobId) -> Self {
        Self { seeds: seeds.to_vec(), folder, ports: Self::ports(given, job.ports()) }
    }

    /// The port that this node was told to have comes first, since most likely all were told the same.
    fn ports(given: Option<u16>, all: impl Iterator<Item = u16>) -> Vec<u16> {
        let mut ports: Vec<u16> = given.into_iter().collect();
        ports.extend(all.take(PORTS).filter(|port| Some(*port) != given));
        ports
    }

    /// Whether there is nothing to follow.
    pub(super) fn is_empty(&self) -> bool {
        self.seeds.is_empty() && self.folder.is_none()
    }

    /// Tells where others may be, again and again, until it is dropped.
    pub(super) async fn follow(mut self, tell: UnboundedSender<Happened>) {
        // Addresses wait for no name.
        let addresses: Vec<SocketAddr> =
            self.seeds.iter().filter_map(|seed| Some(self.at(seed, seed.address()?))).flatten().collect();
        if !addresses.is_empty() && tell.send(Happened::Seeds(addresses.clone())).is_err() {
            return;
        }
        let names: Vec<Seed> = self.seeds.iter().filter(|seed| seed.address().is_none()).cloned().collect();
        if names.is_empty() && self.folder.is_none() {
            return;
        }
        // A thousand names ask no more often than every ten seconds.
        let least = LOOK_UP * u32::try_from(names.len()).unwrap_or(u32::MAX);
        let mut pause = SOON;
        let mut waited = Duration::ZERO;
        // What each name meant last.
        let mut known: BTreeMap<Seed, Vec<IpAddr>> = BTreeMap::new();
        // What has been told of: that a name does not resolve, or to which useless address.
        let mut told: BTreeSet<(Seed, Option<IpAddr>)> = BTreeSet::new();
        let warn = |warning| drop(tell.send(Happened::Warning(warning)));
        // A look at the folder that goes on, and what the last one has found.
        let mut looking: Option<Receiver<Look>> = None;
        let (mut others, mut is_silent) = (Vec::new(), false);
        loop {
            looking = self.folder.take().map(SeedDir::look).or(looking);
            // A file server may take its time, and so may a name server.
            let looked = async { Some(timeout(PATIENCE, looking.as_mut()?).await) };
            let (answers, looked) = tokio::join!(look_up(&names), looked);
            for (seed, answer) in answers {
                match answer {
                    Ok(mut addresses) => {
                        addresses.retain(|ip| {
                            let Some(reason) = misleads(*ip) else { return true };
                            if told.insert((seed.clone(), Some(*ip))) {
                                let (seed, address) = (seed.to_string(), *ip);
                                warn(Warning::SeedMisleads { seed, address, reason });
                            }
                            false
                        });
                        known.insert(seed, addresses);
                    }
                    Err(error) if waited >= TELL_AFTER && told.insert((seed.clone(), None)) => {
                        let (seed, error) = (seed.to_string(), error.to_string());
                        warn(Warning::SeedUnresolved { seed, error });
                    }
                    Err(_) => {}
                }
            }
            match looked {
                Some(Ok(look)) => {
                    looking = None;
                    // Else it has found no thread to run on, or crashed.
                    if let Ok(look) = look {
                        others = look.others;
                        pause = pause.max(look.pause);
                        self.folder = Some(look.folder);
                        if let Some(warning) = look.warning {
                            warn(warning);
                        }
                    }
                }
                Some(Err(_)) if !std::mem::replace(&mut is_silent, true) => {
                    warn(Warning::SeedDirSilent);
                }
                Some(Err(_)) | None => {}
            }
            let mut found = addresses.clone();
            let of_names =
                known.iter().flat_map(|(seed, known)| known.iter().flat_map(|ip| self.at(seed, *ip)));
            found.extend(of_names.chain(others.iter().copied()));
            // Whoever listened is gone.
            if tell.send(Happened::Seeds(found)).is_err() {
                return;
            }
            let rest = pause.max(least);
            tokio::time::sleep(rest).await;
            waited += rest;
            pause = (pause * 2).min(LATE);
        }
    }

    /// The endpoints of a seed at this address.
    fn at(&self, seed: &Seed, address: IpAddr) -> Vec<SocketAddr> {
        let ports = seed.port.map_or_else(|| self.ports.clone(), |port| vec![port]);
        ports.into_iter().map(|port| SocketAddr::new(address, port)).collect()
    }
}

/// Looks all names up at once, for a while.
async fn look_up(names: &[Seed]) -> Vec<(Seed, io::Result<Vec<IpAddr>>)> {
    let mut answers = Vec::new();
    for some in names.chunks(AT_ONCE) {
        let mut tasks = JoinSet::new();
        for seed in some.iter().cloned() {
            tasks.spawn(async move {
                let looked = timeout(PATIENCE, lookup_host((seed.host.clone(), 0))).await;
                let answer = match looked {
                    Ok(Ok(addresses)) => Ok(addresses.map(|address| address.ip()).collect()),
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(io::ErrorKind::TimedOut.into()),
                };
                (seed, answer)
            });
        }
        while let Some(Ok(answer)) = tasks.join_next().await {
            answers.push(answer);
        }
    }
    answers
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
    fn a_node_list_of_slurm_is_its_hosts() {
        let names = |text| Seed::list(text).unwrap().iter().map(Seed::to_string).collect::<Vec<_>>();
        assert_eq!(names("a[1-3]"), ["a1", "a2", "a3"]);
        assert_eq!(names("r[1-2]n[08-09].lan, b"), ["r1n08.lan", "r1n09.lan", "r2n08.lan", "r2n09.lan", "b"]);
        assert_eq!(names("[fd00::1]:7,x[5]:9"), ["[fd00::1]:7", "x5:9"]);
        assert_eq!(names(""), [""; 0]);
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

    #[test]
    fn the_given_port_is_tried_first_and_none_twice() {
        assert_eq!(Sources::ports(Some(3), 1..=20), [3, 1, 2, 4, 5, 6, 7, 8]);
        assert_eq!(Sources::ports(None, 1..=20), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
