//! The libraries and their variables, and what the user's own variables say about the devices.

use super::gid::{AddressFamily, Addressing, RoceVersion};
use super::list::nccl_list_has;
use super::machine::{Device, GidEntry, LinkLayer, Machine, Port, PortState};
use super::nccl::{GidRule, Pin};

/// A library, and its variables.
pub(super) struct Library {
    list: &'static str,
    index: &'static str,
    /// How it is told the family, the network and the version of the GIDs among which it is to choose.
    kind: Option<[&'static str; 3]>,
}

pub(super) const LIBRARIES: [Library; 3] = [
    Library {
        list: "NCCL_IB_HCA",
        index: "NCCL_IB_GID_INDEX",
        kind: Some(["NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ROCE_VERSION_NUM"]),
    },
    Library { list: "UCX_NET_DEVICES", index: "UCX_IB_GID_INDEX", kind: None },
    Library {
        list: "NVSHMEM_HCA_LIST",
        index: "NVSHMEM_IB_GID_INDEX",
        kind: Some(["NVSHMEM_IB_ADDR_FAMILY", "NVSHMEM_IB_ADDR_RANGE", "NVSHMEM_IB_ROCE_VERSION_NUM"]),
    },
];

/// What the user's own variables say about the devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Users {
    /// The lists of devices that the user has given to the [`LIBRARIES`].
    pub(super) lists: [Option<String>; 3],
    pub(super) pins: [Pin; 3],
    /// Variables that the user's own contradict.
    pub(super) contradicted: Vec<&'static str>,
}

impl Users {
    /// What the user's own variables say. `users` looks up a variable, and must leave out variables that
    /// mingle has set.
    pub fn new(users: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| users(name).filter(|value| !value.is_empty());
        // By any of these the user lets NCCL choose among the GIDs of a kind. An index would overrule them.
        let chooses = LIBRARIES[0].kind.iter().flatten().any(|name| value(name).is_some());
        // Images of NVIDIA say which NCCL they have. Before 2.21 it takes index 0.
        let is_old = value("NCCL_VERSION").is_some_and(|version| {
            let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
            numbers.next().zip(numbers.next()).is_some_and(|version| version < (2, 21))
        });
        let pin = |library: &Library| match value(library.index) {
            // mingle's own index is compared with it.
            Some(_) => Pin::Always,
            None if chooses => Pin::Never,
            None if is_old && library.list == LIBRARIES[0].list => Pin::Always,
            None => Pin::IfNeeded,
        };
        // If the user has given an index too, both are the user's business.
        let list = |library: &Library| value(library.list).filter(|_| value(library.index).is_none());
        // UCX reaches no host by devices that none of its transports uses, and refuses an index beside
        // subnets (`uct_ib_iface_init_roce_gid_info`). NVSHMEM prefers its list to the mapping (`ibrc.cpp`).
        let contradicts = [
            ("UCX_NET_DEVICES", value("UCX_TLS").is_some_and(|transports| !is_rdma(&transports))),
            ("UCX_IB_GID_INDEX", value("UCX_IB_ROCE_SUBNETS").is_some()),
            ("NVSHMEM_HCA_LIST", value("NVSHMEM_HCA_PE_MAPPING").is_some()),
        ];
        let contradicted = contradicts.into_iter().filter(|(_, does)| *does).map(|(name, _)| name).collect();
        let (lists, pins) = (LIBRARIES.each_ref().map(list), LIBRARIES.each_ref().map(pin));
        Self { lists, pins, contradicted }
    }
}

/// Whether a list of UCX's transports (UCX_TLS) has one for RDMA, or behind `^` leaves one. `ib` and `all`
/// stand for each of them; a backslash keeps a name from being an alias, and `:aux` may be behind it
/// (`ucp_tl_aliases` in UCX's `src/ucp/core/ucp_context.c`).
fn is_rdma(transports: &str) -> bool {
    let (is_excluding, list) = transports.strip_prefix('^').map_or((false, transports), |list| (true, list));
    let names = list.split(',').filter_map(|name| name.trim().trim_start_matches('\\').split(':').next());
    let has = |family: &str| names.clone().any(|name| name == family);
    if is_excluding {
        return !(has("ib") || has("all") || ["rc", "ud", "dc"].into_iter().all(has));
    }
    let families = ["rc", "ud", "dc", "srd"];
    let is_of = |name: &str| families.iter().any(|family| name.starts_with(family));
    has("ib") || has("all") || names.clone().any(is_of)
}

