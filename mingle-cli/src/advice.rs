//! Exit codes, and what a user can do about each failure and warning of the library.
//!
//! The library states facts: what was tried, on what, and what was seen. Flags, commands and exit codes are
//! added here and nowhere else. A printed message is the fact, a semicolon, and the advice.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fmt::Display;

use mingle_core::error::{Cause, InvalidSecret, Report};
use mingle_core::proto::{BrokenPath, Elsewhere, Fault, Misfit, Peer, Tried, Unfit};
use mingle_core::rdma::{Capability, Difference, RankDifference, Verdict};
use mingle_core::{Error, Failure, Warning};

/// Anything else, such as a full disk behind stdout.
pub(crate) const OTHER: u8 = 1;
/// A wrong argument or variable.
pub(crate) const USAGE: u8 = 2;
/// The timeout passed.
pub(crate) const DEADLINE: u8 = 3;
/// Nodes want different things.
pub(crate) const CONFLICT: u8 = 4;
/// The network is at fault.
pub(crate) const NETWORK: u8 = 5;
/// The timeout passed, and something was heard that the job's secret does not open.
pub(crate) const SECRET: u8 = 6;

const SAME_SECRET: &str = "give every node the same secret";
const SAME_WORLD: &str = "give every node the same --world";
const OWN_RANK: &str = "give each node a rank of its own, or leave --rank out";
const OTHER_USER: &str =
    "choose another --job-id, or, if these nodes are of one job, set MINGLE_USER to one name on all of them";
const SEEDS: &str = "give every node --seed with the addresses of one or two nodes";
const SAME_VERSION: &str = "install the same version of mingle on every node";
const SAME_GROUP: &str = "give every node the same --multicast, or none";
/// Where only other jobs were heard.
const SAME_JOB: &str =
    "multicast passes here: the others have not started, or differ in --job-id, --multicast or --interface";
const OWN_FIREWALL: &str = "in the firewall of this host";

/// Where two nodes that cannot connect have no network in common.
const ROUTE: &str = "if there is no route between these networks, choose an --interface whose network all nodes have, or \
                     add a route; otherwise ";

/// The exit code of an error, and its name for programs, which stays when the messages change.
pub(crate) fn class(error: &Error) -> (u8, &'static str) {
    match error {
        Error::NoInterface { .. } => (NETWORK, "no_interface"),
        Error::PortTaken { .. } | Error::TooFewPorts { .. } => (NETWORK, "port_taken"),
        Error::Socket { .. } | Error::DiscoveryPortTaken { .. } => (NETWORK, "socket"),
        Error::Failed(failure) => match failure {
            Failure::Deadline(report) => match report.cause() {
                Cause::Misfit if !report.misfits.iter().all(Misfit::is_of_network) => (CONFLICT, "deadline"),
                Cause::Secret => (SECRET, "deadline"),
                Cause::Misfit | Cause::Unproved | Cause::Unreached | Cause::Apart | Cause::Unanswered => {
                    (NETWORK, "deadline")
                }
                Cause::NobodyHeard if report.is_deaf => (NETWORK, "deadline"),
                _ => (DEADLINE, "deadline"),
            },
            Failure::RankTaken { .. } => (CONFLICT, "rank_taken"),
            Failure::WorldDiffers { .. } => (CONFLICT, "world_differs"),
            Failure::UserDiffers { .. } => (CONFLICT, "user_differs"),
            Failure::WorldFull { .. } => (CONFLICT, "world_full"),
            Failure::NoRdma { .. } => (CONFLICT, "no_rdma"),
            Failure::Differs { .. } => (CONFLICT, "differs"),
            Failure::NoCommonFamily { .. } => (NETWORK, "no_common_family"),
            Failure::PathsBroken { .. } => (NETWORK, "paths_broken"),
            Failure::Unready { .. } => (NETWORK, "unready"),
            Failure::OutcomeUnknown { .. } => (NETWORK, "outcome_unknown"),
            Failure::JobFinished => (OTHER, "job_finished"),
            _ => (OTHER, "other"),
        },
        _ => (NETWORK, "other"),
    }
}

/// The text of an error: the fact, what the operating system said, and the advice.
pub(crate) fn error(error: &Error) -> String {
    join(fact(error), about_error(error))
}

