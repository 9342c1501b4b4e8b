//! Seeds and shared folder as two streams of addresses: names are looked up again and again, and so is the
//! folder.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, timeout};

use super::seed::{Seed, misleads};
use super::seed_dir::{KEEP, SeedDir};
use crate::net::sockets::connection::TaskEvent;
use crate::proto::Warning;

/// The number of ports to guess on a host: the first ones that a node tries. On most hosts a node of the job
/// listens on the first.
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
/// How often at most the known addresses are sent while other names are still looked up.
const PUBLISH: Duration = Duration::from_millis(100);
/// After this long, warn of a name that does not resolve.
const UNRESOLVED: Duration = Duration::from_secs(5);

/// Sends the addresses of the seeds and those in the folder, if this `reads` it, whenever they change, until
/// this future is dropped. Name servers and file server answer at their own pace, and none waits for another.
pub(crate) async fn follow(
    seeds: Vec<Seed>,
    folder: Option<SeedDir>,
    reads: bool,
    guesses: Vec<u16>,
    events: UnboundedSender<TaskEvent>,
) {
    let known = Known::new(events.clone(), guesses);
    tokio::join!(follow_seeds(seeds, known), follow_folder(folder, reads, events));
}

/// Sends the addresses among the seeds, and looks the names up again and again.
async fn follow_seeds(seeds: Vec<Seed>, mut known: Known) {
    let (addresses, names): (Vec<Seed>, Vec<Seed>) =
        seeds.into_iter().partition(|seed| seed.address().is_some());
    for seed in addresses {
        known.addresses.extend(seed.address().map(|ip| (seed, vec![ip])));
    }
    // Addresses are sent before any name is looked up. Without any, what an earlier node knew stays until
    // the first answer.
    known.is_new = !known.addresses.is_empty();
    known.publish();
    if names.is_empty() {
        return;
    }
    let least = PAUSE_EACH * u32::try_from(names.len()).unwrap_or(u32::MAX);
    let mut pause = PAUSE_FIRST;
    let threads = Arc::new(Semaphore::new(AT_ONCE));
    let look_up = |seed| look_up(seed, Arc::clone(&threads));
    loop {
        let mut waiting = names.iter().cloned();
        let mut lookups: JoinSet<_> = waiting.by_ref().take(AT_ONCE).map(look_up).collect();
        let mut publish = tokio::time::interval(PUBLISH);
        publish.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !lookups.is_empty() {
            tokio::select! {
                Some(answer) = lookups.join_next() => {
                    if let Some(seed) = waiting.next() {
                        lookups.spawn(look_up(seed));
                    }
                    if let Ok((seed, answer)) = answer {
                        known.learn(seed, answer);
                    }
                }
                // A name that is not answered must not delay the others.
                _ = publish.tick(), if known.is_new => known.publish(),
            }
        }
        known.publish();
        known.warn_of_unresolved();
        let rest = pause.max(least);
        tokio::time::sleep(rest).await;
        known.waited += rest;
        pause = (pause * 2).min(PAUSE_LAST);
    }
}

/// Renews this node's file in the folder again and again, and reads the others' if it `reads`. While a world
/// runs it does not: the nodes are known, and a newcomer reads this node's file. Without a thread to look
/// with, the folder is given up.
pub(super) async fn follow_folder(folder: Option<SeedDir>, reads: bool, events: UnboundedSender<TaskEvent>) {
    let Some(folder) = folder else { return };
    // Sending fails if the driver has ended.
    let report = |event| drop(events.send(event));
    let (mut looking, mut known) = (folder.look(reads), Vec::new());
    let mut least = if reads { Duration::ZERO } else { KEEP };
    // While a world runs nobody waits for the folder.
    let mut is_silent = !reads;
    loop {
        match timeout(ANSWER, &mut looking).await {
            Ok(Ok((folder, warning))) => {
                let others = folder.others();
                if known != others {
                    report(TaskEvent::Seeds { in_folder: true, seeds: others.clone() });
                    known = others;
                }
                warning.into_iter().map(TaskEvent::Warning).for_each(report);
                tokio::time::sleep(folder.pause().max(least)).await;
                least = least.max(PAUSE_LAST);
                looking = folder.look(reads);
            }
            Ok(Err(_)) => return,
            Err(_) if is_silent => {}
            Err(_) => {
                is_silent = true;
                report(TaskEvent::Warning(Warning::SeedDirSilent));
            }
        }
    }
}

