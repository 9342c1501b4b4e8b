//! Multicast and the list of interfaces against the real kernel. Each test runs in a network namespace of its
//! own, so that nothing reaches the host's network.

use std::io::{self, Write as _};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use network_interface::{NetworkInterface, NetworkInterfaceConfig as _};

use super::clock::clock;
use super::network::Network;
use super::sockets::endpoint::{Endpoint, bind_candidates};
use super::sockets::links::Links;
use super::sockets::multicast::{Groups, send_by};
use crate::host::{Interface, Kind, list, select};

const INSIDE: &str = "MINGLE_TEST_INSIDE";
const BARE: &str = "ip link set lo up";
const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 192, 1, 2)), 29499);

/// Whether this process runs in the namespace that `setup` has prepared. On the host, this starts the same
/// test again in such a namespace and returns false. A machine that allows no namespace skips the test with a
/// message.
pub(super) fn inside(module: &str, test: &str, setup: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshare = |options: &[&str], script: &str, arguments: &[&str]| {
        Command::new("unshare")
            .args(options)
            .args(["--", "sh", "-ec", script])
            .args(arguments)
            .env(INSIDE, "1")
            .output()
            .is_ok_and(|output| {
                println!("{}", String::from_utf8_lossy(&output.stdout));
                println!("{}", String::from_utf8_lossy(&output.stderr));
                output.status.success()
            })
    };
    // A plain namespace for root; else one in which this user is root.
    let Some(options) = [["-n"].as_slice(), &["-r", "-n"]].into_iter().find(|o| unshare(o, BARE, &[])) else {
        let strict = std::env::var_os("MINGLE_REQUIRE_NETNS").is_some_and(|value| value == "1");
        assert!(
            !strict,
            "{test} must not be skipped here (MINGLE_REQUIRE_NETNS=1), but there is no namespace"
        );
        // Not `eprintln`, whose output the test harness hides when the test passes.
        let reason = "this machine gives no network namespace (unshare and ip are needed, with the right)";
        let _ = writeln!(io::stderr(), "skipped: {test}: {reason}");
        return false;
    };
    let script = format!("{BARE}\n{setup}\nexec \"$0\" --exact \"$1\" --include-ignored --nocapture");
    let program = std::env::current_exe().unwrap();
    let test = format!("{}::{test}", module.split_once("::").unwrap().1);
    assert!(unshare(options, &script, &[program.to_str().unwrap(), &test]), "failed in the namespace");
    false
}

fn endpoint() -> Endpoint {
    bind_candidates(&Network::default(), iter::repeat_n(0, 20)).unwrap()
}

fn named(name: &str) -> Interface {
    list().unwrap().into_iter().find(|interface| interface.name == name).unwrap()
}

fn v4(interface: &Interface) -> Ipv4Addr {
    let first = interface.ips().find_map(|ip| match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    });
    first.unwrap()
}

fn send(from: &Endpoint, by: &Interface, bytes: &[u8]) -> io::Result<()> {
    send_by(&from.sockets[0], GROUP, by.index, v4(by).into(), bytes)
}

/// The next datagram, and its sender as "ADDRESS:PORT".
fn receive(socket: &UdpSocket) -> (Vec<u8>, String) {
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut buffer = [0; 64];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..length].to_vec(), from.to_string())
}

