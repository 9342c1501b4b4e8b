//! The interfaces that the user's own variables give to NCCL and Gloo.

/// The user's own values of NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, which mingle leaves as they are. The
/// other nodes prove their paths to the addresses of these interfaces too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobInterfaces {
    /// NCCL_SOCKET_IFNAME: prefixes of names with commas between them; behind `=` whole names, and behind `^`
    /// those that are not used (`findInterfaces` in NCCL's `src/misc/socket.cc`).
    pub nccl: Option<String>,
    /// GLOO_SOCKET_IFNAME: names with commas between them.
    pub gloo: Option<String>,
}

#[cfg(any(feature = "net", test))]
impl JobInterfaces {
    /// Whether the user has given none.
    pub(crate) fn are_default(&self) -> bool {
        self.nccl.is_none() && self.gloo.is_none()
    }

    /// Whether NCCL or Gloo uses the interface of this name.
    pub(crate) fn contain(&self, name: &str) -> bool {
        self.nccl.as_ref().is_some_and(|list| nccl_list_has(list, name, None))
            || self.gloo.as_ref().is_some_and(|list| list.split(',').any(|entry| entry == name))
    }
}

/// Whether a list of NCCL's has this interface, or this port of this device: prefixes of names, or names
/// behind `=`; behind `^` those that it has not. An entry without a port has each one of the device; behind
/// the port, newer versions of NCCL read a rail and a plane, which select nothing (`parseStringList` and
/// `matchIfList` in NCCL's `src/misc/utils.cc`).
pub(crate) fn nccl_list_has(list: &str, name: &str, port: Option<&str>) -> bool {
    let (is_excluding, list) = list.strip_prefix('^').map_or((false, list), |rest| (true, rest));
    let (is_exact, list) = list.strip_prefix('=').map_or((false, list), |rest| (true, rest));
    let mut entries = list.split(',').filter(|entry| !entry.is_empty()).peekable();
    if entries.peek().is_none() {
        // NCCL takes an empty list for one with all.
        return !is_excluding;
    }
    let is_listed = entries.any(|entry| {
        let mut parts = entry.split(':');
        let entry = parts.next().filter(|entry| !entry.is_empty());
        let of = parts.next().filter(|of| !of.is_empty());
        let is_named =
            entry.is_some_and(|entry| if is_exact { entry == name } else { name.starts_with(entry) });
        is_named && of.zip(port).is_none_or(|(of, port)| of == port)
    });
    is_listed != is_excluding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_nccl_and_gloo_compare_them() {
        let used = |nccl: &str, gloo: &str| {
            let given = |list: &str| (!list.is_empty()).then(|| list.to_owned());
            let interfaces = JobInterfaces { nccl: given(nccl), gloo: given(gloo) };
            assert_eq!(interfaces.are_default(), nccl.is_empty() && gloo.is_empty());
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

    #[test]
    fn the_users_list_of_devices_is_read_as_nccl_reads_it() {
        for (list, used) in [
            ("mlx5_1", [false, true, true]),
            ("=mlx5_1", [false, true, false]),
            ("=mlx5_1:1,mlx5_0:2", [false, true, false]),
            ("^mlx5_1", [true, false, false]),
            ("^=mlx5_1", [true, false, true]),
            ("mlx5_0:1,mlx5_10:1", [true, false, true]),
            ("mlx5_0:1:3:0,=mlx5_1", [true, false, false]),
            ("=mlx5_0::2", [true, false, false]),
            ("=mlx5_0:2:0", [false, false, false]),
            (":1", [false, false, false]),
            ("", [true, true, true]),
            ("^", [false, false, false]),
        ] {
            let has = |device| nccl_list_has(list, device, Some("1"));
            assert_eq!(["mlx5_0", "mlx5_1", "mlx5_10"].map(has), used, "{list}");
        }
    }
}
