//! Whether the host's own rules would drop the packets of a rendezvous.
//!
//! The rules come from nftables or iptables; here they are one model. A rule that may drop mingle's packets
//! is a warning. If that depends on a condition that is not known here, it is a note.

use std::net::IpAddr;

use super::finding::{Finding, Status};

/// A table with its chains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// As messages name it, such as `nftables inet filter`.
    pub(super) name: String,
    pub(super) chains: Vec<Chain>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) name: String,
    /// The hook of a base chain.
    pub(super) hook: Option<Hook>,
    /// Whether the policy is to drop.
    pub(super) drops: bool,
    pub(super) rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    Input,
    Output,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// As messages show it.
    pub(super) text: String,
    pub(super) conditions: Vec<Condition>,
    pub(super) action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
    /// The rule only counts, logs or marks.
    Nothing,
}

/// A condition of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) is: Test,
    pub(super) negated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Test {
    /// The interface is one of these; `eth*` and `eth+` are prefixes.
    From(Vec<String>),
    To(Vec<String>),
    /// The protocol is one of these, in small letters.
    Protocol(Vec<String>),
    /// The destination port lies in one of these.
    Port(Vec<(u16, u16)>),
    /// The same for one protocol: TCP if the flag is true, else UDP.
    PortOf(bool, Vec<(u16, u16)>),
    /// The destination lies in one of these networks.
    Destination(Vec<(IpAddr, u8)>),
    /// The packet is of one of these families: true is IPv6, false is IPv4.
    Family(Vec<bool>),
    /// The connection is in one of these states, in small letters.
    State(Vec<String>),
    /// `unicast`, `multicast` or `broadcast`.
    PacketType(Vec<String>),
    /// Never true for the packets of a rendezvous, such as ICMP.
    Never,
    Unknown,
    /// An unknown condition on packets of one family: IPv6 if the flag is true, else IPv4.
    UnknownOf(bool),
}

/// A packet of a rendezvous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) hook: Hook,
    pub(super) interface: String,
    pub(super) tcp: bool,
    pub(super) to: IpAddr,
    pub(super) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Passes,
    /// By this rule.
    Dropped(String),
    /// Perhaps, by this rule.
    Doubtful(String),
    /// The calling chain decides, unless a rule has dropped the packet, perhaps this one, or has accepted it.
    Open {
        doubt: Option<String>,
        spared: bool,
    },
}

const CHECK: &str = "firewall";
/// The most nested calls. The kernel refuses chains that call each other in a circle, but text may hold them.
const DEPTH: usize = 16;

/// The packets that the rules drop or may drop. `what` names the program that printed the rules.
pub(super) fn examine(what: &str, tables: &[Table], packets: &[Packet]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for packet in packets {
        for table in tables.iter().filter(|table| table.sees(packet)) {
            for chain in table.chains.iter().filter(|chain| chain.hook == Some(packet.hook)) {
                let (status, rule) = match walk(table, chain, packet, 0) {
                    Fate::Dropped(rule) => (Status::Warning, rule),
                    Fate::Doubtful(rule) => (Status::Note, rule),
                    Fate::Passes | Fate::Open { .. } => continue,
                };
                let finding = finding(status, table, chain, packet, &rule);
                // The same packet on another interface gives the same finding.
                if !findings.iter().any(|other| other.seen == finding.seen && other.looked == finding.looked)
                {
                    findings.push(finding);
                }
            }
        }
    }
    if findings.is_empty() {
        let rules: usize = tables.iter().flat_map(|table| &table.chains).map(|chain| chain.rules.len()).sum();
        findings.push(Finding::ok(
            CHECK,
            what,
            format!("{rules} rules, none of which drops the packets of a rendezvous"),
        ));
    }
    findings
}

