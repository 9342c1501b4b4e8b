//! The rules of `nft -j list ruleset`, whose JSON is described in libnftables-json(5).

use std::net::IpAddr;

use serde_json::Value;

use super::firewall::{Action, Chain, Condition, Hook, Rule, Table, Test};

/// The tables, without those of iptables for the families in `shown` (`ip`, `ip6`), which iptables-save has
/// printed: in JSON they are `xt` expressions without their content.
pub(super) fn tables(json: &str, shown: &[&str]) -> Option<Vec<Table>> {
    let document: Value = serde_json::from_str(json).ok()?;
    let mut tables: Vec<Table> = Vec::new();
    let name = |value: &Value| {
        let part = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        (format!("nftables {} {}", part("family"), part("table")), part("family"))
    };
    for item in document.get("nftables")?.as_array()? {
        if let Some(chain) = item.get("chain") {
            let (table, family) = name(chain);
            if !matches!(&*family, "ip" | "ip6" | "inet") {
                continue;
            }
            let at = position(&mut tables, table);
            tables[at].chains.push(self::chain(chain));
        } else if let Some(rule) = item.get("rule") {
            let (table, _) = name(rule);
            let wanted = rule.get("chain").and_then(Value::as_str).unwrap_or_default();
            let found = tables.iter_mut().find(|other| other.name == table);
            if let Some(chain) = found.and_then(|t| t.chains.iter_mut().find(|chain| chain.name == wanted)) {
                chain.rules.extend(rules(rule));
            }
        }
    }
    tables.retain(|table| !shown.iter().any(|family| is_iptables(table, family)));
    Some(tables)
}

/// The tables of iptables-nft have the names of iptables' own, and chains in capitals.
fn is_iptables(table: &Table, family: &str) -> bool {
    let known = ["filter", "raw", "mangle", "security", "nat"];
    let named = known.iter().any(|name| table.name == format!("nftables {family} {name}"));
    named && table.chains.iter().any(|chain| matches!(&*chain.name, "INPUT" | "OUTPUT" | "PREROUTING"))
}

fn position(tables: &mut Vec<Table>, name: String) -> usize {
    tables.iter().position(|table| table.name == name).unwrap_or_else(|| {
        tables.push(Table { name, chains: Vec::new() });
        tables.len() - 1
    })
}

fn chain(value: &Value) -> Chain {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let hook = match (text("type"), text("hook")) {
        ("filter", "input" | "prerouting") => Some(Hook::Input),
        ("filter" | "route", "output") | ("filter", "postrouting") => Some(Hook::Output),
        _ => None,
    };
    Chain { name: text("name").to_owned(), hook, drops: text("policy") == "drop", rules: Vec::new() }
}

/// The rules of one JSON rule: a verdict map is one rule for each of its entries.
fn rules(value: &Value) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut conditions: Vec<Condition> = Vec::new();
    let expressions = value.get("expr").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = words(expressions);
    for expression in expressions {
        if let Some(found) = expression.get("match") {
            conditions.push(condition(found));
        } else if let Some(map) = expression.get("vmap") {
            let entries = map.pointer("/data/set").and_then(Value::as_array);
            for entry in entries.map(Vec::as_slice).unwrap_or_default() {
                let (Some(key), Some(value), Some(left)) = (entry.get(0), entry.get(1), map.get("key"))
                else {
                    continue;
                };
                let mut conditions = conditions.clone();
                conditions.push(Condition { is: test(left, key), negated: false });
                let action = action(value).unwrap_or(Action::Nothing);
                rules.push(Rule { text: text.clone(), conditions, action });
            }
            if entries.is_none() {
                conditions.push(Condition { is: Test::Unknown, negated: false });
                rules.push(Rule { text: text.clone(), conditions: conditions.clone(), action: Action::Drop });
            }
        } else if let Some(action) = action(expression) {
            rules.push(Rule { text: text.clone(), conditions: conditions.clone(), action });
        } else if expression.get("xt").is_some() || expression.get("limit").is_some() {
            conditions.push(Condition { is: Test::Unknown, negated: false });
        }
    }
    rules
}

fn action(value: &Value) -> Option<Action> {
    let target = |key: &str| {
        let target = value.get(key)?.get("target")?.as_str()?;
        Some(target.to_owned())
    };
    let has = |key: &str| value.get(key).is_some();
    match () {
        () if has("accept") => Some(Action::Accept),
        () if has("drop") || has("reject") => Some(Action::Drop),
        () if has("return") => Some(Action::Return),
        () if has("jump") => target("jump").map(Action::Jump),
        () if has("goto") => target("goto").map(Action::Goto),
        () => None,
    }
}