/// Looks up one name, when it gets a thread for that: a name server that is silent holds a thread, and a
/// file, for longer than anybody waits for its answer.
async fn look_up(seed: Seed, threads: Arc<Semaphore>) -> (Seed, io::Result<Vec<IpAddr>>) {
    let host = seed.host.clone();
    let answer = async {
        let thread = threads.acquire_owned().await.map_err(io::Error::other)?;
        let look = move || {
            let _thread = thread;
            (&*host, 0).to_socket_addrs().map(|all| all.map(|address| address.ip()).collect())
        };
        spawn_blocking(look).await?
    };
    let answer = timeout(ANSWER, answer).await.unwrap_or_else(|late| Err(late.into()));
    (seed, answer)
}

/// The ports at which a node of the job most likely is. This node's own port comes first if it was given,
/// since most likely all nodes were given the same port.
pub(crate) fn guesses(given: Option<u16>, usual: impl Iterator<Item = u16>) -> Vec<u16> {
    let others = usual.take(PORTS).filter(|port| given != Some(*port));
    given.into_iter().chain(others).collect()
}

/// The ports to try on a host that was named with this port or without one. Another port than the guesses may
/// be a habit, such as torchrun's 29400 and 29500, so these are tried as well.
fn ports(named: Option<u16>, guesses: &[u16]) -> impl Iterator<Item = u16> {
    let is_guess = named.is_some_and(|port| guesses.contains(&port));
    named.into_iter().chain(guesses.iter().copied().filter(move |_| !is_guess))
}

/// The addresses of seeds that are known so far, and the warnings that were given.
struct Known {
    events: UnboundedSender<TaskEvent>,
    guesses: Vec<u16>,
    /// The addresses that each seed had last.
    addresses: BTreeMap<Seed, Vec<IpAddr>>,
    /// Whether something has changed since this was sent.
    is_new: bool,
    /// The useless addresses of names of which the caller has been warned.
    warned: BTreeSet<(Seed, IpAddr)>,
    /// The names that do not resolve, each with the error until the caller has been warned of it.
    unresolved: BTreeMap<Seed, Option<io::Error>>,
    /// The sum of all pauses between look-ups.
    waited: Duration,
}

impl Known {
    fn new(events: UnboundedSender<TaskEvent>, guesses: Vec<u16>) -> Self {
        let (addresses, warned, unresolved) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { events, guesses, addresses, is_new: false, warned, unresolved, waited: Duration::ZERO }
    }

    /// Sends all addresses, if they have changed.
    fn publish(&mut self) {
        if std::mem::take(&mut self.is_new) {
            let seeds = self.addresses.iter().flat_map(|(seed, ips)| ips.iter().map(move |ip| (seed, *ip)));
            let endpoints = seeds.flat_map(|(seed, ip)| {
                ports(seed.port, &self.guesses).map(move |port| SocketAddr::new(ip, port))
            });
            self.report(TaskEvent::Seeds { in_folder: false, seeds: endpoints.collect() });
        }
    }

    fn report(&self, event: TaskEvent) {
        // Sending fails if the driver has ended.
        let _ = self.events.send(event);
    }