fn finding(status: Status, table: &Table, chain: &Chain, packet: &Packet, rule: &str) -> Finding {
    let way = if packet.hook == Hook::Input { "in" } else { "out" };
    let (protocol, port) = (if packet.tcp { "TCP" } else { "UDP" }, packet.port);
    let group = if packet.to.is_multicast() { format!(" of group {}", packet.to) } else { String::new() };
    let looked = format!("{}, chain {}", table.name, chain.name);
    // Rules are read, not tried: another table, a set or a helper may let the packet pass.
    let seen = format!("{rule} may drop {protocol} port {port}{group} on the way {way}");
    let cure = if packet.to.is_multicast() {
        format!(
            "let {protocol} port {port} pass between the nodes (--discovery-port chooses another), or give --seed"
        )
    } else {
        format!(
            "let TCP and UDP ports 29500-29999 pass between the nodes, or one port given as --master-port (here {port})"
        )
    };
    Finding::new(status, CHECK, looked, seen, cure)
}

fn walk(table: &Table, chain: &Chain, packet: &Packet, depth: usize) -> Fate {
    // The first rule that may have dropped the packet, and whether a rule may have accepted it.
    let (mut doubt, mut spared): (Option<String>, bool) = (None, false);
    let dropped = |rule: String, doubt: Option<String>, spared: bool| match doubt {
        _ if spared => Fate::Doubtful(doubt.unwrap_or(rule)),
        _ => Fate::Dropped(rule),
    };
    for rule in &chain.rules {
        let certain = match judge(rule, packet) {
            Some(false) => continue,
            Some(true) => true,
            None => false,
        };
        let fate = match &rule.action {
            Action::Nothing => continue,
            Action::Accept => Fate::Passes,
            Action::Drop => Fate::Dropped(format!("'{}'", rule.text)),
            Action::Return => Fate::Open { doubt: None, spared: false },
            Action::Jump(name) | Action::Goto(name) => {
                let next = table.chains.iter().find(|chain| chain.name == *name);
                match next.filter(|_| depth < DEPTH).map(|next| walk(table, next, packet, depth + 1)) {
                    None => continue,
                    Some(Fate::Open { doubt: within, spared: some }) => {
                        doubt = doubt.or(within);
                        spared |= some;
                        // After a jump the next rule follows; a goto does not return.
                        if matches!(rule.action, Action::Jump(_)) {
                            continue;
                        }
                        Fate::Open { doubt: None, spared: false }
                    }
                    Some(fate) => fate,
                }
            }
        };
        match fate {
            Fate::Dropped(by) if certain => return dropped(by, doubt, spared),
            Fate::Doubtful(by) if certain => return Fate::Doubtful(doubt.unwrap_or(by)),
            Fate::Passes if certain => return doubt.map_or(Fate::Passes, Fate::Doubtful),
            Fate::Dropped(by) | Fate::Doubtful(by) => {
                doubt.get_or_insert(by);
            }
            Fate::Passes | Fate::Open { .. } => spared |= !certain,
        }
        // The chain ends here: by a return, or by a goto whose chain has ended.
        if certain {
            break;
        }
    }
    if chain.hook.is_none() {
        return Fate::Open { doubt, spared };
    }
    if chain.drops {
        return dropped("the policy".to_owned(), doubt, spared);
    }
    doubt.map_or(Fate::Passes, Fate::Doubtful)
}

/// Whether the rule applies to this packet, if that is known.
fn judge(rule: &Rule, packet: &Packet) -> Option<bool> {
    let answers: Vec<Option<bool>> = rule.conditions.iter().map(|one| one.of(packet)).collect();
    if answers.contains(&Some(false)) {
        return Some(false);
    }
    (!answers.contains(&None)).then_some(true)
}

