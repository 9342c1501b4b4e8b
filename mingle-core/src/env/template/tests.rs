//! What is read as a template, what it becomes, and what never gets into it.

use std::net::SocketAddr;

use super::*;
use crate::model::{Digest, HostName, JobId, Metadata, NodeId, Roster, World};
use crate::proto::Formed;

const IPV4: [&str; 3] = ["10.0.0.1:29503", "10.0.0.2:29504", "10.0.0.2:29505"];
const IPV6: [&str; 3] = ["[fd00::1%7]:29503", "[fd00::2]:29504", "[fd00::3]:29505"];

/// A world of three, as rank 1 sees it. Its last two nodes share a host.
fn formed(addresses: [&str; 3], hosts: [&str; 3]) -> Formed {
    let world = World::new(3).unwrap();
    let members = (0..).zip(addresses).zip(hosts).map(|((rank, address), host)| Member {
        rank: world.rank(rank).unwrap(),
        id: NodeId([7; 16]),
        host: HostName::new(host),
        address: address.parse::<SocketAddr>().unwrap(),
        slots: 4 + rank,
        metadata: Metadata::default(),
        session_port: 0,
    });
    let members: Vec<Member> = members.collect();
    let (master, own) = (members[0].address, members[1].clone());
    let mut formed = Formed::new(own.rank, world, master, own.address.ip(), Digest([0xab; 16]));
    let roster = Roster::new(members).unwrap();
    formed.slots = roster.slots(own.rank).unwrap();
    formed.roster = Some(roster);
    formed
}

fn fill_in(template: &str, formed: &Formed) -> Result<String, Unfit> {
    let job: JobId = "my job".parse().unwrap();
    let facts = Facts { ports: &[20001, 20002], ..Facts::new(&job, formed) };
    Template::strict(template.as_bytes()).unwrap().fill(facts, &|_| None)
}

fn filled(template: &str) -> String {
    fill_in(template, &formed(IPV4, ["a", "b", "b"])).unwrap()
}

#[test]
fn every_placeholder_has_its_value() {
    assert_eq!(
        filled("{rank} {world} {job} {slots} {master} {master_addr} {master_port} {port1} {port2}"),
        "1 3 my%20job 5 10.0.0.1:29503 10.0.0.1 29503 20001 20002"
    );
    assert_eq!(filled("{host} {addr} {port} {endpoint}"), "b 10.0.0.2 29504 10.0.0.2:29504");
    assert_eq!(
        filled("{hosts} {addrs} {endpoints}"),
        "a,b,b 10.0.0.1,10.0.0.2,10.0.0.2 10.0.0.1:29503,10.0.0.2:29504,10.0.0.2:29505"
    );
    let node = "{node.rank} {node.host} {node.addr} {node.port} {node.endpoint} {node.slots}";
    assert_eq!(
        filled(&format!("{{each node}}{node}{{between}}; {{end}}")),
        "0 a 10.0.0.1 29503 10.0.0.1:29503 4; 1 b 10.0.0.2 29504 10.0.0.2:29504 5; \
         2 b 10.0.0.2 29505 10.0.0.2:29505 6"
    );
    let ipv6 = formed(IPV6, ["a", "b", "c"]);
    assert_eq!(
        fill_in("{master} {master_addr} {endpoint} {addrs} {endpoints}", &ipv6).unwrap(),
        "[fd00::1]:29503 fd00::1 [fd00::2]:29504 fd00::1,fd00::2,fd00::3 \
         [fd00::1]:29503,[fd00::2]:29504,[fd00::3]:29505"
    );
    // Nothing that messages list is without a value.
    for name in names::list().split(['{', '}']).filter(|name| names::is_known(name, true)) {
        assert!(!filled(&format!("{{each node}}{{{name}}}{{end}}")).is_empty(), "{name}");
    }
}

#[test]
fn blocks_are_for_each_node_and_braces_are_doubled() {
    assert_eq!(filled("{each other}{node.rank}{between},{end}"), "0,2");
    assert_eq!(filled("{{\"a\": [{each node}{{{node.rank}}}{between},{end}]}}"), "{\"a\": [{0},{1},{2}]}");
    assert_eq!(filled("{each node}{end}{each node}{between}{rank}{end}"), "11");
    assert_eq!(filled(""), "");
}

