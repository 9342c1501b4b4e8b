//! The codec writes and reads the tables and examples of PROTOCOL.md.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write as _;
use std::path::Path;

use super::session::{Hello, Hellos};
use super::*;
use crate::model::{
    BrokenPath, Digest, End, Endpoints, Epoch, Fault, HostName, JobId, Link, Member, Metadata, Misfit, Peer,
    Rank, Roster, Sameness, Trait, Traits, Unfit, User,
};
use crate::rdma::examples::{example_verdict, largest_summary};

const A: NodeId = NodeId([1; 16]);
const B: NodeId = NodeId([2; 16]);
const C: NodeId = NodeId([3; 16]);
const SECRET: &str = "correct horse battery staple";

/// The document. A packaged crate does not have it: the tests then pass and say so.
fn document() -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../PROTOCOL.md");
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        // The test harness would swallow `eprintln` of a test that passes.
        let _ = writeln!(std::io::stderr(), "skipped: the examples of the protocol: no {}", path.display());
    }
    text
}

/// A section of the document, under a heading of the second level.
fn section<'a>(document: &'a str, title: &str) -> &'a str {
    let (_, section) = document.split_once(&format!("\n## {title}\n")).expect(title);
    section.split_once("\n## ").map_or(section, |(section, _)| section)
}

/// The cells of each row of a section's tables.
fn rows(section: &str) -> impl Iterator<Item = Vec<&str>> {
    let row = |line: &str| line.strip_prefix("| ")?.strip_suffix(" |").map(str::len);
    section.lines().filter_map(move |line| row(line).map(|length| line[2..2 + length].split(" | ").collect()))
}

/// Bytes as the document writes them: pairs of digits, `9x00` for nine zeros, and a remark after two blanks.
fn bytes(text: &str) -> Vec<u8> {
    let digits = text.trim().split("  ").next().unwrap_or_default();
    let mut bytes = Vec::new();
    for word in digits.split(' ').filter(|word| !word.is_empty()) {
        let (times, pairs) = word.split_once('x').unwrap_or(("1", word));
        for _ in 0..times.parse().expect(text) {
            let pair = |at: usize| u8::from_str_radix(pairs.get(at..at + 2).expect(text), 16).expect(text);
            bytes.extend((0..pairs.len()).step_by(2).map(pair));
        }
    }
    bytes
}

/// The examples of the document beside what the code writes. All that differs is named at once.
struct Examples<'a> {
    document: &'a str,
    wrong: Vec<String>,
}

impl<'a> Examples<'a> {
    fn of(document: &'a str) -> Self {
        Self { document, wrong: Vec::new() }
    }

    /// The bytes in the block under this heading.
    fn block(&mut self, title: &str, written: &[u8]) {
        let parts = section(self.document, "Bytes").split("\n### ");
        let part = parts.filter_map(|part| part.split_once('\n')).find(|(heading, _)| *heading == title);
        let lines = part.map(|(_, text)| text.lines().filter_map(|line| line.strip_prefix("    ")));
        let shown = lines.map(|lines| hex(&lines.flat_map(bytes).collect::<Vec<u8>>()));
        self.compare(title, &hex(written), shown);
    }

