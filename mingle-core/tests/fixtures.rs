//! Machines as folders (`tests/fixtures/rdma.tar.gz`), each with the variables that are right for it:
//! `expected.env` lists those that must be printed, and after `# must not:` those that must not.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

use mingle_core::env::fabric::{self, Extent};
use mingle_core::rdma::{Machine, RdmaKind, Transport};

/// The folder that holds the unpacked machines: one for each state of the archive, which later runs find.
fn machines() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/rdma.tar.gz");
        let state = archive.metadata().expect("the archive is there");
        let age = state.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let name = format!("machines-{}-{}", state.len(), age.unwrap_or_default().as_nanos());
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if !target.exists() {
            let unpacking = target.with_extension(std::process::id().to_string());
            fs::create_dir_all(&unpacking).expect("a folder can be made");
            let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&unpacking).status();
            assert!(unpacked.is_ok_and(|status| status.success()), "tar cannot unpack {}", archive.display());
            // Another process, which runs another of these tests, may have been quicker.
            if fs::rename(&unpacking, &target).is_err() {
                fs::remove_dir_all(&unpacking).expect("a folder can be removed");
            }
        }
        target.join("rdma")
    });
    &FOLDER
}

fn variables(machine: &Machine) -> BTreeMap<&'static str, String> {
    let transport = Transport::alone(&machine.choose());
    fabric::variables(machine, transport, Extent::default()).into_iter().collect()
}

#[test]
fn every_machine_gets_exactly_its_expected_variables() {
    let mut seen = 0;
    for folder in fs::read_dir(machines()).unwrap().map(|entry| entry.unwrap().path()) {
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let machine = Machine::from_snapshot(&folder).unwrap();
        let found = variables(&machine);
        let expected = fs::read_to_string(folder.join("expected.env")).unwrap();
        let (forbidden, wanted): (Vec<&str>, Vec<&str>) =
            expected.lines().filter(|line| !line.is_empty()).partition(|line| line.starts_with('#'));
        let wanted: BTreeMap<&str, String> = wanted
            .into_iter()
            .map(|line| line.split_once('=').unwrap())
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        assert_eq!(found, wanted, "{name}");
        for line in forbidden {
            let what = line.strip_prefix("# must not: ").unwrap().split_whitespace().next().unwrap();
            let (variable, value) = what.split_once('=').unwrap_or((what, ""));
            let hit = found.get(variable).is_some_and(|found| value.is_empty() || found == value);
            assert!(!hit, "{name}: {line}");
        }
        for port in &machine.choose().ports {
            let all_have_reasons = port.gids.iter().all(|gid| {
                gid.excluded.as_ref().map_or(port.is_used(), |reason| !reason.to_string().is_empty())
            });
            assert!(all_have_reasons, "{name}: {port:?}");
            assert!(port.excluded.as_ref().is_none_or(|reason| !reason.to_string().is_empty()), "{name}");
        }
        seen += 1;
    }
    assert!(seen >= 16, "{seen} machines");
}

#[test]
fn ports_and_gids_that_are_not_used_have_the_right_reason() {
    let reasons = |name: &str| {
        let machine = Machine::from_snapshot(&machines().join(name)).unwrap();
        let choice = machine.choose();
        let ports = choice.ports.iter().map(|port| {
            let gids = port.gids.iter().filter_map(|gid| gid.excluded.as_ref().map(ToString::to_string));
            (port.excluded.as_ref().map(ToString::to_string).unwrap_or_default(), gids.collect::<Vec<_>>())
        });
        ports.collect::<Vec<_>>()
    };
    let states: Vec<_> = reasons("port-states").into_iter().map(|(port, _)| port).collect();
    assert_eq!(
        states,
        ["DOWN, not ACTIVE", "INIT, not ACTIVE", "ARMED, not ACTIVE", "ACTIVE_DEFER, not ACTIVE", ""]
    );
    let elsewhere = "its address belongs to another network namespace";
    let (v1, far) = ("RoCE v2 over IPv4 is used", elsewhere);
    let pod = ["link-local", "link-local", far, far, "link-local", "link-local", v1, far, far];
    assert_eq!(reasons("pod-shared-foreign")[0].1, pod);
    assert_eq!(reasons("ib-plus-roce-mgmt")[2].0, "Ethernet is not used beside InfiniBand");
    assert_eq!(reasons("iwarp")[0].0, "iWARP, which NCCL cannot use");
    assert_eq!(reasons("ib4")[0].1, ["InfiniBand needs no GID index"]);
}

#[test]
fn nccl_chooses_the_index_if_the_user_wants_that() {
    let machine = Machine::from_snapshot(&machines().join("one-roce")).unwrap();
    let mut extent = Extent::default();
    extent.gid_index = false;
    let transport = Transport::alone(&machine.choose());
    let names: Vec<_> =
        fabric::variables(&machine, transport, extent).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "NCCL_IB_HCA",
            "UCX_NET_DEVICES",
            "NVSHMEM_HCA_LIST",
            "NCCL_IB_ADDR_FAMILY",
            "NVSHMEM_IB_ADDR_FAMILY",
            "NCCL_IB_ROCE_VERSION_NUM",
            "NVSHMEM_IB_ROCE_VERSION_NUM",
        ]
    );
}

#[test]
fn a_single_host_is_warned_of_what_no_variable_can_fix() {
    let warnings = |name: &str| {
        let machine = Machine::from_snapshot(&machines().join(name)).unwrap();
        let transport = Transport::alone(&machine.choose());
        let mut warnings = fabric::warnings(&machine, transport, Extent::default());
        warnings.extend(fabric::unusable(&machine));
        warnings.join("\n")
    };
    assert!(warnings("rail8-diff").contains("NCCL 2.21"));
    assert!(warnings("iwarp").contains("siw0:1 (iWARP, which NCCL cannot use)"));
    for quiet in ["rail8-same", "ib4", "none", "empty", "efa", "one-roce"] {
        assert_eq!(warnings(quiet), "", "{quiet}");
    }
}

#[test]
fn the_gpu_nearest_to_each_device_is_behind_the_same_switch() {
    let machine = Machine::from_snapshot(&machines().join("rail8-same")).unwrap();
    assert_eq!(machine.choose().kind, RdmaKind::Roce);
    assert_eq!(machine.gpus.len(), 8);
    for device in &machine.devices {
        let near = machine.gpus.iter().filter(|gpu| gpu.distance(device).unwrap().to_string() == "PIX");
        assert_eq!(near.count(), 1, "{}", device.name);
    }
}

#[test]
fn a_folder_that_is_not_a_snapshot_is_an_error() {
    let error = Machine::from_snapshot(Path::new("/nonexistent")).unwrap_err();
    assert!(error.to_string().contains("addrs.txt"), "{error}");
}
