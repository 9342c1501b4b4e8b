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
        let (mut index, mut network) = (None, None);
        match rule {
            Some(GidRule::Index(number)) => index = Some(number.to_string()),
            Some(GidRule::Range(range)) => network = Some(range.to_string()),
            _ => {}
        }
        let [family, range, version] = self.kind.unwrap_or_default();
        let (is_v6, is_v1) =
            (addressing.family == AddressFamily::Ipv6, addressing.version == RoceVersion::V1);
        // Beside an index, the defaults need not be said: IPv4 and RoCE v2.
        let said = |is_unusual: bool, text: &str| (is_unusual || index.is_none()).then(|| text.to_owned());
        let kind = [
            (family, said(is_v6, if is_v6 { "AF_INET6" } else { "AF_INET" })),
            (range, network),
            (version, said(is_v1, if is_v1 { "1" } else { "2" })),
        ];
        let all = [(self.index, index)].into_iter().chain(kind).filter(|(name, _)| !name.is_empty());
        all.filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// How it comes to use the GIDs of the ports that the user's list selects, or the fact why it cannot.
    pub(super) fn rule_beside(
        &self,
        machine: &Machine,
        addressing: Addressing,
        pin: Pin,
        list: &str,
    ) -> Result<GidRule, String> {
        // UCX and NVSHMEM compare whole names.
        let nccls = match list {
            _ if self.list == "NCCL_IB_HCA" => list.to_owned(),
            "all" => String::new(),
            list => format!("={}", list.replace(' ', "")),
        };
        let is_selected = |(device, port): &(&Device, &Port)| {
            nccl_list_has(&nccls, &device.name, Some(&port.number.to_string()))
                && port.state == Some(PortState::ACTIVE)
                // The index has no effect on InfiniBand.
                && port.link_layer == LinkLayer::Ethernet
        };
        let (mut known, mut names) = (Vec::new(), Vec::new());
        for (device, port) in machine.ports().filter(is_selected) {
            let gid = machine.gid_of(device, port, addressing);
            let index =
                gid.map_or_else(|| "no GID of this host".into(), |gid| format!("index {}", gid.index));
            names.push(format!("{} ({index})", device.name_of(port)));
            known.extend(gid.map(|gid| (port, gid)));
        }
        let is_whole = !names.is_empty() && known.len() == names.len();
        let rule = if is_whole { self.rule(&known, addressing, pin) } else { None };
        rule.ok_or_else(|| {
            let selected = match names.as_slice() {
                [] => "no RoCE port that is ACTIVE".to_owned(),
                names => format!("{}, for which no index is right", names.join(", ")),
            };
            format!("{} is not set: your {}={list} selects {selected}", self.index, self.list)
        })
    }
}
