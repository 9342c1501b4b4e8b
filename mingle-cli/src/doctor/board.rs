//! What the hosts of a meeting have found, by their ranks: which reaches which.

use std::collections::BTreeSet;
use std::net::IpAddr;

use mingle_core::{Formed, HostName, Member, Network};

use super::notice::{BrokenWay, Heard, Record};

/// A host of the meeting.
#[derive(Debug, Clone)]
pub(super) struct Host {
    /// The number of its run, by which it is heard.
    pub(super) id: u32,
    pub(super) name: HostName,
    pub(super) address: IpAddr,
    /// The port for transfers, if it takes part in them.
    pub(super) transfers: Option<u16>,
    /// What it has found; none if it has not said that.
    pub(super) record: Option<Record>,
}

/// Everything known about the hosts.
#[derive(Debug, Clone)]
pub(super) struct Board {
    pub(super) hosts: Vec<Host>,
    /// The rank of this host.
    pub(super) own: u32,
    /// The fewest hosts that can form a world, and the most, which are compared.
    pub(super) least: u32,
    pub(super) most: u32,
    /// How many hosts have come for whom there was no place.
    pub(super) left_over: u32,
    /// What is not the same on all hosts.
    pub(super) differences: Vec<String>,
    pub(super) network: Network,
}

impl Board {
    /// The hosts of a world that has formed, of which nothing else is known yet.
    pub(super) fn new(formed: &Formed, network: &Network) -> Self {
        let members = formed.roster.as_ref().map_or(&[][..], |roster| roster.members());
        // The number and the port of a host are the metadata of that name.
        let host = |member: &Member| Host {
            id: member.metadata.get("id").and_then(|id| id.parse().ok()).unwrap_or_default(),
            name: member.host.clone(),
            address: member.address.ip(),
            transfers: member.metadata.get("port").and_then(|port| port.parse().ok()),
            record: None,
        };
        Self {
            hosts: members.iter().map(host).collect(),
            own: formed.rank.get(),
            least: formed.asked.min().get(),
            most: formed.asked.max().get(),
            left_over: formed.left_over,
            differences: formed.sameness.lines(),
            network: network.clone(),
        }
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = u32> + use<> {
        0..u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn host(&self, rank: u32) -> &Host {
        &self.hosts[rank as usize]
    }

    pub(super) fn record(&self, rank: u32) -> Option<&Record> {
        self.host(rank).record.as_ref()
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let ranks: Vec<u32> = self.ranks().collect();
        let all = self.ranks().flat_map(move |from| ranks.clone().into_iter().map(move |to| (from, to)));
        all.filter(|(from, to)| from != to)
    }

    /// The host as the report names it: by its name and its address.
    pub(super) fn name(&self, rank: u32) -> String {
        let Host { name, address, .. } = self.host(rank);
        format!("{name} ({address})")
    }

    /// Whether multicast of a host arrives at the other; none if that host has not said so, or if one of them
    /// uses none.
    pub(super) fn multicast(&self, from: u32, to: u32) -> Option<bool> {
        let sends = self.record(from).is_none_or(|record| record.heard.is_some());
        let heard = self.record(to)?.heard.as_ref().filter(|_| sends)?;
        Some(heard.iter().any(|heard| heard.id == self.host(from).id))
    }

    /// The broken paths from a host to another, which may have several addresses.
    pub(super) fn broken(&self, from: u32, to: u32) -> impl Iterator<Item = &BrokenWay> {
        let all = self.record(from).into_iter().flat_map(|record| &record.broken);
        all.filter(move |broken| broken.to == to)
    }

    /// Whether the path from a host to another works; none if that host has not said so.
    pub(super) fn path(&self, from: u32, to: u32) -> Option<bool> {
        self.record(from).map(|_| self.broken(from, to).next().is_none())
    }

    /// The rate at which transfers of one host arrive at another, in kbit/s, if that was tried.
    pub(super) fn rate(&self, from: u32, to: u32) -> Option<u32> {
        self.record(to)?.rates.get(&from).copied()
    }

    /// Whether enough hosts are here.
    pub(super) fn is_full(&self) -> bool {
        self.hosts.len() >= self.least as usize
    }

    /// Whether a path between two hosts is broken.
    pub(super) fn is_broken(&self) -> bool {
        self.pairs().any(|(from, to)| self.path(from, to) == Some(false))
    }

    /// The hosts that have not told what they have found.
    pub(super) fn untold(&self) -> impl Iterator<Item = u32> {
        self.ranks().filter(|rank| self.record(*rank).is_none())
    }

    /// Whether a world can form: enough hosts are here, and all paths work.
    pub(super) fn can_form(&self) -> bool {
        self.is_full() && !self.is_broken() && self.untold().next().is_none()
    }

    /// Takes what the hosts have told, each by its rank.
    pub(super) fn take(&mut self, records: Vec<Option<Record>>) {
        for (host, record) in self.hosts.iter_mut().zip(records) {
            host.record = record.filter(Record::is_sane).or(host.record.take());
        }
    }

    /// All that any host has heard.
    pub(super) fn heard(&self) -> BTreeSet<&Heard> {
        self.hosts.iter().filter_map(|host| host.record.as_ref()?.heard.as_ref()).flatten().collect()
    }
}

/// The board of hosts 1 and so on of a network, at 10.0.0.1 and so on, with these records; it is that of the
/// first.
#[cfg(test)]
pub(super) fn board_of(records: impl IntoIterator<Item = Option<Record>>) -> Board {
    let host = |(number, record): (u32, Option<Record>)| Host {
        id: 100 + number,
        name: HostName::new(&format!("node{number}")),
        address: format!("10.0.0.{number}").parse().unwrap(),
        transfers: Some(4000),
        record,
    };
    let hosts: Vec<Host> = (1..).zip(records).map(host).collect();
    let most = u32::try_from(hosts.len()).unwrap();
    let network = Network::default();
    Board { hosts, own: 0, least: most, most, left_over: 0, differences: Vec::new(), network }
}