impl Condition {
    fn of(&self, packet: &Packet) -> Option<bool> {
        let one_of = |names: &[String], name: &str| names.iter().any(|other| other == name);
        let interface = |names: &[String]| {
            names.iter().any(|name| match name.strip_suffix(['*', '+']) {
                Some(prefix) => packet.interface.starts_with(prefix),
                None => *name == packet.interface,
            })
        };
        let protocol = if packet.tcp { "tcp" } else { "udp" };
        let kind = if packet.to.is_multicast() { "multicast" } else { "unicast" };
        let answer = match &self.is {
            Test::From(names) => packet.hook == Hook::Input && interface(names),
            Test::To(names) => packet.hook == Hook::Output && interface(names),
            Test::Protocol(names) => one_of(names, protocol) || one_of(names, "all"),
            Test::PortOf(tcp, _) if *tcp != packet.tcp => return Some(false),
            Test::Port(ranges) | Test::PortOf(_, ranges) => {
                ranges.iter().any(|(low, high)| (low..=high).contains(&&packet.port))
            }
            // A condition on one family is not met by a packet of the other, negated or not.
            Test::Destination(nets) if nets.iter().all(|(net, _)| net.is_ipv6() != packet.to.is_ipv6()) => {
                return Some(false);
            }
            Test::Destination(nets) => nets.iter().any(|(net, bits)| holds(*net, *bits, packet.to)),
            Test::Family(families) => families.contains(&packet.to.is_ipv6()),
            Test::UnknownOf(is_ipv6) if *is_ipv6 != packet.to.is_ipv6() => return Some(false),
            // The packets of a rendezvous open a connection.
            Test::State(states) => one_of(states, "new"),
            Test::PacketType(kinds) => one_of(kinds, kind),
            Test::Never => false,
            Test::Unknown | Test::UnknownOf(_) => return None,
        };
        Some(answer != self.negated)
    }
}

impl Table {
    /// Whether the table sees packets of this family: a table of one family has the family in its name.
    fn sees(&self, packet: &Packet) -> bool {
        let is_of = |families: [&str; 2]| families.iter().any(|family| self.name.starts_with(family));
        match packet.to {
            IpAddr::V4(_) => !is_of(["nftables ip6 ", "ip6tables "]),
            IpAddr::V6(_) => !is_of(["nftables ip ", "iptables "]),
        }
    }
}

