//! Every format, word for word, and what no format may ever print.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::super::tests::facts;
use super::*;
use crate::model::{Digest, HostName, Member, Metadata, NodeId, World};
use crate::proto::Formed;
use crate::rdma::Verdict;

/// A world of four nodes with 8, 4, 8 and 1 workers, as this rank sees it; the last two share a host.
fn formed(rank: u32, addresses: [&str; 4], hosts: [&str; 4]) -> Formed {
    let world = World::new(4).unwrap();
    let members =
        (0..4).zip(addresses).zip(hosts).zip([8, 4, 8, 1]).map(|(((rank, address), host), slots)| {
            let address: SocketAddr = address.parse().unwrap();
            let (rank, host) = (world.rank(rank).unwrap(), HostName::new(host));
            Member { rank, id: NodeId([7; 16]), host, address, slots, metadata: Metadata::default() }
        });
    let roster = Roster::new(members.collect()).unwrap();
    let own = &roster.members()[rank as usize];
    Formed {
        rank: own.rank,
        world,
        master: roster.members()[0].address,
        local: own.address.ip(),
        digest: Digest([0xab; 16]),
        verdict: Verdict::default(),
        slots: roster.slots(own.rank).unwrap(),
        roster: Some(roster),
    }
}

const HOSTS: [&str; 4] = ["node-a", "node-b", "node-c", "node-c"];
const IPV4: [&str; 4] = ["10.0.0.1:29503", "10.0.0.2:29503", "10.0.0.3:29503", "10.0.0.3:29504"];
const IPV6: [&str; 4] = ["[fd00::1%7]:29503", "[fd00::2]:29503", "[fd00::3]:29503", "[fd00::3]:29504"];

fn text(format: Format, formed: &Formed, parameter_servers: u32) -> Result<String, Unfit> {
    let job = "my job".parse().unwrap();
    let facts = Facts { interface: Some("eth0"), parameter_servers, ..facts(&job, formed) };
    let variables = format.variables(facts, |_| None)?;
    Ok(match format.render(facts, &variables)? {
        Rendered::Script(script) => script.as_str().to_owned(),
        Rendered::Text(text) => text,
        Rendered::Document(_) => unreachable!("JSON, which the command line writes and tests"),
    })
}

/// Compares with the file of this name, or with MINGLE_BLESS=1 writes it.
fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/env/format/golden").join(name);
    if std::env::var_os("MINGLE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
    }
    let expected =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, expected, "{name}");
}

#[test]
fn every_format_is_printed_as_its_file_says() {
    for format in Format::all().into_iter().filter(|format| *format != Format::Json) {
        golden(&format!("{format}.ipv4"), &text(format, &formed(1, IPV4, HOSTS), 0).unwrap());
        golden(&format!("{format}.ipv6"), &text(format, &formed(0, IPV6, HOSTS), 0).unwrap());
    }
    golden("tf-config.ps", &text(Format::TfConfig, &formed(1, IPV4, HOSTS), 1).unwrap());
}

#[test]
fn a_format_is_named_as_it_is_read() {
    for format in Format::all() {
        assert_eq!(format.name().parse(), Ok(format));
    }
    let error = "xml".parse::<Format>().unwrap_err().to_string();
    assert!(
        error.starts_with("the formats are sh, fish, json, ") && error.ends_with(", skypilot"),
        "{error}"
    );
}

#[test]
fn parameter_servers_are_the_first_ranks() {
    let task = |rank, servers| text(Format::TfConfig, &formed(rank, IPV4, HOSTS), servers);
    assert!(task(0, 1).unwrap().ends_with("\"task\":{\"type\":\"ps\",\"index\":0}}\n"));
    assert!(task(3, 1).unwrap().ends_with("\"task\":{\"type\":\"worker\",\"index\":2}}\n"));
    assert_eq!(task(0, 4), Err(Unfit::NoWorkers(4, 4)));
}

