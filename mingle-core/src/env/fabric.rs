//! The variables of the fabric: how NCCL, UCX, NVSHMEM and libfabric are told what the probe has found.
//!
//! | what the world uses, and the host has | variables |
//! | --- | --- |
//! | no RDMA device anywhere | none |
//! | sockets, although some have RDMA | `NCCL_IB_DISABLE=1`; on a host with EFA `NCCL_NET=Socket` as well |
//! | InfiniBand | the HCA trio: the GID trio would be obeyed by UCX and NVSHMEM, and is not needed |
//! | RoCE, one index on all ports | the HCA trio and the GID trio |
//! | RoCE, several indices | the HCA trio, `NCCL_IB_ADDR_FAMILY`, `NCCL_IB_ROCE_VERSION_NUM` and their twins |
//! | RoCE over IPv6, or RoCE v1 | the family or the version as well, beside the GID trio |
//! | EFA | `FI_PROVIDER=efa` |
//!
//! The *HCA trio* is `NCCL_IB_HCA`, `UCX_NET_DEVICES` and `NVSHMEM_HCA_LIST`; the *GID trio*
//! `NCCL_IB_GID_INDEX`, `UCX_IB_GID_INDEX` and `NVSHMEM_IB_GID_INDEX`. The *twins* are those of NVSHMEM,
//! `NVSHMEM_IB_ADDR_FAMILY` and `NVSHMEM_IB_ROCE_VERSION_NUM`.

use super::{MINGLE_SET, Setting};
use crate::rdma::{AddressFamily, Choice, Machine, RdmaKind, RoceVersion, Transport};

/// How much of the fabric is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Whether the index of the GID is told; without it NCCL chooses one of the family and version that are
    /// told instead. Default: yes.
    pub gid_index: bool,
    /// Whether NCCL is told to use more threads and sockets where there is no RDMA. Default: no.
    pub tune_sockets: bool,
}

impl Default for Extent {
    fn default() -> Self {
        Self { gid_index: true, tune_sockets: false }
    }
}

/// The variables for a host in a world that uses `transport`; for a host by itself, see
/// [`Transport::alone`]. In the order in which they are printed.
pub fn variables(machine: &Machine, transport: Transport, extent: Extent) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    match transport {
        Transport::NotExamined => return variables,
        Transport::NoDevice => {}
        Transport::Sockets => {
            variables.push(("NCCL_IB_DISABLE", "1".to_owned()));
            if machine.choose().kind == RdmaKind::Efa {
                // EFA is a plugin's, which does not read the other.
                variables.push(("NCCL_NET", "Socket".to_owned()));
            }
        }
        Transport::InfiniBand => hcas(&machine.choose(), &mut variables),
        Transport::Roce(addressing) => {
            let choice = machine.choose_for(addressing);
            if choice.kind != RdmaKind::Roce {
                // The host has changed since the others were told of it.
                variables.push(("NCCL_IB_DISABLE", "1".to_owned()));
                return variables;
            }
            hcas(&choice, &mut variables);
            let index = choice.gid_index().filter(|_| extent.gid_index);
            if let Some(index) = index {
                for name in ["NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "NVSHMEM_IB_GID_INDEX"] {
                    variables.push((name, index.to_string()));
                }
            }
            // NCCL and NVSHMEM choose IPv4 and v2 by themselves, where they are not told an index.
            if index.is_none() || addressing.family == AddressFamily::Ipv6 {
                let family = match addressing.family {
                    AddressFamily::Ipv4 => "AF_INET",
                    AddressFamily::Ipv6 => "AF_INET6",
                };
                for name in ["NCCL_IB_ADDR_FAMILY", "NVSHMEM_IB_ADDR_FAMILY"] {
                    variables.push((name, family.to_owned()));
                }
            }
            if index.is_none() || addressing.version == RoceVersion::V1 {
                for name in ["NCCL_IB_ROCE_VERSION_NUM", "NVSHMEM_IB_ROCE_VERSION_NUM"] {
                    variables.push((name, addressing.version.number().to_string()));
                }
            }
        }
        Transport::Efa => variables.push(("FI_PROVIDER", "efa".to_owned())),
    }
    if extent.tune_sockets && !transport.is_rdma() {
        // The values of NVIDIA's own guide for clouds; over RDMA they are not read.
        variables.push(("NCCL_SOCKET_NTHREADS", "4".to_owned()));
        variables.push(("NCCL_NSOCKS_PERTHREAD", "8".to_owned()));
    }
    variables
}

/// The HCA trio, and the traffic class where the administrator has set one.
fn hcas(choice: &Choice<'_>, variables: &mut Vec<(&'static str, String)>) {
    let ports = choice.used().map(|port| format!("{}:{}", port.device.name, port.port.number));
    let ports = ports.collect::<Vec<_>>().join(",");
    if ports.is_empty() {
        // A device has gone since the others were told of it.
        return;
    }
    // Without the `=`, mlx5_1 would be mlx5_10 as well: NCCL compares beginnings.
    variables.push(("NCCL_IB_HCA", format!("={ports}")));
    variables.push(("UCX_NET_DEVICES", ports.clone()));
    variables.push(("NVSHMEM_HCA_LIST", ports));
    if let Some(class) = choice.traffic_class() {
        variables.push(("NCCL_IB_TC", class.to_string()));
    }
}

