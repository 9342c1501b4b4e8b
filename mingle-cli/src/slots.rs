//! How many workers this node runs: by default one for each GPU.

use crate::host::Host;

/// Folders in which the drivers list GPUs.
pub(crate) const NVIDIA: &str = "/proc/driver/nvidia/gpus";
pub(crate) const AMD: &str = "/sys/class/kfd/kfd/topology/nodes";

/// The number of GPUs of this host that a job may use, or 1 where there are none.
pub(crate) fn of_host(host: &Host, environment: impl Fn(&str) -> Option<String>) -> u32 {
    let count = match count(host.list(NVIDIA).iter()) {
        0 => visible_amd(amd_gpus(host), environment),
        count => {
            let in_container =
                environment("NVIDIA_VISIBLE_DEVICES").map_or(count, |list| match list.trim() {
                    // Set by the container device interface (CDI) where it has added the GPUs itself.
                    // NVIDIA's plugin for Kubernetes may give the path of a folder, which stands for the
                    // same.
                    list if list == "void" || list.starts_with('/') => count.min(nvidia_devices(host)),
                    list => passed(count, list),
                });
            environment("CUDA_VISIBLE_DEVICES").map_or(in_container, |list| visible(in_container, &list))
        }
    };
    count.max(1)
}

/// How many of AMD's GPUs a program can use. The HIP runtime reads CUDA_VISIBLE_DEVICES where
/// HIP_VISIBLE_DEVICES is empty, and an empty list hides nothing from it (ROCm/clr, rocclr/device/rocm/
/// rocdevice.cpp, Device::init). AMD's documents say the same, and that GPU_DEVICE_ORDINAL counts for HIP as
/// well as for OpenCL (rocm.docs.amd.com, GPU isolation techniques), although that source reads it for OpenCL
/// alone: a worker too few does less harm than one without a GPU.
fn visible_amd(count: u32, environment: impl Fn(&str) -> Option<String>) -> u32 {
    let list = |name: &str| environment(name).filter(|list| !list.trim().is_empty());
    // Of an empty one the ROCm runtime makes no GPU at all (ROCR-Runtime, amd_filter_device.h).
    let of_runtime = environment("ROCR_VISIBLE_DEVICES").map_or(count, |list| visible(count, &list));
    let of_hip = list("HIP_VISIBLE_DEVICES").or_else(|| list("CUDA_VISIBLE_DEVICES"));
    let lists = of_hip.into_iter().chain(list("GPU_DEVICE_ORDINAL"));
    // Each counts from the same GPUs: schedulers set both to the same list.
    lists.map(|list| visible(of_runtime, &list)).min().unwrap_or(of_runtime)
}

/// The number of devices such as `nvidia0` and `nvidia1`, without `nvidiactl`.
fn nvidia_devices(host: &Host) -> u32 {
    let number = |name: String| name.strip_prefix("nvidia")?.parse::<u32>().ok();
    count(host.list("/dev").into_iter().filter_map(number))
}

/// The number of nodes that are GPUs: every processor is a node there, and the `gpu_id` of a CPU is 0.
fn amd_gpus(host: &Host) -> u32 {
    let nodes = host.list(AMD).into_iter();
    let ids = nodes.filter_map(|node| host.text(&format!("{AMD}/{node}/gpu_id")));
    count(ids.filter(|id| id.parse::<u64>().is_ok_and(|id| id != 0)))
}

fn count(items: impl Iterator) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}

/// How many of `count` GPUs NVIDIA's container runtime leaves. In the container they may have other numbers
/// than on the host, which the list names, so the numbers are not looked up.
fn passed(count: u32, list: &str) -> u32 {
    match list {
        "all" => count,
        "" | "none" => 0,
        list => count.min(self::count(list.split(','))),
    }
}

