//! The summary of a node's RDMA devices, which it sends to the other nodes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::choose::Choice;
use super::gid::Addressing;
use super::machine::Machine;
use super::network::Networks;
use super::verdict::Transport;

/// A node's RDMA devices in a few bytes: everything that the leader needs to choose what all ranks use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The kind of RDMA that the node would use alone.
    pub capability: Capability,
    /// The ports that the node would use of InfiniBand, RoCE and EFA, if the world uses that kind.
    pub groups: [Option<GroupSummary>; 3],
    /// The networks of the node's RoCE ports; none if the node has no such port.
    pub networks: Option<Networks>,
    /// Whether the user has chosen NCCL's network or a plugin for it (`NCCL_NET`, `NCCL_NET_PLUGIN`).
    pub own_net: bool,
    /// Whether this node's job requires RDMA.
    pub required: bool,
}

/// The ports of a kind of RDMA that a node would use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct GroupSummary {
    /// The number of ports, for each RoCE addressing in the order of [`Addressing::ALL`]. For InfiniBand and
    /// EFA the first number is the count and the other numbers are 0.
    pub ports: [u16; 4],
    /// The bandwidth of all ports together, in Gb/s.
    pub total: u16,
}

/// The kind of RDMA that a host offers to a job, or why the host offers none. The order is that of the
/// numbers on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Capability {
    /// The node's devices were not examined.
    #[default]
    NotExamined,
    /// The host has no RDMA device.
    NoDevice,
    /// The host has RDMA devices, but a job can use none of their ports.
    NoUsablePort,
    /// The user has disabled RDMA for NCCL on this host.
    Disabled,
    /// InfiniBand.
    InfiniBand,
    /// RDMA over Ethernet.
    Roce,
    /// Amazon's EFA. NCCL uses EFA through a plugin (aws-ofi-nccl), not through its own InfiniBand transport.
    Efa,
}

/// The kinds of RDMA, in the order of [`Summary::groups`].
pub(super) const KINDS: [Capability; 3] = [Capability::InfiniBand, Capability::Roce, Capability::Efa];

impl Summary {
    /// The summary of a machine. RDMA is not required; [`Summary::required`] changes that.
    pub fn new(machine: &Machine) -> Self {
        let of = |kind| {
            let choice = machine.choose_by(Some(kind), None);
            let by_addressing = |addressing| count(&machine.choose_in(Transport::Roce(addressing)));
            let ports = match kind {
                Capability::Roce => Addressing::ALL.map(by_addressing),
                _ => [count(&choice), 0, 0, 0],
            };
            let group = GroupSummary {
                ports,
                total: u16::try_from(choice.bandwidth().div_ceil(1000)).unwrap_or(u16::MAX),
            };
            (choice.kind == kind).then_some(group)
        };
        let (capability, groups) = (machine.choose().kind, KINDS.map(of));
        Self { capability, groups, networks: machine.networks(), own_net: false, required: false }
    }

    /// The summary of a host that could use RDMA, but whose user has disabled RDMA for NCCL
    /// (NCCL_IB_DISABLE=1).
    #[must_use]
    pub fn disabled(self) -> Self {
        if self.capability.is_usable() {
            Self { capability: Capability::Disabled, groups: Default::default(), ..self }
        } else {
            self
        }
    }

    /// Sets whether the job requires RDMA. If any node requires RDMA, no world forms without RDMA.
    #[must_use]
    pub fn required(self, required: bool) -> Self {
        Self { required, ..self }
    }

    /// What the node would use of this kind; none where it has none.
    pub(super) fn group(&self, kind: Capability) -> Option<GroupSummary> {
        let at = KINDS.iter().position(|other| *other == kind)?;
        self.groups[at]
    }

    /// How many ports the node would use by this transport.
    pub(super) fn ports(&self, transport: Transport) -> u16 {
        let group = transport.kind().and_then(|kind| self.group(kind)).unwrap_or_default();
        group.ports[transport.addressing().map_or(0, Addressing::place)]
    }

    /// What the node's ports of this kind carry, in Gb/s; 0 if it has none.
    pub(super) fn total(&self, kind: Capability) -> u16 {
        self.group(kind).map_or(0, |group| group.total)
    }

    /// Whether the node's devices were examined. Only then can the summary be compared with the summaries of
    /// other nodes.
    pub fn is_examined(self) -> bool {
        self.capability != Capability::NotExamined
    }
}

impl Capability {
    /// Whether a job can use RDMA with this capability.
    pub fn is_usable(self) -> bool {
        matches!(self, Self::InfiniBand | Self::Roce | Self::Efa)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Roce => "RoCE",
            Self::Efa => "EFA",
            _ => "no RDMA",
        })
    }
}

fn count(choice: &Choice<'_>) -> u16 {
    u16::try_from(choice.used().count()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_could_be_used_is_disabled() {
        use Capability::{Disabled, Efa, InfiniBand, NoDevice, NoUsablePort, NotExamined, Roce};
        let group = GroupSummary { ports: [8; 4], total: 3200 };
        let summary = |capability| Summary { capability, groups: [Some(group); 3], ..Summary::default() };
        let disabled = |capability| summary(capability).disabled();
        for capability in [InfiniBand, Roce, Efa] {
            assert_eq!((disabled(capability).capability, disabled(capability).groups), (Disabled, [None; 3]));
        }
        for capability in [NotExamined, NoDevice, NoUsablePort, Disabled] {
            assert_eq!(disabled(capability), summary(capability));
        }
    }
}
