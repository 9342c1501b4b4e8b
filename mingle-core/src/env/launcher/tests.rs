//! The text of every format, the documents that list them, and what no format may ever print.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use mingle_rdma::Verdict;

use super::*;
use crate::env::Template;
use crate::model::{Digest, HostName, Member, Metadata, NodeId, Sameness, Secret, World};
use crate::proto::Formed;

/// A world of four nodes with 8, 4, 8 and 1 workers, as `rank` sees it. The last two nodes share a host.
fn formed(rank: u32, addresses: [&str; 4], hosts: [&str; 4]) -> Formed {
    let world = World::new(4).unwrap();
    let members =
        (0..4).zip(addresses).zip(hosts).zip([8, 4, 8, 1]).map(|(((rank, address), host), slots)| {
            let address: SocketAddr = address.parse().unwrap();
            let (rank, host) = (world.rank(rank).unwrap(), HostName::new(host));
            Member {
                rank,
                id: NodeId([7; 16]),
                host,
                address,
                slots,
                metadata: Metadata::default(),
                session_port: 0,
            }
        });
    let roster = Roster::new(members.collect()).unwrap();
    let own = &roster.members()[rank as usize];
    Formed {
        rank: own.rank,
        world,
        asked: world.into(),
        master: roster.members()[0].address,
        local: own.address.ip(),
        digest: Digest([0xab; 16]),
        verdict: Verdict::default(),
        sameness: Sameness::default(),
        slots: roster.slots(own.rank).unwrap(),
        roster: Some(roster),
        left_over: 0,
        broken: Vec::new(),
    }
}

const HOSTS: [&str; 4] = ["node-a", "node-b", "node-c", "node-c"];
const IPV4: [&str; 4] = ["10.0.0.1:29503", "10.0.0.2:29503", "10.0.0.3:29503", "10.0.0.3:29504"];
const IPV6: [&str; 4] = ["[fd00::1%7]:29503", "[fd00::2]:29503", "[fd00::3]:29503", "[fd00::3]:29504"];

fn text(format: Format, formed: &Formed) -> Result<String, Unfit> {
    let job = "my job".parse().unwrap();
    let facts = Facts { interface: Some("eth0"), ..Facts::new(&job, formed) };
    text_of(format, facts)
}

fn text_of(format: Format, facts: Facts<'_>) -> Result<String, Unfit> {
    let template = b"{job} {endpoints}\n{each node}\n{node.rank} {node.addr}\n{end}\n";
    let template = Template::strict(template).unwrap();
    let facts = Facts { template: Some(&template), ..facts };
    let variables = format.variables(facts, |_| None)?;
    Ok(format.render(facts, &variables)?.expect("the command line writes JSON and tests it"))
}

/// Compares with the golden file of this name. With MINGLE_BLESS=1 writes it first.
pub(in crate::env) fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/env/launcher/golden").join(name);
    if std::env::var_os("MINGLE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
    }
    let expected =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, expected, "{name}");
}

/// All formats but JSON, which the command line writes and tests.
fn all_but_json() -> impl Iterator<Item = Format> {
    Format::all().filter(|format| *format != Format::JSON)
}

#[test]
fn every_format_is_printed_as_its_golden_file() {
    for format in all_but_json() {
        golden(&format!("{format}.ipv4"), &text(format, &formed(1, IPV4, HOSTS)).unwrap());
        if format != Format::MLX {
            golden(&format!("{format}.ipv6"), &text(format, &formed(0, IPV6, HOSTS)).unwrap());
        }
    }
    let (job, secret) = ("my job".parse().unwrap(), Secret::new(b"0123456789abcdef").unwrap());
    let formed = formed(1, IPV4, HOSTS);
    let facts = Facts { secret: Some(&secret), ..Facts::new(&job, &formed) };
    golden("ray.secret", &text_of(Format::RAY, facts).unwrap());
    golden("sh.hostfile", &text_of(Format::SH, Facts { beside: &[Format::HOSTFILE], ..facts }).unwrap());
}

#[test]
fn the_hostfile_of_mlx_holds_no_ipv6_address() {
    let error = text(Format::MLX, &formed(0, IPV6, HOSTS)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rank 0 has the address fd00::1, and the format mlx cannot hold IPv6 addresses; use IPv4"
    );
}

