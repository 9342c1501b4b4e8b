//! The parts of this host that a job meets after the rendezvous: names, proxies, shared memory, RDMA.

use std::net::IpAddr;

use mingle_core::Place;

use super::finding::{Finding, Status};
use crate::exit::Stop;
use crate::scheduler::Provided;

/// With less shared memory the workers of a data loader end with "bus error"; Docker's default is 64 MiB.
const SHARED: u64 = 1 << 30;

/// Whether this host's own name resolves: Gloo looks it up where no interface is given, as in JAX on CPUs
/// (gloo/transport/tcp/device.cc). And whether `/etc/hosts` has it at a loopback address, as Debian's
/// installer writes it (127.0.1.1; Debian Reference, 5.1.1). `unasked` has the sources of nsswitch.conf that
/// this program may be unable to ask.
pub(super) fn name(
    host: &str,
    hosts: Option<&str>,
    lookup: Result<(), String>,
    unasked: &[String],
) -> Finding {
    const CHECK: &str = "host name";
    let looked = format!("host name {host}, in /etc/hosts and by the resolver");
    let loopback = hosts.unwrap_or_default().lines().find_map(|line| {
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        let ours = |word: &str| word.split('.').next() == host.split('.').next();
        (address.is_loopback() && words.any(ours)).then_some(address)
    });
    if let Some(address) = loopback.filter(|_| host != "localhost") {
        let seen = format!(
            "resolves to {address}: other hosts cannot reach a job that announces itself by this name"
        );
        let cure = "use MASTER_ADDR and GLOO_SOCKET_IFNAME as mingle prints them, or remove that line from /etc/hosts";
        return Finding::new(Status::Warning, CHECK, looked, seen, cure);
    }
    match lookup {
        Ok(()) => Finding::ok(CHECK, looked, "resolves, and /etc/hosts has it at no loopback address"),
        Err(error) if !unasked.is_empty() => {
            let seen = format!(
                "not found ({error}); mingle may not have asked {} of nsswitch.conf",
                unasked.join(", ")
            );
            let cure = format!("nothing, if 'getent hosts {host}' prints an address");
            Finding::new(Status::Note, CHECK, looked, seen, cure)
        }
        Err(error) => {
            let seen = format!(
                "does not resolve ({error}): JAX on CPUs fails (gloo/transport/tcp/device.cc), \
                 and so does torch's Gloo without GLOO_SOCKET_IFNAME"
            );
            let cure = format!(
                "a line with this host's address and {host} in /etc/hosts; \
                 for torch, GLOO_SOCKET_IFNAME as mingle prints it is enough"
            );
            Finding::new(Status::Warning, CHECK, looked, seen, cure)
        }
    }
}

/// The sources of host names in `/etc/nsswitch.conf` beside the file and DNS (nsswitch.conf(5)).
pub(super) fn plugins(nsswitch: Option<&str>) -> Vec<String> {
    let line = nsswitch.unwrap_or_default().lines().find_map(|line| line.trim_start().strip_prefix("hosts:"));
    let words = line.unwrap_or_default().split('#').next().unwrap_or_default().split_ascii_whitespace();
    words
        .filter(|word| !["files", "dns"].contains(word) && !word.contains(['[', ']', '=']))
        .map(str::to_owned)
        .collect()
}

/// Where this host is in the network, if it is known.
pub(super) fn place(found: Result<Option<Provided<Place>>, Stop>) -> Option<Finding> {
    let (check, looked) = ("place", "place in the network, for --rank-by place");
    match found {
        Ok(found) => found.map(|found| Finding::ok(check, looked, found.to_string())),
        Err(error) => Some(Finding::new(
            Status::Warning,
            check,
            looked,
            error.to_string(),
            "correct it, or unset it: mingle ends with code 2",
        )),
    }
}

/// The variables that send programs through a proxy.
pub(super) const PROXIES: [&str; 8] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "grpc_proxy",
    "GRPC_PROXY",
];

