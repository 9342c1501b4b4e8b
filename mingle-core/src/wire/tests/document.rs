//! The codec writes and reads the examples of PROTOCOL.md.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use super::*;
use crate::model::{
    BrokenPath, End, Endpoints, Fault, JobId, Link, Member, Misfit, Peer, Rank, Roster, Sameness, Trait,
    Traits, Unfit, User, WorldSize,
};
use crate::rdma::examples::{example_verdict, largest_summary};

const A: NodeId = NodeId([1; 16]);
const B: NodeId = NodeId([2; 16]);
const C: NodeId = NodeId([3; 16]);
const HEADING: &str = "## Examples";

/// The examples of the document. A packaged crate does not have the document: the tests then pass and say so.
fn document() -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../PROTOCOL.md");
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        // The test harness would swallow `eprintln` of a test that passes.
        let _ = writeln!(std::io::stderr(), "skipped: the examples of the protocol: no {}", path.display());
    }
    Some(text?.split_once(HEADING).expect("it has examples").1.to_owned())
}

/// Bytes as the document writes them: pairs of digits, `9x00` for nine zeros, and a remark after two blanks.
fn bytes(text: &str) -> Vec<u8> {
    let digits = text.trim().split("  ").next().unwrap_or_default();
    let mut bytes = Vec::new();
    for word in digits.split(' ') {
        let (times, pairs) = word.split_once('x').unwrap_or(("1", word));
        for _ in 0..times.parse().expect(text) {
            let pair = |at: usize| u8::from_str_radix(pairs.get(at..at + 2).expect(text), 16).expect(text);
            bytes.extend((0..pairs.len()).step_by(2).map(pair));
        }
    }
    bytes
}

/// The block of bytes under each heading.
fn blocks(document: &str) -> BTreeMap<&str, Vec<u8>> {
    let parts = document.split("\n### ").skip(1).filter_map(|part| part.split_once('\n'));
    let block =
        |text: &str| text.lines().filter_map(|line| line.strip_prefix("    ")).flat_map(bytes).collect();
    parts.map(|(title, text)| (title, block(text))).collect()
}

/// The last cell of each row of a table, by the first cell.
fn rows(document: &str) -> BTreeMap<&str, &str> {
    fn row(line: &str) -> Option<(&str, &str)> {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        Some((*cells.first()?, cells.last()?.trim_matches('`')))
    }
    document.lines().filter_map(row).collect()
}

/// A trait whose value is shown, and one of which only a hash is.
fn traits() -> Traits {
    [Trait::shown("NCCL_ALGO", "Ring"), Trait::hidden("UCX_X", "1")].into_iter().collect()
}

fn foo() -> JobId {
    "foo".parse().unwrap()
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 29500))
}

fn candidate() -> Candidate {
    Candidate {
        id: A,
        explicit: false,
        members: 3,
        world: "2:4".parse::<WorldSize>().unwrap(),
        host: HostName::new("a"),
        endpoints: address(1).into(),
    }
}

fn metadata() -> Metadata {
    let mut metadata = Metadata::default();
    metadata.insert("rack", "7").unwrap();
    metadata
}

/// The datagrams that the document shows whole.
fn datagrams() -> Vec<(&'static str, Header, Message)> {
    let from =
        |sender, recipient| Header { sender, recipient, lineage: Lineage { generation: 0, origin: 0 } };
    let announce = Announce {
        candidate: candidate(),
        joined: 3,
        newest: ["c", "b"].into_iter().map(HostName::new).collect(),
        missing: [(2, 2)].into_iter().collect(),
        user: User::new(Some("eve"), Some(1000)),
    };
    let join = Join {
        world: WorldSize::of(4),
        node: NodeInfo {
            rank: Some(Rank(2)),
            former: Some(Rank(1)),
            host: HostName::new("b"),
            endpoints: Endpoints::new(vec![address(2), v6(29500)]).unwrap(),
            reach: Reach::new(
                41_877,
                [address(2), v6(29500)].map(|at| Link {
                    address: at.ip(),
                    prefix: if at.is_ipv4() { 24 } else { 64 },
                    mtu: 1500,
                }),
            )
            .with([Link { address: [10, 1, 0, 2].into(), prefix: 16, mtu: 9000 }]),
            attributes: Attributes {
                slots: 8,
                metadata: metadata(),
                fabric: largest_summary(),
                requires_same: true,
                rank_key: "rack-7".parse().unwrap(),
                user: User::new(Some("eve"), Some(1000)),
                ..Attributes::default()
            },
        },
    };
    let (verdict, sameness) = (example_verdict(), Sameness::example());
    let commit = Commit { round: 1, verdict, sameness, left_over: 1 };
    vec![
        ("Announce", from(A, NodeId::ALL), Message::Announce(announce)),
        ("Join", from(B, A), Message::Join(join)),
        ("Prepare", from(A, B), Message::Prepare(prepare())),
        ("Commit", from(A, B), Message::Commit(commit)),
    ]
}

