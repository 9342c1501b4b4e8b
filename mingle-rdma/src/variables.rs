//! The variables for RDMA: they give NCCL, UCX, NVSHMEM and libfabric the devices that the probe has found.
//!
//! | transport of the world | variables on this host |
//! | --- | --- |
//! | no node has RDMA devices | none |
//! | sockets, although some nodes have RDMA | `NCCL_NET=Socket` |
//! | InfiniBand | the HCA trio; no index, which is not needed, but which UCX and NVSHMEM would follow |
//! | RoCE | the HCA trio, and for each library what makes it choose the right GIDs; where cables join the hosts, what NCCL needs for that |
//! | EFA | `FI_PROVIDER=efa` |
//!
//! The *HCA trio* is `NCCL_IB_HCA`, `UCX_NET_DEVICES` and `NVSHMEM_HCA_LIST`.

use super::choose::Choice;
use super::devices::{LIBRARIES, Users};
use super::frequent::common;
use super::gid::RoceVersion;
use super::machine::{Machine, Rate};
use super::nccl::Pin;
use super::summary::Capability;
use super::verdict::Transport;

/// The variables for a host in a world that uses `transport`, beside the user's own variables, in the order
/// in which they are printed. For a host that is in no world, see [`Transport::alone`].
pub fn beside(machine: &Machine, transport: Transport, users: &Users) -> Vec<(&'static str, String)> {
    let mut advice = Vec::new();
    let choice = machine.choose_in(transport);
    match transport {
        Transport::NotExamined | Transport::NoDevice => {}
        Transport::Efa => advice.push(("FI_PROVIDER", "efa".to_owned())),
        Transport::InfiniBand => hcas(&choice, &mut advice),
        Transport::Roce(addressing) if choice.kind == Capability::Roce => {
            hcas(&choice, &mut advice);
            // No index is right for a port without an address, and NCCL before 2.21 takes 0 on all.
            let is_whole = choice.gids().len() == choice.used().count();
            for (library, pin) in LIBRARIES.iter().zip(users.pins) {
                let pin = if is_whole { pin } else { Pin::Never };
                let rule = library.rule(&choice.gids(), addressing, pin);
                advice.extend(library.gids(rule, addressing));
            }
            cables(machine, &choice, &mut advice);
        }
        // In the last case the host has changed since it reported its devices. NCCL_IB_DISABLE switches off
        // NCCL's own transport alone, while NCCL tries plugins first (`src/plugin/net.cc`): those of HPC-X
        // and for EFA do not read it.
        Transport::Sockets | Transport::Roce(_) => advice.push(("NCCL_NET", "Socket".to_owned())),
    }
    advice.retain(|(name, _)| !users.contradicted.iter().any(|beginning| name.starts_with(beginning)));
    advice
}

/// Appends the HCA trio, and the traffic class if the administrator has set one.
fn hcas(choice: &Choice<'_>, variables: &mut Vec<(&'static str, String)>) {
    let ports = choice.used().map(|port| port.device.name_of(port.port));
    let ports = ports.collect::<Vec<_>>().join(",");
    if ports.is_empty() {
        // A device has been removed since the host reported it.
        return;
    }
    // NCCL compares prefixes: without the `=`, mlx5_1 would match mlx5_10 as well.
    variables.push(("NCCL_IB_HCA", format!("={ports}")));
    variables.push(("UCX_NET_DEVICES", ports.clone()));
    variables.push(("NVSHMEM_HCA_LIST", ports));
    if let Some(class) = choice.traffic_class() {
        variables.push(("NCCL_IB_TC", class.to_string()));
    }
}

/// Appends what NCCL needs where cables join each two hosts, as NVIDIA's playbook for three DGX Spark has it
/// (connect-three-sparks, `spark_cluster_setup.py:250-259`). Else each end of a connection takes a port by
/// itself, which may lead to another host (`ncclIbFindDevBySubnet`, `net_ib/connect.cc:524`, since 2.30.7); a
/// device that is merged of two ports leads to two (`net_ib/init.cc:198`); and plugins know nothing of it.
fn cables(machine: &Machine, choice: &Choice<'_>, variables: &mut Vec<(&'static str, String)>) {
    let Some(without_plugin) = machine.cables else { return };
    variables.push(("NCCL_IB_SUBNET_AWARE_ROUTING", "1".to_owned()));
    variables.push(("NCCL_IB_MERGE_NICS", "0".to_owned()));
    if without_plugin {
        variables.push(("NCCL_NET_PLUGIN", "none".to_owned()));
    }
    let gids = choice.gids().into_iter();
    let lengths = gids.filter_map(|(_, gid)| machine.held(gid)).map(|held| Some(held.net.prefix_len()));
    // NCCL compares this many bits of IPv4 addresses on each side by itself, 24 by default.
    let length = common(lengths).filter(|length| *length != 24);
    variables.extend(length.map(|length| ("NCCL_IB_SUBNET_PREFIX_LEN", length.to_string())));
}

