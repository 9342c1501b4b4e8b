//! The scripts of the holder of a lab and of its nodes, and the packet filters.
//!
//! One call of a program does as much as possible: a lab of four takes some 30 ms.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::{Options, Policy, Route};

/// `docker0`, as Docker makes it. A bridge has carrier only if one of its ports has.
pub(super) const DOCKER0: &str = "link add docker0 type bridge\n\
    link set docker0 addrgenmode none\n\
    link add vethd0 type veth peer name vethd1\n\
    link set vethd0 addrgenmode none\n\
    link set vethd1 addrgenmode none\n\
    link set vethd0 master docker0 up\n\
    link set vethd1 up\n\
    link set docker0 up\n\
    addr add 172.17.0.1/16 brd + dev docker0\n";

pub fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, u8::try_from(10 + node).unwrap())
}

pub fn host(node: usize) -> String {
    format!("node{node}")
}

/// The script of the holder. It prints `node I PID` for each node that is ready, or an error.
pub fn holder(options: &Options) -> String {
    let nodes = 0..options.nodes;
    // The interfaces of the host are invisible here: `unshare` has made an empty network.
    let mut links = String::from(
        "link set lo up\n\
         link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
         link set br0 addrgenmode none\n\
         link set br0 up\n\
         addr add 10.77.0.1/24 dev br0\n",
    );
    for i in nodes.clone() {
        let _ = write!(
            links,
            "netns add n{i}\n\
             link add p{i} type veth peer name eth0 netns n{i}\n\
             link set p{i} addrgenmode none\n\
             link set p{i} master br0 up\n"
        );
        if options.dead_nic {
            // Both ends are up, so eth1 has carrier; but its other end is on no bridge.
            let _ = write!(
                links,
                "link add q{i} type veth peer name eth1 netns n{i}\n\
                 link set q{i} addrgenmode none\n\
                 link set q{i} up\n"
            );
        }
    }
    let filters = if options.filters { "nft add table bridge lab" } else { ":" };
    let mut script = format!(
        "set -e\n\
         exec 2>&1 3<&0\n\
         trap '[ $? = 0 ] || echo failed' EXIT\n\
         mount -t tmpfs tmpfs /run\n\
         mkdir /run/netns\n\
         {filters}\n\
         ip -batch - <<END\n{links}END\n"
    );
    let mut pids = String::new();
    for i in nodes {
        let _ = writeln!(
            script,
            "(ip netns exec n{i} unshare --uts sh -c '{}' <&3 || echo failed) &",
            node(options, i)
        );
        let _ = write!(pids, "ip netns pids n{i}; ");
    }
    // The input ends with the test. Then the processes that still run in the nodes are killed.
    let _ = write!(script, "cat <&3 >/dev/null || :\nkill -9 $({pids}) 2>/dev/null || :\n");
    script
}

/// The script of one node, which is put in single quotes.
fn node(options: &Options, i: usize) -> String {
    let mut links = format!(
        "link set lo up\n\
         link set eth0 addrgenmode none\n\
         link set eth0 up\n\
         addr add {}/24 brd + dev eth0\n",
        address(i)
    );
    if options.dead_nic {
        let _ = write!(
            links,
            "link set eth1 addrgenmode none\n\
             link set eth1 up\n\
             addr add 10.88.0.{}/24 brd + dev eth1\n",
            10 + i
        );
    }
    if options.docker0 {
        links.push_str(DOCKER0);
    }
    match options.route {
        Route::Bridge => links.push_str("route add default via 10.77.0.1\n"),
        Route::DeadNic => links.push_str("route add default via 10.88.0.1\n"),
        Route::None => {}
    }
    let name = host(i);
    let hosts = if options.hosts {
        // Without resolv.conf, or with an empty one, the resolver asks 127.0.0.1 and is refused at once.
        format!(
            "echo \"127.0.0.1 localhost\n{} {name}\" >/run/hosts.{i}\n\
             mount --bind /run/hosts.{i} /etc/hosts\n\
             [ ! -e /etc/resolv.conf ] || mount --bind /dev/null /etc/resolv.conf\n",
            address(i)
        )
    } else {
        String::new()
    };
    format!(
        "set -e\n\
         hostname {name}\n\
         ip -batch - <<END\n{links}END\n\
         {hosts}\
         echo node {i} $$\n\
         exec cat >/dev/null"
    )
}

/// The process of each node, from the lines that the nodes printed; none until all have.
pub fn node_pids(text: &str, count: usize) -> Option<Vec<u32>> {
    let mut pids = vec![None; count];
    for line in text.lines() {
        let mut words = line.split(' ');
        if let (Some("node"), Some(i), Some(pid)) = (words.next(), words.next(), words.next()) {
            *pids.get_mut(i.parse::<usize>().ok()?)? = pid.parse().ok();
        }
    }
    pids.into_iter().collect()
}

/// The bridge's rules, which replace the earlier ones in one transaction.
pub fn policy(policy: &Policy) -> String {
    let mut rules = String::new();
    for (from, to) in &policy.cuts {
        let _ = writeln!(rules, "iifname p{from} oifname p{to} drop");
    }
    if policy.no_multicast {
        rules.push_str("ip daddr 224.0.0.0/4 drop\n");
    }
    if policy.loss > 0 {
        let _ = writeln!(rules, "ether type ip numgen random mod 100 < {} drop", policy.loss);
    }
    format!(
        "add table bridge lab\ndelete table bridge lab\n\
         table bridge lab {{\nchain forward {{\ntype filter hook forward priority 0;\n{rules}}}\n}}\n"
    )
}

/// A node's own rules for arriving packets.
pub fn firewall(drops: &[&str]) -> String {
    let mut rules = String::new();
    for rule in drops {
        let _ = writeln!(rules, "iifname != lo {rule} drop");
    }
    format!(
        "add table inet lab\ndelete table inet lab\n\
         table inet lab {{\nchain input {{\ntype filter hook input priority 0;\n{rules}}}\n}}\n"
    )
}
