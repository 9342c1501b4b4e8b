//! The rules of `iptables-save`.

use std::net::IpAddr;

use super::firewall::{Action, Chain, Condition, Hook, Rule, Table, Test};

/// The tables of a save of `iptables` or `ip6tables`, without nat, which drops nothing.
pub(super) fn tables(program: &str, save: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for line in save.lines() {
        if let Some(name) = line.strip_prefix('*') {
            tables.push(Table { name: format!("{program} {name}"), chains: Vec::new() });
        } else if let (Some(chain), Some(table)) = (line.strip_prefix(':'), tables.last_mut()) {
            let mut words = chain.split_ascii_whitespace();
            let name = words.next().unwrap_or_default().to_owned();
            let hook = match &*name {
                "INPUT" | "PREROUTING" => Some(Hook::Input),
                "OUTPUT" | "POSTROUTING" => Some(Hook::Output),
                _ => None,
            };
            table.chains.push(Chain { name, hook, drops: words.next() == Some("DROP"), rules: Vec::new() });
        } else if let (Some(rule), Some(table)) = (line.strip_prefix("-A "), tables.last_mut()) {
            let (chain, rest) = rule.split_once(' ').unwrap_or((rule, ""));
            if let Some(chain) = table.chains.iter_mut().find(|other| other.name == chain) {
                chain.rules.push(parse(rest));
            }
        }
    }
    tables.retain(|table| !table.name.ends_with(" nat"));
    tables
}

fn parse(text: &str) -> Rule {
    let mut rule = Rule { text: text.to_owned(), conditions: Vec::new(), action: Action::Nothing };
    let words = split(text);
    let mut words = words.iter().map(String::as_str);
    let mut negated = false;
    while let Some(word) = words.next() {
        let mut list = |separator: char| {
            let value = words.next().unwrap_or_default();
            value.split(separator).map(str::to_ascii_lowercase).collect::<Vec<_>>()
        };
        let test = match word {
            "!" => {
                negated = true;
                continue;
            }
            "-m" | "--comment" => {
                list(' ');
                continue;
            }
            "-j" | "-g" => {
                rule.action = action(words.next().unwrap_or_default(), word == "-g");
                // The options after the target say how to reject, or what to log.
                break;
            }
            // Names keep their capitals.
            "-i" => Test::From(vec![words.next().unwrap_or_default().to_owned()]),
            "-o" => Test::To(vec![words.next().unwrap_or_default().to_owned()]),
            "-p" => Test::Protocol(list(',')),
            "--dport" | "--dports" => ports(&list(',')).map_or(Test::Unknown, Test::Port),
            "-d" => net(&list(',')).map_or(Test::Unknown, |net| Test::Destination(vec![net])),
            "--state" | "--ctstate" => Test::State(list(',')),
            "--pkt-type" => Test::PacketType(list(',')),
            // A packet to the host itself is the only unicast that a rendezvous sends it.
            "--dst-type" => {
                let kind = |name: String| if name == "local" { "unicast".to_owned() } else { name };
                Test::PacketType(list(',').into_iter().map(kind).collect())
            }
            _ if word.starts_with('-') => Test::Unknown,
            // The value of an option that is not known.
            _ => continue,
        };
        rule.conditions.push(Condition { is: test, negated });
        negated = false;
    }
    rule
}

fn action(target: &str, goes: bool) -> Action {
    match target {
        "ACCEPT" => Action::Accept,
        "DROP" | "REJECT" => Action::Drop,
        "RETURN" => Action::Return,
        chain if goes => Action::Goto(chain.to_owned()),
        // A target such as LOG is no chain, and goes on like one that is not there.
        chain => Action::Jump(chain.to_owned()),
    }
}

/// Splits at spaces, except within double quotes.
fn split(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    let mut escaped = false;
    for c in text.chars() {
        match c {
            _ if escaped => {
                words.last_mut().into_iter().for_each(|word| word.push(c));
                escaped = false;
            }
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().into_iter().for_each(|word| word.push(c)),
        }
    }
    words
}

fn ports(list: &[String]) -> Option<Vec<(u16, u16)>> {
    let range = |text: &String| {
        let (low, high) = text.split_once(':').unwrap_or((text, text));
        Some((low.parse().ok()?, high.parse().ok()?))
    };
    list.iter().map(range).collect()
}

