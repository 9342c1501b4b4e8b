//! Whether this host's own rules drop packets, and the line that opens mingle's ports.
//!
//! The rules are searched for the words `drop` and `reject`, and no more: whether a packet passes is tried,
//! on this host by multicast and between hosts by every way.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::finding::{Finding, Severity};

const CHECK: &str = "firewall";
const LOOKED: &str = "firewall rules of this host";
/// How long a program that prints rules may take.
const LIMIT: Duration = Duration::from_secs(2);

/// A note about the rules of nftables and iptables on this host.
pub(super) async fn examine() -> Finding {
    let nftables = output("nft", &["list", "ruleset"]).await;
    // These also show the rules of the older packet filter, which nft does not.
    let iptables = [output("iptables-save", &[]).await, output("ip6tables-save", &[]).await];
    if nftables.is_none() && iptables == [None, None] {
        let cure = "run the doctor as root, on a host that has the program nft or iptables-save";
        return Finding::new(Severity::Note, CHECK, LOOKED, "not readable without root", cure);
    }
    judge(&nftables.unwrap_or_default(), &iptables.into_iter().flatten().collect::<String>())
}

fn judge(nftables: &str, iptables: &str) -> Finding {
    let drops = |rules: &str| {
        let mut words = rules.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|word| ["drop", "reject"].iter().any(|drop| word.eq_ignore_ascii_case(drop)))
    };
    if !drops(nftables) && !drops(iptables) {
        return Finding::ok(CHECK, LOOKED, "none drops or rejects packets");
    }
    let cure = format!(
        "nothing, if the hosts reach each other; else open the ports of mingle, NCCL and Gloo to the other hosts: {}",
        cure(nftables, iptables)
    );
    Finding::new(Severity::Note, CHECK, LOOKED, "some drop or reject packets", cure)
}

/// The command that opens the ports, of the program that manages the rules.
fn cure(nftables: &str, iptables: &str) -> String {
    let has = |mark| nftables.contains(mark) || iptables.contains(mark);
    if has("ufw-") {
        return "ufw allow 29499:29999/udp; ufw allow 29500:29999/tcp; ufw allow 32768:60999/tcp".to_owned();
    }
    if has("firewalld") {
        return "firewall-cmd --add-port=29499-29999/udp --add-port=29500-29999/tcp --add-port=32768-60999/tcp"
            .to_owned();
    }
    match base_chain(nftables) {
        Some(chain) => format!(
            "nft 'insert rule {chain} udp dport 29499-29999 accept; insert rule {chain} tcp dport {{ 29500-29999, \
             32768-60999 }} accept'"
        ),
        None => "iptables -I INPUT -p udp --dport 29499:29999 -j ACCEPT; \
                 iptables -I INPUT -p tcp -m multiport --dports 29500:29999,32768:60999 -j ACCEPT (and ip6tables)"
            .to_owned(),
    }
}

/// The family, table and name of the first chain for packets to this host, unless iptables has made it.
fn base_chain(rules: &str) -> Option<String> {
    let (mut table, mut chain) = ("", "");
    for line in rules.lines().map(str::trim) {
        let name = |kind: &str| line.strip_prefix(kind).and_then(|rest| rest.strip_suffix(" {"));
        table = name("table ").unwrap_or(table);
        chain = name("chain ").unwrap_or(chain);
        if line.contains("hook input") && !matches!(table, "ip filter" | "ip6 filter") {
            return Some(format!("{table} {chain}"));
        }
    }
    None
}

/// The output of a program, if it ends well.
async fn output(program: &str, args: &[&str]) -> Option<String> {
    // Users often lack `/usr/sbin` in their PATH.
    let path = std::env::var_os("PATH").filter(|path| !path.is_empty());
    // An empty part of it would be the current directory.
    let mut path = path.unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin");
    let mut command = Command::new(program);
    // A program that hangs, on a lock or a file server, is killed.
    let command = command.args(args).env("PATH", path).stdin(Stdio::null()).kill_on_drop(true);
    let ended = timeout(LIMIT, command.output()).await.ok()?.ok()?;
    ended.status.success().then(|| String::from_utf8_lossy(&ended.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NFT: &str = "table inet lab {\n\tchain in {\n\t\ttype filter hook input priority filter; policy accept;\n\
                       \t\ttcp dport 22 drop\n\t}\n}\n";
    const IPTABLES: &str = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -j REJECT\nCOMMIT\n";

    #[test]
    fn rules_that_drop_are_a_note_with_the_line_that_opens_the_ports() {
        let cure = |nftables: &str, iptables: &str| judge(nftables, iptables).cure.unwrap();
        assert!(cure(NFT, "").contains("insert rule inet lab in udp dport 29499-29999 accept"));
        assert!(cure("", IPTABLES).contains("iptables -I INPUT -p udp --dport 29499:29999"));
        let of_iptables = NFT.replace("inet lab", "ip filter");
        assert!(cure(&of_iptables, "").contains("iptables -I INPUT"));
        assert!(
            cure("", &IPTABLES.replace("INPUT -p", "ufw-user-input -p"))
                .contains("ufw allow 29499:29999/udp")
        );
        assert!(
            cure(&NFT.replace("lab", "firewalld"), "").contains("firewall-cmd --add-port=29499-29999/udp")
        );
        let policy = "chain input {\n type filter hook input priority 0; policy drop;\n}";
        assert_eq!(judge(policy, "").status, Severity::Note);
    }

    #[test]
    fn rules_that_drop_nothing_are_fine() {
        let fine = NFT.replace("drop", "accept comment \"no dropbox\"");
        assert_eq!(judge(&fine, "").status, Severity::Ok);
        assert_eq!(judge("", &IPTABLES.replace("REJECT", "ACCEPT")).status, Severity::Ok);
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_one_that_ends_is_read() {
        let output = |program, args: &[_]| crate::runtime::runtime().unwrap().block_on(output(program, args));
        assert_eq!(output("tail", &["-f", "/dev/null"]), None);
        assert_eq!(output("printf", &["x"]), Some("x".to_owned()));
        assert_eq!(output("ls", &["/nonesuch"]).or(output("mingle-nonesuch", &[])), None);
    }
}