/// A proxy may hold a password, so only the names are shown.
pub(super) fn proxies(set: &[&str], exempt: Option<&str>) -> Finding {
    const CHECK: &str = "proxy";
    let looked = "proxy variables";
    if set.is_empty() {
        return Finding::ok(CHECK, looked, "none is set");
    }
    let list = set.join(", ");
    if exempt.is_some_and(|list| list.trim() == "*") {
        return Finding::ok(CHECK, looked, format!("{list}, and no_proxy exempts everything"));
    }
    let cure = "mingle uses no proxy; for libraries that use gRPC or HTTP, put the addresses of the nodes into no_proxy";
    Finding::new(Status::Note, CHECK, looked, format!("{list} set"), cure)
}

/// The size of `/dev/shm`, of `/proc/mounts` and `/proc/meminfo`: without an option it is half of the memory
/// (Documentation/filesystems/tmpfs.rst).
pub(super) fn shared_memory(mounts: Option<&str>, meminfo: Option<&str>) -> Finding {
    const CHECK: &str = "shared memory";
    let looked = "/dev/shm";
    let cure = "docker run --shm-size=16g or --ipc=host; in Kubernetes an emptyDir with medium: Memory there";
    let Some(mounts) = mounts else { return Finding::unread(CHECK, looked, cure) };
    // The last mount covers the others.
    let mount = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some("/dev/shm"));
    let Some(mount) = mount else {
        return Finding::new(Status::Warning, CHECK, looked, "not mounted: NCCL and data loaders fail", cure);
    };
    let option = mount.split(' ').nth(3).unwrap_or_default().split(',').find_map(|o| o.strip_prefix("size="));
    let total = meminfo.and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemTotal:")));
    let half = || Some(total?.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024 / 2);
    match option.map_or_else(half, |size| size.trim_end_matches('k').parse::<u64>().ok().map(|k| k * 1024)) {
        None => Finding::ok(CHECK, looked, "mounted; its size is not known"),
        Some(bytes) if bytes < SHARED => {
            let seen = format!("{}, too little for data loaders and NCCL", size(bytes));
            Finding::new(Status::Warning, CHECK, looked, seen, cure)
        }
        Some(bytes) => Finding::ok(CHECK, looked, size(bytes)),
    }
}

fn size(bytes: u64) -> String {
    if bytes < SHARED { format!("{} MiB", bytes >> 20) } else { format!("{} GiB", bytes >> 30) }
}