#[test]
fn a_line_with_nothing_but_a_tag_of_a_block_leaves_no_line_behind() {
    assert_eq!(
        filled("a\n  {each node} \r\n{node.rank}\n\t{between}\n--\n{end}\nb\n"),
        "a\n0\n--\n1\n--\n2\nb\n"
    );
    assert_eq!(filled("{each node}\n{node.rank}\n{end}"), "0\n1\n2\n");
    assert_eq!(filled("x {each node}\n{node.rank} {end}\n"), "x \n0 \n1 \n2 \n");
    assert_eq!(filled("{rank}\n\n{each other}{node.rank}\n{end}\n"), "1\n\n0\n2\n");
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_column() {
    let error = |text: &[u8]| Template::strict(text).unwrap_err().to_string();
    for (text, told) in [
        ("{rank}\né {ranks}\n", "2:3: {ranks} means nothing here; there are {rank}, {world}, {job},"),
        ("{node.rank}", "1:1: {node.rank} means nothing here"),
        ("{each node}{end}{node.rank}", "1:17: {node.rank} means"),
        ("{end}", "1:1: {end} means nothing here"),
        ("{between}", "1:1: {between} means nothing here"),
        ("{each node}{between}{between}{end}", "1:21: {between} means"),
        ("{each node}\n{each other}{end}", "2:1: {each other} means"),
        ("a\n {each node}\n{node.rank}\n", "2:2: this block has no {end}"),
        ("{ rank }", "1:1: { rank } means"),
        ("{}", "1:1: no placeholder begins or ends here; write {{ and }} for braces"),
        ("}", "1:1: no placeholder"),
        ("a {", "1:3: no placeholder"),
        ("{rank\n}", "1:1: no placeholder"),
        ("{{rank}", "1:7: no placeholder"),
        ("{port0}", "1:1: {port0} means"),
        ("{port65}", "1:1: {port65} means"),
        ("{port+1}", "1:1: {port+1} means"),
    ] {
        assert!(error(text.as_bytes()).starts_with(told), "{text}: {}", error(text.as_bytes()));
    }
    assert!(error(b"{ranks}").contains("{node.slots} and {between}") && error(b"{x}").contains("{port1}"));
    assert_eq!(error(b"\xc3\xa9\nab\xff"), "2:3: this is not UTF-8");
}

#[test]
fn braces_in_a_command_stay_unless_they_are_a_placeholder() {
    let (job, formed) = ("foo".parse().unwrap(), formed(IPV4, ["a", "b", "b"]));
    let given = |name: &str| (name == "rank").then(|| "{world}".to_owned());
    for (word, expected) in [
        ("{rank}/{{world}} {end}}", "{world}/{3} {end}}"),
        ("{each node} {each node}{node.rank} {end}", " {each node}0  {each node}1  {each node}2 "),
    ] {
        let template = Template::lenient(word).unwrap();
        assert_eq!(template.fill(Facts::new(&job, &formed), &given).unwrap(), expected, "{word}");
    }
    assert!(Template::lenient("{each node}").is_err());
}

#[test]
fn the_roster_is_wanted_only_where_a_value_needs_it() {
    let mut formed = formed(IPV4, ["a", "b", "b"]);
    formed.roster = None;
    let job = "foo".parse().unwrap();
    for name in names::list().split(['{', '}']).filter(|name| names::is_known(name, false)) {
        let template = Template::lenient(&format!("{{{name}}}")).unwrap();
        let facts = Facts { ports: &[1], ..Facts::new(&job, &formed) };
        let has_value = template.fill(facts, &|_| None).is_ok();
        assert_eq!(has_value, !template.needs_roster(), "{name}");
    }
    assert!(Template::strict(b"{each node}{end}").unwrap().needs_roster());
}

#[test]
fn a_host_name_that_would_not_lead_to_its_node_is_refused() {
    let told = |template: &str, hosts: [&str; 3]| {
        fill_in(template, &formed(IPV4, hosts)).map_err(|error| error.to_string())
    };
    for template in ["{hosts}", "{each node}{node.host}{end}"] {
        let error = told(template, ["localhost", "b", "c"]).unwrap_err();
        assert!(
            error.starts_with("rank 0 has the host name \"localhost\", which other hosts cannot"),
            "{error}"
        );
        // Rank 2 shares its host with rank 1, and rank 0 does not.
        let error = told(template, ["b", "c", "b"]).unwrap_err();
        assert!(error.starts_with("ranks 0 and 2 both have the host name \"b\", and {hosts}"), "{error}");
        assert!(told(template, ["-n", "b", "b"]).is_err() && told(template, ["a", "b", "b"]).is_ok());
    }
    assert_eq!(told("{addrs}{host}", ["localhost", "c", "c"]).unwrap(), "10.0.0.1,10.0.0.2,10.0.0.2c");
}

#[test]
fn nothing_that_a_shell_reads_gets_into_the_text() {
    for host in ["$(reboot)", "a;b", "a' 'b\"", "a\nb", "a b", "{rank}", "`x`"] {
        let text = fill_in("{host}{each node}{node.slots}{end}", &formed(IPV4, ["a", host, host])).unwrap();
        assert!(text.chars().all(is_plain), "{text}");
    }
    for value in ["$(reboot)", "a b", "a'", "[a", "a]", "[a]$", "[$a]", "a,[b]c;", "a\n", "~"] {
        assert!(matches!(checked(value.to_owned()), Err(Unfit::Unsafe(_))), "{value}");
    }
    assert!(checked("[fd00::1]:1,[fd00::2]:2,a".to_owned()).is_ok());
}

#[test]
fn a_template_without_its_text_or_port_is_an_error() {
    let (job, formed) = ("foo".parse().unwrap(), formed(IPV4, ["a", "b", "b"]));
    let facts = Facts::new(&job, &formed);
    let variables = Format::TEMPLATE.variables(facts, |_| None).unwrap();
    assert_eq!(Format::TEMPLATE.render(facts, &variables).unwrap_err(), Unfit::NoTemplate);
    assert_eq!(fill_in("{port3}", &formed).unwrap_err(), Unfit::NoPort(3));
}

/// The templates in the folder of examples.
#[test]
fn every_example_is_filled_in_as_its_golden_file() {
    let root = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(root.join("../examples/templates")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read(&path).unwrap();
        let lines = text.split(|byte| *byte == b'\n').count() - 1;
        assert!(lines <= 15 && text.starts_with(b"# "), "{}: {lines} lines", path.display());
        let template = Template::strict(&text).unwrap();
        let (job, formed) = ("foo".parse().unwrap(), formed(IPV4, ["a", "b", "b"]));
        let facts = Facts { template: Some(&template), ..Facts::new(&job, &formed) };
        let variables = Format::TEMPLATE.variables(facts, |_| None).unwrap();
        let text = Format::TEMPLATE.render(facts, &variables).unwrap().unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        launcher::tests::golden(&format!("template.{name}"), &text);
        count += 1;
    }
    assert_eq!(count, 4);
}
