//! The parts of this host that a job meets after the rendezvous: its name, shared memory, RDMA.

use std::net::IpAddr;
use std::time::Duration;

use mingle_core::rdma::{Machine, Transport};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::finding::{Finding, Severity};

/// With less shared memory the workers of a data loader end with "bus error"; Docker's default is 64 MiB.
const SHARED: u64 = 1 << 30;

/// A resolver without an answer asks again for many seconds (resolv.conf(5): timeout, attempts).
const ANSWER: Duration = Duration::from_secs(3);

pub(super) async fn examine(host: &str, machine: &Machine) -> Vec<Finding> {
    let shared = statvfs("/dev/shm").map(|shm| shm.blocks() * shm.fragment_size());
    let mut findings = vec![name(host, &lookup(host).await), shared_memory(shared.ok())];
    findings.extend(rdma(machine));
    findings
}

/// Whether this host's own name resolves: Gloo looks it up where no interface is given, as in JAX on CPUs
/// (gloo/transport/tcp/device.cc). And whether it resolves to a loopback address, as with Debian's installer,
/// which writes it into /etc/hosts at 127.0.1.1 (Debian Reference, 5.1.1).
fn name(host: &str, lookup: &Result<Vec<IpAddr>, String>) -> Finding {
    const CHECK: &str = "host name";
    let looked = format!("host name {host}");
    match lookup {
        Ok(addresses) if host != "localhost" && addresses.iter().any(IpAddr::is_loopback) => {
            let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let seen = format!(
                "resolves to {}: other hosts cannot reach a job that announces itself by this name",
                list.join(", ")
            );
            let cure = "use MASTER_ADDR and GLOO_SOCKET_IFNAME as mingle prints them, or remove that line from /etc/hosts";
            Finding::new(Severity::Warning, CHECK, looked, seen, cure)
        }
        Ok(_) => Finding::ok(CHECK, looked, "resolves, and not to a loopback address"),
        Err(error) => {
            let seen = format!(
                "does not resolve ({error}): JAX on CPUs fails (gloo/transport/tcp/device.cc), \
                 and so does torch's Gloo without GLOO_SOCKET_IFNAME"
            );
            let cure = format!(
                "nothing, if 'getent hosts {host}' prints an address; else a line with this host's address and {host} in \
                 /etc/hosts; for torch, GLOO_SOCKET_IFNAME as mingle prints it is enough"
            );
            Finding::new(Severity::Warning, CHECK, looked, seen, cure)
        }
    }
}

/// The addresses of this name, as the resolver knows it.
async fn lookup(host: &str) -> Result<Vec<IpAddr>, String> {
    match timeout(ANSWER, lookup_host((host, 0))).await {
        Ok(found) => found.map(|all| all.map(|at| at.ip()).collect()).map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs())),
    }
}

fn shared_memory(bytes: Option<u64>) -> Finding {
    let (check, looked) = ("shared memory", "/dev/shm");
    let seen = match bytes {
        None => "not mounted: NCCL and data loaders fail".to_owned(),
        Some(bytes) if bytes < SHARED => {
            format!("{} MiB, too little for data loaders and NCCL", bytes >> 20)
        }
        Some(bytes) => return Finding::ok(check, looked, format!("{} GiB", bytes >> 30)),
    };
    let cure = "docker run --shm-size=16g or --ipc=host; in Kubernetes an emptyDir with medium: Memory there";
    Finding::new(Severity::Warning, check, looked, seen, cure)
}

/// What RDMA there is, and whether a program can pin the memory that RDMA needs.
fn rdma(machine: &Machine) -> Vec<Finding> {
    let choice = machine.choose();
    let used = choice.used().count();
    let seen = format!("{}, {used} of {} ports", Transport::alone(&choice), choice.ports.len());
    let mut findings = vec![Finding::ok("rdma", "RDMA ('mingle rdma' shows all)", seen)];
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(RLIM_INFINITY, |(bytes, _)| bytes);
    if used > 0 && limit != RLIM_INFINITY {
        let seen = format!("{limit} bytes: RDMA pins memory, and fails with 'cannot allocate memory'");
        let cure =
            "ulimit -l unlimited (docker run --ulimit memlock=-1; LimitMEMLOCK=infinity), or --rdma off";
        findings.push(Finding::new(Severity::Warning, "memlock", "limit of locked memory", seen, cure));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_at_a_loopback_address_or_at_none_is_a_warning() {
        let at = |address: &str| name("node7", &Ok(vec![address.parse().unwrap()]));
        assert_eq!(at("10.0.0.7").status, Severity::Ok);
        let found = at("127.0.1.1");
        assert!(found.status == Severity::Warning && found.seen.contains("127.0.1.1"), "{found:?}");
        assert_eq!(name("localhost", &Ok(vec![[127, 0, 0, 1].into()])).status, Severity::Ok);
        let found = name("node7", &Err("no such name".to_owned()));
        assert!(found.status == Severity::Warning && found.seen.contains("(no such name)"), "{found:?}");
    }

    #[test]
    fn little_shared_memory_is_a_warning() {
        let found = shared_memory(Some(64 << 20));
        assert!(found.status == Severity::Warning && found.seen.starts_with("64 MiB"), "{found:?}");
        assert_eq!(shared_memory(None).status, Severity::Warning);
        assert_eq!(shared_memory(Some(8 << 30)), Finding::ok("shared memory", "/dev/shm", "8 GiB"));
    }
}