#[test]
fn lists_that_hold_no_ipv6_name_hosts_and_refuse_names_that_are_the_same() {
    let formed = formed(0, ["[fd00::1]:1", "[fd00::2]:1", "[fd00::3]:1", "[fd00::4]:1"], HOSTS);
    for format in [Format::Hostfile, Format::Horovod, Format::Slots, Format::TiOne] {
        let error = text(format, &formed, 0).unwrap_err().to_string();
        assert!(error.starts_with("ranks 2 and 3 both call their host \"node-c\""), "{error}");
    }
    assert!(text(Format::Deepspeed, &formed, 0).is_ok());
}

#[test]
fn without_a_roster_only_the_formats_that_list_nobody_are_printed() {
    let mut formed = formed(1, IPV4, HOSTS);
    formed.roster = None;
    for format in Format::all().into_iter().filter(|format| *format != Format::Json) {
        let expected = if format.needs_roster() { Err(Unfit::NoRoster(format)) } else { Ok(()) };
        assert_eq!(text(format, &formed, 0).map(drop), expected);
    }
}

#[test]
fn what_one_launcher_was_told_is_removed_before_another_is() {
    let (job, formed) = ("foo".parse().unwrap(), formed(1, IPV4, HOSTS));
    let facts = facts(&job, &formed);
    for first in Format::all() {
        let before = first.variables(facts, |_| None).unwrap();
        let lookup = |name: &str| before.set().iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        for second in Format::all() {
            let after = second.variables(facts, lookup).unwrap();
            let is_set = |name: &str| after.set().iter().any(|(n, _)| n == name);
            let left = before.set().iter().filter(|(name, _)| is_launchers(name) && !is_set(name));
            let left: Vec<&str> = left.map(|(name, _)| &**name).collect();
            assert_eq!(after.unset(), left, "{first}, then {second}");
        }
        let own = before.set().iter().filter(|(name, _)| !is_launchers(name)).map(|(name, _)| &**name);
        let plain: Vec<_> = Format::Sh.variables(facts, |_| None).unwrap().set;
        let known: Vec<&str> = plain.iter().map(|(name, _)| &**name).collect();
        assert!(own.clone().all(|name| known.contains(&name)), "{first}: {:?}", own.collect::<Vec<_>>());
    }
}

/// What a shell would act on, and what a reader of lines, lists or JSON would.
const HOSTILE: [&str; 8] = [
    "$(reboot)",
    "`reboot`;x",
    "a' 'b\"\\",
    "a\n127.0.0.1 b",
    "x slots=99",
    "a:1,b:2",
    "# mingle foo end",
    "[~*?]{}<>|&!^\u{202e}\u{7f}",
];

#[test]
fn no_hosts_name_and_no_job_id_leaves_the_alphabet_of_its_format() {
    for host in HOSTILE {
        let (a, b) = (format!("{host}1"), format!("{host}2"));
        for addresses in [IPV4, IPV6] {
            let formed = formed(1, addresses, [&a, &b, host, host]);
            for format in Format::all().into_iter().filter(|format| *format != Format::Json) {
                let text = match text(format, &formed, 0) {
                    // What begins with no letter is no name for others.
                    Err(Unfit::Name(..)) if addresses == IPV6 => continue,
                    text => text.unwrap(),
                };
                let is_known = |c: char| match format.shell() {
                    Some(_) => c.is_ascii_alphanumeric() || " \n';=_.,:/@%+-()\"$[]".contains(c),
                    None => c.is_ascii_alphanumeric() || " \n=_.,:/@%+-#[]{}\"".contains(c),
                };
                assert!(text.chars().all(is_known), "{format}:\n{text}");
                // No name makes a line, a list's part or a slot of its own.
                let plain = self::formed(1, addresses, HOSTS);
                let plain = self::text(format, &plain, 0).unwrap();
                for c in ['\n', ',', '=', '"', ' '] {
                    let count = |text: &str| text.matches(c).count();
                    let is_left_out = format == Format::Hosts && count(&text) < count(&plain);
                    assert!(count(&text) == count(&plain) || is_left_out, "{format} {c:?}:\n{text}");
                }
            }
        }
    }
}
