//! RDMA: what this host has, what a job should use of it, and what all hosts of a world can use together.
//!
//! This module is the crate `mingle-rdma`, and adds the functions that read this host.

pub use mingle_rdma::*;

pub use crate::host::{probe, save, survey};

#[cfg(test)]
pub(crate) mod examples {
    use std::net::IpAddr;

    use super::*;

    /// The longest summary on the wire.
    pub(crate) fn largest_summary() -> Summary {
        let group = GroupSummary { ports: [u16::MAX; 4], total: u16::MAX };
        let (groups, networks) = ([Some(group); 3], Some(Networks::default()));
        Summary { capability: Capability::Efa, groups, networks, own_net: true, required: true }
    }

    /// The longest verdict on the wire.
    pub(crate) fn largest_verdict() -> Verdict {
        let difference = RankDifference {
            rank: u32::MAX,
            address: IpAddr::from([0xff; 16]),
            difference: Difference::Capability { own: Capability::Efa, most: Capability::Roce },
        };
        let differences = vec![difference; NAMED];
        let transport = Transport::Roce(Addressing::ALL[3]);
        let networks = vec![Network::default(); 16];
        Verdict { transport, differences, unnamed: u32::MAX, networks, cables: Some(true) }
    }

    /// Rank 3 has no RDMA device.
    pub(crate) fn example_verdict() -> Verdict {
        let group = GroupSummary { ports: [8, 0, 0, 0], total: 3200 };
        let of = |last: u8, capability| {
            let groups = [None, (capability == Capability::Roce).then_some(group), None];
            let summary = Summary { capability, groups, ..Summary::default() };
            RankSummary { address: IpAddr::from([10, 0, 0, last]), summary }
        };
        let with = Capability::Roce;
        Verdict::of(&[of(4, with), of(5, with), of(6, with), of(7, Capability::NoDevice)])
    }
}