    /// The last cell of this row: of the row's first cell, or of the second behind a number.
    fn cell(&self, title: &str, row: &str) -> Option<&'a str> {
        let is_it = |cells: &Vec<&str>| {
            let name = usize::from(cells[0].parse::<u8>().is_ok());
            cells.get(name) == Some(&row)
        };
        let cells = rows(section(self.document, title)).find(is_it)?;
        cells.last().map(|cell| cell.trim_matches('`'))
    }

    fn row(&mut self, title: &str, row: &str, written: &[u8]) {
        let shown = self.cell(title, row).map(|shown| hex(&bytes(shown)));
        self.compare(row, &hex(written), shown);
    }

    fn text(&mut self, row: &str, written: &str) {
        let shown = self.cell("Bytes", row).map(str::to_owned);
        self.compare(row, written, shown);
    }

    fn compare(&mut self, title: &str, written: &str, shown: Option<String>) {
        if shown.as_deref() != Some(written) {
            let shown = shown.unwrap_or_else(|| "nothing".to_owned());
            self.wrong.push(format!("{title}: the code writes\n{written}\nand the document has\n{shown}"));
        }
    }

    fn finish(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
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

fn at_paths(last: u8) -> SocketAddr {
    SocketAddr::new(address(last).ip(), 41_877)
}

fn peer(name: &str, last: u8) -> Peer {
    Peer { host: HostName::new(name), address: address(last) }
}

fn eve() -> User {
    User::new(Some("eve"), Some(1000))
}

fn header(sender: NodeId, recipient: NodeId) -> Header {
    Header { sender, recipient }
}

fn candidate() -> Candidate {
    Candidate {
        id: A,
        explicit: false,
        members: 3,
        world: "2:4".parse().unwrap(),
        host: HostName::new("a"),
        endpoints: address(1).into(),
    }
}

fn count() -> Count {
    Count {
        joined: 3,
        newest: ["c", "b"].into_iter().map(HostName::new).collect(),
        missing: [(2, 2)].into_iter().collect(),
    }
}

fn metadata() -> Metadata {
    let mut metadata = Metadata::default();
    metadata.insert("rack", "7").unwrap();
    metadata
}

/// A datagram of each kind.
fn datagrams() -> Vec<(&'static str, Message)> {
    let introduction = Introduction { candidate: candidate(), source: address(1) };
    let running = Running {
        leader: A,
        generation: 3,
        addresses: [at_paths(1)].into_iter().collect(),
        host: HostName::new("b"),
        user: User::new(None, Some(7)),
    };
    vec![
        ("Announce", Message::Announce(Announce { candidate: candidate(), count: count(), user: eve() })),
        ("Solicit", Message::Solicit(Solicit { rank: Some(2), host: HostName::new("b") })),
        ("Hint", Message::Hint(introduction)),
        ("Running", Message::Running(running)),
        ("Query", Message::Query),
    ]
}

/// B as it joins.
fn join() -> Join {
    let link = |address: SocketAddr, prefix, mtu| Link { address: address.ip(), prefix, mtu };
    let links = [link(address(2), 24, 1500), link(v6(29500), 64, 1500)];
    let given = Link { address: [10, 1, 0, 2].into(), prefix: 16, mtu: 9000 };
    let node = NodeInfo {
        rank: Some(Rank(2)),
        host: HostName::new("b"),
        endpoints: Endpoints::new(vec![address(2), v6(29500)]).unwrap(),
        reach: Reach::new(41_877, links).with([given]),
        attributes: Attributes {
            slots: 8,
            metadata: metadata(),
            fabric: largest_summary(),
            requires_same: true,
            rank_key: "rack-7".parse().unwrap(),
            user: eve(),
            ..Attributes::default()
        },
    };
    Join { world: WorldSize::of(4), node, traits: encode_traits(&traits()), misfit: None }
}

fn prepare() -> Prepare {
    let partner = |id, rank, last| Partner { id, rank, path: at_paths(last), own_port: 29500 };
    Prepare {
        round: 1,
        world: 4,
        rank: 2,
        digest: Digest([5; 16]),
        slots_before: 16,
        slots_total: 32,
        master: A,
        master_at: address(1),
        address: address(2).ip(),
        partners: vec![partner(A, 0, 1), partner(C, 3, 3)],
    }
}

fn commit() -> Commit {
    Commit { round: 1, verdict: example_verdict(), sameness: Sameness::example(), left_over: 1 }
}

fn ready() -> Said {
    Said::Part(Part { round: 250, answer: Answer::Ready })
}

fn broken() -> Answer {
    let fault = Fault::Size { passes: 1400, fails: 1500 };
    let broken_to = BrokenTo { partner: C, path: at_paths(3), fault, own_port_answers: true };
    Answer::Broken(Broken { paths: [broken_to].into_iter().collect(), more: 0 })
}

/// A frame of each kind that is said until a world has formed, but refusals.
fn frames() -> Vec<(&'static str, Said)> {
    let reason = Unfit::Rank(Rank(1));
    let misfit = Misfit { host: HostName::new("c"), address: address(3), reason };
    let trouble = Some(Trouble::Misfit(misfit));
    vec![
        ("Join", Said::Join(Box::new(join()))),
        ("Part", Said::Part(Part { round: 1, answer: broken() })),
        ("Welcome", Said::Welcome(Welcome { count: count(), trouble, void: 251 })),
        ("Roster", Said::Roster(1, roster())),
        ("Prepare", Said::Prepare(prepare())),
        ("Commit", Said::Commit(commit())),
    ]
}

fn refusals() -> Vec<(&'static str, Refusal)> {
    let broken_path = BrokenPath {
        from: peer("b", 2),
        to: Peer { address: at_paths(3), ..peer("c", 3) },
        fault: Fault::Silent,
        answers: Some(29_500),
        to_master: false,
        mtus: (1500, 9000),
    };
    let introduction = Introduction { candidate: candidate(), source: address(1) };
    vec![
        ("0 rank taken", Refusal::RankTaken(peer("b", 2))),
        ("1 world differs", Refusal::WorldDiffers("2:300".parse().unwrap())),
        ("2 world full", Refusal::WorldFull),
        ("3 closing", Refusal::Closing),
        ("4 redirect", Refusal::Redirect(introduction)),
        ("5 no common family", Refusal::NoCommonFamily(peer("b", 2), peer("a", 1))),
        ("6 no RDMA", Refusal::NoRdma(example_verdict(), true)),
        ("7 unready", Refusal::Unready([peer("b", 2)].into_iter().collect())),
        ("8 paths broken", Refusal::PathsBroken([broken_path].into_iter().collect(), 2)),
        ("9 differs", Refusal::Differs(Sameness::example())),
        ("10 user differs", Refusal::UserDiffers(User::new(Some("eve"), None), 3)),
    ]
}

/// A frame of each kind that is said in a world that stays.
fn frames_of_worlds() -> Vec<(&'static str, world::WorldSaid)> {
    use world::{Command, Contact, FirstCause, Phase, Plan, Reign, RoundId, Status, Terms, WorldSaid};
    let contact = |id, last| Contact { id, addresses: vec![at_paths(last)] };
    let (epoch, round) = (Epoch { generation: 1, origin: 9 }, RoundId { leader: A, number: 7 });
    let status = Status {
        epoch,
        command: Command::Failed(End::Exited(1)),
        answer: Some((round, broken())),
        lost: Some(A),
        guests: vec![(C, Command::Runs)],
    };
    let reign = Reign {
        epoch,
        size: "2".parse().unwrap(),
        term: 2,
        rank: Some(0),
        leader: contact(A, 1),
        is_cut_off: false,
        round: Some(round),
        phase: Phase::Over(FirstCause { rank: Some(1), end: End::Killed(9) }),
        rounds: 7,
        suspected: vec![2],
        waiting: 1,
        here: 3,
        absent: vec![1],
        trouble: None,
        heirs: vec![contact(B, 2)],
    };
    let (world, mut node) = (reign.size, NodeInfo::new(HostName::new("b"), address(2).into()));
    node.attributes.session_port = 41_877;
    let reached = |last| Reach::new(41_877, [Link { address: address(last).ip(), prefix: 24, mtu: 1500 }]);
    let terms = Terms { roster: roster(), reached: vec![reached(1), reached(2)], ..Terms::default() };
    vec![
        ("Arrival", WorldSaid::Arrival(Box::new(Join { world, node, traits: Vec::new(), misfit: None }))),
        ("Status", WorldSaid::Status(status)),
        ("Reign", WorldSaid::Reign(reign)),
        ("Plan", WorldSaid::Plan(Plan { round, epoch, terms })),
    ]
}

/// A with one slot, and B with 8 and metadata.
fn roster() -> Roster {
    let member = |rank: u32, id, host: &str, last: u8, slots, metadata| Member {
        rank: Rank(rank),
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

/// The number and the name of each kind in the tables of a section.
fn kinds(document: &str, title: &str) -> BTreeMap<u8, String> {
    let kind = |cells: Vec<&str>| Some((cells.first()?.parse().ok()?, (*cells.get(1)?).to_owned()));
    rows(section(document, title)).filter_map(kind).collect()
}

/// The same of the code, from an example of each kind.
fn kinds_of<T: Debug>(examples: impl IntoIterator<Item = (u8, T)>) -> BTreeMap<u8, String> {
    let name = |example: T| {
        let text = format!("{example:?}");
        text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default().to_owned()
    };
    examples.into_iter().map(|(kind, example)| (kind, name(example))).collect()
}

#[test]
fn the_tables_of_the_document_name_every_kind_of_datagram_and_of_frame() {
    let Some(document) = document() else { return };
    let of_datagrams = kinds_of(datagrams().into_iter().map(|(_, message)| (message.encode().0, message)));
    assert_eq!(kinds(&document, "Datagrams"), of_datagrams);
    assert_eq!(of_datagrams.into_keys().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let refuse = refusals().into_iter().map(|(title, refusal)| (title, Said::Refuse(refusal)));
    let said = frames().into_iter().chain(refuse).map(|(_, said)| said);
    let forming = kinds_of(said.map(|said| (kind_of(&said.encode()), said)));
    assert_eq!(kinds(&document, "The session"), forming);
    assert_eq!(forming.into_keys().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
    let staying = kinds_of(frames_of_worlds().into_iter().map(|(_, said)| (kind_of(&said.encode()), said)));
    assert_eq!(kinds(&document, "A world that stays"), staying);
    assert_eq!(staying.into_keys().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn the_codec_writes_and_reads_the_datagrams_of_the_document() {
    let Some(document) = document() else { return };
    let mut examples = Examples::of(&document);
    for (title, message) in datagrams() {
        let (kind, body) = message.encode();
        let read = Message::decode(kind, &body);
        assert_eq!(read.as_ref(), Some(&message), "{title}");
        match message {
            Message::Announce(_) => {
                let head = header(A, NodeId::ALL);
                let written = encode(foo().tag(), head, &message);
                assert_eq!(decode(foo().tag(), &written), Ok((head, message)));
                examples.block("A datagram", &written);
            }
            Message::Query => assert!(body.is_empty()),
            _ => examples.row("Bytes", title, &body),
        }
    }
    let sealed = || Codec::new(foo().tag(), Some(&keys(SECRET)));
    let running = datagrams().swap_remove(3).1;
    let head = header(B, A);
    let written = sealed().encode(head, &running);
    assert_eq!(sealed().decode(&written), Ok((head, running)));
    examples.block("A sealed datagram", &written);
    examples.finish();
}

#[test]
fn the_codec_writes_and_reads_the_frames_of_the_document() {
    let Some(document) = document() else { return };
    let mut examples = Examples::of(&document);
    for (title, said) in frames() {
        let body = said.encode();
        assert_eq!(Said::decode(&body), Some(said), "{title}");
        if title == "Join" {
            examples.block("A Join", &body);
        } else {
            examples.row("Bytes", title, &body);
        }
    }
    for (title, refusal) in refusals() {
        let body = Said::Refuse(refusal.clone()).encode();
        assert_eq!(Said::decode(&body), Some(Said::Refuse(refusal)), "{title}");
        examples.row("Joining", title, &body);
    }
    for (title, said) in frames_of_worlds() {
        let body = said.encode();
        assert_eq!(world::WorldSaid::decode(&body), Some(said), "{title}");
        examples.row("A world that stays", title, &body);
    }
    examples.finish();
}

/// B dials A: the hello of each end, and B's first frames.
#[test]
fn a_session_begins_as_the_document_shows_with_a_secret_and_without() {
    let Some(document) = document() else { return };
    let mut examples = Examples::of(&document);
    let body = ready().encode();
    let frames = [Frame::acknowledgement(0), Frame { number: 2, read: 1, body }];
    for (title, secret) in [("A session", None), ("A session with a secret", Some(keys(SECRET)))] {
        let hellos = Hellos::new(foo().tag(), secret.as_ref());
        let asked = hellos.encode(Hello { header: header(B, A), session: 7, nonce: [8; 16] });
        let answer = hellos.answer(&asked, Hello { header: header(A, B), session: 9, nonce: [10; 16] });
        let (mut writer, _) = hellos.ends(&asked, &answer, true);
        let (_, mut reader) = hellos.ends(&asked, &answer, false);
        let written: Vec<u8> = frames.iter().flat_map(|frame| writer.encode(frame)).collect();
        reader.push(&written);
        for frame in &frames {
            assert_eq!(reader.next_frame(100), Ok(Some(frame.clone())));
        }
        examples.block(title, &[&asked[..], &answer, &written].concat());
    }
    examples.finish();
}

#[test]
fn the_codec_writes_the_token_and_the_notice_of_the_document() {
    let Some(document) = document() else { return };
    let mut examples = Examples::of(&document);
    let codec = Codec::new(foo().tag(), Some(&keys(SECRET)));
    let (written, answer) = codec.encode_path(Header { sender: B, recipient: A }, 1);
    assert_eq!(codec.path_target(A).answer(&written), Some(answer));
    examples.block("A token", &[&written[..], &answer].concat());
    let notice = Notice::Open { job: foo(), world: "2:4".parse().unwrap(), joined: 3 };
    let written = notice.encode();
    assert_eq!(Notice::decode(&written), Some(notice));
    examples.block("A notice", &written);
    examples.finish();
}

#[test]
fn the_hashes_in_the_document_are_those_of_the_code() {
    let Some(document) = document() else { return };
    let mut examples = Examples::of(&document);
    examples.row("Bytes", "tag", &foo().tag().0);
    examples.text("group of IPv4", &foo().group_v4().to_string());
    examples.text("group of IPv6", &foo().group_v6().to_string());
    {
        examples.text("group of notices of IPv4", &crate::model::directory_v4().to_string());
        examples.text("group of notices of IPv6", &crate::model::directory_v6().to_string());
    }
    let ports: Vec<_> = foo().ports().take(4).map(|port| port.to_string()).collect();
    examples.text("ports", &ports.join(", "));
    examples.row("Bytes", "key of datagrams", &keys(SECRET).seal);
    examples.row("Bytes", "key of tokens and sessions", &keys(SECRET).token);
    examples.row("Bytes", "digest of a roster", &roster().digest().0);
    examples.finish();
}