impl Library {
    /// How it comes to use the right GIDs of these ports.
    pub(super) fn rule(
        &self,
        ports: &[(&Port, &GidEntry)],
        addressing: Addressing,
        pin: Pin,
    ) -> Option<GidRule> {
        match self.kind {
            Some(_) => GidRule::new(ports, addressing, pin),
            None => GidRule::of_ucx(ports, pin),
        }
    }

    /// The variables for a rule. Without one it chooses among the GIDs of the addressing.
    pub(super) fn gids(&self, rule: Option<GidRule>, addressing: Addressing) -> Vec<(&'static str, String)> {
        let index = match rule {
            Some(GidRule::Index(index)) => Some(index.to_string()),
            _ => None,
        };
        let [family, range, version] = self.kind.unwrap_or_default();
        let (is_pinned, is_ipv4) = (index.is_some(), addressing.family == AddressFamily::Ipv4);
        let name = if is_ipv4 { "AF_INET" } else { "AF_INET6" };
        let network = match rule {
            Some(GidRule::Range(network)) => Some(network.to_string()),
            _ => None,
        };
        let is_v1 = addressing.version == RoceVersion::V1;
        // Beside an index, the defaults need not be said: IPv4 and RoCE v2.
        let all = [
            (self.index, index),
            (family, (!is_pinned || !is_ipv4).then(|| name.to_owned())),
            (range, network),
            (version, (!is_pinned || is_v1).then(|| if is_v1 { "1" } else { "2" }.to_owned())),
        ];
        all.into_iter()
            .filter(|(name, _)| !name.is_empty())
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// How it comes to use the GIDs of the ports that the user's list selects, or the fact why it cannot.
    pub(super) fn rule_beside(
        &self,
        machine: &Machine,
        addressing: Addressing,
        pin: Pin,
        list: &str,
    ) -> Result<GidRule, String> {
        let fact = |fact: String| format!("{} is not set: your {}={list} {fact}", self.index, self.list);
        let selected = match self.list {
            "NCCL_IB_HCA" => by_nccl(machine, list),
            _ => by_name(machine, list).map_err(fact)?,
        };
        let mut ports = Vec::new();
        // The index has no effect on InfiniBand.
        for (device, port) in
            selected.into_iter().filter(|(_, port)| port.link_layer != LinkLayer::InfiniBand)
        {
            let gid = machine.gid_of(device, port, addressing);
            let name = device.name_of(port);
            let none = || fact(format!("selects {name}, which has no GID of this host for {addressing}"));
            ports.push((device, port, gid.ok_or_else(none)?));
        }
        if ports.is_empty() {
            return Err(fact("selects no RoCE port that is ACTIVE".to_owned()));
        }
        let pairs: Vec<_> = ports.iter().map(|(_, port, gid)| (*port, *gid)).collect();
        self.rule(&pairs, addressing, pin).ok_or_else(|| {
            let name = |(device, port, gid): &(&Device, &Port, &GidEntry)| {
                format!("{} (index {})", device.name_of(port), gid.index)
            };
            let names = ports.iter().map(name).collect::<Vec<_>>().join(", ");
            fact(format!("selects {names}, for which no index is right"))
        })
    }
}

/// The ports that NCCL uses with this list: those that are ACTIVE, whatever their GIDs.
fn by_nccl<'a>(machine: &'a Machine, list: &str) -> Vec<(&'a Device, &'a Port)> {
    let is_used = |device: &Device, port: &Port| {
        port.state == Some(PortState::ACTIVE)
            && port.link_layer != LinkLayer::Unknown
            && nccl_list_has(list, &device.name, Some(&port.number.to_string()))
    };
    machine.ports().filter(|(device, port)| is_used(device, port)).collect()
}

/// The ports of a list of whole names, as UCX and NVSHMEM read it.
fn by_name<'a>(machine: &'a Machine, list: &str) -> Result<Vec<(&'a Device, &'a Port)>, String> {
    let mut found = Vec::new();
    for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let is_named = |device: &Device, port: &Port| match entry.strip_prefix(device.name.as_str()) {
            Some(rest) => rest.is_empty() || rest.strip_prefix(':') == Some(&port.number.to_string()),
            None => false,
        };
        let before = found.len();
        found.extend(machine.ports().filter(|(device, port)| is_named(device, port)));
        if found.len() == before {
            return Err(format!("has {entry}, which is no RDMA port of this host"));
        }
    }
    Ok(found)
}