/// The same for a terminal, in up to four parts: what happened, what else was seen, what to do, and by which
/// name the documents explain it.
pub(crate) fn error_in_parts(error: &Error) -> String {
    let fact = fact(error);
    let (happened, seen) = fact.split_once("; ").unwrap_or((&fact, ""));
    let advice = about_error(error).unwrap_or_default();
    let parts = [("seen", seen), ("do", &*advice)].into_iter().filter(|(_, part)| !part.is_empty());
    let parts = parts.map(|(name, part)| format!("{name}: {part}"));
    let (code, kind) = class(error);
    let more = format!("more: docs/troubleshooting.md (code {code}, {kind})");
    std::iter::once(happened.to_owned()).chain(parts).chain([more]).collect::<Vec<_>>().join("\n  ")
}

/// What happened, and what the operating system said.
pub(crate) fn fact(error: &Error) -> String {
    let mut fact = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        fact = format!("{fact}: {cause}");
        source = cause.source();
    }
    fact
}

/// The text of a warning: the fact and the advice.
pub(crate) fn warning(warning: &Warning) -> String {
    join(warning, about_warning(warning))
}

/// The lines that say which ranks differ in their RDMA, with the advice.
pub(crate) fn differences(verdict: &Verdict) -> Vec<String> {
    verdict.warnings().into_iter().map(|(text, rank)| join(text, rank.and_then(about_difference))).collect()
}

/// Why a text is no secret, and how to make one.
pub(crate) fn secret(error: &InvalidSecret) -> String {
    join(error, Some("'mingle secret' makes a good one".to_owned()))
}

fn firewall_of(node: &Peer) -> String {
    format!("in the firewall of {}", node.host)
}

/// What to do where a firewall keeps the nodes apart, or a missing route to an address that is in no network
/// of this host.
fn accept_in(firewall: &str, elsewhere: Option<&Elsewhere>) -> String {
    let route = if elsewhere.is_some() { ROUTE } else { "" };
    format!(
        "{route}{firewall}, accept UDP 29499, TCP and UDP 29500-29999 (or those of --multicast and --master-port), \
         and TCP 32768-60999 from the other nodes"
    )
}

fn join(fact: impl Display, advice: Option<String>) -> String {
    advice.map_or_else(|| fact.to_string(), |advice| format!("{fact}; {advice}"))
}

pub(crate) fn about_error(error: &Error) -> Option<String> {
    Some(match error {
        Error::NoInterface { is_filtered, .. } => no_interface(*is_filtered).to_owned(),
        Error::PortTaken { port, .. } => format!(
            "end the program that has it (root sees it by ss -lptun 'sport = :{port}'), choose another --master-port, or leave \
             it out"
        ),
        Error::TooFewPorts { wanted, safe, .. } if safe < wanted => {
            "keep the kernel from them by 'sysctl -w net.ipv4.ip_local_reserved_ports=20000-29399', in a container by \
             its --sysctl"
                .to_owned()
        }
        Error::TooFewPorts { .. } => "'ss -tanp' shows which programs have the others".to_owned(),
        Error::DiscoveryPortTaken { port, .. } => format!(
            "end the program that has it (root sees it by ss -lpun 'sport = :{port}'), or choose another port on every node, such \
             as by --multicast :29498"
        ),
        Error::Failed(failure) => return about_failure(failure),
        _ => return None,
    })
}