/// Whether the address lies in the network with this prefix length.
pub(super) fn holds(net: IpAddr, bits: u8, ip: IpAddr) -> bool {
    match (net, ip) {
        (IpAddr::V4(net), IpAddr::V4(ip)) => {
            let shift = 32 - u32::from(bits.min(32));
            (u32::from(net) ^ u32::from(ip)).checked_shr(shift).unwrap_or(0) == 0
        }
        (IpAddr::V6(net), IpAddr::V6(ip)) => {
            let shift = 128 - u32::from(bits.min(128));
            (u128::from(net) ^ u128::from(ip)).checked_shr(shift).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The findings on UDP to a group and TCP to this host.
    pub(in crate::doctor) fn judge(what: &str, tables: &[Table]) -> Vec<(Status, String)> {
        let packets = [packet(false, [239, 192, 1, 2], 29499), packet(true, [10, 0, 0, 1], 29500)];
        examine(what, tables, &packets).into_iter().map(|finding| (finding.status, finding.seen)).collect()
    }

    fn packet(tcp: bool, to: [u8; 4], port: u16) -> Packet {
        Packet { hook: Hook::Input, interface: "eth0".to_owned(), tcp, to: to.into(), port }
    }

    fn rule(tests: &[Test], action: Action) -> Rule {
        let conditions = tests.iter().map(|is| Condition { is: is.clone(), negated: false }).collect();
        Rule { text: "a rule".to_owned(), conditions, action }
    }

    fn fate(drops: bool, rules: Vec<Rule>) -> Fate {
        let chain = Chain { name: "input".to_owned(), hook: Some(Hook::Input), drops, rules };
        let drop = rule(&[Test::Port(vec![(29000, 30000)])], Action::Drop);
        let called = Chain { name: "called".to_owned(), hook: None, drops: false, rules: vec![drop] };
        let table = Table { name: String::new(), chains: vec![chain.clone(), called] };
        walk(&table, &chain, &packet(true, [10, 0, 0, 1], 29500), 0)
    }

    #[test]
    fn the_first_rule_that_applies_decides() {
        let port = |port| Test::Port(vec![(port, port)]);
        let dropped = Fate::Dropped("'a rule'".to_owned());
        assert_eq!(fate(false, vec![]), Fate::Passes);
        assert_eq!(fate(true, vec![]), Fate::Dropped("the policy".to_owned()));
        assert_eq!(fate(true, vec![rule(&[port(29500)], Action::Accept)]), Fate::Passes);
        assert_eq!(fate(false, vec![rule(&[port(29501)], Action::Drop)]), Fate::Passes);
        assert_eq!(fate(false, vec![rule(&[], Action::Drop), rule(&[], Action::Accept)]), dropped);
        assert_eq!(fate(false, vec![rule(&[], Action::Accept), rule(&[], Action::Drop)]), Fate::Passes);
        assert_eq!(fate(false, vec![rule(&[], Action::Jump("called".to_owned()))]), dropped);
        assert_eq!(fate(false, vec![rule(&[], Action::Jump("nonesuch".to_owned()))]), Fate::Passes);
        let established = Test::State(vec!["established".to_owned()]);
        assert_eq!(fate(true, vec![rule(&[established], Action::Accept)]), fate(true, vec![]));
    }

    #[test]
    fn a_rule_for_one_family_does_not_apply_to_the_other() {
        let v4 = packet(false, [239, 192, 1, 2], 29499);
        let v6 = Packet { to: "ff15::1:2".parse().unwrap(), ..v4.clone() };
        let net = |text: &str, bits| Test::Destination(vec![(text.parse().unwrap(), bits)]);
        for (is, of_v4, of_v6) in [
            (net("224.0.0.0", 4), Some(true), Some(false)),
            (net("ff15::", 16), Some(false), Some(true)),
            (net("ff02::", 16), Some(false), Some(false)),
            (Test::Family(vec![true]), Some(false), Some(true)),
            (Test::UnknownOf(true), Some(false), None),
            (Test::Unknown, None, None),
        ] {
            let condition = Condition { is, negated: false };
            assert_eq!((condition.of(&v4), condition.of(&v6)), (of_v4, of_v6), "{condition:?}");
        }
        let table = |name: &str| Table { name: name.to_owned(), chains: vec![] };
        let sees = |name| (table(name).sees(&v4), table(name).sees(&v6));
        assert_eq!(
            ["nftables ip t", "ip6tables t", "nftables inet t"].map(sees),
            [(true, false), (false, true), (true, true)]
        );
    }

    #[test]
    fn an_unknown_condition_makes_a_drop_doubtful() {
        let doubtful = Fate::Doubtful("'a rule'".to_owned());
        assert_eq!(fate(false, vec![rule(&[Test::Unknown], Action::Drop)]), doubtful);
        assert_eq!(
            fate(true, vec![rule(&[Test::Unknown], Action::Accept)]),
            Fate::Doubtful("the policy".to_owned())
        );
        // A condition that is certainly not met settles it: the rule does not apply.
        assert_eq!(fate(false, vec![rule(&[Test::Unknown, Test::Never], Action::Drop)]), Fate::Passes);
        // A called chain may have accepted the packet, and so may one that goes on to another.
        let spares = Chain {
            name: "spares".to_owned(),
            hook: None,
            drops: false,
            rules: vec![rule(&[Test::Unknown], Action::Accept)],
        };
        for action in [Action::Jump("spares".to_owned()), Action::Goto("spares".to_owned())] {
            let base = Chain {
                hook: Some(Hook::Input),
                drops: true,
                rules: vec![rule(&[], action)],
                ..spares.clone()
            };
            let table = Table { name: String::new(), chains: vec![spares.clone()] };
            let fate = walk(&table, &base, &packet(true, [10, 0, 0, 1], 29500), 0);
            assert_eq!(fate, Fate::Doubtful("the policy".to_owned()));
        }
        // The second rule drops the packet even if the first does not.
        let both = vec![rule(&[Test::Unknown], Action::Drop), rule(&[], Action::Drop)];
        assert_eq!(fate(false, both), Fate::Dropped("'a rule'".to_owned()));
    }
}
