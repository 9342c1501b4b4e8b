//! Which variables are set, kept and removed, by what the user and an earlier mingle have set.

use super::super::tests::{formed, variables};
use super::*;

fn value<'a>(variables: &'a Variables, name: &str) -> Option<&'a str> {
    variables.set().iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
}

/// The names in the list that is printed.
fn listed(variables: &Variables) -> Vec<&str> {
    own::names(value(variables, MINGLE_SET).unwrap()).collect()
}

/// MINGLE_SET after an `eval` that has set these.
fn list(set: &[(&'static str, &str)]) -> String {
    let set: Vec<Variable> = set.iter().map(|(name, value)| ((*name).into(), (*value).to_owned())).collect();
    own::list(&set)
}

#[test]
fn a_variable_of_the_user_is_kept_and_not_listed() {
    let variables = variables("foo", Some("eth0"), &[("NCCL_SOCKET_IFNAME", "ib"), ("RANK", "7")]);
    assert_eq!(value(&variables, "NCCL_SOCKET_IFNAME"), None);
    assert_eq!(value(&variables, "GLOO_SOCKET_IFNAME"), Some("eth0"));
    assert_eq!(listed(&variables), ["PET_NPROC_PER_NODE", "GLOO_SOCKET_IFNAME"]);
    assert_eq!(value(&variables, "RANK"), Some("2"), "the result replaces the environment's value");
    let kept: Vec<_> = variables.kept().iter().map(|kept| (kept.name, &*kept.value, &*kept.advice)).collect();
    assert_eq!(kept, [("NCCL_SOCKET_IFNAME", "ib", "=eth0")]);
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let variables = variables("foo", Some("eth0"), &[("NCCL_SOCKET_IFNAME", ""), ("MINGLE_SET", "")]);
    assert_eq!(value(&variables, "NCCL_SOCKET_IFNAME"), Some("=eth0"));
    assert!(variables.kept().is_empty());
}

#[test]
fn what_the_user_exports_between_two_evals_is_kept() {
    let first = variables("foo", Some("eth0"), &[]);
    let set = first.set().iter().map(|(name, value)| (&**name, value.as_str()));
    let mut shell: Vec<(&str, &str)> = set.filter(|(name, _)| *name != "NCCL_SOCKET_IFNAME").collect();
    shell.push(("NCCL_SOCKET_IFNAME", "ib0"));
    let second = variables("foo", Some("eth1"), &shell);
    assert_eq!(value(&second, "NCCL_SOCKET_IFNAME"), None);
    assert_eq!(value(&second, "GLOO_SOCKET_IFNAME"), Some("eth1"), "this one is mingle's still");
    let kept: Vec<_> = second.kept().iter().map(|kept| (kept.name, &*kept.value)).collect();
    assert_eq!(kept, [("NCCL_SOCKET_IFNAME", "ib0")]);
    // Nor is it removed where mingle has no value of its own.
    assert_eq!(variables("foo", None, &shell).unset(), ["GLOO_SOCKET_IFNAME"]);
}

#[test]
fn the_number_of_workers_yields_to_the_environment_unless_it_was_given() {
    let (job, formed) = ("foo".parse().unwrap(), formed("10.0.0.1:29503"));
    let set = |slots_given, environment: &[(&str, &str)]| {
        let lookup = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let variables = Variables::new(Facts { slots_given, ..Facts::new(&job, &formed) }, lookup);
        let is_listed = listed(&variables).contains(&PET_NPROC_PER_NODE);
        (value(&variables, PET_NPROC_PER_NODE).map(str::to_owned), is_listed)
    };
    let ours = (Some("8".to_owned()), true);
    assert_eq!(set(false, &[]), ours);
    assert_eq!(set(false, &[(PET_NPROC_PER_NODE, "gpu")]), (None, false));
    let own = list(&[(PET_NPROC_PER_NODE, "4")]);
    assert_eq!(set(false, &[(PET_NPROC_PER_NODE, "4"), (MINGLE_SET, &own)]), ours);
    assert_eq!(set(false, &[(PET_NPROC_PER_NODE, "5"), (MINGLE_SET, &own)]), (None, false));
    assert_eq!(set(true, &[(PET_NPROC_PER_NODE, "gpu")]), ours);
}

#[test]
fn stale_advice_is_removed_and_other_listed_names_are_not() {
    let own = list(&[("NCCL_SOCKET_IFNAME", "=eth0"), ("PATH", "/bin"), ("NCCL_;reboot", "1")]);
    let shell = [
        ("NCCL_SOCKET_IFNAME", "=eth0"),
        ("GLOO_SOCKET_IFNAME", "mine"),
        ("MINGLE_SET", &format!("{own},$(reboot),GLOO_SOCKET_IFNAME,GLOO_SOCKET_IFNAME:")),
        ("PATH", "/bin"),
        ("NCCL_;reboot", "1"),
    ];
    let variables = variables("foo", None, &shell);
    assert_eq!(variables.unset(), ["NCCL_SOCKET_IFNAME"], "only names that mingle may set");
    assert_eq!(listed(&variables), ["PET_NPROC_PER_NODE"]);
}

#[test]
fn an_interface_whose_name_nccl_cannot_read_is_left_out() {
    for name in ["eth'0", "a,b", "eth0:1", "=x", "$(reboot)", "ünet", ""] {
        let variables = variables("foo", Some(name), &[]);
        assert!(variables.interface_is_unnameable(), "{name}");
        assert_eq!(value(&variables, "NCCL_SOCKET_IFNAME"), None, "{name}");
        assert_eq!(value(&variables, "GLOO_SOCKET_IFNAME"), None, "{name}");
    }
    for name in ["eth0", "enp1s0f0np0", "bond0.100", "veth1@if2", "br-lan"] {
        assert!(!variables("foo", Some(name), &[]).interface_is_unnameable(), "{name}");
    }
}

#[test]
fn a_host_in_no_world_removes_the_number_of_workers_of_an_earlier_one() {
    let lookup = |name: &str| match name {
        PET_NPROC_PER_NODE => Some("8".to_owned()),
        MINGLE_SET => Some(list(&[(PET_NPROC_PER_NODE, "8"), ("PET_NNODES", "2")])),
        _ => None,
    };
    assert_eq!(Variables::of_fabric(&[], &[], lookup).unset(), [PET_NPROC_PER_NODE]);
}
