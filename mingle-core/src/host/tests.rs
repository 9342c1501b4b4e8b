//! Which interfaces are used and in which order, on hosts as they exist.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::*;

/// One line for each interface of a host: "NAME FLAGS ADDRESS...", with the flags
/// p(hysical) o(ther) v(irtual) l(oopback), d(efault route), u(p), m(ulticast); a deprecated address
/// with "-" before it.
fn host(lines: &[&str]) -> Vec<Interface> {
    let interface = |(line, index): (&&str, u32)| {
        let mut words = line.split_whitespace();
        let (name, flags) = (words.next().unwrap(), words.next().unwrap());
        let kind = match flags.chars().next().unwrap() {
            'p' => Kind::Physical,
            'o' => Kind::Other,
            'v' => Kind::Virtual,
            _ => Kind::Loopback,
        };
        Interface {
            name: name.to_owned(),
            index,
            kind,
            default_route: flags.contains('d'),
            up: flags.contains('u'),
            multicast: flags.contains('m'),
            addresses: words.clone().map(|word| net(word.trim_start_matches('-'))).collect(),
            deprecated: words.filter_map(|word| Some(net(word.strip_prefix('-')?).addr())).collect(),
            firsts: Vec::new(),
            label: None,
            mac: String::new(),
            mtu: 0,
        }
    };
    lines.iter().zip(1..).map(interface).collect()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

const LO: &str = "lo lu 127.0.0.1/8 ::1/128";

fn filters(texts: &[&str]) -> Vec<Filter> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The selected interfaces, as "NAME ADDRESS ADDRESS".
fn selected(lines: &[&str], asked: &[&str]) -> Vec<String> {
    let describe = |interface: Interface| {
        let addresses: Vec<String> = interface.ips().map(|ip| ip.to_string()).collect();
        format!("{} {}", interface.name, addresses.join(" "))
    };
    select(&host(lines), &filters(asked), true).unwrap().into_iter().map(describe).collect()
}

fn refused(lines: &[&str], asked: &[&str]) -> String {
    select(&host(lines), &filters(asked), true).unwrap_err()
}

#[test]
fn the_interface_of_the_default_route_comes_first_and_virtual_ones_last() {
    let lines = [
        LO,
        "docker0 vum 172.17.0.1/16",
        "tun0 oum 10.8.0.2/24",
        "eth0 pum 10.0.0.5/24",
        "eth1 pudm 10.1.0.5/24",
    ];
    assert_eq!(
        selected(&lines, &[]),
        ["eth1 10.1.0.5", "eth0 10.0.0.5", "tun0 10.8.0.2", "docker0 172.17.0.1"]
    );
}

#[test]
fn without_a_default_route_the_kernels_order_holds_among_equals() {
    let lines = [LO, "veth9 vum 10.9.0.5/24", "eth1 pum 10.1.0.5/24", "eth0 pum 10.0.0.5/24"];
    assert_eq!(selected(&lines, &[]), ["eth1 10.1.0.5", "eth0 10.0.0.5", "veth9 10.9.0.5"]);
}

#[test]
fn loopback_is_used_without_alternative_or_where_a_filter_names_it() {
    let eth0 = "eth0 pum 10.0.0.5/24";
    assert_eq!(selected(&[LO], &[]), ["lo 127.0.0.1 ::1"]);
    assert_eq!(selected(&[LO, "eth0 pm 10.0.0.5/24"], &[]), ["lo 127.0.0.1 ::1"]);
    assert_eq!(selected(&[LO, eth0], &[]), ["eth0 10.0.0.5"]);
    assert_eq!(selected(&[LO, eth0], &["lo"]), ["lo 127.0.0.1 ::1"]);
    assert_eq!(selected(&[LO, eth0], &["127.0.0.0/8"]), ["lo 127.0.0.1"]);
    assert_eq!(selected(&[LO, eth0], &["::1"]), ["lo ::1"]);
    assert_eq!(selected(&[LO, eth0], &["lo", "eth0"]), ["eth0 10.0.0.5", "lo 127.0.0.1 ::1"]);
    for everything in ["0.0.0.0/0", "*", "^docker*", "^fd00::/8"] {
        assert_eq!(selected(&[LO, eth0], &[everything]), ["eth0 10.0.0.5"], "{everything}");
    }
    assert_eq!(selected(&["lo lu ::1/128", "eth0 pum fd00::5/64"], &["::/0"]), ["eth0 fd00::5"]);
}

#[test]
fn link_local_addresses_come_last() {
    let lines =
        [LO, "usb0 pum 169.254.3.1/16", "eth0 pudm 169.254.0.9/16 10.0.0.5/24", "docker0 vum 172.17.0.1/16"];
    let chosen = select(&host(&lines), &[], true).unwrap();
    let names: Vec<&str> = chosen.iter().map(|interface| &*interface.name).collect();
    assert_eq!(names, ["eth0", "docker0", "usb0"]);
    let expected = ["10.0.0.5:9", "172.17.0.1:9", "169.254.0.9:9", "169.254.3.1:9"];
    assert_eq!(endpoints(&chosen, 9, false), expected.map(|text| text.parse().unwrap()));
}

#[test]
fn an_interface_without_multicast_is_used_only_where_a_filter_names_it() {
    let lines = [LO, "wg0 ou 10.8.0.2/24", "eth0 pum 10.0.0.5/24"];
    assert_eq!(selected(&lines, &[]), ["eth0 10.0.0.5"]);
    assert_eq!(selected(&lines, &["wg0"]), ["wg0 10.8.0.2"]);
    assert_eq!(selected(&lines, &["10.8.0.0/24"]), ["wg0 10.8.0.2"]);
}

#[test]
fn a_network_admits_only_its_addresses_and_a_name_all_of_the_interface() {
    let lines = [LO, "eth0 pudm 10.0.0.5/24 192.168.7.5/24 2001:db8::5/64", "eth1 pum 10.1.0.5/24"];
    assert_eq!(selected(&lines, &["192.168.0.0/16"]), ["eth0 192.168.7.5"]);
    assert_eq!(selected(&lines, &["10.0.0.0/8"]), ["eth0 10.0.0.5", "eth1 10.1.0.5"]);
    assert_eq!(selected(&lines, &["2001:db8::/32"]), ["eth0 2001:db8::5"]);
    assert_eq!(selected(&lines, &["eth0"]), ["eth0 10.0.0.5 192.168.7.5 2001:db8::5"]);
    assert_eq!(selected(&lines, &["10.1.0.77/24"]), ["eth1 10.1.0.5"]); // host bits do no harm
}

#[test]
fn a_plain_name_admits_one_interface_and_a_pattern_all_that_match() {
    let lines = [LO, "eth1 pum 10.0.0.5/24", "eth10 pum 10.1.0.5/24", "ib0 pudm 10.2.0.5/24"];
    assert_eq!(selected(&lines, &["eth1"]), ["eth1 10.0.0.5"]);
    assert_eq!(selected(&lines, &["eth*"]), ["eth1 10.0.0.5", "eth10 10.1.0.5"]);
    assert_eq!(selected(&lines, &["eth1?"]), ["eth10 10.1.0.5"]);
    assert_eq!(selected(&lines, &["?b*", "eth1"]), ["ib0 10.2.0.5", "eth1 10.0.0.5"]);
    assert!(refused(&lines, &["eth"]).contains("lo, eth1, eth10, ib0: not what was asked for"));
}

#[test]
fn an_excluded_interface_or_address_is_never_used() {
    let lines = [
        LO,
        "eth0 pudm 10.0.0.5/24 10.7.0.5/24 fd00::5/64",
        "docker0 vum 172.17.0.1/16",
        "wg0 ou 10.8.0.2/24",
    ];
    assert_eq!(selected(&lines, &["^docker*"]), ["eth0 10.0.0.5 10.7.0.5 fd00::5"]);
    assert_eq!(selected(&lines, &["^docker0", "^10.7.0.0/16"]), ["eth0 10.0.0.5 fd00::5"]);
    assert_eq!(selected(&lines, &["^0.0.0.0/0"]), ["eth0 fd00::5"]);
    assert_eq!(selected(&lines, &["^::/0"]), ["eth0 10.0.0.5 10.7.0.5", "docker0 172.17.0.1"]);
    assert_eq!(selected(&lines, &["eth0", "docker0", "^eth*"]), ["docker0 172.17.0.1"]);
    assert_eq!(selected(&lines, &["10.0.0.0/8", "^eth0"]), ["wg0 10.8.0.2"]);

    let text = refused(&lines, &["10.0.0.0/8", "^eth*", "^wg0"]);
    assert!(text.contains("lo, docker0: not what was asked for; eth0, wg0: excluded"), "{text}");
    assert!(text.contains("the filter allows only 10.0.0.0/8, and not eth*, wg0"), "{text}");
    let text = refused(&lines, &["^*", "^10.0.0.0/8"]);
    assert!(text.contains("lo, eth0, docker0, wg0: excluded"), "{text}");
    assert!(text.contains("the filter allows all but *, 10.0.0.0/8"), "{text}");
}

#[test]
fn the_order_of_the_filters_is_that_of_preference() {
    let lines = [
        LO,
        "eth0 pudm 10.0.0.5/24 10.0.1.5/24",
        "eth1 pum 10.1.0.5/24 169.254.0.9/16",
        "docker0 vum 172.17.0.1/16",
    ];
    let order = |asked: &[&str]| {
        let chosen = select(&host(&lines), &filters(asked), true).unwrap();
        let shown: Vec<String> = endpoints(&chosen, 7, false).iter().map(|e| e.ip().to_string()).collect();
        shown.join(" ")
    };
    assert_eq!(order(&["eth1", "eth0"]), "10.1.0.5 10.0.0.5 10.0.1.5 169.254.0.9");
    assert_eq!(order(&["eth*"]), "10.0.0.5 10.1.0.5 10.0.1.5 169.254.0.9");
    assert_eq!(order(&["10.1.0.0/16", "*"]), "10.1.0.5 10.0.0.5 10.0.1.5 172.17.0.1 169.254.0.9");
    assert_eq!(order(&["10.0.1.0/24", "10.0.0.0/8"]), "10.0.1.5 10.1.0.5 10.0.0.5");
    assert_eq!(order(&["docker0", "eth0"]), "172.17.0.1 10.0.0.5 10.0.1.5", "asked for, though virtual");
    assert_eq!(order(&["169.254.0.0/16", "eth0"]), "10.0.0.5 10.0.1.5 169.254.0.9");
}

#[test]
fn a_host_with_ipv6_alone_is_used_like_any_other() {
    let lines = ["lo lu ::1/128", "eth1 pum fd00:1::5/64", "eth0 pudm fe80::5/64 2001:db8::5/64 fd00::5/64"];
    assert_eq!(selected(&lines, &[]), ["eth0 2001:db8::5 fd00::5", "eth1 fd00:1::5"]);
    assert_eq!(selected(&lines, &["fd00::/64", "eth0"]), ["eth0 fd00::5 2001:db8::5"]);
    assert_eq!(selected(&lines[..1], &[]), ["lo ::1"]);
}

#[test]
fn addresses_that_other_hosts_cannot_use_are_not_used() {
    let useless = ["fe80::1", "ff15::1", "::", "::ffff:10.0.0.5", "::1", "0.0.0.0", "239.1.2.3"];
    for address in useless {
        let line =
            format!("eth0 pudm {address}/64").replace("0.0.0.0/64", "0.0.0.0/8").replace("3/64", "3/8");
        assert!(refused(&[&line], &[]).contains("eth0: without a usable address"), "{line}");
    }
}

#[test]
fn deprecated_addresses_come_last() {
    let lines = [
        "eth0 pudm -fd00::1/64",
        "eth1 pum -fd00::2/64 fd00::3/64",
        "docker0 vum 172.17.0.1/16",
        "usb0 pum 169.254.3.1/16",
    ];
    let chosen = select(&host(&lines), &[], true).unwrap();
    let names: Vec<&str> = chosen.iter().map(|interface| &*interface.name).collect();
    assert_eq!(names, ["eth1", "docker0", "eth0", "usb0"]);
    let expected = ["[fd00::3]:7", "172.17.0.1:7", "169.254.3.1:7", "[fd00::2]:7", "[fd00::1]:7"];
    assert_eq!(endpoints(&chosen, 7, false), expected.map(|text| text.parse().unwrap()));
}

#[test]
fn if_no_interface_suits_the_text_gives_the_reason_for_each() {
    let lines = [
        "lo l 127.0.0.1/8",
        "eth0 pm 10.0.0.5/24",
        "eth1 pum fe80::1/64",
        "wg0 ou 10.8.0.2/24",
        "e\u{1b}[2J pm",
    ];
    let text = refused(&lines, &[]);
    assert!(text.contains("lo, eth0, e\\u{1b}[2J: down, or without a link"), "{text}");
    assert!(text.contains("eth1: without a usable address"), "{text}");
    assert!(text.contains("wg0: without multicast"), "{text}");

    let text = refused(&[LO, "eth0 pum 10.0.0.5/24", "ib0 pm 10.1.0.5/24"], &["ib0", "10.7.0.0/16"]);
    assert!(text.contains("lo, eth0: not what was asked for"), "{text}");
    assert!(text.contains("ib0: down"), "{text}");
    assert!(text.contains("the filter allows only ib0, 10.7.0.0/16"), "{text}");

    assert!(refused(&[], &[]).contains("none at all"));
    let many: Vec<String> = (0..300).map(|i| format!("veth{i} vum")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(refused(&many, &[]).contains("veth7 and 292 more: without a usable address"));
}

#[test]
fn endpoints_are_in_order_without_duplicates() {
    let lines = [
        "eth0 pudm 10.0.0.5/24 10.0.0.100/32 10.0.0.101/32",
        "eth1 pum 10.1.0.5/24",
        "eth2 pum 10.0.0.5/24", // the same address again, as some bonds of two bridges have it
        "docker0 vum 172.17.0.1/16",
    ];
    let chosen = select(&host(&lines), &[], true).unwrap();
    let expected = ["10.0.0.5:7", "10.1.0.5:7", "10.0.0.100:7", "10.0.0.101:7", "172.17.0.1:7"];
    let expected = expected.map(|text| text.parse::<SocketAddr>().unwrap());
    assert_eq!(endpoints(&chosen, 7, false), expected);
}

#[test]
fn an_address_leads_to_the_preferred_interface_that_holds_it() {
    let chosen = select(&host(&["eth1 pum 10.0.0.5/24", "eth0 pudm 10.0.0.5/24"]), &[], true).unwrap();
    let name = |ip: &str| holder_of(&chosen, ip.parse().unwrap()).map(|interface| &*interface.name);
    assert_eq!(name("10.0.0.5"), Some("eth0"));
    assert_eq!(name("10.0.0.6"), None);
}

#[test]
fn the_first_six_endpoints_are_of_both_families() {
    let line = format!(
        "eth0 pudm {} {}",
        (1..=7).map(|i| format!("10.0.0.{i}/24")).collect::<Vec<_>>().join(" "),
        (1..=7).map(|i| format!("fd00::{i}/64")).collect::<Vec<_>>().join(" ")
    );
    let order = |line: &str, prefers_ipv6: bool| {
        let chosen = select(&host(&[line]), &[], true).unwrap();
        let all = endpoints(&chosen, 7, prefers_ipv6);
        let hinted: String = all.iter().map(|e| if e.is_ipv4() { '4' } else { '6' }).collect();
        (hinted, all)
    };
    let (families, all) = order(&line, false);
    assert_eq!(families, "44446644466666");
    let last =
        |endpoint: &SocketAddr| endpoint.ip().to_string().rsplit(['.', ':']).next().unwrap().to_owned();
    assert_eq!(all.iter().map(last).collect::<String>(), "12341256734567");
    assert_eq!(order(&line, true).0, "66664466644444");
    // If one family has few, the other fills the room.
    assert_eq!(order("eth0 pudm 10.0.0.1/24 fd00::1/64 fd00::2/64 fd00::3/64", false).0, "4666");
    assert_eq!(order("eth0 pudm 10.0.0.1/24 10.0.0.2/24 fd00::1/64", true).0, "644");
    assert_eq!(order("eth0 pudm fd00::1/64", false).0, "6");
}

#[test]
fn a_virtual_address_comes_after_a_real_one_of_the_other_family() {
    let lines = ["docker0 vum 172.17.0.1/16", "eth0 pudm fd00::5/64 169.254.0.9/16", "eth1 pum fd00:1::5/64"];
    let chosen = select(&host(&lines), &[], true).unwrap();
    let expected = ["[fd00::5]:7", "[fd00:1::5]:7", "172.17.0.1:7", "169.254.0.9:7"];
    assert_eq!(endpoints(&chosen, 7, false), expected.map(|text| text.parse().unwrap()));
}