fn condition(found: &Value) -> Condition {
    let negated = found.get("op").and_then(Value::as_str) == Some("!=");
    let ordered = matches!(found.get("op").and_then(Value::as_str), Some("<" | ">" | "<=" | ">="));
    let is = match (found.get("left"), found.get("right")) {
        (Some(left), Some(right)) if !ordered => test(left, right),
        _ => Test::Unknown,
    };
    // A condition on another protocol is not met, negated or not.
    Condition { negated: negated && is != Test::Never, is }
}

fn test(left: &Value, right: &Value) -> Test {
    let part = |path: &str| left.pointer(path).and_then(Value::as_str);
    let known = match (part("/meta/key"), part("/ct/key"), part("/payload/protocol"), part("/payload/field"))
    {
        (Some("iifname" | "iif"), ..) => names(right).map(Test::From),
        (Some("oifname" | "oif"), ..) => names(right).map(Test::To),
        (Some("l4proto"), ..) | (.., Some("ip"), Some("protocol")) => names(right).map(Test::Protocol),
        (Some("nfproto"), ..) => {
            names(right).map(|names| Test::Family(names.iter().map(|name| name == "ipv6").collect()))
        }
        (Some("pkttype"), ..) => names(right).map(Test::PacketType),
        (_, Some("state"), ..) => names(right).map(Test::State),
        (.., Some("ip" | "ip6"), Some("daddr")) => nets(right).map(Test::Destination),
        (.., Some("ip6"), Some("nexthdr")) => names(right).map(Test::Protocol),
        (.., Some(family @ ("ip" | "ip6")), _) => Some(Test::UnknownOf(family == "ip6")),
        (.., Some("icmp" | "icmpv6" | "igmp" | "arp" | "sctp"), _) => Some(Test::Never),
        // The protocol is asked for by the match itself: `udp dport` is not met by TCP.
        (.., Some(protocol @ ("tcp" | "udp")), Some("dport")) => {
            ports(right).map(|ports| Test::PortOf(protocol == "tcp", ports))
        }
        (.., Some("th"), Some("dport")) => ports(right).map(Test::Port),
        _ => None,
    };
    known.unwrap_or(Test::Unknown)
}

/// One value, or all of a set or a list. A named set (`@name`) is not looked up.
fn values(value: &Value) -> Vec<&Value> {
    match value.get("set").unwrap_or(value) {
        Value::Array(all) => all.iter().collect(),
        one => vec![one],
    }
}

fn names(value: &Value) -> Option<Vec<String>> {
    let name = |value: &Value| value.as_str().filter(|text| !text.starts_with('@')).map(str::to_owned);
    values(value).into_iter().map(name).collect()
}

fn ports(value: &Value) -> Option<Vec<(u16, u16)>> {
    let port = |value: &Value| u16::try_from(value.as_u64()?).ok();
    let range = |value: &Value| match value.get("range") {
        Some(range) => Some((port(range.get(0)?)?, port(range.get(1)?)?)),
        None => port(value).map(|port| (port, port)),
    };
    values(value).into_iter().map(range).collect()
}

fn nets(value: &Value) -> Option<Vec<(IpAddr, u8)>> {
    let net = |value: &Value| match value.get("prefix") {
        Some(prefix) => {
            let bits = u8::try_from(prefix.get("len")?.as_u64()?).ok()?;
            Some((prefix.get("addr")?.as_str()?.parse().ok()?, bits))
        }
        None => Some((value.as_str()?.parse().ok()?, 128)),
    };
    values(value).into_iter().map(net).collect()
}

