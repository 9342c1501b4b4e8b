//! The user's own values of variables that mingle sets, too.

use super::{MINGLE_SET, is_own};
use crate::model::JobInterfaces;

/// The interfaces that the user gives to NCCL and Gloo in the environment. Values that an earlier `mingle`
/// has set, according to [`MINGLE_SET`], do not count.
pub fn job_interfaces(environment: impl Fn(&str) -> Option<String>) -> JobInterfaces {
    let value = |name: &str| users_value(name, &environment);
    JobInterfaces { nccl: value("NCCL_SOCKET_IFNAME"), gloo: value("GLOO_SOCKET_IFNAME") }
}

/// The user's own value of a variable of the environment. An empty value does not count, nor a value that an
/// earlier `mingle` has set, according to [`MINGLE_SET`].
pub fn users_value(name: &str, environment: impl Fn(&str) -> Option<String>) -> Option<String> {
    let listed = environment(MINGLE_SET).unwrap_or_default();
    environment(name).filter(|value| !value.is_empty() && !is_own(&listed, name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_that_mingle_has_set_are_not_the_users() {
        let given = |environment: &[(&str, &str)]| {
            let lookup =
                |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            let JobInterfaces { nccl, gloo } = job_interfaces(lookup);
            (nccl.unwrap_or_default(), gloo.unwrap_or_default())
        };
        let own = [("NCCL_SOCKET_IFNAME", "ib0"), ("GLOO_SOCKET_IFNAME", "eth0")];
        assert_eq!(given(&own), ("ib0".to_owned(), "eth0".to_owned()));
        // The digest is that of eth0.
        let set = [own[0], own[1], (MINGLE_SET, "GLOO_SOCKET_IFNAME:c3e607cf")];
        assert_eq!(given(&set), ("ib0".to_owned(), String::new()));
    }
}