    /// Takes the answer to a name: drops addresses that identify no host, and keeps the last answer after an
    /// error.
    fn learn(&mut self, seed: Seed, answer: io::Result<Vec<IpAddr>>) {
        match answer {
            Ok(mut addresses) => {
                addresses.retain(|ip| {
                    let Some(reason) = misleads(*ip) else { return true };
                    if self.warned.insert((seed.clone(), *ip)) {
                        let (seed, address) = (seed.to_string(), *ip);
                        let warning = Warning::SeedMisleads { seed, address, reason };
                        self.report(TaskEvent::Warning(warning));
                    }
                    false
                });
                let known = self.addresses.entry(seed).or_default();
                self.is_new |= *known != addresses;
                *known = addresses;
            }
            Err(error) if self.waited >= UNRESOLVED => {
                self.unresolved.entry(seed).or_insert(Some(error));
            }
            Err(_) => {}
        }
    }

    /// Warns of all names at once: a scheduler lists many.
    fn warn_of_unresolved(&mut self) {
        let mut new = self.unresolved.iter_mut().filter_map(|(seed, error)| Some((seed, error.take()?)));
        let Some((seed, error)) = new.next() else { return };
        let seed = match new.count() {
            0 => seed.to_string(),
            more => format!("{seed} (and {more} more)"),
        };
        self.report(TaskEvent::Warning(Warning::SeedUnresolved { seed, error: error.to_string() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_given_port_is_tried_first_and_none_twice() {
        let ports = |given| ports(None, &guesses(given, 1..=20)).collect::<Vec<_>>();
        assert_eq!(ports(Some(3)), [3, 1, 2, 4, 5, 6, 7, 8]);
        assert_eq!(ports(Some(99)), [99, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(ports(None), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn beside_a_named_port_that_no_node_most_likely_has_the_guesses_are_tried() {
        let ports = |named| ports(Some(named), &guesses(Some(99), 1..=20)).collect::<Vec<_>>();
        assert_eq!((ports(8), ports(99)), (vec![8], vec![99]));
        assert_eq!(ports(29400), [29400, 99, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(ports(17), [17, 99, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn the_discovery_port_is_no_guess() {
        let job: crate::JobId = "foo".parse().unwrap();
        let all: Vec<u16> = job.ports().take(PORTS + 1).collect();
        let network = crate::Network { discovery_port: all[1], ..crate::Network::default() };
        let guesses = guesses(None, network.ports(&job));
        assert_eq!((guesses[0], &guesses[1..]), (all[0], &all[2..]));
    }

    #[test]
    fn a_useless_address_and_names_that_do_not_resolve_are_each_warned_of_once() {
        let (events, mut sent) = tokio::sync::mpsc::unbounded_channel();
        let mut known = Known::new(events, Vec::new());
        let [a, b, c, d]: [Seed; 4] = ["a", "b", "c", "d"].map(|name| name.parse().unwrap());
        let none = || Err(io::ErrorKind::NotFound.into());
        known.learn(b.clone(), none());
        known.warn_of_unresolved();
        known.waited = UNRESOLVED;
        for _ in 0..2 {
            known.learn(a.clone(), Ok(vec!["fe80::1".parse().unwrap(), "10.0.0.1".parse().unwrap()]));
            for name in [&b, &c, &d] {
                known.learn(name.clone(), none());
            }
            known.warn_of_unresolved();
        }
        known.learn(a.clone(), none());
        known.warn_of_unresolved();
        assert_eq!(known.addresses[&a], ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        let warnings = std::iter::from_fn(|| match sent.try_recv().ok()? {
            TaskEvent::Warning(warning) => Some(warning.to_string()),
            _ => None,
        });
        let warnings: Vec<String> = warnings.collect();
        let wanted =
            ["a resolves to fe80::1", "seed b (and 2 more) does not resolve", "seed a does not resolve"];
        assert_eq!(warnings.len(), wanted.len(), "{warnings:?}");
        for (warning, wanted) in warnings.iter().zip(wanted) {
            assert!(warning.contains(wanted), "{warning}");
        }
    }
}
