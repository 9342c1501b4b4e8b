//! What the doctor reads of this host: files, and the output of two programs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::finding::Finding;
use super::firewall::{Packet, Table, examine};
use super::{iptables, nft, ports};

/// The files of a host; below another root than `/` in tests.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) root: PathBuf,
}

impl Files {
    pub(super) fn read(&self, path: &str) -> Option<String> {
        // What is in it may be any bytes.
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

    /// Who listens on a port, as far as this user may see: of other users' processes only root sees the sockets.
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

/// What the host's packet filters do with these.
pub(super) fn firewall(files: &Files, packets: &[Packet]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rules = output("nft", &["-j", "-t", "list", "ruleset"]);
    // The older filter, which nft does not show.
    let legacy = files.read("proc/net/ip_tables_names").is_some_and(|names| !names.trim().is_empty());
    let older =
        if legacy { output("iptables-legacy-save", &[]).or_else(|_| save()) } else { save_of(&rules) };
    if let Ok(text) = &older {
        findings.extend(examine("iptables", &iptables::tables(text), packets));
    }
    let tables = rules.and_then(|json| {
        nft::tables(&json, older.is_ok()).ok_or_else(|| "its JSON cannot be read".to_owned())
    });
    findings.extend(nftables(tables, packets));
    findings
}

fn nftables(tables: Result<Vec<Table>, String>, packets: &[Packet]) -> Vec<Finding> {
    match tables {
        Ok(tables) => examine("nftables", &tables, packets),
        Err(error) => {
            let cure =
                format!("run this as root to have the rules looked at, or see 'nft list ruleset' ({error})");
            vec![Finding::unread("firewall", "firewall rules", cure)]
        }
    }
}

fn save() -> Result<String, String> {
    output("iptables-save", &[])
}

/// What iptables has written into nftables it shows best itself.
fn save_of(rules: &Result<String, String>) -> Result<String, String> {
    match rules {
        Ok(json) if json.contains("\"xt\"") => save(),
        _ => Err("not needed".to_owned()),
    }
}

/// What a program prints, or why not. Users often lack `/usr/sbin` in their PATH.
fn output(program: &str, args: &[&str]) -> Result<String, String> {
    let run = |program: &Path| Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = match run(Path::new(program)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => run(&Path::new("/usr/sbin").join(program)),
        other => other,
    };
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{program}: {}", text.lines().next().unwrap_or("failed")))
}
