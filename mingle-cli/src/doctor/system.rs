//! The doctor's sources on this host: files, and the output of the programs that print firewall rules.

use std::fs;
use std::io::{self, Read};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use super::finding::Finding;
use super::firewall::{Packet, Table, examine};
use super::{iptables, nft, ports};

/// A resolver without an answer asks again for many seconds (resolv.conf(5): timeout, attempts).
const ANSWER: Duration = Duration::from_secs(3);

/// Whether the resolver knows this name.
pub(super) fn lookup(host: &str) -> Result<(), String> {
    let (sender, receiver) = channel();
    let name = host.to_owned();
    // Nobody may be there to hear a late answer.
    thread::spawn(move || {
        sender.send((name.as_str(), 0).to_socket_addrs().map(drop).map_err(|e| e.to_string())).ok()
    });
    receiver.recv_timeout(ANSWER).unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER.as_secs())))
}

/// The files of a host; below another root than `/` in tests.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) root: PathBuf,
}

impl Files {
    pub(super) fn read(&self, path: &str) -> Option<String> {
        // A file may hold any bytes.
        fs::read(self.root.join(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// The names in a folder, in order.
    pub(super) fn names(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.root.join(path)).ok()?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        Some(names)
    }

    /// The hardware address of an interface, where it has one of Ethernet's length.
    pub(super) fn hardware_address(&self, interface: &str) -> Option<[u8; 6]> {
        let text = self.read(&format!("sys/class/net/{interface}/address"))?;
        let bytes: Option<Vec<u8>> =
            text.trim_end().split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        <[u8; 6]>::try_from(bytes?).ok().filter(|address| *address != [0; 6])
    }

    /// The program that listens on a port. Only root sees the sockets of other users' processes.
    pub(super) fn holder(&self, port: u16) -> Option<String> {
        let tables = ["proc/net/tcp", "proc/net/tcp6"].map(|path| self.read(path).unwrap_or_default());
        let inodes: Vec<u64> = tables.iter().flat_map(|table| ports::listeners(table, port)).collect();
        let links: Vec<PathBuf> =
            inodes.iter().map(|inode| PathBuf::from(format!("socket:[{inode}]"))).collect();
        let has = |pid: &str| {
            let entries = fs::read_dir(self.root.join("proc").join(pid).join("fd"));
            entries.is_ok_and(|mut entries| {
                entries.any(|entry| {
                    entry
                        .and_then(|entry| fs::read_link(entry.path()))
                        .is_ok_and(|link| links.contains(&link))
                })
            })
        };
        let pids = self.names("proc")?;
        let pid = pids.iter().find(|name| name.bytes().all(|b| b.is_ascii_digit()) && has(name))?;
        let name = self.read(&format!("proc/{pid}/comm")).unwrap_or_default();
        Some(format!("{} (process {pid})", name.trim_end()))
    }
}

/// The findings on the host's packet filters for these packets. Each program that prints rules may take
/// `limit`.
pub(super) fn firewall(files: &Files, packets: &[Packet], limit: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rules = output("nft", &["-j", "-t", "list", "ruleset"], limit);
    let mut shown = Vec::new();
    for (family, is_ipv6) in [("ip", false), ("ip6", true)] {
        if !packets.iter().any(|packet| packet.to.is_ipv6() == is_ipv6) {
            continue;
        }
        let program = format!("{family}tables");
        // The older packet filter, which nft does not show.
        let names = files.read(&format!("proc/net/{family}_tables_names"));
        let legacy = names.is_some_and(|names| !names.trim().is_empty());
        let save = || output(&format!("{program}-save"), &[], limit);
        let older = match &rules {
            _ if legacy => output(&format!("{program}-legacy-save"), &[], limit).or_else(|_| save()),
            // iptables shows its own rules in nftables best.
            Ok(json) if json.contains("\"xt\"") => save(),
            _ => continue,
        };
        if let Ok(text) = older {
            findings.extend(examine(&program, &iptables::tables(&program, &text), packets));
            shown.push(family);
        }
    }
    let tables =
        rules.and_then(|json| nft::tables(&json, &shown).ok_or_else(|| "its JSON cannot be read".to_owned()));
    findings.extend(nftables(tables, packets));
    findings
}

fn nftables(tables: Result<Vec<Table>, String>, packets: &[Packet]) -> Vec<Finding> {
    match tables {
        Ok(tables) => examine("nftables", &tables, packets),
        Err(error) => {
            let cure =
                format!("run the doctor as root to check the rules, or see 'nft list ruleset' ({error})");
            vec![Finding::unread("firewall", "firewall rules", cure)]
        }
    }
}

/// The output of a program, or why there is none. Users often lack `/usr/sbin` in their PATH.
fn output(program: &str, args: &[&str], limit: Duration) -> Result<String, String> {
    let run = |program: &Path| {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let child = match run(Path::new(program)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => run(&Path::new("/usr/sbin").join(program)),
        other => other,
    };
    let mut child = child.map_err(|error| format!("{program}: {error}"))?;
    let text = collect(child.stdout.take());
    let errors = collect(child.stderr.take());
    // Both pipes close when the program ends. A program that hangs, on a lock or a file server, is killed.
    let Ok(text) = text.recv_timeout(limit) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{program} took more than {limit:?}"));
    };
    let status = child.wait().map_err(|error| format!("{program}: {error}"))?;
    if status.success() {
        return Ok(text);
    }
    let errors = errors.recv_timeout(limit).unwrap_or_default();
    Err(format!("{program}: {}", errors.lines().next().unwrap_or("failed")))
}

/// Reads a pipe to its end, in a thread.
fn collect(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Bytes that were read before an error are sent as well.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_killed_and_one_that_ends_is_read() {
        let limit = Duration::from_millis(50);
        let hung = output("tail", &["-f", "/dev/null"], limit);
        assert_eq!(hung, Err("tail took more than 50ms".to_owned()));
        let plenty = Duration::from_secs(20);
        assert_eq!(output("printf", &["x"], plenty), Ok("x".to_owned()));
        assert!(output("ls", &["/nonesuch"], plenty).is_err_and(|error| error.contains("nonesuch")));
        assert!(output("mingle-nonesuch", &[], plenty).is_err());
    }
}