fn prepare() -> Prepare {
    Prepare {
        round: 1,
        lease: 1,
        world: 4,
        rank: 2,
        digest: Digest([5; 16]),
        slots_before: 16,
        slots_total: 32,
        master: A,
        master_at: address(1),
        address: address(2).ip(),
        paths: 3,
        partners: [(A, 0, 1), (C, 3, 3)]
            .map(|(id, rank, last)| Partner {
                id,
                rank,
                path: SocketAddr::from(([10, 0, 0, last], 41_877)),
                own_port: 29500,
            })
            .into_iter()
            .collect(),
    }
}

/// The messages of which the document shows the body.
fn bodies() -> Vec<(&'static str, Message)> {
    let introduction = || Introduction { candidate: candidate(), source: address(1) };
    let peer = |name: &str, last| Peer { host: HostName::new(name), address: address(last) };
    let broken_path = BrokenPath {
        from: peer("b", 2),
        to: Peer { host: HostName::new("c"), address: ([10, 0, 0, 3], 41_877).into() },
        fault: Fault::Silent,
        answers: Some(29_500),
        to_master: false,
        mtus: (1500, 9000),
    };
    let fault = Fault::Size { passes: 1400, fails: 1500 };
    let broken = BrokenTo { partner: C, path: ([10, 0, 0, 3], 41_877).into(), fault, own_port_answers: true };
    let misfit = Misfit { host: HostName::new("c"), address: address(3), reason: Unfit::Rank(Rank(1)) };
    [
        ("Solicit", Message::Solicit(Solicit { rank: Some(2), host: HostName::new("b") })),
        ("Hint", Message::Hint(introduction())),
        (
            "Welcome",
            Message::Welcome(Welcome {
                lease: Some(1),
                seated: true,
                trouble: Some(Trouble::Misfit(misfit)),
            }),
        ),
        ("Welcome, nothing arrived", Message::Welcome(Welcome { lease: None, seated: false, trouble: None })),
        ("Refuse, rank taken", Message::Refuse(Refusal::RankTaken(peer("b", 2)))),
        ("Refuse, world differs", Message::Refuse(Refusal::WorldDiffers("2:300".parse().unwrap()))),
        ("Refuse, world full", Message::Refuse(Refusal::WorldFull)),
        ("Refuse, closing", Message::Refuse(Refusal::Closing)),
        ("Refuse, no common family", Message::Refuse(Refusal::NoCommonFamily(peer("b", 2), peer("a", 1)))),
        ("Refuse, no RDMA", Message::Refuse(Refusal::NoRdma(example_verdict(), true))),
        ("Refuse, differs", Message::Refuse(Refusal::Differs(Sameness::example()))),
        ("Refuse, user differs", Message::Refuse(Refusal::UserDiffers(User::new(Some("eve"), None), 3))),
        ("Refuse, unready", Message::Refuse(Refusal::Unready([peer("b", 2)].into_iter().collect()))),
        (
            "Refuse, paths broken",
            Message::Refuse(Refusal::PathsBroken([broken_path].into_iter().collect(), 2)),
        ),
        ("Ping", Message::Ping),
        ("Pong", Message::Pong),
        ("Ready", Message::Ready(250)),
        ("Broken", Message::Broken(Broken { round: 1, paths: [broken].into_iter().collect(), more: 0 })),
        ("Void", Message::Void(251)),
        ("Done", Message::Done(70_000)),
    ]
    .into_iter()
    .chain(bodies_of_running_worlds())
    .collect()
}

fn bodies_of_running_worlds() -> Vec<(&'static str, Message)> {
    vec![
        (
            "Running",
            Message::Running(Running {
                leader: A,
                addresses: [SocketAddr::from(([10, 0, 0, 1], 41_877))].into_iter().collect(),
                host: HostName::new("b"),
                user: User::new(None, Some(7)),
            }),
        ),
        ("Query", Message::Query),
        (
            "Status",
            Message::Status(Status {
                rank: 1,
                world: 4,
                host: HostName::new("b"),
                has_finished: false,
                restarts_left: Some(3),
                suspected: [2].into_iter().collect(),
                waiting: 0,
                ended: Some((2, End::Exited(1))),
            }),
        ),
        ("Enough", Message::Enough),
    ]
}

