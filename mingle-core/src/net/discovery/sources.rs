//! Seeds and shared folder as a stream of addresses: names are looked up again and again, and so is the
//! folder.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot::Receiver;
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::seed::{Seed, misleads};
use super::seed_dir::{Look, SeedDir};
use crate::model::JobId;
use crate::net::Network;
use crate::net::sockets::connection::TaskEvent;
use crate::proto::Warning;

/// The number of ports to try on a host that the user gave without a port: the first ones of the job's
/// sequence. On most hosts a node of the job listens on the first.
const PORTS: usize = 8;
/// The pause between two look-ups of the names: it doubles from the first to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_LAST: Duration = Duration::from_secs(2);
/// The pause is at least this long for each name, so that a thousand names are looked up every ten seconds.
const PAUSE_EACH: Duration = Duration::from_millis(10);
/// How many names are looked up at once.
const AT_ONCE: usize = 64;
/// How long to wait for the answer to one name, or for a look at the folder.
const ANSWER: Duration = Duration::from_secs(3);
/// After this long, warn of a name that does not resolve.
const UNRESOLVED: Duration = Duration::from_secs(5);

/// Where the addresses of other nodes come from, beside multicast.
#[derive(Debug)]
pub(crate) struct Sources {
    seeds: Vec<Seed>,
    folder: Option<SeedDir>,
    /// The ports to try for a seed without a port.
    ports: Vec<u16>,
}

impl Sources {
    pub(crate) fn new(network: &Network, job: &JobId, folder: Option<SeedDir>) -> Self {
        let ports = Self::ports(network.master_port, job.ports());
        Self { seeds: network.seeds.clone(), folder, ports }
    }

    /// The given master port comes first, since most likely all nodes were given the same one.
    fn ports(given: Option<u16>, all: impl Iterator<Item = u16>) -> Vec<u16> {
        let mut ports: Vec<u16> = given.into_iter().collect();
        ports.extend(all.take(PORTS).filter(|port| Some(*port) != given));
        ports
    }

    /// Whether there are neither seeds nor a folder.
    pub(crate) fn is_empty(&self) -> bool {
        self.seeds.is_empty() && self.folder.is_none()
    }

    /// Sends all known addresses again and again, until the receiver or this future is dropped.
    pub(crate) async fn follow(mut self, events: UnboundedSender<TaskEvent>) {
        // Addresses are sent before any name is looked up.
        let fixed: Vec<SocketAddr> =
            self.seeds.iter().filter_map(|seed| Some(self.at(seed, seed.address()?))).flatten().collect();
        if !fixed.is_empty() && events.send(TaskEvent::Seeds(fixed.clone())).is_err() {
            return;
        }
        let names: Vec<Seed> = self.seeds.iter().filter(|seed| seed.address().is_none()).cloned().collect();
        if names.is_empty() && self.folder.is_none() {
            return;
        }
        let least = PAUSE_EACH * u32::try_from(names.len()).unwrap_or(u32::MAX);
        let mut pause = PAUSE_FIRST;
        let mut known =
            Known { events, names: BTreeMap::new(), warned: BTreeSet::new(), waited: Duration::ZERO };
        // The look at the folder that is under way, and the result of the last one.
        let mut looking: Option<Receiver<Look>> = None;
        let (mut others, mut is_silent) = (Vec::new(), false);
        loop {
            looking = self.folder.take().map(SeedDir::look).or(looking);
            // File server and name server answer at their own pace.
            let looked = async { Some(timeout(ANSWER, looking.as_mut()?).await) };
            let (answers, looked) = tokio::join!(look_up(&names), looked);
            for (seed, answer) in answers {
                known.learn(seed, answer);
            }
            match looked {
                Some(Ok(look)) => {
                    looking = None;
                    // An error means that no thread could start, or that it panicked: the folder is given up.
                    if let Ok(look) = look {
                        others = look.others;
                        pause = pause.max(look.pause);
                        self.folder = Some(look.folder);
                        look.warning.into_iter().for_each(|warning| known.warn(warning));
                    }
                }
                Some(Err(Elapsed { .. })) if !std::mem::replace(&mut is_silent, true) => {
                    known.warn(Warning::SeedDirSilent);
                }
                Some(Err(_)) | None => {}
            }
            let resolved =
                known.names.iter().flat_map(|(seed, ips)| ips.iter().flat_map(|ip| self.at(seed, *ip)));
            let found = fixed.iter().copied().chain(resolved).chain(others.iter().copied()).collect();
            if known.events.send(TaskEvent::Seeds(found)).is_err() {
                return;
            }
            let rest = pause.max(least);
            tokio::time::sleep(rest).await;
            known.waited += rest;
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }

    /// The endpoints of a seed at this address.
    fn at(&self, seed: &Seed, address: IpAddr) -> Vec<SocketAddr> {
        let ports = seed.port.map_or_else(|| self.ports.clone(), |port| vec![port]);
        ports.into_iter().map(|port| SocketAddr::new(address, port)).collect()
    }
}

/// The results of the look-ups so far.
struct Known {
    events: UnboundedSender<TaskEvent>,
    /// The addresses that each name had last.
    names: BTreeMap<Seed, Vec<IpAddr>>,
    /// The names that do not resolve, and the useless addresses of names, of which the caller has been
    /// warned.
    warned: BTreeSet<(Seed, Option<IpAddr>)>,
    /// The sum of all pauses.
    waited: Duration,
}

impl Known {
    fn warn(&self, warning: Warning) {
        // Sending fails if the driver has ended.
        let _ = self.events.send(TaskEvent::Warning(warning));
    }