/// `/proc/self/limits`, and the entries of `/dev/infiniband`, where it exists. Verbs pin memory.
pub(super) fn rdma(
    limits: Option<&str>,
    devices: Option<&[String]>,
    summary: Result<String, String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let limit = limits.and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
        line.split_ascii_whitespace().next()
    });
    let has_devices = devices.is_some_and(|names| names.iter().any(|name| name.starts_with("uverbs")));
    let looked = "limit of locked memory";
    findings.push(match limit {
        None => Finding::unread("memlock", looked, "ulimit -l shows it"),
        Some("unlimited") => Finding::ok("memlock", looked, "none"),
        Some(bytes) if has_devices => {
            let seen = format!("{bytes} bytes: RDMA pins memory, and fails with 'cannot allocate memory'");
            let cure =
                "ulimit -l unlimited (docker run --ulimit memlock=-1; LimitMEMLOCK=infinity), or --no-rdma";
            Finding::new(Status::Warning, "memlock", looked, seen, cure)
        }
        Some(bytes) => Finding::ok("memlock", looked, format!("{bytes} bytes; enough without RDMA")),
    });
    let looked = "/dev/infiniband";
    findings.push(match devices {
        None => Finding::ok("rdma devices", looked, "does not exist: programs use no RDMA here"),
        Some(names) if has_devices => Finding::ok("rdma devices", looked, names.join(", ")),
        Some(_) => {
            let cure =
                "docker run --device=/dev/infiniband, or an RDMA device plugin in Kubernetes; or --no-rdma";
            Finding::new(Status::Note, "rdma devices", looked, "has no uverbs device", cure)
        }
    });
    findings.push(match summary {
        Ok(text) => Finding::ok("rdma", "RDMA ('mingle rdma' shows all)", text),
        Err(error) => {
            let cure = "'mingle rdma' says more; --no-rdma ignores RDMA";
            Finding::new(Status::Note, "rdma", "RDMA", format!("not readable: {error}"), cure)
        }
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_at_a_loopback_address_is_a_warning() {
        let debian = "127.0.0.1\tlocalhost\n127.0.1.1\tnode7.example.org\tnode7\n";
        let known = |host: &str, hosts| name(host, hosts, Ok(()), &[]);
        let found = known("node7", Some(debian));
        assert_eq!(found.status, Status::Warning);
        assert!(found.seen.contains("127.0.1.1"), "{found:?}");
        assert_eq!(known("node7.example.org", Some(debian)).status, Status::Warning);
        for fine in
            ["127.0.0.1 localhost\n", "10.0.0.7 node7\n", "# 127.0.1.1 node7\n", "127.0.1.1 node77\n", ""]
        {
            assert_eq!(known("node7", Some(fine)).status, Status::Ok, "{fine}");
        }
        assert_eq!(known("node7", None).status, Status::Ok);
    }

    #[test]
    fn a_host_name_that_does_not_resolve_is_a_warning() {
        let unknown = |unasked: &[String]| name("node7", None, Err("no such name".to_owned()), unasked);
        let found = unknown(&[]);
        assert_eq!(found.status, Status::Warning);
        assert!(found.seen.contains("does not resolve (no such name)"), "{found:?}");
        let sources =
            plugins(Some("passwd: files sss\nhosts: files [!UNAVAIL=return] dns myhostname # mdns\n"));
        assert_eq!(sources, ["myhostname"]);
        let found = unknown(&sources);
        assert_eq!(found.status, Status::Note);
        assert!(found.seen.contains("myhostname"), "{found:?}");
        assert_eq!(plugins(None), Vec::<String>::new());
    }

    #[test]
    fn proxies_are_named_without_their_values() {
        assert_eq!(proxies(&[], None).status, Status::Ok);
        assert_eq!(proxies(&["http_proxy"], Some("*")).status, Status::Ok);
        let found = proxies(&["http_proxy", "ALL_PROXY"], Some("localhost"));
        assert_eq!((found.status, &*found.seen), (Status::Note, "http_proxy, ALL_PROXY set"));
    }

    #[test]
    fn the_size_of_shared_memory_is_its_option_or_half_of_the_memory() {
        let docker = "shm /dev/shm tmpfs rw,nosuid,size=65536k,inode64 0 0\n";
        let plain = "tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n";
        let memory = Some("MemTotal:       16777216 kB\nMemFree: 1 kB\n");
        let small = shared_memory(Some(docker), memory);
        assert!(small.status == Status::Warning && small.seen.starts_with("64 MiB"), "{small:?}");
        assert_eq!(shared_memory(Some(plain), memory), Finding::ok("shared memory", "/dev/shm", "8 GiB"));
        let covered = shared_memory(Some(&format!("{docker}{plain}")), memory);
        assert_eq!(covered.status, Status::Ok);
        assert_eq!(shared_memory(Some("proc /proc proc rw 0 0"), memory).status, Status::Warning);
        assert_eq!(shared_memory(None, None).status, Status::Note);
    }

    #[test]
    fn a_limit_of_locked_memory_matters_where_there_is_rdma() {
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         8388608    8388608   bytes\n";
        let devices = ["rdma_cm".to_owned(), "uverbs0".to_owned()];
        let status = |limits: &str, devices: Option<&[String]>| {
            rdma(Some(limits), devices, Ok(String::new())).into_iter().map(|f| f.status).collect::<Vec<_>>()
        };
        assert_eq!(status(limits, Some(&devices))[..2], [Status::Warning, Status::Ok]);
        assert_eq!(status(limits, None)[..2], [Status::Ok, Status::Ok]);
        assert_eq!(status(limits, Some(&devices[..1]))[..2], [Status::Ok, Status::Note]);
        assert_eq!(status(&limits.replace("8388608", "unlimited"), Some(&devices))[0], Status::Ok);
    }
}
