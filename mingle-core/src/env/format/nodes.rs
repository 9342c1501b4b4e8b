//! The nodes of a world as the hosts that launchers know.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use super::{Format, Unfit, hosts};
use crate::model::{Member, Roster};

/// A host, by its lowest rank, with the workers of all nodes that have its address: launchers know a host once.
fn all_hosts(roster: &Roster) -> Vec<(&Member, u64)> {
    let mut hosts: Vec<(&Member, u64)> = Vec::new();
    let mut places: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for member in roster.members() {
        let place = *places.entry(member.address.ip()).or_insert(hosts.len());
        match hosts.get_mut(place) {
            Some((_, sum)) => *sum += u64::from(member.slots),
            None => hosts.push((member, member.slots.into())),
        }
    }
    hosts
}

/// A line `ADDRESS slots=N` for each host.
pub(super) fn by_address(roster: &Roster) -> String {
    lines(all_hosts(roster).iter().map(|(host, slots)| (host.address.ip().to_string(), *slots)))
}

/// The same for what cannot read addresses of IPv6: there hosts go by name.
pub(super) fn by_address_or_name(format: Format, roster: &Roster) -> Result<String, Unfit> {
    Ok(lines(named(format, roster)?.into_iter()))
}

fn lines(hosts: impl Iterator<Item = (String, u64)>) -> String {
    let mut text = String::new();
    for (host, slots) in hosts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{host} slots={slots}");
    }
    text
}

/// `HOST:N` each, for lists that end the host at the first colon: an address of IPv4, or else the host's name.
pub(super) fn counted(format: Format, roster: &Roster) -> Result<Vec<String>, Unfit> {
    Ok(named(format, roster)?.into_iter().map(|(host, slots)| format!("{host}:{slots}")).collect())
}

fn named(format: Format, roster: &Roster) -> Result<Vec<(String, u64)>, Unfit> {
    let all = all_hosts(roster);
    let named = all.iter().filter(|(host, _)| matches!(host.address.ip(), IpAddr::V6(_)));
    let mut named: Vec<&Member> = named.map(|(host, _)| *host).collect();
    if let Some(bad) = named.iter().find(|host| !hosts::is_usable(&host.host.as_str().to_ascii_lowercase())) {
        return Err(Unfit::Name(bad.rank, bad.host.as_str().to_owned(), format));
    }
    named.sort_by_key(|host| (host.host.as_str(), host.rank));
    if let Some(pair) = named.windows(2).find(|pair| pair[0].host == pair[1].host) {
        return Err(Unfit::SameName(pair[0].rank, pair[1].rank, pair[0].host.as_str().to_owned(), format));
    }
    let name = |host: &Member| match host.address.ip() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(_) => host.host.as_str().to_owned(),
    };
    Ok(all.into_iter().map(|(host, slots)| (name(host), slots)).collect())
}