pub(crate) fn about_failure(failure: &Failure) -> Option<String> {
    Some(match failure {
        Failure::Deadline(report) => return about_deadline(report),
        Failure::RankTaken { .. } => OWN_RANK.to_owned(),
        Failure::UserDiffers { .. } => OTHER_USER.to_owned(),
        Failure::WorldDiffers { .. } => SAME_WORLD.to_owned(),
        Failure::WorldFull { .. } => "start as many nodes as --world says".to_owned(),
        Failure::NoCommonFamily { .. } => {
            "give all hosts an address of the same family, IPv4 or IPv6".to_owned()
        }
        Failure::PathsBroken { paths, .. } => about_paths(paths),
        Failure::Unready { .. } => {
            "start that node again with -v, which says what it waits for; a path that drops packets of more than 1,000 \
             bytes is one cause"
                .to_owned()
        }
        Failure::Differs { .. } => "make them the same; without --require-same the world would form".to_owned(),
        Failure::OutcomeUnknown { .. } => {
            "stop the job on the nodes where it has started, and start all nodes again".to_owned()
        }
        Failure::NoRdma { verdict, is_required } => {
            let why = verdict.differences.is_empty().then(|| "'mingle rdma' says why".to_owned());
            let of = |rank: &RankDifference| {
                Some(format!("for rank {}: {}", rank.rank, about_difference(rank)?))
            };
            let ranks = verdict.differences.iter().filter_map(of);
            let without = is_required.then(|| "without --rdma require the world would form".to_owned());
            why.into_iter().chain(ranks).chain(without).collect::<Vec<_>>().join("; ")
        }
        _ => return None,
    })
}

/// The advice for broken paths.
pub(crate) fn about_paths(paths: &[BrokenPath]) -> String {
    let cures: BTreeSet<String> = paths.iter().map(cure).collect();
    let cures = cures.into_iter().collect::<Vec<_>>().join("; ");
    if paths.iter().all(|path| path.to_master) {
        return cures;
    }
    format!(
        "{cures}; if your job uses neither NCCL nor Gloo, --paths master on all nodes leaves out all paths but those to \
         rank 0"
    )
}

/// The advice for a broken path.
fn cure(path: &BrokenPath) -> String {
    let BrokenPath { from, to, .. } = path;
    match path.fault {
        Fault::Size { passes, .. } => format!(
            "set the MTU of the interfaces to {passes} on all hosts, or let the routers between them send ICMP"
        ),
        Fault::Local => {
            format!("start {} with -v, which logs the error; `ulimit -n` limits its connections", from.host)
        }
        _ if path.answers.is_some() => format!(
            "in the firewall of {}, accept the ephemeral ports, to which the job connects: TCP 32768-60999 \
             (`sysctl net.ipv4.ip_local_port_range`)",
            to.host
        ),
        Fault::NoRoute => format!(
            "on {}, look at `ip route get {}` and `ip rule`, and add a route; or choose an --interface",
            from.host,
            to.address.ip()
        ),
        Fault::Silent | Fault::Refused | Fault::Unreachable if path.to_master => {
            format!("{}, accept TCP on port {}; or choose an --interface", firewall_of(to), to.address.port())
        }
        Fault::Unanswered => {
            "check that no two hosts have the same address, and for a proxy between them".to_owned()
        }
        _ => {
            // One look at the firewalls between two nodes is enough for both directions.
            let mut hosts = [from.host.as_str(), to.host.as_str()];
            hosts.sort_unstable();
            format!(
                "check the firewalls between {}; if the job should not use these addresses, choose an --interface, change \
                 your own NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME, or give them a label (`ip address add ... label \
                 eth0:1`): NCCL and Gloo take the first address of an interface that has none",
                hosts.join(" and ")
            )
        }
    }
}

fn about_deadline(report: &Report) -> Option<String> {
    Some(match report.cause() {
        Cause::Running => "if this is another job, give it another --job-id".to_owned(),
        Cause::Unproved => match &report.broken {
            Some(path) => about_paths(std::slice::from_ref(&**path)),
            None => "give the proofs more time by --timeout".to_owned(),
        },
        Cause::Misfit | Cause::Apart => {
            let cure = |misfit| about_misfit(misfit, report.elsewhere.as_ref());
            let cures: BTreeSet<String> = report.misfits.iter().map(cure).collect();
            cures.into_iter().collect::<Vec<_>>().join("; ")
        }
        Cause::Unreached | Cause::Unanswered => walled(report),
        Cause::Version => SAME_VERSION.to_owned(),
        Cause::Secret => SAME_SECRET.to_owned(),
        Cause::NobodyHeard if !report.without_multicast.is_empty() => SEEDS.to_owned(),
        Cause::NobodyHeard if report.is_deaf => accept_in(OWN_FIREWALL, None),
        Cause::NobodyHeard if report.jobs.iter().any(|job| job.is_own) => SAME_GROUP.to_owned(),
        Cause::NobodyHeard if !report.jobs.is_empty() => SAME_JOB.to_owned(),
        Cause::NobodyHeard => about_silence(report.tried),
        Cause::NobodyLeads => "start the node with rank 0, or leave --rank away on one node".to_owned(),
        _ => return None,
    })
}

