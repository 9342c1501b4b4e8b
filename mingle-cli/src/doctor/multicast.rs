//! Multicast on this host: the group in the kernel's tables, the querier, and whether own datagrams come
//! back.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::finding::{Finding, Status};

/// An interface in `/proc/net/igmp`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Igmp {
    /// The IGMP version that the kernel uses on the interface: 3, or 2 or 1 for a while after it heard a
    /// query of that version (`igmp_mc_seq_show`, net/ipv4/igmp.c).
    pub(super) version: u8,
    pub(super) groups: Vec<Ipv4Addr>,
}

/// `/proc/net/igmp`: an interface in a line, its groups in the lines after it.
pub(super) fn igmp(text: &str) -> BTreeMap<String, Igmp> {
    let mut all: BTreeMap<String, Igmp> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if line.starts_with(|c: char| c.is_ascii_digit()) {
            // "4\teth0      :     1      V3"; a long name leaves no space before the colon.
            let [_, device, ..] = words.as_slice() else { continue };
            device.trim_end_matches(':').clone_into(&mut name);
            let version = words.last().and_then(|word| word.strip_prefix('V'));
            let version = version.and_then(|version| version.parse().ok()).unwrap_or(0);
            all.insert(name.clone(), Igmp { version, groups: Vec::new() });
        } else if let Some(number) = words.first().and_then(|word| u32::from_str_radix(word, 16).ok())
            && let Some(igmp) = all.get_mut(&name)
        {
            // The kernel prints a number in network order as if it were in the host's.
            igmp.groups.push(Ipv4Addr::from(number.to_ne_bytes()));
        }
    }
    all
}

/// How many queries for IPv6 groups (MLD) the host has heard: `Icmp6InGroupMembQueries` in `/proc/net/snmp6`.
pub(super) fn mld_queries(text: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix("Icmp6InGroupMembQueries"))?;
    value.trim().parse().ok()
}

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

/// Everything that one host shows about the group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) igmp: Option<&'a str>,
    pub(super) snmp6: Option<&'a str>,
    /// The groups of `/proc/net/igmp6`, where IPv6 is on.
    pub(super) igmp6: Option<&'a str>,
    pub(super) tried: &'a [Trial],
    /// Which interfaces could not join.
    pub(super) warnings: &'a [String],
}

const JOINED: &str = "group";
const BACK: &str = "own multicast";

pub(super) fn examine(seen: Seen<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = seen.warnings.iter().map(|warning| unjoined(warning)).collect();
    let table = seen.igmp.map(igmp);
    let groups = seen.igmp6.map(igmp6).unwrap_or_default();
    for tried in seen.tried {
        let name = &tried.interface;
        match (tried.to.map(|to| to.ip()), &table) {
            (Some(IpAddr::V4(group)), Some(table)) => {
                let has = table.get(name).is_some_and(|igmp| igmp.groups.contains(&group));
                findings.push(joined(group.into(), name, "igmp", has));
            }
            (Some(IpAddr::V6(group)), _) if seen.igmp6.is_some() => {
                let has = groups.get(name).is_some_and(|all| all.contains(&group));
                findings.push(joined(group.into(), name, "igmp6", has));
            }
            _ => {}
        }
        findings.push(back(tried));
    }
    if seen.igmp.is_none() {
        findings.push(Finding::unread(
            JOINED,
            "/proc/net/igmp",
            "mount /proc; the other checks do not need it",
        ));
        return findings;
    }
    let mlds = seen.snmp6.and_then(mld_queries).unwrap_or(0);
    for tried in seen.tried.iter().filter(|tried| tried.interface != "lo") {
        let igmp = table.as_ref().and_then(|table| table.get(&tried.interface));
        match (tried.to, igmp) {
            (Some(SocketAddr::V6(_)), _) => findings.push(querier_of_ipv6(&tried.interface, mlds)),
            (Some(SocketAddr::V4(_)), Some(igmp)) => findings.push(querier(&tried.interface, igmp, mlds)),
            _ => {}
        }
    }
    findings.extend(seen.igmp6.map(|_| ipv6(&groups, seen.tried)));
    findings
}