/// How many of `count` GPUs, whose numbers begin at 0, CUDA or HIP shows by such a list. Both end it at the
/// first number that no GPU has (CUDA C++ Programming Guide, CUDA Environment Variables), and PyTorch counts
/// none where a GPU is given twice (torch/cuda/__init__.py, _parse_visible_devices).
fn visible(count: u32, list: &str) -> u32 {
    let is_gpu = |part: &&str| match part.parse::<u32>() {
        Ok(number) => number < count,
        // An ID such as GPU-8932f937.
        Err(_) => part.starts_with(|c: char| c.is_ascii_alphabetic()) && *part != "NoDevFiles",
    };
    let named: Vec<&str> = list.split(',').map(str::trim).take_while(is_gpu).collect();
    let is_repeated = (1..named.len()).any(|at| named[..at].contains(&named[at]));
    if is_repeated { 0 } else { count.min(self::count(named.iter())) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A machine with these GPUs, removed on drop.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str, nvidia: u32, amd: &[&str]) -> Self {
            let root = std::env::temp_dir().join(format!("mingle-slots-{name}-{}", std::process::id()));
            for gpu in 0..nvidia {
                fs::create_dir_all(root.join(format!("nvidia_gpus/0000:0{gpu}:00.0"))).unwrap();
            }
            for (node, id) in amd.iter().enumerate() {
                let folder = root.join(format!("class/kfd/kfd/topology/nodes/{node}"));
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("gpu_id"), id).unwrap();
            }
            Self(root)
        }

        fn slots(&self, environment: &[(&str, &str)]) -> u32 {
            of_host(&Host(Some(self.0.clone())), |name| {
                environment.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            })
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn there_is_one_worker_for_each_gpu_that_may_be_used() {
        let nvidia = Machine::new("nvidia", 8, &[]);
        assert_eq!(nvidia.slots(&[]), 8);
        for (name, value, expected) in [
            ("NVIDIA_VISIBLE_DEVICES", "all", 8),
            ("NVIDIA_VISIBLE_DEVICES", "0,1", 2),
            ("NVIDIA_VISIBLE_DEVICES", "void", 1),
            ("CUDA_VISIBLE_DEVICES", "4,5,6", 3),
            ("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", 1),
            ("CUDA_VISIBLE_DEVICES", "0,1,-1,2", 2),
            ("CUDA_VISIBLE_DEVICES", "0,9,1", 1),
            ("CUDA_VISIBLE_DEVICES", "7,8", 1),
            ("CUDA_VISIBLE_DEVICES", "9,0,1", 1),
            ("CUDA_VISIBLE_DEVICES", "0,1,2,1", 1),
            ("CUDA_VISIBLE_DEVICES", "GPU-8932f937, GPU-0c12f20b", 2),
            ("CUDA_VISIBLE_DEVICES", "NoDevFiles", 1),
            ("NVIDIA_VISIBLE_DEVICES", "14,15", 2),
            ("CUDA_VISIBLE_DEVICES", "", 1),
            ("HIP_VISIBLE_DEVICES", "0", 8),
        ] {
            assert_eq!(nvidia.slots(&[(name, value)]), expected, "{name}={value}");
        }
        for device in ["nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"] {
            let devices = nvidia.0.join("dev");
            fs::create_dir_all(&devices).unwrap();
            fs::write(devices.join(device), "").unwrap();
        }
        assert_eq!(nvidia.slots(&[("NVIDIA_VISIBLE_DEVICES", "void")]), 3, "the GPUs that CDI has added");
        let folder = "/var/run/nvidia-container-devices";
        assert_eq!(nvidia.slots(&[("NVIDIA_VISIBLE_DEVICES", folder)]), 3, "the same");
        let both = [("NVIDIA_VISIBLE_DEVICES", "0,1,2,3"), ("CUDA_VISIBLE_DEVICES", "0,1")];
        assert_eq!(nvidia.slots(&both), 2);
    }

    #[test]
    fn only_gpus_count_among_the_nodes_of_amds_driver() {
        let amd = Machine::new("amd", 0, &["0\n", "0\n", "51234\n", "12\n", "7\n"]);
        assert_eq!(amd.slots(&[]), 3);
        for (name, value, expected) in [
            ("ROCR_VISIBLE_DEVICES", "1", 1),
            ("ROCR_VISIBLE_DEVICES", "", 1),
            ("HIP_VISIBLE_DEVICES", "0,1", 2),
            ("HIP_VISIBLE_DEVICES", "", 3),
            ("CUDA_VISIBLE_DEVICES", "0,2", 2),
            ("HIP_VISIBLE_DEVICES", "0,3,1", 1),
            ("ROCR_VISIBLE_DEVICES", "0,1,0", 1),
            ("GPU_DEVICE_ORDINAL", "0,2", 2),
            ("NVIDIA_VISIBLE_DEVICES", "0", 3),
        ] {
            assert_eq!(amd.slots(&[(name, value)]), expected, "{name}={value}");
        }
        let same = [("HIP_VISIBLE_DEVICES", "1,2"), ("GPU_DEVICE_ORDINAL", "1,2")];
        assert_eq!(amd.slots(&same), 2, "of the same GPUs");
        let both = [("HIP_VISIBLE_DEVICES", "0,1"), ("CUDA_VISIBLE_DEVICES", "0")];
        assert_eq!(amd.slots(&both), 2, "HIP reads the first");
        assert_eq!(Machine::new("none", 0, &[]).slots(&[]), 1);
    }
}