#[test]
fn the_arguments_of_a_server_name_the_first_node_and_all_others_have_no_server() {
    let job = "foo".parse().unwrap();
    let arguments = |format: Format, formed: &Formed| {
        let command = ["vllm", "serve", "--data-parallel-size=4", "{args}"].map(OsString::from);
        format.arguments(Facts::new(&job, formed), &command).join(" ")
    };
    assert_eq!(
        arguments(Format::VLLM, &formed(1, IPV4, HOSTS)),
        "--nnodes 4 --node-rank 1 --master-addr 10.0.0.1 --master-port 29503 --headless"
    );
    assert_eq!(
        arguments(Format::VLLM, &formed(0, IPV6, HOSTS)),
        "--nnodes 4 --node-rank 0 --master-addr fd00::1 --master-port 29503"
    );
    assert_eq!(
        arguments(Format::SGLANG, &formed(2, IPV4, HOSTS)),
        "--dist-init-addr 10.0.0.1:29503 --nnodes 4 --node-rank 2"
    );
    assert_eq!(
        arguments(Format::SGLANG, &formed(0, IPV6, HOSTS)),
        "--dist-init-addr [fd00::1]:29503 --nnodes 4 --node-rank 0"
    );
    let with: Vec<Format> = Format::all().filter(|format| format.has_arguments()).collect();
    assert_eq!(with, [Format::VLLM, Format::SGLANG]);
}

#[test]
fn vllm_has_a_server_on_every_node_where_a_load_balancer_is_before_them() {
    let (job, formed) = ("foo".parse().unwrap(), formed(1, IPV4, HOSTS));
    let is_headless = |word: &str| {
        let command = ["vllm", "serve", word, "{args}"].map(OsString::from);
        let arguments = Format::VLLM.arguments(Facts::new(&job, &formed), &command);
        arguments.contains(&"--headless".to_owned())
    };
    for word in [
        "--data-parallel-hybrid-lb",
        "--data_parallel_hybrid_lb",
        "--data-parallel-external-lb",
        "--data-parallel-multi-port-external-lb",
        "--data-parallel-rank=1",
        "-dph",
    ] {
        assert!(!is_headless(word), "{word}");
    }
    for word in ["--data-parallel-size=2", "--data-parallel-start-rank", "-dpr", "data-parallel-hybrid-lb"] {
        assert!(is_headless(word), "{word}");
    }
}

/// What a format advises in this world, where the user has set these variables.
fn advised(format: Format, facts: Facts<'_>, environment: &[(&str, &str)]) -> Vec<(String, String)> {
    let lookup = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let names: Vec<&str> = LAUNCHERS.iter().flat_map(|l| l.advises).map(|advice| advice.name).collect();
    let variables = format.variables(facts, lookup).unwrap();
    let advised = variables.set().iter().filter(|(name, _)| names.contains(&&**name));
    advised.map(|(name, value)| (name.to_string(), value.clone())).collect()
}

