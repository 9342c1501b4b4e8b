//! The variables of a job that should be the same on every node: "the environment must be consistent", as
//! NCCL's maintainers say (NVIDIA/nccl#626, #794, #2428).

use std::collections::BTreeMap;

use super::MINGLE_SET;
use super::variables::is_own;
use crate::model::Trait;

/// What belongs to one host. A name that ends so.
const OWN_ENDS: &str = "\
    _IFNAME _INTERFACE _HCA _HCA_LIST _NET_DEVICES _GID_INDEX _ADDR_RANGE _FILE";
/// What belongs to one rank, or changes nothing between ranks, or is compared with the RDMA devices. A name
/// that begins so.
const OWN_BEGINS: &str = "\
    NCCL_DEBUG NCCL_HOSTID NCCL_IB_DISABLE NCCL_MNNVL_";

/// The variables of other libraries that are compared.
const OTHERS: &str = "\
    GLOO_DEVICE_TRANSPORT TORCH_DISTRIBUTED_DEBUG TORCH_NCCL_ASYNC_ERROR_HANDLING \
    TORCH_NCCL_AVOID_RECORD_STREAMS TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_CUDA_EVENT_CACHE \
    TORCH_NCCL_ENABLE_MONITORING TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC TORCH_NCCL_HIGH_PRIORITY \
    TORCH_NCCL_USE_COMM_NONBLOCKING UCX_IB_GPU_DIRECT_RDMA UCX_IB_SL UCX_IB_TRAFFIC_CLASS \
    UCX_MAX_EAGER_RAILS UCX_MAX_RNDV_RAILS UCX_MEMTYPE_CACHE UCX_PROTO_ENABLE UCX_RC_TIMEOUT \
    UCX_RNDV_FRAG_MEM_TYPE UCX_RNDV_SCHEME UCX_RNDV_THRESH UCX_TLS UCX_UNIFIED_MODE";

/// NCCL's variables whose values are words and numbers, so that other nodes may show them. The values of its
/// other variables may be paths, addresses or keys.
const SHOWN: &str = "\
    NCCL_ALGO NCCL_BUFFSIZE NCCL_CHECKS_DISABLE NCCL_COLLNET_ENABLE NCCL_COMM_BLOCKING \
    NCCL_CROSS_NIC NCCL_CUMEM_ENABLE NCCL_DMABUF_ENABLE NCCL_IB_ADAPTIVE_ROUTING \
    NCCL_IB_ADDR_FAMILY NCCL_IB_MERGE_NICS NCCL_IB_PCI_RELAXED_ORDERING NCCL_IB_QPS_PER_CONNECTION \
    NCCL_IB_RETRY_CNT NCCL_IB_ROCE_VERSION_NUM NCCL_IB_SL NCCL_IB_SPLIT_DATA_ON_QPS NCCL_IB_TC \
    NCCL_IB_TIMEOUT NCCL_LAUNCH_MODE NCCL_MAX_CTAS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS \
    NCCL_MIN_NCHANNELS NCCL_NET NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ NCCL_NSOCKS_PERTHREAD \
    NCCL_NTHREADS NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_P2P_NET_CHUNKSIZE \
    NCCL_PROTO NCCL_PXN_DISABLE NCCL_RUNTIME_CONNECT NCCL_SHM_DISABLE NCCL_SOCKET_FAMILY \
    NCCL_SOCKET_NTHREADS NCCL_WORK_FIFO_DEPTH";

/// The user's variables that should be the same on every node. They come from `environment`, in which the
/// first value of a name counts. Variables that an earlier `mingle` has set are left out.
pub fn traits(environment: impl IntoIterator<Item = (String, String)>) -> Vec<Trait> {
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in environment {
        variables.entry(name).or_insert(value);
    }
    let listed = variables.remove(MINGLE_SET).unwrap_or_default();
    variables.retain(|name, value| {
        let is_known = name.starts_with("NCCL_") || has(OTHERS, name);
        is_known && !value.is_empty() && !is_own(&listed, name, value)
    });
    // That is compared with the RDMA devices.
    let is_off = |name: &str, value: &str| name == "NCCL_NET" && value.eq_ignore_ascii_case("socket");
    let is_ranks = |name: &str| OWN_BEGINS.split(' ').any(|begin| name.starts_with(begin));
    variables.retain(|name, value| !is_a_hosts_own(name) && !is_ranks(name) && !is_off(name, value));
    let one = |(name, value): (String, String)| {
        let is_shown = has(SHOWN, &name) || has(OTHERS, &name);
        if is_shown { Trait::shown(name, value) } else { Trait::hidden(name, value) }
    };
    variables.into_iter().map(one).collect()
}

/// Whether a list has this name.
fn has(list: &str, name: &str) -> bool {
    list.split(' ').any(|other| other == name)
}

/// Whether the variable's value is right on one host alone, such as the name of an interface.
pub(super) fn is_a_hosts_own(name: &str) -> bool {
    OWN_ENDS.split(' ').any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(environment: &[(&str, &str)]) -> Vec<Trait> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        traits(environment.iter().map(pair))
    }

    #[test]
    fn what_belongs_to_a_host_or_a_rank_or_to_no_library_is_not_compared() {
        for name in [
            "NCCL_SOCKET_IFNAME",
            "NCCL_IB_HCA",
            "NCCL_IB_GID_INDEX",
            "NCCL_IB_DISABLE",
            "NCCL_DEBUG",
            "NCCL_DEBUG_SUBSYS",
            "NCCL_TOPO_FILE",
            "NCCL_HOSTID",
            "NCCL_MNNVL_UUID",
            "GLOO_SOCKET_IFNAME",
            "UCX_NET_DEVICES",
            "RANK",
            "HOSTNAME",
            "CUDA_VISIBLE_DEVICES",
            "AWS_SECRET_ACCESS_KEY",
        ] {
            assert_eq!(of(&[(name, "1")]), [], "{name}");
        }
    }

    #[test]
    fn values_are_shown_of_listed_names_alone() {
        assert_eq!(of(&[("NCCL_ALGO", "Ring")]), [Trait::shown("NCCL_ALGO", "Ring")]);
        assert_eq!(of(&[("UCX_TLS", "rc")]), [Trait::shown("UCX_TLS", "rc")]);
        assert_eq!(of(&[("NCCL_NET_PLUGIN", "/a/b")]), [Trait::hidden("NCCL_NET_PLUGIN", "/a/b")]);
        assert_eq!(of(&[("NCCL_NET", "AWS Libfabric")]), [Trait::shown("NCCL_NET", "AWS Libfabric")]);
        assert_eq!(of(&[("NCCL_NET", "socket")]), [], "as if there were no RDMA");
    }

    #[test]
    fn the_environment_wins_over_the_files_and_mingles_own_values_do_not_count() {
        let both = [("NCCL_ALGO", "Ring"), ("NCCL_ALGO", "of a file"), ("NCCL_PROTO", "")];
        assert_eq!(of(&both), [Trait::shown("NCCL_ALGO", "Ring")]);
        // The digest is that of eth0.
        let set = (MINGLE_SET, "NCCL_X:c3e607cf");
        assert_eq!(of(&[("NCCL_X", "eth0"), set]), []);
        assert_eq!(of(&[("NCCL_X", "eth1"), set]), [Trait::hidden("NCCL_X", "eth1")]);
    }
}
