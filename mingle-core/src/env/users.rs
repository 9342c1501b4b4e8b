//! The user's own values of variables that mingle sets, too.

use super::{MINGLE_SET, Setting, is_own};
use crate::model::JobInterfaces;

/// The interfaces that the user gives to NCCL and Gloo, in the environment or in `settings`. Values that an
/// earlier `mingle` has set, according to [`MINGLE_SET`], do not count.
pub fn job_interfaces(settings: &[Setting], environment: impl Fn(&str) -> Option<String>) -> JobInterfaces {
    let value = |name: &str| users_value(name, settings, &environment).filter(|value| !value.is_empty());
    JobInterfaces { nccl: value("NCCL_SOCKET_IFNAME"), gloo: value("GLOO_SOCKET_IFNAME") }
}

/// The user's own value of a variable, from `settings` or the environment. A value that an earlier `mingle`
/// has set, according to [`MINGLE_SET`], does not count.
pub fn users_value(
    name: &str,
    settings: &[Setting],
    environment: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let setting = settings.iter().find(|setting| setting.name() == name);
    let listed = environment(MINGLE_SET).unwrap_or_default();
    let users = || environment(name).filter(|value| !is_own(&listed, name, value));
    setting.map(|setting| setting.value().to_owned()).or_else(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_that_mingle_has_set_are_not_the_users() {
        let given = |settings: &[&str], environment: &[(&str, &str)]| {
            let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
            let lookup =
                |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            let JobInterfaces { nccl, gloo } = job_interfaces(&settings, lookup);
            (nccl.unwrap_or_default(), gloo.unwrap_or_default())
        };
        let own = [("NCCL_SOCKET_IFNAME", "ib0"), ("GLOO_SOCKET_IFNAME", "eth0")];
        assert_eq!(given(&[], &own), ("ib0".to_owned(), "eth0".to_owned()));
        // The digest is that of eth0.
        let set = [own[0], own[1], (MINGLE_SET, "GLOO_SOCKET_IFNAME:c3e607cf")];
        assert_eq!(given(&[], &set), ("ib0".to_owned(), String::new()));
        assert_eq!(given(&["NCCL_SOCKET_IFNAME==eth2"], &set), ("=eth2".to_owned(), String::new()));
    }
}