/// What somebody should know of a host that has RDMA devices and none that a job can use.
pub fn unusable(machine: &Machine) -> Option<String> {
    let choice = machine.choose();
    let reasons = choice.ports.iter().filter_map(|port| {
        let reason = port.excluded.as_ref()?;
        // A snapshot's names may hold anything, and this goes to a terminal.
        Some(format!("{}:{} ({reason})", port.device.name.escape_debug(), port.port.number))
    });
    let reasons: Vec<_> = reasons.collect();
    let list = if reasons.is_empty() { "they have no ports".to_owned() } else { reasons.join(", ") };
    (choice.kind == RdmaKind::NoUsablePort)
        .then(|| format!("this host has RDMA devices, but none that NCCL can use: {list}"))
}

/// What no variable can mend about this host's ports in a world that uses `transport`.
pub fn warnings(machine: &Machine, transport: Transport, extent: Extent) -> Vec<String> {
    let Transport::Roce(addressing) = transport else { return Vec::new() };
    let choice = machine.choose_for(addressing);
    let mut warnings = Vec::new();
    if addressing.version == RoceVersion::V1 {
        warnings
            .push("RoCE v1 is used, since not all ports have GIDs of v2; no router passes it on".to_owned());
    }
    if extent.gid_index && choice.gid_index().is_none() && choice.kind == RdmaKind::Roce {
        warnings.push(
            "no GID index is right for all RoCE ports of this host, so NCCL must choose: that takes NCCL 2.21 \
             or later, in a pod 2.26 or later"
                .to_owned(),
        );
    }
    warnings
}

/// Whether NCCL has been told not to use RDMA of this kind on this host, by the user or by one of `settings`.
/// What an earlier `mingle` has set does not count.
pub fn is_switched_off(
    kind: RdmaKind,
    settings: &[Setting],
    environment: impl Fn(&str) -> Option<String>,
) -> bool {
    let listed = environment(MINGLE_SET).unwrap_or_default();
    let value = |name: &str| {
        let setting = settings.iter().find(|setting| setting.name() == name);
        let own = listed.split(',').any(|listed| listed == name);
        setting.map(|setting| setting.value().to_owned()).or_else(|| environment(name).filter(|_| !own))
    };
    // EFA is a plugin's, which does not read it. Transports go by name, whatever the case.
    value("NCCL_IB_DISABLE").is_some_and(|text| is_true(&text) && kind != RdmaKind::Efa)
        || value("NCCL_NET").is_some_and(|net| net.eq_ignore_ascii_case("socket"))
}

/// As NCCL reads a number (`src/misc/param.cc`): by strtoll with base 0, so that 0x1 and "1 yes" are 1, and
/// what begins with no digit is 0.
fn is_true(text: &str) -> bool {
    let text = text.trim_start();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let octal = digits.strip_prefix('0');
    let (digits, base) =
        hexadecimal.map(|digits| (digits, 16)).or(octal.map(|digits| (digits, 8))).unwrap_or((digits, 10));
    digits.chars().take_while(|c| c.is_digit(base)).any(|c| c != '0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_read_as_nccl_reads_it() {
        for text in ["1", "2", "-1", "0x1", "0X10", " 1", "1yes", "01"] {
            assert!(is_true(text), "{text}");
        }
        for text in ["", "0", "00", "0x0", "yes", "x1", "0yes", "-0", "08", "09"] {
            assert!(!is_true(text), "{text}");
        }
    }

    #[test]
    fn what_mingle_has_set_itself_switches_nothing_off() {
        let off = |kind, settings: &[&str], environment: &[(&str, &str)]| {
            let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
            let lookup =
                |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            is_switched_off(kind, &settings, lookup)
        };
        assert!(off(RdmaKind::Roce, &[], &[("NCCL_IB_DISABLE", "1")]));
        assert!(!off(
            RdmaKind::Roce,
            &[],
            &[("NCCL_IB_DISABLE", "1"), (MINGLE_SET, "NCCL_IB_HCA,NCCL_IB_DISABLE")]
        ));
        assert!(!off(RdmaKind::Efa, &[], &[("NCCL_IB_DISABLE", "1")]));
        assert!(off(RdmaKind::Efa, &[], &[("NCCL_NET", "socket")]));
        assert!(off(RdmaKind::InfiniBand, &["NCCL_IB_DISABLE=1"], &[("NCCL_IB_DISABLE", "0")]));
        assert!(!off(RdmaKind::InfiniBand, &["NCCL_IB_DISABLE=0"], &[("NCCL_IB_DISABLE", "1")]));
    }
}