/// The advice where a leader was heard, and no connection opens.
fn walled(report: &Report) -> String {
    let leader = report.unreached.as_ref().map(|(leader, _)| leader).or(report.unanswered.as_ref());
    let firewall = leader.map_or_else(|| OWN_FIREWALL.to_owned(), firewall_of);
    accept_in(&firewall, report.elsewhere.as_ref())
}

/// The advice where nobody was heard by what was tried.
fn about_silence(tried: Tried) -> String {
    let ways = match tried {
        Tried::Broadcast => {
            format!("neither multicast nor broadcast passes here: {SEEDS}, or a shared --seed-dir")
        }
        Tried::NoSeedKnown => "multicast does not pass here: check --seed and --seed-dir".to_owned(),
        Tried::SeedsAlone => {
            "check --seed and --seed-dir, and firewalls for UDP and TCP 29500-29999".to_owned()
        }
        Tried::Seeds => {
            "neither multicast nor UDP to the seeds passes: check --seed, and firewalls for UDP and TCP 29500-29999"
                .to_owned()
        }
        _ => {
            format!("multicast does not pass here: {SEEDS}, a shared --seed-dir, or in one subnet --broadcast")
        }
    };
    format!("if the others wait, too, {ways}; see 'mingle doctor'")
}

fn about_misfit(misfit: &Misfit, elsewhere: Option<&Elsewhere>) -> String {
    let of = |leader: &Peer| format!("in the firewalls of {} and {}", misfit.host, leader.host);
    match &misfit.reason {
        Unfit::Apart(leader) => accept_in(&of(leader), elsewhere),
        Unfit::World(_) => SAME_WORLD.to_owned(),
        Unfit::Rank(_) => OWN_RANK.to_owned(),
        Unfit::Address(_) => "give each host an address of its own".to_owned(),
        _ => OTHER_USER.to_owned(),
    }
}

/// The exit code of a rendezvous whose last word this warning is; none if it does not keep nodes out.
pub(crate) fn code_of(warning: &Warning) -> Option<u8> {
    Some(match warning {
        Warning::Misfit { node, .. } if !node.is_of_network() => CONFLICT,
        Warning::LeftOut { failure, .. } => class(&Error::Failed((**failure).clone())).0,
        Warning::SecretDiffers { .. } => SECRET,
        Warning::Misfit { .. } | Warning::Unconnectable { .. } | Warning::Unreached { .. } => NETWORK,
        _ => return None,
    })
}

pub(crate) fn about_warning(warning: &Warning) -> Option<String> {
    Some(match warning {
        Warning::Unconnectable { elsewhere, .. } => accept_in(OWN_FIREWALL, elsewhere.as_ref()),
        Warning::Unreached { leader: node, elsewhere, .. } => {
            accept_in(&firewall_of(node), elsewhere.as_ref())
        }
        Warning::Waiting { report, .. } => return about_deadline(report),
        Warning::Misfit { node, elsewhere, .. } => about_misfit(node, elsewhere.as_ref()),
        Warning::VersionDiffers { .. } => SAME_VERSION.to_owned(),
        Warning::SecretDiffers { .. } => SAME_SECRET.to_owned(),
        Warning::AlreadyRunning { .. } => "if this is another job, choose another --job-id".to_owned(),
        Warning::AnotherWorld { .. } => {
            "stop the nodes that are too many, or give each job its own --job-id".to_owned()
        }
        Warning::NoInterface { is_filtered, .. } => no_interface(*is_filtered).to_owned(),
        Warning::WithoutMulticast { .. } => SEEDS.to_owned(),
        Warning::TryAgain { failure } => return about_failure(failure),
        Warning::SeedMisleads { .. } | Warning::SeedUnresolved { .. } => "check --seed".to_owned(),
        Warning::SeedDirSilent | Warning::SeedDirUnwritable { .. } => "check --seed-dir".to_owned(),
        _ => return None,
    })
}

