//! Lists of hosts with their slots, which several launchers read.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Format, Input, Unfit, hosts};
use crate::model::{Member, Roster};

/// Lines `ADDRESS slots=N`, one for each host.
pub(super) fn lines_by_address(input: Input<'_>) -> Result<String, Unfit> {
    Ok(lines(all_hosts(input.roster()?).iter().map(|(host, slots)| (host.address.ip().to_string(), *slots))))
}

/// Lines `HOST slots=N`, for programs that read no IPv6 addresses: an IPv4 address, or else the host's name.
pub(super) fn lines_by_address_or_name(input: Input<'_>) -> Result<String, Unfit> {
    Ok(lines(by_address_or_name(input)?.into_iter()))
}

/// `HOST:N,HOST:N`, for programs that end the host at the first colon: an IPv4 address, or else the host's
/// name.
pub(super) fn comma_separated(input: Input<'_>) -> Result<String, Unfit> {
    let hosts = by_address_or_name(input)?.into_iter().map(|(host, slots)| format!("{host}:{slots}"));
    Ok(hosts.collect::<Vec<_>>().join(","))
}

fn lines(hosts: impl Iterator<Item = (String, u64)>) -> String {
    let line = |(host, slots): (String, u64)| format!("{host} slots={slots}\n");
    hosts.map(line).collect()
}

/// The hosts in the order of their lowest ranks, each with the slots of all nodes at its address: launchers
/// list a host once.
fn all_hosts(roster: &Roster) -> Vec<(&Member, u64)> {
    let mut hosts: Vec<(&Member, u64)> = Vec::new();
    let mut indices: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for member in roster.members() {
        let index = *indices.entry(member.address.ip()).or_insert(hosts.len());
        match hosts.get_mut(index) {
            Some((_, sum)) => *sum += u64::from(member.slots),
            None => hosts.push((member, member.slots.into())),
        }
    }
    hosts
}

fn by_address_or_name(input: Input<'_>) -> Result<Vec<(String, u64)>, Unfit> {
    let (all, format) = (all_hosts(input.roster()?), input.format);
    let named = all.iter().filter(|(host, _)| host.address.is_ipv6());
    check_names(named.map(|(host, _)| *host).collect(), format)?;
    let name = |host: &Member| match host.address.ip() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(_) => host.host.as_str().to_owned(),
    };
    Ok(all.into_iter().map(|(host, slots)| (name(host), slots)).collect())
}

/// Refuses host names that do not mean their host everywhere, and a name that two hosts have.
pub(in crate::env) fn check_names(mut named: Vec<&Member>, format: Format) -> Result<(), Unfit> {
    if let Some(bad) = named.iter().find(|host| !hosts::is_usable(&host.host.as_str().to_ascii_lowercase())) {
        return Err(Unfit::Name(bad.rank, bad.host.as_str().to_owned(), format));
    }
    named.sort_by_key(|host| (host.host.as_str(), host.address.ip(), host.rank));
    let is_two =
        |pair: &&[&Member]| pair[0].host == pair[1].host && pair[0].address.ip() != pair[1].address.ip();
    match named.windows(2).find(is_two) {
        Some(pair) => {
            Err(Unfit::SameName(pair[0].rank, pair[1].rank, pair[0].host.as_str().to_owned(), format))
        }
        None => Ok(()),
    }
}
