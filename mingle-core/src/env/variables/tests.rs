//! Which variables are set, kept and removed, by what the user and an earlier mingle have set.

use super::super::tests::{formed, variables};
use super::*;
use crate::env::Format;

fn value<'a>(variables: &'a Variables, name: &str) -> Option<&'a str> {
    variables.set().iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
}

/// The names in the list that is printed.
fn listed(variables: &Variables) -> Vec<&str> {
    own::names(value(variables, MINGLE_SET).unwrap()).collect()
}

/// MINGLE_SET after an `eval` that has set these.
fn list(set: &[(&'static str, &str)]) -> String {
    let set: Vec<Variable> = set.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    own::list(&set)
}

#[test]
fn a_variable_of_the_user_is_kept_and_not_listed() {
    let variables = variables("foo", Some("eth0"), &[("NCCL_SOCKET_IFNAME", "ib"), ("RANK", "7")]);
    assert_eq!(value(&variables, "NCCL_SOCKET_IFNAME"), None);
    assert_eq!(value(&variables, "GLOO_SOCKET_IFNAME"), Some("eth0"));
    let others = ["NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "GLOO_SOCKET_IFNAME", "TORCHCOMM_GLOO_INTERFACE"];
    assert_eq!(listed(&variables)[1..4], others);
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
    let unset = variables("foo", None, &shell).unset().to_owned();
    assert!(unset.contains(&"GLOO_SOCKET_IFNAME".to_owned()) && unset.len() == 4, "{unset:?}");
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
    assert_eq!(listed(&variables), ["PET_NPROC_PER_NODE", "NCCL_RAS_ADDR"]);
}

#[test]
fn an_interface_whose_name_nccl_cannot_read_is_left_out() {
    for name in ["eth'0", "a,b", "eth0:", "eth0:$(reboot)", "=x", "$(reboot)", "ünet", ""] {
        let variables = variables("foo", Some(name), &[]);
        assert!(variables.interface_is_unnameable(), "{name}");
        assert_eq!(value(&variables, "NCCL_SOCKET_IFNAME"), None, "{name}");
        assert_eq!(value(&variables, "GLOO_SOCKET_IFNAME"), None, "{name}");
    }
    for name in ["eth0", "enp1s0f0np0", "bond0.100", "veth1@if2", "br-lan"] {
        assert!(!variables("foo", Some(name), &[]).interface_is_unnameable(), "{name}");
    }
}

/// The variables for sockets where the world's address has this name.
fn sockets(name: &str, master: &str, environment: &[(&str, &str)]) -> Vec<String> {
    let (job, formed) = ("foo".parse().unwrap(), formed(master));
    let lookup = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let variables = Variables::new(Facts { interface: Some(name), ..Facts::new(&job, &formed) }, lookup);
    let advice = variables.set().iter().filter(|(name, _)| name.contains("SOCK") || name.contains("GLOO"));
    advice
        .map(|(name, value)| format!("{name}={value}"))
        .filter(|text| !text.starts_with("MINGLE_"))
        .collect()
}

#[test]
fn each_library_is_given_the_interface_in_its_own_words() {
    let (v4, v6) = ("10.0.0.1:29503", "[fd00::1]:29503");
    let of = |nccl: &str, gloo: &str| {
        vec![
            format!("NCCL_SOCKET_IFNAME={nccl}"),
            format!("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME={nccl}"),
            format!("GLOO_SOCKET_IFNAME={gloo}"),
            format!("TORCHCOMM_GLOO_INTERFACE={gloo}"),
            format!("TP_SOCKET_IFNAME={gloo}"),
        ]
    };
    let and = |mut all: Vec<String>, more: &[&str]| {
        all.extend(more.iter().map(|text| (*text).to_owned()));
        all
    };
    assert_eq!(sockets("eth0", v4, &[]), of("=eth0", "eth0"));
    let families = ["NCCL_SOCKET_FAMILY=AF_INET6", "NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY=AF_INET6"];
    assert_eq!(sockets("eth0", v6, &[]), and(of("=eth0", "eth0"), &families));
    // NCCL cannot write a label.
    assert_eq!(sockets("eth0:1", v4, &[]), and(of("eth0", "eth0:1"), &["NCCL_SOCKET_FAMILY=AF_INET"]));
    // The family is for the interface that is named beside it.
    let own = [("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "eth7")];
    assert!(!sockets("eth0", v6, &own).contains(&families[1].to_owned()));
    assert!(!sockets("eth0:1", v4, &[("NCCL_SOCKET_IFNAME", "eth7")]).join(" ").contains("FAMILY"));
}

#[test]
fn two_jobs_of_a_host_have_a_port_of_nccls_ras_each() {
    let port = |job: &str| {
        let text = value(&variables(job, None, &[]), "NCCL_RAS_ADDR").unwrap().to_owned();
        text.strip_prefix("localhost:").unwrap().parse::<u16>().unwrap()
    };
    assert_ne!(port("foo"), port("bar"));
    for job in 0..2000 {
        assert!((28029..29429).contains(&port(&job.to_string())), "{job}");
    }
    assert_eq!(value(&variables("foo", None, &[("NCCL_RAS_ADDR", "mine:1")]), "NCCL_RAS_ADDR"), None);
}

#[test]
fn where_a_launcher_gives_its_variables_to_all_hosts_those_of_this_host_are_left_out() {
    let (job, formed) = ("foo".parse().unwrap(), formed("10.0.0.1:29503"));
    let fabric = [
        "NCCL_IB_HCA",
        "UCX_NET_DEVICES",
        "NVSHMEM_HCA_LIST",
        "NCCL_IB_GID_INDEX",
        "UCX_IB_GID_INDEX",
        "NVSHMEM_IB_GID_INDEX",
        "NCCL_IB_ADDR_RANGE",
        "NVSHMEM_IB_ADDR_RANGE",
        "NCCL_IB_ADDR_FAMILY",
        "NCCL_NET",
    ]
    .map(|name| (name, "7".to_owned()));
    let of = |beside: &[Format], stays_here, environment: &[(&str, &str)]| {
        let lookup = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let facts = Facts {
            interface: Some("eth0"),
            fabric: &fabric,
            beside,
            stays_here,
            ..Facts::new(&job, &formed)
        };
        Format::SH.variables(facts, lookup).unwrap()
    };
    let all = of(&[Format::HOSTS], false, &[]);
    for format in [Format::HOSTFILE, Format::DEEPSPEED, Format::HOROVOD] {
        let variables = of(&[format], false, &[]);
        let left = ["NCCL_IB_ADDR_FAMILY", "NCCL_NET", "NCCL_RAS_ADDR", "PET_NPROC_PER_NODE"];
        let mut names = listed(&variables);
        names.sort_unstable();
        assert_eq!(names, left, "{format}");
        assert_eq!(of(&[format], true, &[]), all, "a file is of this host");
        // Those of an earlier mingle would reach the others, too.
        let own = list(&[("NCCL_IB_GID_INDEX", "3")]);
        let stale = of(&[format], false, &[("NCCL_IB_GID_INDEX", "3"), (MINGLE_SET, &own)]);
        assert_eq!(stale.unset(), ["NCCL_IB_GID_INDEX"], "{format}");
    }
    assert_eq!(listed(&all).len(), 17);
}

#[test]
fn a_host_in_no_world_removes_the_number_of_workers_of_an_earlier_one() {
    let lookup = |name: &str| match name {
        PET_NPROC_PER_NODE => Some("8".to_owned()),
        MINGLE_SET => Some(list(&[(PET_NPROC_PER_NODE, "8"), ("PET_NNODES", "2")])),
        _ => None,
    };
    assert_eq!(Variables::of_fabric(&[], lookup).unset(), [PET_NPROC_PER_NODE]);
}