    /// Takes the answer to a name: drops addresses that identify no host, and keeps the last answer after an
    /// error.
    fn learn(&mut self, seed: Seed, answer: io::Result<Vec<IpAddr>>) {
        match answer {
            Ok(mut addresses) => {
                addresses.retain(|ip| {
                    let Some(reason) = misleads(*ip) else { return true };
                    if self.warned.insert((seed.clone(), Some(*ip))) {
                        let (seed, address) = (seed.to_string(), *ip);
                        self.warn(Warning::SeedMisleads { seed, address, reason });
                    }
                    false
                });
                self.names.insert(seed, addresses);
            }
            Err(error) if self.waited >= UNRESOLVED && self.warned.insert((seed.clone(), None)) => {
                let (seed, error) = (seed.to_string(), error.to_string());
                self.warn(Warning::SeedUnresolved { seed, error });
            }
            Err(_) => {}
        }
    }
}

/// Looks up all names, [`AT_ONCE`] at a time.
async fn look_up(names: &[Seed]) -> Vec<(Seed, io::Result<Vec<IpAddr>>)> {
    let mut answers = Vec::new();
    for some in names.chunks(AT_ONCE) {
        let mut tasks = JoinSet::new();
        for seed in some.iter().cloned() {
            tasks.spawn(async move {
                let looked = timeout(ANSWER, lookup_host((seed.host.clone(), 0))).await;
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
    fn the_given_port_is_tried_first_and_none_twice() {
        assert_eq!(Sources::ports(Some(3), 1..=20), [3, 1, 2, 4, 5, 6, 7, 8]);
        assert_eq!(Sources::ports(None, 1..=20), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_useless_address_and_a_name_that_does_not_resolve_are_each_warned_of_once() {
        let (events, mut sent) = tokio::sync::mpsc::unbounded_channel();
        let mut known =
            Known { events, names: BTreeMap::new(), warned: BTreeSet::new(), waited: Duration::ZERO };
        let (a, b): (Seed, Seed) = ("a".parse().unwrap(), "b".parse().unwrap());
        let none = || Err(io::ErrorKind::NotFound.into());
        known.learn(b.clone(), none());
        known.waited = UNRESOLVED;
        for _ in 0..2 {
            known.learn(a.clone(), Ok(vec!["fe80::1".parse().unwrap(), "10.0.0.1".parse().unwrap()]));
            known.learn(b.clone(), none());
        }
        known.learn(a.clone(), none());
        assert_eq!(known.names[&a], ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        let warnings = std::iter::from_fn(|| match sent.try_recv().ok()? {
            TaskEvent::Warning(warning) => Some(warning.to_string()),
            _ => None,
        });
        let warnings: Vec<String> = warnings.collect();
        let wanted = ["a resolves to fe80::1", "b does not resolve", "a does not resolve"];
        assert_eq!(warnings.len(), wanted.len(), "{warnings:?}");
        for (warning, wanted) in warnings.iter().zip(wanted) {
            assert!(warning.contains(wanted), "{warning}");
        }
    }
}
