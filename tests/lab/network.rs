//! Changes to a lab after its start: networks other than one bridge that passes everything.

use std::fmt::Write as _;

use super::{Lab, script};

impl Lab {
    /// Runs a shell script in a node, and returns its output.
    pub fn at(&self, node: usize, script: &str) -> String {
        let output = self.enter(self.nodes[node]).args(["sh", "-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs many calls of `ip` in the namespace of the bridge, in one process.
    fn ip_at_switch(&self, lines: &str) {
        self.switch(&batch(lines));
    }

    fn ip(&self, node: usize, lines: &str) {
        self.at(node, &batch(lines));
    }

    /// Drops the packets on the bridge that match any of `rules`, and no others.
    pub fn drop_at_bridge(&self, rules: &[&str]) {
        let mut text = String::new();
        for rule in rules {
            let _ = writeln!(text, "{rule} drop");
        }
        self.nft(
            self.holder.id(),
            &format!(
                "add table bridge lab\ndelete table bridge lab\n\
                 table bridge lab {{\nchain forward {{\ntype filter hook forward priority 0;\n{text}}}\n}}\n"
            ),
        );
    }

    /// Sets the MTU of every link of the bridge.
    pub fn set_mtu(&self, mtu: u32) {
        let ports = (0..self.len()).fold(String::new(), |mut lines, i| {
            let _ = writeln!(lines, "link set p{i} mtu {mtu}");
            lines
        });
        self.ip_at_switch(&format!("{ports}link set br0 mtu {mtu}\n"));
        for node in 0..self.len() {
            self.ip(node, &format!("link set eth0 mtu {mtu}\n"));
        }
    }

    /// A second network, `eth1` on each node, with 10.88.0.10 and so on.
    pub fn add_second_network(&self) {
        let mut links = "link add br1 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
                         link set br1 addrgenmode none\n\
                         link set br1 up\n"
            .to_owned();
        for i in 0..self.len() {
            let _ = write!(
                links,
                "link add q{i} type veth peer name eth1 netns n{i}\n\
                 link set q{i} addrgenmode none\n\
                 link set q{i} master br1 up\n"
            );
        }
        self.ip_at_switch(&links);
        for i in 0..self.len() {
            let address = self.second(i);
            self.ip(
                i,
                &format!(
                    "link set eth1 addrgenmode none\n\
                     link set eth1 up\n\
                     addr add {address}/24 brd + dev eth1\n"
                ),
            );
        }
    }

    /// A node's address in the second network.
    #[allow(clippy::unused_self, reason = "of this lab")]
    pub fn second(&self, node: usize) -> String {
        format!("10.88.0.{}", 10 + node)
    }

    /// Gives a node an interface on the bridge, up and without an address. The port of a former one must be
    /// gone.
    pub fn plug(&self, node: usize, name: &str) {
        self.ip_at_switch(&format!(
            "link add p{node}{name} type veth peer name {name} netns n{node}\n\
             link set p{node}{name} addrgenmode none\n\
             link set p{node}{name} master br0 up\n"
        ));
        self.ip(node, &format!("link set {name} addrgenmode none\nlink set {name} up\n"));
    }

    /// IPv6 on every node's `eth0`, fd77::10 and so on beside a link-local address. There is no default
    /// route.
    pub fn add_ipv6(&self) {
        for i in 0..self.len() {
            let (address, local) = (self.address_v6(i), 10 + i);
            // The check for duplicates (RFC 4862) would delay the address by a second or two.
            self.ip(
                i,
                &format!("addr add fe80::{local}/64 dev eth0 nodad\naddr add {address}/64 dev eth0 nodad\n"),
            );
        }
    }

    /// A node's IPv6 address.
    #[allow(clippy::unused_self, reason = "of this lab")]
    pub fn address_v6(&self, node: usize) -> String {
        format!("fd77::{}", 10 + node)
    }

    /// Removes all IPv4 addresses from a node's `eth0`, and with them the default route.
    pub fn remove_ipv4(&self, node: usize) {
        self.at(node, "ip -4 addr flush dev eth0");
    }

    pub fn restore_ipv4(&self, node: usize) {
        self.at(node, &format!("ip addr add {}/24 brd + dev eth0", script::address(node)));
    }

    /// No bridge: every node has a /32 and a link of its own to one router that passes no multicast, as pods
    /// of a routed network do.
    pub fn route_everything(&self) {
        let mut links = "addr flush dev br0\n".to_owned();
        for i in 0..self.len() {
            let _ = write!(
                links,
                "link set p{i} nomaster\n\
                 addr add 169.254.1.1/32 dev p{i}\n\
                 route add {}/32 dev p{i}\n",
                script::address(i)
            );
        }
        self.switch(&format!("echo 1 >/proc/sys/net/ipv4/ip_forward\n{}", batch(&links)));
        for i in 0..self.len() {
            self.ip(
                i,
                &format!(
                    "addr flush dev eth0\n\
                     addr add {}/32 dev eth0\n\
                     route replace 169.254.1.1 dev eth0 scope link\n\
                     route replace default via 169.254.1.1 dev eth0\n",
                    script::address(i)
                ),
            );
        }
    }

    /// The bridge listens to IGMP, knows of no querier, and drops groups that it does not know: all of them.
    pub fn snoop_without_querier(&self) {
        let mut links = "link set br0 type bridge mcast_snooping 1 mcast_querier 0\n".to_owned();
        for i in 0..self.len() {
            let _ = writeln!(links, "link set p{i} type bridge_slave mcast_flood off");
        }
        self.ip_at_switch(&links);
    }
}

fn batch(lines: &str) -> String {
    format!("ip -batch - <<END\n{lines}END\n")
}