fn net(list: &[String]) -> Option<(IpAddr, u8)> {
    let [text] = list else { return None };
    let (ip, bits) = text.split_once('/').unwrap_or((text, "128"));
    Some((ip.parse().ok()?, bits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::super::firewall;
    use super::*;

    fn judge(policy: &str, rules: &[&str]) -> Vec<(Status, String)> {
        let save = format!(
            "# Generated by iptables-save\n*filter\n:INPUT {policy} [0:0]\n:OUTPUT ACCEPT [0:0]\n:ours - [0:0]\n\
             {}\n-A ours -p tcp -j REJECT --reject-with tcp-reset\nCOMMIT\n",
            rules.join("\n")
        );
        firewall::tests::judge("iptables", &tables("iptables", &save))
    }

    #[test]
    fn rules_are_read_as_iptables_saves_them() {
        let one = judge("ACCEPT", &["-A INPUT ! -i lo -p udp -m udp --dport 29499 -j DROP"]);
        assert_eq!(one.len(), 1);
        assert!(one[0].1.contains("--dport 29499 -j DROP' may drop UDP port 29499"), "{one:?}");
        let several = judge("ACCEPT", &["-A INPUT -p tcp -m multiport --dports 22,29000:30000 -j DROP"]);
        assert!(several[0].1.contains("may drop TCP port 29500"), "{several:?}");
        assert!(judge("ACCEPT", &["-A INPUT -j ours"])[0].1.contains("tcp-reset"));
        let fine = [
            "-A INPUT -i lo -j DROP",
            "-A INPUT -p tcp -m tcp --dport 22 -j DROP",
            "-A INPUT -d 10.0.0.9/32 -j DROP",
            "-A INPUT -m conntrack --ctstate INVALID -j DROP",
            "-A INPUT -m comment --comment \"a -j DROP of words\" -j ACCEPT",
            "-A OUTPUT -j DROP",
            "-A INPUT -j LOG --log-prefix \"-j DROP\"",
        ];
        assert_eq!(judge("ACCEPT", &fine)[0].0, Status::Ok);
    }

    #[test]
    fn a_policy_counts_and_an_unknown_condition_makes_a_drop_a_note() {
        let found = judge("DROP", &["-A INPUT -p tcp -j ACCEPT"]);
        assert!(found.len() == 1 && found[0].1.starts_with("the policy may drop UDP"), "{found:?}");
        let unknown = judge("ACCEPT", &["-A INPUT -m recent --name bad --rcheck -j DROP"]);
        assert!(unknown.iter().all(|(status, _)| *status == Status::Note), "{unknown:?}");
        let negated = judge("ACCEPT", &["-A INPUT ! -p udp -j DROP"]);
        assert!(negated.len() == 1 && negated[0].1.contains("may drop TCP"), "{negated:?}");
    }

    /// The rules of `ufw enable` and the given one of the user, as iptables-save prints them: a policy that
    /// drops, and a chain of chains.
    fn ufw(rule: &str) -> Vec<(Status, String)> {
        let save = format!(
            "*filter\n:INPUT DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:ufw-before-input - [0:0]\n:ufw-after-input - [0:0]\n\
             :ufw-not-local - [0:0]\n:ufw-user-input - [0:0]\n:ufw-skip-to-policy-input - [0:0]\n\
             :ufw-reject-input - [0:0]\n\
             -A INPUT -j ufw-before-input\n-A INPUT -j ufw-after-input\n-A INPUT -j ufw-reject-input\n\
             -A ufw-before-input -i lo -j ACCEPT\n\
             -A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
             -A ufw-before-input -m conntrack --ctstate INVALID -j DROP\n\
             -A ufw-before-input -p icmp -m icmp --icmp-type 8 -j ACCEPT\n\
             -A ufw-before-input -j ufw-not-local\n\
             -A ufw-before-input -d 224.0.0.251/32 -p udp -m udp --dport 5353 -j ACCEPT\n\
             -A ufw-before-input -j ufw-user-input\n\
             -A ufw-after-input -p udp -m udp --dport 137 -j ufw-skip-to-policy-input\n\
             -A ufw-after-input -m addrtype --dst-type BROADCAST -j ufw-skip-to-policy-input\n\
             -A ufw-not-local -m addrtype --dst-type LOCAL -j RETURN\n\
             -A ufw-not-local -m addrtype --dst-type MULTICAST -j RETURN\n\
             -A ufw-not-local -m addrtype --dst-type BROADCAST -j RETURN\n\
             -A ufw-not-local -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix \"[UFW BLOCK] \"\n\
             -A ufw-not-local -j DROP\n\
             -A ufw-skip-to-policy-input -j DROP\n{rule}COMMIT\n"
        );
        firewall::tests::judge("iptables", &tables("iptables", &save))
    }

    #[test]
    fn a_network_that_ufw_allows_in_a_called_chain_is_no_fault() {
        let allowed = ufw("-A ufw-user-input -s 10.0.0.0/8 -j ACCEPT\n");
        assert!(allowed.iter().all(|(status, _)| *status <= Status::Note), "{allowed:?}");
        // Of the port for ssh alone, the rest is dropped.
        let ssh = ufw("-A ufw-user-input -p tcp -m tcp --dport 22 -j ACCEPT\n");
        assert!(ssh.len() == 2 && ssh.iter().all(|(status, _)| *status == Status::Warning), "{ssh:?}");
    }
}
