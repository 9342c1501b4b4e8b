//! What this node compares with the others, because a job may hang or slow down where it differs.

use std::collections::{BTreeMap, BTreeSet};

use mingle_core::env::alike;
use mingle_core::rdma::{Capability, Machine, PortChoice, Rate};
use mingle_core::{RankKey, Restarts, Trait, Traits};
use nix::unistd::{AccessFlags, access};

use crate::config::Settings;
use crate::host::Host;
use crate::nccl_conf::CONF;
use crate::slots::{AMD, NVIDIA};

/// What this node compares.
pub(crate) fn traits(config: &Settings, machine: Option<&Machine>) -> Traits {
    let (host, rendezvous) = (Host(config.fabric.root.clone()), &config.rendezvous);
    let mut traits = alike::traits(environment());
    traits.push(Trait::shown("mingle's version", env!("CARGO_PKG_VERSION")));
    let given = |is_given| if is_given { "given" } else { "not given" };
    let restarts = match rendezvous.restarts {
        Restarts { most: Some(most), forget, .. } if rendezvous.stays => {
            format!("{most}/{}s", forget.as_secs())
        }
        _ => given(rendezvous.stays).to_owned(),
    };
    traits.push(Trait::shown("--max-restarts or RunningWorld", restarts));
    traits.push(Trait::shown("--rank-key", given(rendezvous.attributes.rank_key != RankKey::default())));
    traits.extend(of_host(&host));
    traits.extend(machine.into_iter().flat_map(of_rdma));
    traits.extend(config.same.iter().map(|(key, value)| Trait::shown(format!("--same {key}"), value)));
    traits.into_iter().collect()
}

/// The environment, and then NCCL's configuration files.
fn environment() -> impl Iterator<Item = (String, String)> {
    let own = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    own.chain(CONF.clone())
}

/// The ports that NCCL would use, such as `8 x 400 Gb/s RoCE`; how near the GPUs are to them, such as
/// `1 PIX 7 SYS`, where ports that are alike count once; and the module by which they reach the GPUs' memory.
/// EFA has its own module.
fn of_rdma(machine: &Machine) -> Vec<Trait> {
    let choice = machine.choose();
    let port = |port: &PortChoice<'_>| format!("{} {}", Rate(port.port.rate.unwrap_or(0)), choice.kind);
    let ports = counted(choice.used().map(port), " x ");
    let near = |port: &PortChoice<'_>| {
        let near = machine.gpus.iter().filter_map(|gpu| gpu.distance(port.device));
        counted(near.map(|distance| distance.to_string()), " ")
    };
    let near: BTreeSet<String> = choice.used().map(near).filter(|part| !part.is_empty()).collect();
    let near = near.into_iter().collect::<Vec<_>>().join(", ");
    let has_module = matches!(choice.kind, Capability::InfiniBand | Capability::Roce);
    let module = machine.peer_memory.clone().filter(|_| has_module).unwrap_or_default();
    let all = [("RDMA ports", ports), ("NIC-GPU distances", near), ("GPUDirect module", module)];
    let known = all.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(key, value)| Trait::shown(key, value)).collect()
}

/// What the files of a host say.
fn of_host(host: &Host) -> Vec<Trait> {
    let driver = |name: &str| {
        let version = host.text(&format!("/sys/module/{name}/version"));
        version.map(|version| Trait::shown(format!("{name} driver"), version))
    };
    let cpu = cpu_vendor(host).map(|vendor| Trait::shown("CPU vendor", vendor));
    let gpus: Vec<String> = nvidia(host).into_iter().chain(amd(host)).collect();
    let gpus = (!gpus.is_empty()).then(|| Trait::shown("GPUs", counted(gpus, " x ")));
    [cpu, driver("nvidia"), driver("amdgpu"), gpus].into_iter().flatten().collect()
}

/// Whose CPUs the host has: of x86 as its module alias says, whose numbers are in Linux's
/// arch/x86/include/asm/processor.h, and of ARM the number of the implementer. On x86, to open /proc/cpuinfo
/// interrupts all CPUs before Linux 5.19, and may take 10 ms (`arch_freq_prepare_all`).
fn cpu_vendor(host: &Host) -> Option<String> {
    let alias = host.text("/sys/devices/system/cpu/modalias").unwrap_or_default();
    let Some((_, number)) = alias.split_once(",ven") else {
        return field(&host.text("/proc/cpuinfo")?, "CPU implementer").map(str::to_owned);
    };
    Some(match number.get(..4)? {
        "0000" => "Intel".to_owned(),
        "0002" => "AMD".to_owned(),
        other => other.to_owned(),
    })
}

/// The models of NVIDIA's GPUs that this process may use: a container sees all of the host's here.
fn nvidia(host: &Host) -> Vec<String> {
    let id = |address: String| {
        let about = host.text(&format!("{NVIDIA}/{address}/information"))?;
        let minor = field(&about, "Device Minor")?;
        may_open(host, &format!("/dev/nvidia{minor}")).then_some(())?;
        Some(field(&about, "Model")?.to_owned())
    };
    host.list(NVIDIA).into_iter().filter_map(id).collect()
}

/// The PCI IDs of AMD's, which have no names in files.
fn amd(host: &Host) -> Vec<String> {
    let id = |node: String| {
        let about = host.text(&format!("{AMD}/{node}/properties"))?;
        let number = |key: &str| field(&about, key)?.parse::<u32>().ok().filter(|number| *number > 0);
        may_open(host, &format!("/dev/dri/renderD{}", number("drm_render_minor")?)).then_some(())?;
        Some(format!("{:04x}:{:04x}", number("vendor_id")?, number("device_id")?))
    };
    host.list(AMD).into_iter().filter_map(id).collect()
}

/// Whether this process may open a device. Opening it would start a GPU that sleeps, which takes seconds.
fn may_open(host: &Host, device: &str) -> bool {
    access(&host.path(device), AccessFlags::R_OK | AccessFlags::W_OK).is_ok()
}

/// The value behind a key in the lines of a text, with a colon or blanks between them.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(key).filter(|rest| rest.starts_with([':', ' ', '\t']));
    text.lines().find_map(value).map(|value| value.trim_start_matches([':', ' ', '\t']).trim_end())
}

/// How often each is there: `8 x NVIDIA H100 80GB HBM3`.
fn counted(all: impl IntoIterator<Item = String>, between: &str) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(one, count)| format!("{count}{between}{one}")).collect();
    parts.join(if between == " " { " " } else { ", " })
}