/// `/proc/net/igmp6`: "4    eth0            ff0200000000000000000000000000001     1 0000000C 0".
pub(super) fn igmp6(text: &str) -> BTreeMap<String, Vec<Ipv6Addr>> {
    let mut all: BTreeMap<String, Vec<Ipv6Addr>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some(name), Some(group)) = (words.next(), words.next()) else { continue };
        if let Ok(group) = u128::from_str_radix(group, 16) {
            all.entry(name.to_owned()).or_default().push(group.into());
        }
    }
    all
}

fn unjoined(warning: &str) -> Finding {
    let cure =
        "check whether it has MULTICAST (ip link), or exclude it with --interface; --seed needs no multicast";
    Finding::new(Status::Warning, JOINED, "joining the group", warning, cure)
}

fn joined(group: IpAddr, interface: &str, table: &str, has: bool) -> Finding {
    let looked = format!("{group} on {interface} in /proc/net/{table}");
    if has {
        return Finding::ok(JOINED, looked, "joined");
    }
    let cure = "check whether the interface has MULTICAST (ip link set dev IF multicast on), or give --seed";
    Finding::new(Status::Warning, JOINED, looked, "the kernel has no such membership", cure)
}

fn back(tried: &Trial) -> Finding {
    let interface = &tried.interface;
    let (check, looked, what) = match tried.to {
        Some(to) => (
            BACK,
            format!("own multicast to {to} by {interface}"),
            format!("UDP to {} port {}", to.ip(), to.port()),
        ),
        None => ("broadcast", format!("own broadcast by {interface}"), "broadcasts".to_owned()),
    };
    match (&tried.sent, tried.came_back) {
        (_, true) => Finding::ok(check, looked, "came back"),
        (Err(error), _) => Finding::new(
            Status::Problem,
            check,
            looked,
            format!("cannot be sent: {error}"),
            "look for a firewall rule on output, or exclude the interface with --interface",
        ),
        // A datagram that the kernel loops back passes the host's rules as if it came from outside by this
        // interface.
        (Ok(()), false) => Finding::new(
            Status::Problem,
            check,
            looked,
            "did not come back: this host itself drops it",
            format!("let {what} pass on this host, or give --seed on each node"),
        ),
    }
}

fn querier_of_ipv6(interface: &str, mlds: u64) -> Finding {
    let looked = format!("querier for IPv6 group members on {interface}");
    if mlds > 0 {
        return Finding::ok("querier", looked, format!("{mlds} queries (MLD) were heard on this host"));
    }
    let cure =
        "nothing, unless other hosts do not hear this host: then an MLD querier on the switch, or --seed";
    Finding::new(Status::Note, "querier", looked, "no query (MLD) has been heard on this host", cure)
}

fn querier(interface: &str, igmp: &Igmp, mlds: u64) -> Finding {
    let looked = format!("querier for group members on {interface}");
    let cure = "nothing, unless other hosts do not hear this host: then an IGMP querier on the switch, --broadcast or --seed";
    match igmp.version {
        version @ 1..=2 => {
            let seen = format!("an IGMPv{version} querier was heard, or force_igmp_version is set");
            Finding::ok("querier", looked, seen)
        }
        _ if mlds > 0 => {
            let seen =
                format!("IGMPv3; {mlds} queries for IPv6 groups were heard, so the network has a querier");
            Finding::ok("querier", looked, seen)
        }
        _ => {
            // A query of version 3, every 125 s, leaves no trace in /proc.
            let seen = "IGMPv3, and no query of an older version; whether there is a querier is not known";
            Finding::new(Status::Note, "querier", looked, seen, cure)
        }
    }
}

