//! Nodes that a command names, and nodes that use no multicast.

use std::time::Duration;

use super::expect;
use crate::lab::proc::Proc;
use crate::lab::world::{World, finish_all, form, line_with};
use crate::lab::{Lab, MINGLE, Options};

/// The line of docs/networks.md for SRV records.
const SRV: &str = "dig +short SRV _mingle._udp.example.com | cut -d ' ' -f 4";

/// Starts a node whose seeds this command prints, by a shell.
fn start(lab: &Lab, node: usize, job: &str, command: &str) -> Proc {
    let mut shell = lab.command(node, "sh");
    shell.args(["-c", &format!("exec \"$mingle\" \"$@\" --seed \"$({command})\""), "sh"]);
    shell.args(line_with(job, lab.len(), "--multicast off")).env("mingle", MINGLE);
    shell.env("PATH", format!("/run/bin:{}", std::env::var("PATH").unwrap()));
    lab.start(node, shell)
}

#[test]
fn the_documented_line_for_srv_records_finds_the_nodes() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/networks.md");
    assert!(std::fs::read_to_string(document).unwrap().contains(&format!("--seed \"$({SRV})\"")));
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    // What dig prints for two records: priority, weight, port and target.
    let dig = "#!/bin/sh\n[ \"$*\" = '+short SRV _mingle._udp.example.com' ] || exit 9\necho '0 0 29500 first.'\n\
               echo '10 0 29500 second.'\n";
    for node in 0..lab.len() {
        lab.at(
            node,
            &format!("mkdir -p /run/bin; cat >/run/bin/dig <<'END'\n{dig}END\nchmod +x /run/bin/dig"),
        );
        for (name, other) in [("first.", 0), ("second.", 1), ("first", 0), ("second", 1)] {
            lab.at(node, &format!("echo {} {name} >>/etc/hosts", lab.address(other)));
        }
    }
    World::of(&finish_all((0..2).map(|node| start(&lab, node, "by SRV", SRV)).collect()))
        .expect(&lab, &[0, 1]);
}

#[test]
fn without_multicast_a_node_joins_no_group_and_sends_to_none() {
    let Some(lab) = Options::nodes(3).with_filters().start() else { return };
    let count = "table inet sent {
        counter groups {
        }
        chain out { type filter hook output priority 0;
            ip daddr 224.0.0.0/4 udp dport 29499 counter name groups
            ip6 daddr ff00::/8 udp dport 29499 counter name groups
        }
        }";
    // A group of 239.192.0.0/14, with the last byte first (proc(5)).
    let seen = "nft list counter inet sent groups | grep -o 'packets [0-9]*'; grep -cE '[0-9A-F]{4}C[0-3]EF' /proc/net/igmp";
    let look = |node: usize| lab.shell(node, "sh", seen).stdout;
    for node in 0..lab.len() {
        lab.at(node, &format!("nft -f - <<'END'\n{count}\nEND"));
    }
    let to = format!("--multicast off --seed {}", lab.address(2));
    // Two nodes that wait: what they do in a second.
    let waiting: Vec<Proc> = (0..2).map(|node| lab.spawn(node, &line_with("quiet", 3, &to))).collect();
    for proc in &waiting {
        proc.expect_stderr_within(
            Duration::from_secs(30),
            "still waiting after 15 s: nobody else was heard from the seeds",
        );
    }
    for node in 0..2 {
        assert_eq!(look(node), "packets 0\n0\n");
    }
    let last = lab.spawn(2, &line_with("quiet", 3, &to));
    let outcomes = finish_all(waiting.into_iter().chain([last]).collect());
    World::of(&outcomes).expect(&lab, &[0, 1, 2]);
    assert!((0..3).all(|node| look(node).starts_with("packets 0\n")));

    // With multicast the same look finds both.
    let proc = lab.spawn(0, &line_with("loud", 3, ""));
    proc.expect_stderr("looking for");
    let (packets, groups) = (look(0), "\n1\n");
    assert!(!packets.starts_with("packets 0\n") && packets.ends_with(groups), "{packets:?}");
    proc.signal("KILL");
    drop(proc);
    expect(&form(&lab, "loud ones", &["", "", ""]), &[0, 1, 2], &lab.address(0).to_string(), "eth0");
}