/// A warning for a host that has RDMA devices if a job can use none of them; otherwise none.
pub fn unusable(machine: &Machine) -> Option<String> {
    let choice = machine.choose();
    let list = if choice.ports.is_empty() { "they have no ports".to_owned() } else { choice.names(false) };
    (choice.kind == Capability::NoUsablePort)
        .then(|| format!("this host has RDMA devices, but none that NCCL can use: {list}"))
}

/// Warnings about this host's ports that no variable can fix, in a world that uses `transport`.
pub fn warnings(machine: &Machine, transport: Transport, users: &Users) -> Vec<String> {
    if !transport.is_rdma() {
        return Vec::new();
    }
    let choice = machine.choose_in(transport);
    let best = choice.used().filter_map(|port| port.port.rate).max().unwrap_or(0);
    let slow = choice.used().filter_map(|port| Some((port, port.port.rate.filter(|rate| *rate < best)?)));
    let mut warnings: Vec<_> = slow
        .map(|(port, rate)| {
            let (name, rate, best) = (port.device.name_of(port.port), Rate(rate), Rate(best));
            format!("{name} runs at {rate}, others at {best}, and the job waits for it: check its cable and switch")
        })
        .collect();
    let Transport::Roce(addressing) = transport else { return warnings };
    if choice.gids().iter().any(|(_, gid)| gid.is_link_local()) {
        warnings.push(
            "no RoCE port has an IP address; link-local GIDs are used, which no router passes on".to_owned(),
        );
    } else if addressing.version == RoceVersion::V1 {
        warnings
            .push("RoCE v1 is used, since not all ports have GIDs of v2; no router passes it on".to_owned());
    }
    if users.pins[0] != Pin::Never && choice.kind == Capability::Roce {
        warnings.extend(choice.gid_warning);
    }
    warnings
}

/// Whether the user's own variables, which `users` looks up, switch off this kind of RDMA in NCCL.
pub fn is_switched_off(kind: Capability, users: impl Fn(&str) -> Option<String>) -> bool {
    // The plugin for EFA does not read NCCL_IB_DISABLE. NCCL ignores case in the name of a network.
    users("NCCL_IB_DISABLE").is_some_and(|text| is_true(&text) && kind != Capability::Efa)
        || users("NCCL_NET").is_some_and(|net| net.eq_ignore_ascii_case("socket"))
}

/// Whether NCCL reads this text as a number other than 0. NCCL uses strtoll with base 0
/// (`src/misc/param.cc`): 0x1 and "1 yes" are 1, and a text that does not begin with a digit is 0.
fn is_true(text: &str) -> bool {
    let text = text.trim_start().to_ascii_lowercase();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let (digits, base) = match (digits.strip_prefix("0x"), digits.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 8),
        _ => (digits, 10),
    };
    digits.chars().take_while(|c| c.is_digit(base)).any(|c| c != '0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_read_as_nccl_reads_numbers() {
        for text in ["1", "2", "-1", "0x1", "0X10", " 1", "1yes", "01"] {
            assert!(is_true(text), "{text}");
        }
        for text in ["", "0", "00", "0x0", "yes", "x1", "0yes", "-0", "08", "09"] {
            assert!(!is_true(text), "{text}");
        }
    }

    #[test]
    fn the_user_switches_rdma_off_by_either_variable() {
        let off = |kind, name: &str, value: &str| {
            is_switched_off(kind, |asked| (asked == name).then(|| value.to_owned()))
        };
        assert!(off(Capability::Roce, "NCCL_IB_DISABLE", "1"));
        assert!(!off(Capability::Roce, "NCCL_IB_DISABLE", "0"));
        assert!(!off(Capability::Efa, "NCCL_IB_DISABLE", "1"));
        assert!(off(Capability::Efa, "NCCL_NET", "socket"));
        assert!(!off(Capability::InfiniBand, "NCCL_DEBUG", "1"), "another variable");
    }
}