fn no_interface(is_filtered: bool) -> &'static str {
    if is_filtered {
        "change --interface, or bring that interface up; `ip -brief address` shows what there is"
    } else {
        "bring one up and give it an address, or name one without multicast by --interface; nodes on one host need only \
         `ip link set lo up`"
    }
}

/// The advice for the host of a rank that differs.
fn about_difference(rank: &RankDifference) -> Option<String> {
    let advice = match rank.difference {
        Difference::Capability { own: Capability::NotExamined, .. } => "it was started with --rdma off",
        Difference::Capability { own: Capability::NoUsablePort, .. } => {
            "'mingle rdma' on that host shows why"
        }
        Difference::Capability { own: Capability::Disabled, .. } => {
            "check NCCL_IB_DISABLE and NCCL_NET in its environment"
        }
        _ => return None,
    };
    Some(advice.to_owned())
}

/// A path that is silent, but for a port that answers.
#[cfg(test)]
pub(crate) fn silent_path(from: &Peer, to: &Peer, answers: Option<u16>) -> BrokenPath {
    let path = serde_json::json!({
        "from": from, "to": to, "fault": Fault::Silent, "answers": answers, "to_master": false,
        "mtus": [1500, 1500],
    });
    serde_json::from_str(&path.to_string()).unwrap()
}

#[cfg(test)]
mod tests {
    use std::io;

    use mingle_core::HostName;

    use super::*;

    fn report() -> Report {
        Report::new("4".parse().unwrap(), None)
    }

    fn deadline(report: Report) -> (u8, String) {
        let failed = Error::Failed(Failure::Deadline(Box::new(report)));
        (class(&failed).0, error(&failed))
    }

    #[test]
    fn an_error_prints_each_of_its_sources_once() {
        let taken = Error::PortTaken { port: 29500, source: io::Error::other("in use") };
        assert_eq!(
            error(&taken),
            "port 29500 is taken on this host: in use; end the program that has it (root sees it by ss -lptun 'sport = :29500'), \
             choose another --master-port, or leave it out"
        );
        let socket =
            Error::Socket { what: "cannot listen on port 1".to_owned(), source: io::Error::other("no") };
        assert_eq!((error(&socket).as_str(), class(&socket).1), ("cannot listen on port 1: no", "socket"));
    }

    #[test]
    fn a_pair_whose_paths_are_broken_both_ways_is_named_once() {
        let peer = |last: u8| Peer {
            host: HostName::new(&format!("node{last}")),
            address: ([10, 0, 0, last], 29500).into(),
        };
        let path = |from, to| silent_path(&peer(from), &peer(to), None);
        let named = |paths: &[BrokenPath]| about_paths(paths).matches("check the firewalls").count();
        assert_eq!(named(&[path(1, 2), path(2, 1)]), 1);
        assert_eq!(named(&[path(1, 2), path(2, 1), path(1, 3)]), 2);
    }

    #[test]
    fn a_deadline_prints_all_facts_before_the_advice() {
        let (code, text) = deadline(report());
        assert_eq!(
            (code, text.as_str()),
            (
                3,
                "no world of 4 in time: nobody else was heard by multicast; if the others wait, too, multicast \
                 does not pass here: give every node --seed with the addresses of one or two nodes, a shared --seed-dir, \
                 or in one subnet --broadcast; see 'mingle doctor'"
            )
        );
        let unauthentic = vec!["10.0.0.2".parse().unwrap()];
        let (code, text) = deadline(Report { unauthentic, ..report() });
        assert_eq!(code, 6);
        let seen = "no world of 4 in time: 10.0.0.2 has another secret, or none: datagrams were not authentic; nobody";
        assert!(text.starts_with(seen), "{text}");
        assert!(text.ends_with("; give every node the same secret"), "{text}");
    }

    #[test]
    fn a_warning_without_advice_is_the_fact_alone() {
        assert_eq!(warning(&Warning::AddressesChanged), Warning::AddressesChanged.to_string());
        let silent = Warning::SeedUnresolved { seed: "gpu7".to_owned(), error: "no such name".to_owned() };
        assert_eq!(warning(&silent), "seed gpu7 does not resolve yet: no such name; check --seed");
    }
}