fn ipv6(groups: &BTreeMap<String, Vec<Ipv6Addr>>, tried: &[Trial]) -> Finding {
    let mut names: Vec<&str> =
        tried.iter().map(|tried| &*tried.interface).filter(|name| groups.contains_key(*name)).collect();
    names.dedup();
    let looked = "IPv6 multicast in /proc/net/igmp6";
    if names.is_empty() {
        let seen = "IPv6 is off on the interfaces that are used";
        return Finding::new(Status::Note, "ipv6", looked, seen, "nothing, unless --ipv6 is wanted");
    }
    Finding::ok("ipv6", looked, format!("on for {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // As Linux 6.18 prints it.
    const IGMP: &str = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
        1\tlo        :     1      V3\n\
        \t\t\t\t010000E0     1 0:00000000\t\t0\n\
        4\teth0      :     2      V2\n\
        \t\t\t\t0201C0EF     1 0:00000000\t\t0\n\
        \t\t\t\t010000E0     1 0:00000000\t\t0\n\
        5\taverylongname12:     1      V3\n\
        \t\t\t\t010000E0     1 0:00000000\t\t0\n";
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 1, 2);

    fn tried(interface: &str) -> Trial {
        let to = Some(SocketAddr::from((GROUP, 29499)));
        Trial { interface: interface.to_owned(), to, sent: Ok(()), came_back: true }
    }

    fn seen(tried: &[Trial]) -> Seen<'_> {
        Seen { igmp: Some(IGMP), snmp6: None, igmp6: None, tried, warnings: &[] }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_kernels_table_is_read() {
        let table = igmp(IGMP);
        assert_eq!(table["eth0"], Igmp { version: 2, groups: vec![GROUP, Ipv4Addr::new(224, 0, 0, 1)] });
        assert_eq!(table["averylongname12"].version, 3);
        assert!(igmp("").is_empty() && igmp("x\n\t\t\tzz\n7").is_empty());
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_membership_that_the_kernel_lacks_is_a_warning() {
        let on = |name| examine(seen(&[tried(name)]))[0].clone();
        assert_eq!(on("eth0").status, Status::Ok);
        assert_eq!(on("lo").status, Status::Warning);
        assert_eq!(on("nonesuch").status, Status::Warning);
    }

    #[test]
    fn a_multicast_that_does_not_come_back_is_a_problem() {
        let deaf = Trial { came_back: false, ..tried("eth0") };
        let mute = Trial { sent: Err("EPERM".to_owned()), ..deaf.clone() };
        for (tried, text) in [(deaf, "did not come back"), (mute, "cannot be sent: EPERM")] {
            let finding = back(&tried);
            assert_eq!(finding.status, Status::Problem);
            assert!(finding.seen.contains(text), "{finding:?}");
        }
    }

    #[test]
    fn a_group_of_ipv6_is_looked_for_in_its_own_table() {
        let group: Ipv6Addr = "ff15::1:2".parse().unwrap();
        let text = "4    eth0            ff150000000000000000000000010002     1 0000000C 0\n\
                    4    eth0            ff020000000000000000000000000001     1 0000000C 0\n7\n";
        let of_group = Trial { to: Some(SocketAddr::from((group, 29499))), ..tried("eth0") };
        for (name, status) in [("eth0", Status::Ok), ("eth1", Status::Warning)] {
            let one = [Trial { interface: name.to_owned(), ..of_group.clone() }];
            let found = examine(Seen { igmp6: Some(text), ..seen(&one) });
            assert_eq!((found[0].check, found[0].status), (JOINED, status), "{found:?}");
            assert!(found.iter().any(|finding| finding.check == "querier" && finding.seen.contains("MLD")));
        }
    }

    #[test]
    fn a_broadcast_that_does_not_come_back_is_a_problem() {
        let finding = back(&Trial { to: None, came_back: false, ..tried("eth0") });
        assert_eq!((finding.check, finding.status), ("broadcast", Status::Problem));
        assert!(finding.looked.contains("own broadcast by eth0"), "{finding:?}");
    }

    #[test]
    fn a_querier_is_known_by_the_version_or_by_its_queries_for_ipv6() {
        let v3 = Igmp { version: 3, groups: vec![] };
        assert_eq!(querier("eth0", &v3, 0).status, Status::Note);
        assert_eq!(querier("eth0", &v3, 2).status, Status::Ok);
        assert!(querier("eth0", &Igmp { version: 2, ..v3 }, 0).seen.contains("IGMPv2"));
        assert_eq!(mld_queries("Ip6InReceives 3\nIcmp6InGroupMembQueries         \t7\n"), Some(7));
        assert_eq!(mld_queries(""), None);
    }

    #[test]
    fn without_proc_the_other_checks_still_run() {
        let found = examine(Seen { igmp: None, ..seen(&[tried("eth0")]) });
        assert!(found.iter().any(|finding| finding.seen == "not readable without root"));
        assert!(found.iter().any(|finding| finding.check == BACK && finding.status == Status::Ok));
    }
}
