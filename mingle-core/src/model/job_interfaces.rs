//! The interfaces that the user's own variables give to NCCL and Gloo.

use mingle_rdma::nccl_list_has;

/// The user's own values of NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, which mingle leaves as they are. The
/// other nodes also prove their paths to the addresses of these interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobInterfaces {
    /// NCCL_SOCKET_IFNAME: prefixes of interface names, separated by commas. After `=` the names are whole;
    /// after `^` NCCL excludes the interfaces (`findInterfaces` in NCCL's `src/misc/socket.cc`).
    pub nccl: Option<String>,
    /// GLOO_SOCKET_IFNAME: interface names, separated by commas.
    pub gloo: Option<String>,
}

impl JobInterfaces {
    /// Whether NCCL or Gloo uses the interface of this name.
    pub(crate) fn contain(&self, name: &str) -> bool {
        self.nccl.as_ref().is_some_and(|list| nccl_list_has(list, name))
            || self.gloo.as_ref().is_some_and(|list| list.split(',').any(|entry| entry == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_nccl_and_gloo_compare_them() {
        let used = |nccl: &str, gloo: &str| {
            let given = |list: &str| (!list.is_empty()).then(|| list.to_owned());
            let interfaces = JobInterfaces { nccl: given(nccl), gloo: given(gloo) };
            assert_eq!(interfaces == JobInterfaces::default(), nccl.is_empty() && gloo.is_empty());
            ["lo", "eth0", "eth1", "eth10"]
                .into_iter()
                .filter(|name| interfaces.contain(name))
                .collect::<Vec<_>>()
        };
        assert_eq!(used("", ""), [""; 0]);
        assert_eq!(used("eth1", ""), ["eth1", "eth10"]);
        assert_eq!(used("=eth1", ""), ["eth1"]);
        assert_eq!(used("=eth1:1,eth0", ""), ["eth0", "eth1"]);
        assert_eq!(used("^lo,eth1", ""), ["eth0"]);
        assert_eq!(used("^=eth1", ""), ["lo", "eth0", "eth10"]);
        assert_eq!(used("eth1,", ""), ["eth1", "eth10"]);
        assert_eq!(used("", "eth1,lo"), ["lo", "eth1"]);
        assert_eq!(used("=eth0", "eth1"), ["eth0", "eth1"]);
    }
}
