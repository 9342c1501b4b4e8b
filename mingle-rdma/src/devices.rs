//! The libraries and their variables, and what the user's own variables say about the devices.

use super::gid::{AddressFamily, Addressing, RoceVersion};
use super::machine::{GidEntry, Port};
use super::nccl::{GidRule, Pin};

/// A library, and its variables.
pub(super) struct Library {
    index: &'static str,
    /// How it is told the family, the network and the version of the GIDs among which it is to choose.
    kind: Option<[&'static str; 3]>,
}

pub(super) const LIBRARIES: [Library; 3] = [
    Library {
        index: "NCCL_IB_GID_INDEX",
        kind: Some(["NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ROCE_VERSION_NUM"]),
    },
    Library { index: "UCX_IB_GID_INDEX", kind: None },
    Library {
        index: "NVSHMEM_IB_GID_INDEX",
        kind: Some(["NVSHMEM_IB_ADDR_FAMILY", "NVSHMEM_IB_ADDR_RANGE", "NVSHMEM_IB_ROCE_VERSION_NUM"]),
    },
];

/// How the names of those variables begin that are not printed beside one of the user's. The GIDs that are
/// right for mingle's ports may be wrong for those that the user lists. UCX reaches no host by devices that
/// none of its transports uses, and refuses an index beside subnets (`uct_ib_iface_init_roce_gid_info`).
/// NVSHMEM prefers its list to the mapping (`ibrc.cpp`).
const CONTRADICTED: [(&str, &[&str]); 6] = [
    ("NCCL_IB_HCA", &["NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_", "NCCL_IB_ROCE_"]),
    ("UCX_NET_DEVICES", &["UCX_IB_"]),
    ("UCX_TLS", &["UCX_"]),
    ("UCX_IB_ROCE_SUBNETS", &["UCX_IB_"]),
    ("NVSHMEM_HCA_LIST", &["NVSHMEM_IB_"]),
    ("NVSHMEM_HCA_PE_MAPPING", &["NVSHMEM_"]),
];

/// What the user's own variables say about the devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Users {
    pub(super) pins: [Pin; 3],
    /// How the names of variables begin that the user's own contradict.
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
            None if is_old && library.index == LIBRARIES[0].index => Pin::Always,
            None => Pin::IfNeeded,
        };
        let own = CONTRADICTED.into_iter().filter(|(own, _)| value(own).is_some());
        let contradicted = own.flat_map(|(_, contradicted)| contradicted).copied().collect();
        Self { pins: LIBRARIES.each_ref().map(pin), contradicted }
    }
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
}