/// The rule as text, close to nft's own syntax.
fn words(expressions: &[Value]) -> String {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let left = |left: &Value| {
        let part = |path: &str| left.pointer(path).and_then(Value::as_str);
        match (part("/payload/protocol"), part("/payload/field"), part("/meta/key"), part("/ct/key")) {
            (Some(protocol), Some(field), ..) => format!("{protocol} {field}"),
            (.., Some(key), _) => key.to_owned(),
            (.., Some(key)) => format!("ct {key}"),
            _ => left.to_string(),
        }
    };
    let right = |right: &Value| {
        let one = |value: &Value| match (value.get("range"), value.get("prefix")) {
            (Some(range), _) => format!("{}-{}", word(&range[0]), word(&range[1])),
            (_, Some(prefix)) => format!("{}/{}", word(&prefix["addr"]), word(&prefix["len"])),
            _ => word(value),
        };
        values(right).into_iter().map(one).collect::<Vec<_>>().join(",")
    };
    let mut all = Vec::new();
    for expression in expressions {
        let Some((key, value)) = expression.as_object().and_then(|object| object.iter().next()) else {
            continue;
        };
        match &**key {
            "match" => {
                let op = if value["op"] == "!=" { " !=" } else { "" };
                all.push(format!("{}{op} {}", left(&value["left"]), right(&value["right"])));
            }
            "vmap" => all.push(format!("{} vmap", left(&value["key"]))),
            "jump" | "goto" => all.push(format!("{key} {}", word(&value["target"]))),
            "counter" | "log" | "comment" => {}
            other => all.push(other.to_owned()),
        }
    }
    all.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::super::firewall;
    use super::*;

    /// As nft 1.0.6 prints it, with the given rules in a chain on input.
    fn ruleset(policy: &str, rules: &[&str]) -> String {
        let rules: Vec<String> = rules
            .iter()
            .map(|rule| {
                format!(
                    r#", {{"rule": {{"family": "inet", "table": "t", "chain": "input", "handle": 2, "expr": [{rule}]}}}}"#
                )
            })
            .collect();
        format!(
            r#"{{"nftables": [{{"metainfo": {{"json_schema_version": 1}}}},
            {{"table": {{"family": "inet", "name": "t", "handle": 1}}}},
            {{"chain": {{"family": "inet", "table": "t", "name": "input", "handle": 1, "type": "filter",
            "hook": "input", "prio": 0, "policy": "{policy}"}}}}{}]}}"#,
            rules.concat()
        )
    }

    fn judge(policy: &str, rules: &[&str]) -> Vec<(Status, String)> {
        let tables = tables(&ruleset(policy, rules), &["ip"]).unwrap();
        firewall::tests::judge("nftables", &tables)
    }

    const NOT_LO: &str = r#"{"match": {"op": "!=", "left": {"meta": {"key": "iifname"}}, "right": "lo"}}"#;
    const UDP: &str = r#"{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 29499}}"#;
    const TCP: &str = r#"{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}},
        "right": {"set": [22, {"range": [29500, 29999]}]}}}"#;
    const GROUPS: &str = r#"{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}},
        "right": {"prefix": {"addr": "224.0.0.0", "len": 4}}}}"#;
    const STATES: &str = r#"{"vmap": {"key": {"ct": {"key": "state"}},
        "data": {"set": [["invalid", {"drop": null}], ["established", {"accept": null}]]}}}"#;

    #[test]
    fn a_rule_that_drops_is_named_and_the_rest_is_not() {
        let drop = |conditions: &[&str]| format!("{}, {{\"drop\": null}}", conditions.join(", "));
        let found = judge("accept", &[&drop(&[NOT_LO, UDP])]);
        let text =
            "'iifname != lo udp dport 29499 drop' may drop UDP port 29499 of group 239.192.1.2 on the way in";
        assert_eq!(found, [(Status::Warning, text.to_owned())]);
        let found = judge("accept", &[&drop(&[TCP])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].1.contains("tcp dport 22,29500-29999 drop' may drop TCP port 29500"), "{found:?}");
        assert!(judge("accept", &[&drop(&[GROUPS])])[0].1.contains("ip daddr 224.0.0.0/4 drop"));
        assert_eq!(judge("accept", &[STATES])[0].0, Status::Ok);
    }

    #[test]
    fn a_policy_drops_what_no_rule_accepts() {
        let accept = |condition: &str| format!("{condition}, {{\"accept\": null}}");
        let found = judge("drop", &[STATES, &accept(TCP)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].1.starts_with("the policy may drop UDP port 29499"), "{found:?}");
        assert_eq!(judge("drop", &[&accept(TCP), &accept(UDP)])[0].0, Status::Ok);
        assert_eq!(judge("drop", &[&accept(r#"{"xt": null}"#)])[0].0, Status::Note);
    }

    #[test]
    fn a_text_without_a_ruleset_has_no_tables() {
        for text in ["", "{}", "[]", "{\"nftables\": 7}"] {
            assert_eq!(tables(text, &[]), None, "{text}");
        }
        assert_eq!(tables(r#"{"nftables": [7, {"rule": 3}, {"chain": []}]}"#, &["ip"]), Some(vec![]));
    }
}