fn is_silent(socket: &UdpSocket) -> bool {
    socket.set_nonblocking(true).unwrap();
    socket.recv(&mut [0; 64]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn on_loopback_every_node_of_the_host_hears_every_other() {
    if !inside(module_path!(), "on_loopback_every_node_of_the_host_hears_every_other", "") {
        return;
    }
    let chosen = select(&list().unwrap(), &[], true).unwrap();
    let [lo] = chosen.as_slice() else { panic!("{chosen:?}") };
    assert_eq!((&*lo.name, lo.kind), ("lo", Kind::Loopback));

    let nodes: Vec<_> = (0..4).map(|_| (Groups::join(GROUP, &chosen).unwrap(), endpoint())).collect();
    for (_, endpoint) in &nodes {
        send(endpoint, lo, b"hello").unwrap();
        let expected = (b"hello".to_vec(), format!("127.0.0.1:{}", endpoint.port));
        for (groups, _) in &nodes {
            assert_eq!(groups.warnings().count(), 0, "{groups:?}");
            assert_eq!(receive(groups.sockets()[0].get_ref()), expected);
        }
    }
    // Unicast reaches one node alone, although all share the group's port.
    let (_, last) = nodes.last().unwrap();
    nodes[0].1.sockets[0].send_to(b"answer", ("127.0.0.1", last.port)).unwrap();
    assert_eq!(receive(&last.sockets[0]).0, b"answer");
    assert!(nodes.iter().all(|(groups, endpoint)| {
        is_silent(groups.sockets()[0].get_ref())
            && (endpoint.port == last.port || is_silent(&endpoint.sockets[0]))
    }));
}

/// Two NICs with a link and the same address, a third with another one, and no default route.
const TWINS: &str = "
    for n in nic1 nic2 nic3; do
        ip link add $n type veth peer name peer-$n; ip link set $n up; ip link set peer-$n up
    done
    ip address add 10.1.0.1/24 dev nic1
    ip address add 10.1.0.1/24 dev nic2
    ip address add 10.2.0.1/24 dev nic3";

#[tokio::test]
async fn a_datagram_leaves_by_the_given_interface_with_its_source_address() {
    if !inside(module_path!(), "a_datagram_leaves_by_the_given_interface_with_its_source_address", TWINS) {
        return;
    }
    let (a, b, c) = (named("nic1"), named("nic2"), named("nic3"));
    let node = endpoint();
    let hears = |interface: &Interface| Groups::join(GROUP, std::slice::from_ref(interface)).unwrap();
    let (on_a, on_b, on_c) = (hears(&a), hears(&b), hears(&c));
    let port = node.port;
    for (by, bytes) in [(&c, b"to c"), (&b, b"to b"), (&a, b"to a")] {
        send(&node, by, bytes).unwrap();
    }
    assert_eq!(receive(on_a.sockets()[0].get_ref()), (b"to a".to_vec(), format!("10.1.0.1:{port}")));
    assert_eq!(receive(on_b.sockets()[0].get_ref()), (b"to b".to_vec(), format!("10.1.0.1:{port}")));
    assert_eq!(receive(on_c.sockets()[0].get_ref()), (b"to c".to_vec(), format!("10.2.0.1:{port}")));
    for groups in [&on_a, &on_b, &on_c] {
        assert!(
            is_silent(groups.sockets()[0].get_ref()),
            "a datagram arrived on another interface than its group was joined on"
        );
    }
    assert!(send_by(&node.sockets[0], GROUP, 9999, v4(&a).into(), b"nowhere").is_err());
}

const FIFTY: &str = "
    for n in $(seq 25); do ip link add x$n type veth peer name y$n; ip link set x$n up; ip link set y$n up; done
    for n in $(seq 25); do ip address add 10.1.$n.1/24 dev x$n; ip address add 10.2.$n.1/24 dev y$n; done";

#[tokio::test]
async fn fifty_interfaces_take_three_sockets_and_all_receive_after_a_rejoin() {
    if !inside(module_path!(), "fifty_interfaces_take_three_sockets_and_all_receive_after_a_rejoin", FIFTY) {
        return;
    }
    let mut chosen = select(&list().unwrap(), &[], true).unwrap();
    assert_eq!(chosen.len(), 50);
    chosen.insert(3, Interface { index: 9999, name: "gone".to_owned(), ..chosen[0].clone() });
    let groups = Groups::join(GROUP, &chosen).unwrap();
    assert_eq!((groups.joined(), groups.sockets().len()), (50, 3));
    let warnings: Vec<_> = groups.warnings().cloned().collect();
    assert!(matches!(&*warnings, [warning] if warning.to_string().contains("gone")), "{warnings:?}");
    groups.rejoin();

    chosen.remove(3);
    let node = endpoint();
    for interface in &chosen {
        send(&node, interface, interface.name.as_bytes()).unwrap();
    }
    for (socket, members) in groups.sockets().iter().zip(chosen.chunks(20)) {
        for interface in members {
            assert_eq!(String::from_utf8(receive(socket.get_ref()).0).unwrap(), interface.name);
        }
        assert!(is_silent(socket.get_ref()));
    }
}

#[tokio::test]
async fn interfaces_that_come_and_go_reuse_the_sockets_of_those_that_have_gone() {
    if !inside(module_path!(), "interfaces_that_come_and_go_reuse_the_sockets_of_those_that_have_gone", FIFTY)
    {
        return;
    }
    let chosen = select(&list().unwrap(), &[], true).unwrap();
    let mut groups = Groups::join(GROUP, &[]).unwrap();
    for turn in 0..chosen.len() {
        // One more than a socket has room for; each time the oldest goes and another comes.
        let now: Vec<Interface> = chosen.iter().cycle().skip(turn).take(21).cloned().collect();
        groups.change(&now).unwrap();
        assert_eq!((groups.joined(), groups.sockets().len()), (21, 2), "turn {turn}");
    }
}

#[tokio::test]
async fn if_no_interface_can_join_the_count_is_zero() {
    if !inside(module_path!(), "if_no_interface_can_join_the_count_is_zero", "") {
        return;
    }
    let gone = Interface { index: 9999, ..named("lo") };
    assert_eq!(Groups::join(GROUP, &[gone]).unwrap().joined(), 0);
    assert_eq!(Groups::join(GROUP, &[]).unwrap().joined(), 0);

    let hog = UdpSocket::bind(("0.0.0.0", GROUP.port())).unwrap();
    let refused = Groups::join(GROUP, &[named("lo")]).unwrap_err().to_string();
    assert!(refused.contains("239.192.1.2 on UDP port 29499, which another program"), "{refused}");
    drop(hog);
}

/// A pod's `eth0` with a labelled second address, a bridge without ports and one with a port, a NIC whose
/// peer is down and one that is down itself; a default route of better metric than `eth0`'s leads nowhere.
/// `/sys` still shows the host's interfaces.
const POD: &str = "
    for n in eth0 port cut off; do ip link add $n type veth peer name peer-$n; done
    for n in eth0 peer-eth0 port peer-port cut peer-off; do ip link set $n up; done
    ip address add 10.0.0.5/24 dev eth0
    ip address add 10.0.0.77/24 dev eth0 label eth0:1
    ip link add docker0 type bridge; ip link set docker0 up; ip address add 172.17.0.1/16 dev docker0
    ip link add br-7 type bridge; ip link set br-7 up; ip link set port master br-7
    ip address add 172.18.0.1/16 dev br-7
    ip address add 10.3.0.5/24 dev cut
    ip address add 10.4.0.5/24 dev off
    ip route add default via 10.0.0.1 dev eth0 metric 100
    ip route add default via 10.3.0.1 dev cut metric 50";

#[test]
fn the_interfaces_of_a_pod_are_read_as_they_are() {
    if !inside(module_path!(), "the_interfaces_of_a_pod_are_read_as_they_are", POD) {
        return;
    }
    let all = list().unwrap();
    let eth0 = named("eth0");
    let v4 = eth0.addresses.iter().filter(|address| address.addr().is_ipv4());
    assert_eq!(v4.map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.5/24", "10.0.0.77/24"]);
    assert!(eth0.up && eth0.multicast && eth0.default_route);
    assert_eq!(eth0.kind, Kind::Other, "the host's own eth0 may be hardware, this one is not");
    assert_eq!(all.iter().filter(|interface| interface.default_route).count(), 1);
    for name in ["cut", "off"] {
        assert!(!named(name).up, "{name} has no link");
    }
    let chosen = select(&all, &[], true).unwrap();
    let names: Vec<&str> = chosen.iter().map(|interface| &*interface.name).collect();
    assert_eq!(names, ["eth0", "docker0", "br-7"]);
    assert!(chosen[1..].iter().all(|interface| interface.kind == Kind::Virtual));
}

#[tokio::test]
async fn a_host_without_a_link_keeps_its_address_until_it_has_another() {
    let nic = "ip link add nic type veth peer name peer; ip link set nic up; ip link set peer up
               ip address add 10.1.0.1/24 dev nic";
    if !inside(module_path!(), "a_host_without_a_link_keeps_its_address_until_it_has_another", nic) {
        return;
    }
    let network = Network::default();
    let ip = |arguments: &str| {
        assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "{arguments}");
    };
    let open = || {
        let interfaces = network.select_interfaces().unwrap();
        Links::open(Vec::new(), &network, false, interfaces, Vec::new()).unwrap()
    };
    let followed = |links: &mut Links| {
        assert!(links.follow(&network).is_none());
        let used = links.interfaces().iter().map(|one| format!("{} {}", one.name, one.addresses.len()));
        used.collect::<Vec<_>>()
    };
    let mut links = open();
    assert_eq!(followed(&mut links), ["nic 1"]);
    // The kernel says somewhat later whether there is a link.
    let until_first_is = |name: &str| {
        let begun = clock();
        while network.select_interfaces().unwrap()[0].name != name {
            assert!(begun.elapsed() < Duration::from_secs(30), "{name} is not the first");
        }
    };
    ip("link set peer down");
    until_first_is("lo");
    assert_eq!(followed(&mut links), ["nic 1"]);
    // A node that has begun on loopback stays there, until there is a NIC.
    let mut on_loopback = open();
    assert_eq!(followed(&mut on_loopback), ["lo 2"]);
    ip("link set peer up");
    ip("address add 10.2.0.1/24 dev nic");
    until_first_is("nic");
    for links in [&mut links, &mut on_loopback] {
        assert_eq!(followed(links), ["nic 2"]);
    }
}

/// Two names that are not UTF-8 and are the same after replacement, one such name that stays unique, and two
/// NICs: one has both families and a label, the other IPv6 alone with addresses in all states.
const HOSTILE: &str = r#"
    p=0
    for n in "$(printf 'bad\377')" "$(printf 'bad\376')" "$(printf '\377nic')" eth0 eth1; do
        p=$((p + 1)); ip link add "$n" type veth peer name "p$p"; ip link set "$n" up; ip link set "p$p" up
    done
    ip address add 10.7.0.1/24 dev "$(printf 'bad\377')"
    ip address add 10.7.1.1/24 dev "$(printf 'bad\376')"
    ip address add 10.8.0.1/24 dev "$(printf '\377nic')"
    ip address add 10.0.0.5/24 dev eth0
    ip address add 10.0.0.77/24 dev eth0 label eth0:1
    ip address add fd00::5/64 dev eth0 nodad
    ip address add fd00:1::6/64 dev eth1 nodad
    ip address add fd00:1::7/64 dev eth1 nodad preferred_lft 0
    ip -6 route add default via fd00:1::1 dev eth1"#;

#[test]
fn a_name_that_is_not_utf8_does_not_stop_the_use_of_other_interfaces() {
    if !inside(module_path!(), "a_name_that_is_not_utf8_does_not_stop_the_use_of_other_interfaces", HOSTILE) {
        return;
    }
    assert!(NetworkInterface::show().is_err(), "else this test shows nothing");
    let chosen = select(&list().unwrap(), &[], true).unwrap();
    let shown: Vec<String> = chosen
        .iter()
        .map(|interface| {
            let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
            format!("{} {}", interface.name, addresses.join(" "))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "eth1 fd00:1::6/64 fd00:1::7/64",
            "\u{fffd}nic 10.8.0.1/24",
            "eth0 10.0.0.5/24 fd00::5/64 10.0.0.77/24"
        ]
    );
    assert_eq!(chosen[0].deprecated, ["fd00:1::7".parse::<IpAddr>().unwrap()]);
    assert!(chosen[0].default_route, "no IPv4 route leads out, so IPv6's counts");
    assert!(chosen.iter().all(|interface| interface.up && interface.index != 0));
}