#[test]
fn open_mpi_uses_the_network_that_has_all_nodes() {
    let job = "foo".parse().unwrap();
    let network = |addresses: [&str; 4]| {
        let formed = formed(0, addresses, HOSTS);
        let advised = advised(Format::HOSTFILE, Facts::new(&job, &formed), &[]);
        assert!(advised.is_empty() || advised.len() == 3 && advised.iter().all(|(_, v)| *v == advised[0].1));
        advised.into_iter().next().map(|(_, network)| network)
    };
    let of = |hosts: [&str; 4]| {
        network(hosts.map(|host| Box::leak(format!("{host}:29503").into_boxed_str()) as &str))
    };
    assert_eq!(of(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.6"]).unwrap(), "10.0.0.0/29");
    assert_eq!(of(["10.0.1.9", "10.0.0.2", "10.0.3.3", "10.0.2.6"]).unwrap(), "10.0.0.0/22");
    assert_eq!(of(["172.16.0.9", "172.31.0.2", "172.16.0.3", "172.16.0.4"]).unwrap(), "172.16.0.0/12");
    // Of one host, the longest that Open MPI 4 understands.
    assert_eq!(of(["10.0.0.9"; 4]).unwrap(), "10.0.0.8/31");
    assert_eq!(of(["127.0.0.1"; 4]).unwrap(), "127.0.0.0/31");
    // These have the loopback addresses between them.
    assert_eq!(of(["10.0.0.1", "100.64.0.1", "10.0.0.2", "10.0.0.3"]), None);
    assert_eq!(of(["10.0.0.1", "192.168.0.1", "10.0.0.2", "10.0.0.3"]), None);
    assert_eq!(network(IPV6), None);
}

#[test]
fn the_networks_and_tokens_of_the_user_stay() {
    let (job, formed) = ("foo".parse().unwrap(), formed(0, IPV4, HOSTS));
    let secret = Secret::new(b"0123456789abcdef").unwrap();
    let facts = Facts { secret: Some(&secret), beside: &[Format::RAY], ..Facts::new(&job, &formed) };
    let names = |environment: &[(&str, &str)]| {
        let advised = advised(Format::HOSTFILE, facts, environment);
        advised.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let (mpi, prrte) =
        (["OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"], "PRTE_MCA_prte_if_include");
    let (mode, token) = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN");
    assert_eq!(names(&[]), [mpi[0], mpi[1], prrte, mode, token]);
    assert_eq!(names(&[(mpi[0], "ib0"), (mode, "disabled")]), [mpi[1], prrte, token]);
    // Open MPI ends if both are set; Ray would not read the file.
    assert_eq!(names(&[("OMPI_MCA_btl_tcp_if_exclude", "docker0")]), [mpi[1], prrte, mode, token]);
    assert_eq!(
        names(&[("RAY_AUTH_TOKEN_PATH", "/a"), ("OMPI_MCA_btl_tcp_if_exclude", "")]),
        [mpi[0], mpi[1], prrte, mode]
    );
}

/// The variables of a launcher beside those of every world.
fn names_of(launcher: &Launcher) -> impl Iterator<Item = &'static str> {
    let owned = launcher.owns.iter().map(|(name, _)| *name);
    owned.chain(launcher.advises.iter().map(|advice| advice.name))
}

/// The table of formats in docs/reference.md.
fn table() -> String {
    let row = |launcher: &&Launcher| {
        let text = match launcher.syntax {
            Syntax::Script(_) => "`eval`",
            Syntax::Json => "JSON",
            Syntax::Text(_) => "its own",
        };
        let owns: Vec<String> = names_of(launcher).map(|name| format!("`{name}`")).collect();
        let row = format!("| `{}` | {} | {text} | {}", launcher.name, launcher.about, owns.join(", "));
        row.trim_end().to_owned() + " |\n"
    };
    let head = "| format | for | text | variables beside those of every world |\n| --- | --- | --- | --- |\n";
    let rows: Vec<String> = LAUNCHERS.iter().map(row).collect();
    head.to_owned() + &rows.concat()
}

#[test]
fn the_reference_has_a_row_for_every_format() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let head = table().lines().next().unwrap().to_owned();
    let begin = text.find(&head).unwrap();
    let length = text[begin..].find("\n\n").unwrap() + 1;
    if std::env::var_os("MINGLE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, [&text[..begin], &table(), &text[begin + length..]].concat()).unwrap();
        return;
    }
    assert_eq!(&text[begin..begin + length], table(), "MINGLE_BLESS=1 writes it");
}

#[test]
fn lists_without_ipv6_have_host_names_and_refuse_equal_ones() {
    let formed = formed(0, ["[fd00::1]:1", "[fd00::2]:1", "[fd00::3]:1", "[fd00::4]:1"], HOSTS);
    for format in [Format::HOSTFILE, Format::HOROVOD, Format::SLOTS, Format::TI_ONE] {
        let error = text(format, &formed).unwrap_err().to_string();
        assert!(error.starts_with("ranks 2 and 3 both have the host name \"node-c\""), "{error}");
    }
    assert!(text(Format::DEEPSPEED, &formed).is_ok());
}

#[test]
fn without_a_roster_only_formats_that_list_no_nodes_are_printed() {
    let mut formed = formed(1, IPV4, HOSTS);
    formed.roster = None;
    for format in all_but_json() {
        let expected = if format.needs_roster() { Err(Unfit::NoRoster(format)) } else { Ok(()) };
        assert_eq!(text(format, &formed).map(drop), expected);
    }
}

#[test]
fn variables_of_one_launcher_are_removed_by_the_next_format() {
    let (job, formed) = ("foo".parse().unwrap(), formed(1, IPV4, HOSTS));
    let secret = Secret::new(b"0123456789abcdef").unwrap();
    let facts = Facts { secret: Some(&secret), ..Facts::new(&job, &formed) };
    for first in Format::all() {
        let before = first.variables(facts, |_| None).unwrap();
        let lookup = |name: &str| before.set().iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
        for second in Format::all() {
            let after = second.variables(facts, lookup).unwrap();
            let is_set = |name: &str| after.set().iter().any(|(n, _)| *n == name);
            let left = before.set().iter().filter(|(name, _)| is_owned(name) && !is_set(name));
            let left: Vec<&str> = left.map(|(name, _)| &**name).collect();
            assert_eq!(after.unset(), left, "{first}, then {second}");
        }
        let own = before.set().iter().filter(|(name, _)| !is_owned(name)).map(|(name, _)| &**name);
        let plain: Vec<_> = Format::SH.variables(facts, |_| None).unwrap().set().to_vec();
        let known: Vec<&str> = plain.iter().map(|(name, _)| &**name).collect();
        assert!(own.clone().all(|name| known.contains(&name)), "{first}: {:?}", own.collect::<Vec<_>>());
    }
}

/// Host names with characters that a shell, or a reader of lines, lists or JSON, gives a meaning.
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
fn a_hostile_host_name_stays_within_the_alphabet_of_every_format() {
    for host in HOSTILE {
        let (a, b) = (format!("{host}1"), format!("{host}2"));
        for addresses in [IPV4, IPV6] {
            let formed = formed(1, addresses, [&a, &b, host, host]);
            for format in all_but_json() {
                let text = match text(format, &formed) {
                    // A name that begins with no letter is not usable by other hosts.
                    Err(Unfit::Name(..) | Unfit::Ipv6(..)) if addresses == IPV6 => continue,
                    text => text.unwrap(),
                };
                let is_known = |c: char| match format.shell() {
                    Some(_) => c.is_ascii_alphanumeric() || " \n';=_.,:/@%+-()\"$\\]".contains(c),
                    None => c.is_ascii_alphanumeric() || " \n=_.,:/@%+-#[]{}\"".contains(c),
                };
                assert!(text.chars().all(is_known), "{format}:\n{text}");
                // No name adds a line, a part of a list, or a slot.
                let plain = self::formed(1, addresses, HOSTS);
                let plain = self::text(format, &plain).unwrap();
                for c in ['\n', ',', '=', '"', ' '] {
                    let count = |text: &str| text.matches(c).count();
                    let is_left_out = format == Format::HOSTS && count(&text) < count(&plain);
                    assert!(count(&text) == count(&plain) || is_left_out, "{format} {c:?}:\n{text}");
                }
            }
        }
    }
}

#[test]
fn a_value_outside_of_the_safe_alphabet_reaches_no_format() {
    let (job, formed) = ("foo".parse().unwrap(), formed(0, IPV4, HOSTS));
    let template = Template::strict(b"{master}").unwrap();
    let facts = Facts { template: Some(&template), ..Facts::new(&job, &formed) };
    for format in all_but_json() {
        for c in "'\"`$\\ \t\r\0;&|<>()*?[]{}~#!^\u{7f}\u{a0}\u{202e}é".chars() {
            let mut variables = format.variables(facts, |_| None).unwrap();
            variables.replace_first(format!("refused{c}"));
            match format.render(facts, &variables) {
                Err(error) => assert!(matches!(error, Unfit::Unsafe(_)), "{format} {c:?}: {error}"),
                // Some formats have none of the variables.
                Ok(text) => assert!(!text.unwrap().contains("refused"), "{format} {c:?}"),
            }
        }
    }
}