#[test]
fn the_codec_writes_and_reads_the_datagrams_of_the_document() {
    let Some(document) = document() else { return };
    let (blocks, rows) = (blocks(&document), rows(&document));
    for (title, header, message) in datagrams() {
        let written = encode(foo().tag(), header, &message);
        assert_eq!(hex(&written), hex(&blocks[title]), "{title}");
        assert_eq!(decode(foo().tag(), &blocks[title]), Ok((header, message)), "{title}");
    }
    for (title, message) in bodies() {
        let shown = if rows[title] == "nothing" { Vec::new() } else { bytes(rows[title]) };
        let mut written = Vec::new();
        message.encode_body(config(), &mut written);
        assert_eq!(hex(&written), hex(&shown), "{title}");
        assert_eq!(Message::decode_body(message.kind(), &shown, config()), Some(message), "{title}");
    }
    let all =
        datagrams().into_iter().map(|(_, _, message)| message).chain(bodies().into_iter().map(|(_, m)| m));
    let mut kinds: Vec<_> = all.map(|message| message.kind()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (1..=18).collect::<Vec<u8>>(), "every kind has an example");
}

#[test]
fn the_codec_writes_and_reads_the_sealed_datagram_and_the_leases_of_the_document() {
    let Some(document) = document() else { return };
    let blocks = blocks(&document);
    let keys = keys("correct horse battery staple");
    let mut sealed = Codec::new(foo().tag(), Some(&keys));
    let header = Header { sender: B, recipient: A, lineage: Lineage { generation: 1, origin: 2 } };
    let written = sealed.encode(header, &Message::Done(1));
    assert_eq!(hex(&written), hex(&blocks["A sealed Done"]));
    let read = Codec::new(foo().tag(), Some(&keys)).decode(&blocks["A sealed Done"]);
    assert_eq!(read, Ok((header, Message::Done(1))));

    let token = token();
    for (title, codec) in [("A hello", &Codec::new(foo().tag(), None)), ("A hello with a secret", &sealed)] {
        let written = codec.encode_hello(&token, &encode_traits(&traits()));
        assert_eq!(hex(&written), hex(&blocks[title]), "{title}");
        assert_eq!(codec.decode_hello(&blocks[title]), Ok((token, traits())), "{title}");
    }
    let (encoded, shown) = (encode_roster(&roster()), &blocks["A roster with a secret"]);
    assert_eq!(hex(&sealed.encode_roster(A, 1, &encoded)), hex(shown));
    assert_eq!(sealed.decode_roster(A, shown), Some((1, encoded)));
    let rows = rows(&document);
    assert_eq!(hex(&keys.seal), rows["key of datagrams"]);
    assert_eq!(hex(&keys.token), rows["key of tokens"]);
}

/// A with one slot, and B with 8 and metadata.
fn roster() -> Roster {
    let member = |rank: u32, id, host: &str, last: u8, slots, metadata| Member {
        rank: crate::Rank(rank),
        id,
        host: HostName::new(host),
        address: address(last),
        slots,
        metadata,
        session_port: 0,
    };
    let members = vec![member(0, A, "a", 1, 1, Metadata::default()), member(1, B, "b", 2, 8, metadata())];
    Roster::new(members).unwrap()
}

fn token() -> Token {
    Token { prover: B, target: A, dial: 1, dialled: address(1) }
}

#[test]
fn the_codec_writes_and_reads_the_notices_of_the_document() {
    let Some(document) = document() else { return };
    let blocks = blocks(&document);
    let open = Notice::Open { job: foo(), world: "2:4".parse().unwrap(), joined: 3 };
    for (title, notice) in
        [("A notice", open), ("A notice with a secret", Notice::Sealed(foo().tag().beginning()))]
    {
        assert_eq!(hex(&notice.encode(&foo())), hex(&blocks[title]), "{title}");
        assert_eq!(Notice::decode(&blocks[title]), Some(notice), "{title}");
    }
}

#[test]
fn the_hashes_in_the_document_are_those_of_the_code() {
    let Some(document) = document() else { return };
    let rows = rows(&document);
    assert_eq!(hex(&foo().tag().0), rows["tag"]);
    assert_eq!(foo().group_v4().to_string(), rows["group of IPv4"]);
    assert_eq!(foo().group_v6().to_string(), rows["group of IPv6"]);
    #[cfg(feature = "net")]
    {
        assert_eq!(crate::model::directory_v4().to_string(), rows["group of notices of IPv4"]);
        assert_eq!(crate::model::directory_v6().to_string(), rows["group of notices of IPv6"]);
    }
    let ports: Vec<_> = foo().ports().take(4).map(|port| port.to_string()).collect();
    assert_eq!(ports.join(", "), rows["first four ports"]);

    let roster = roster();
    assert_eq!(hex(&encode_roster(&roster)), hex(&bytes(rows["roster as it is sent"])));
    assert_eq!(hex(&roster.digest().0), rows["digest of that roster"]);
    assert_eq!(hex(&encode_traits(&traits())), hex(&bytes(rows["traits as they are sent"])));
}
