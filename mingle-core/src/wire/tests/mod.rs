//! Every message and frame at its largest, and hostile bytes. `document` has the golden bytes.

mod document;

use std::net::SocketAddr;

use super::*;
use crate::model::{
    BrokenPath, Digest, Endpoints, Fault, HostName, Link, Metadata, Misfit, Paths, Peer, Rank, Sameness,
    Trait, Traits, Unfit, User, World, WorldSize,
};
use crate::rdma::examples::{largest_summary, largest_verdict};

const TAG: JobTag = JobTag([7; 16]);

/// Encodes for a job without a secret.
fn encode(tag: JobTag, header: Header, message: &Message) -> Vec<u8> {
    Codec::new(tag, None).encode(header, message)
}

fn decode(tag: JobTag, bytes: &[u8]) -> Result<(Header, Message), Dropped> {
    Codec::new(tag, None).decode(bytes)
}

/// The header for a message: to one node, or to all if no one node may get it.
fn head(message: &Message) -> Header {
    let recipient = if message.may_be_to(HEAD.recipient) { HEAD.recipient } else { NodeId::ALL };
    Header { recipient, ..HEAD }
}

/// A message of few bytes to one node.
fn short() -> Message {
    Message::Solicit(Solicit { rank: None, host: HostName::new("a") })
}

const HEAD: Header = Header { sender: NodeId([1; 16]), recipient: NodeId([2; 16]) };

fn v6(port: u16) -> SocketAddr {
    SocketAddr::from(([0xfd77, 0, 0, 0, 0xffff, 0xffff, 0xffff, 0xffff], port))
}

fn longest_name() -> HostName {
    HostName::new(&"n".repeat(HostName::MAX))
}

/// As many pairs and as many bytes as metadata may have.
fn longest_metadata() -> Metadata {
    let mut metadata = Metadata::default();
    for pair in 0..Metadata::PAIRS {
        metadata.insert(&pair.to_string(), &"v".repeat(14)).unwrap();
    }
    metadata.insert("0", &"v".repeat(Metadata::MAX - 21 - 15 * 14 - 1)).unwrap();
    metadata
}

fn candidate() -> Candidate {
    Candidate {
        id: NodeId([9; 16]),
        explicit: true,
        members: u32::MAX,
        world: WorldSize::of(World::MAX),
        host: longest_name(),
        endpoints: Endpoints::new(vec![v6(u16::MAX); 99]).unwrap(),
    }
}

/// The refusals that have a list, or another node.
fn refusals() -> [Said; 6] {
    [
        Said::Refuse(Refusal::Differs(Sameness::largest())),
        Said::Refuse(Refusal::NoCommonFamily(peer(), peer())),
        Said::Refuse(Refusal::NoRdma(largest_verdict(), true)),
        Said::Refuse(Refusal::Unready((0..99).map(|_| peer()).collect())),
        Said::Refuse(Refusal::PathsBroken((0..99).map(|_| broken_path()).collect(), u32::MAX)),
        Said::Refuse(Refusal::Redirect(Introduction { candidate: candidate(), source: v6(u16::MAX) })),
    ]
}

fn peer() -> Peer {
    Peer { host: longest_name(), address: v6(u16::MAX) }
}

fn broken_path() -> BrokenPath {
    BrokenPath {
        from: peer(),
        to: peer(),
        fault: Fault::Size { passes: u32::MAX, fails: u32::MAX },
        answers: Some(u16::MAX),
        to_master: true,
        mtus: (u32::MAX, u32::MAX),
    }
}

/// The frames that have links or paths.
fn of_paths() -> [Said; 3] {
    let partner = Partner { id: NodeId([4; 16]), rank: u32::MAX, path: v6(u16::MAX), own_port: u16::MAX };
    [
        Said::Join(Box::new(Join {
            world: WorldSize::of(World::MAX),
            node: NodeInfo {
                rank: Some(Rank(u32::MAX)),
                host: longest_name(),
                endpoints: Endpoints::new(vec![v6(u16::MAX); 99]).unwrap(),
                reach: Reach::new(
                    u16::MAX,
                    vec![Link { address: v6(1).ip(), prefix: 128, mtu: u32::MAX }; 99],
                )
                .with(vec![Link { address: v6(1).ip(), prefix: 128, mtu: u32::MAX }; 99]),
                attributes: Attributes {
                    slots: u32::MAX,
                    metadata: longest_metadata(),
                    may_be_master: true,
                    session_port: u16::MAX,
                    wants_roster: true,
                    fabric: largest_summary(),
                    requires_same: true,
                    paths: Paths::All,
                    rank_key: "k".repeat(128).parse().unwrap(),
                    user: longest_user(),
                },
            },
            traits: vec![7; 16 * 1024],
            misfit: Some(Misfit {
                host: longest_name(),
                address: v6(u16::MAX),
                reason: Unfit::User(longest_user()),
            }),
        })),
        Said::Prepare(Prepare {
            world: u32::MAX,
            round: u64::MAX,
            rank: u32::MAX,
            digest: Digest([5; 16]),
            slots_before: u64::MAX,
            slots_total: u64::MAX,
            master: NodeId([4; 16]),
            master_at: v6(u16::MAX),
            address: v6(1).ip(),
            partners: vec![partner; 5 * 9_999],
        }),
        part(Answer::Broken(Broken {
            paths: vec![
                BrokenTo {
                    partner: NodeId([4; 16]),
                    path: v6(u16::MAX),
                    fault: Fault::Size { passes: u32::MAX, fails: u32::MAX },
                    own_port_answers: true,
                };
                99
            ]
            .into_iter()
            .collect(),
            more: u32::MAX,
        })),
    ]
}

fn part(answer: Answer) -> Said {
    Said::Part(Part { round: u64::MAX, answer })
}

fn largest_count() -> Count {
    Count {
        joined: u32::MAX,
        newest: (0..99).map(|_| longest_name()).collect(),
        missing: (0..99).map(|_| (u32::MAX, u32::MAX)).collect(),
    }
}

fn largest_misfit() -> Misfit {
    Misfit { host: longest_name(), address: v6(u16::MAX), reason: Unfit::User(longest_user()) }
}

/// Every frame until a world has formed, each at its largest.
fn largest_frames() -> Vec<Said> {
    let trouble = Some(Trouble::Misfit(largest_misfit()));
    let void = u64::MAX;
    let (verdict, sameness) = (largest_verdict(), Sameness::largest());
    let mut largest = vec![
        part(Answer::Ready),
        Said::Welcome(Welcome { count: largest_count(), trouble, void }),
        Said::Roster(u64::MAX, crate::model::Roster::default()),
        Said::Commit(Commit { round: u64::MAX, verdict, sameness, left_over: u32::MAX }),
    ];
    largest.extend(refusals());
    largest.extend(of_paths());
    largest
}

#[test]
fn every_frame_comes_back_as_it_was_said_and_no_other_bytes_are_one() {
    let mut kinds = Vec::new();
    for said in largest_frames() {
        let body = said.encode();
        let kind = kind_of(&body);
        kinds.push(kind);
        assert!(Said::decode(&body).as_ref() == Some(&said), "kind {kind}");
        for length in (0..body.len()).rev().take(200) {
            assert_eq!(Said::decode(&body[..length]), None, "{kind}, {length} bytes");
        }
        assert_eq!(Said::decode(&[&body[..], &[0]].concat()), None);
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (0..=6).collect::<Vec<u8>>(), "every kind is there");
}

fn longest_user() -> User {
    User::new(Some(longest_name().as_str()), Some(u32::MAX))
}

/// Every message, each at its largest.
fn largest() -> Vec<Message> {
    vec![
        Message::Announce(Announce { candidate: candidate(), count: largest_count(), user: longest_user() }),
        Message::Solicit(Solicit { rank: Some(u32::MAX), host: longest_name() }),
        Message::Hint(Introduction { candidate: candidate(), source: v6(u16::MAX) }),
        Message::Running(Running {
            leader: NodeId([0xff; 16]),
            generation: u32::MAX,
            addresses: (0..99).map(|_| v6(u16::MAX)).collect(),
            host: longest_name(),
            user: longest_user(),
        }),
        Message::Query,
    ]
}

#[test]
fn every_message_comes_back_as_it_was_sent_and_fits_a_datagram() {
    let mut kinds = Vec::new();
    for message in largest() {
        let bytes = encode(TAG, head(&message), &message);
        kinds.push(bytes[5]);
        assert_eq!(decode(TAG, &bytes), Ok((head(&message), message)));
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (1..=5).collect::<Vec<u8>>(), "every kind is there");
}

#[test]
fn a_message_to_a_sort_of_recipient_that_its_kind_does_not_have_is_dropped() {
    for message in largest() {
        let to = |recipient| {
            let header = Header { recipient, ..HEAD };
            decode(TAG, &encode(TAG, header, &message)).is_ok()
        };
        // PROTOCOL.md, "Messages", says to whom each goes.
        let expected = match message.encode().0 {
            1 | 2 => (true, true, true),
            3 => (true, false, true),
            5 => (true, false, false),
            _ => (false, false, true),
        };
        assert_eq!((to(NodeId::ALL), to(NodeId::ANYONE), to(NodeId([2; 16]))), expected, "{message:?}");
    }
}

#[test]
fn an_endpoint_that_no_node_can_have_makes_a_message_malformed() {
    let right: SocketAddr = "10.0.0.1:29500".parse().unwrap();
    for (address, is_possible) in [
        ("10.0.0.2:1", true),
        ("[fd00::1]:29500", true),
        ("127.0.0.1:29500", true),
        ("10.0.0.2:0", false),
        ("0.0.0.0:29500", false),
        ("239.1.2.3:29500", false),
        ("255.255.255.255:29500", false),
        ("[ff15::1]:29500", false),
        ("[::]:29500", false),
    ] {
        let address: SocketAddr = address.parse().unwrap();
        let listed = Candidate { endpoints: Endpoints::new(vec![right, address]).unwrap(), ..candidate() };
        for introduction in [
            Introduction { candidate: listed, source: right },
            Introduction { candidate: candidate(), source: address },
        ] {
            let decoded = decode(TAG, &encode(TAG, HEAD, &Message::Hint(introduction)));
            assert_eq!(decoded.is_ok(), is_possible, "{address}");
        }
    }
}

#[test]
fn no_answer_to_a_datagram_is_longer_than_it_is() {
    for message in largest() {
        let length = encode(TAG, HEAD, &message).len();
        if message.is_padded() {
            assert_eq!(length, PADDED, "{message:?}");
        } else {
            assert!(length <= PADDED, "{length} bytes: {message:?}");
        }
    }
}

#[test]
fn a_datagram_that_is_cut_short_or_has_bytes_left_over_is_dropped() {
    for message in largest() {
        let bytes = encode(TAG, head(&message), &message);
        for length in 0..bytes.len() {
            assert!(decode(TAG, &bytes[..length]).is_err(), "{length} of {} bytes: {message:?}", bytes.len());
        }
        let mut longer = bytes.clone();
        longer.push(1);
        assert_eq!(decode(TAG, &longer), Err(Dropped::Malformed));
        // The header's length of the body is one byte too long.
        let mut stretched = bytes;
        let length = u16::from_le_bytes([stretched[6], stretched[7]]) + 1;
        stretched[6..8].copy_from_slice(&length.to_le_bytes());
        stretched.push(0);
        assert_eq!(decode(TAG, &stretched), Err(Dropped::Malformed));
    }
}

/// Messages of few bytes after which the recipient writes to an address that may be new to it.
fn padded() -> [Message; 2] {
    [short(), Message::Query]
}

#[test]
fn a_solicit_and_a_question_have_576_bytes_with_zeros_at_the_end_or_are_dropped() {
    for message in padded() {
        let head = head(&message);
        let bytes = encode(TAG, head, &message);
        assert_eq!(bytes.len(), 576, "{message:?}");
        assert_eq!(decode(TAG, &bytes), Ok((head, message.clone())));
        for length in [HEADER + usize::from(bytes[6]), 288, 575] {
            assert_eq!(decode(TAG, &bytes[..length]), Err(Dropped::Malformed), "{length} bytes");
        }
        for at in [HEADER + usize::from(bytes[6]), 400, 575] {
            let mut changed = bytes.clone();
            changed[at] = 1;
            assert_eq!(decode(TAG, &changed), Err(Dropped::Malformed), "byte {at} is not zero");
        }
        let sealed = Codec::new(TAG, Some(&keys("a secret of 20 bytes"))).encode(head, &message);
        assert_eq!(sealed.len(), 600);
    }
}

#[test]
fn a_datagram_of_more_than_1200_bytes_is_dropped() {
    for message in padded() {
        let head = head(&message);
        let mut bytes = encode(TAG, head, &message);
        bytes.resize(1200, 0);
        assert_eq!(decode(TAG, &bytes), Ok((head, message)));
        bytes.push(0);
        assert_eq!(decode(TAG, &bytes), Err(Dropped::Malformed));
    }
}

#[test]
fn a_datagram_from_all_or_from_anyone_is_dropped() {
    for sender in [NodeId::ALL, NodeId::ANYONE] {
        let bytes = encode(TAG, Header { sender, ..HEAD }, &short());
        assert_eq!(decode(TAG, &bytes), Err(Dropped::Malformed));
    }
}

#[test]
fn another_version_of_this_job_is_named_by_24_bytes() {
    let mut bytes = encode(TAG, HEAD, &short());
    assert_eq!(decode(TAG, &bytes[..23]), Err(Dropped::Foreign));
    for length in [24, 25, HEADER - 1] {
        assert_eq!(decode(TAG, &bytes[..length]), Err(Dropped::Malformed), "{length} bytes");
    }
    bytes[4] = VERSION + 1;
    assert_eq!(decode(TAG, &bytes[..24]), Err(Dropped::Version(VERSION + 1)));
    assert_eq!(decode(JobTag([8; 16]), &bytes[..24]), Err(Dropped::OtherJob));
    assert_eq!(decode(TAG, &bytes[..23]), Err(Dropped::Foreign));
    bytes[0] = b'X';
    assert_eq!(decode(TAG, &bytes), Err(Dropped::Foreign));
}

#[test]
fn a_length_from_the_network_allocates_nothing() {
    // Lists that claim 2^32 - 1 entries and bring none.
    let length = [252, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(Said::decode(&[&[4, 1][..], &length].concat()), None);
    let body = of_paths()[1].encode();
    let cut = body.len() - 5 * 9_999 * 38;
    assert_eq!(Said::decode(&[&body[..cut.min(80)], &length].concat()), None);
}

#[test]
fn a_hostile_host_name_is_made_safe_by_decoding() {
    let mut bytes =
        encode(TAG, HEAD, &Message::Solicit(Solicit { rank: None, host: HostName::new("aaaaaaaaa") }));
    let at = bytes.windows(9).position(|w| w == b"aaaaaaaaa").unwrap();
    bytes[at..at + 9].copy_from_slice(b"$(reboot)");
    let Ok((_, Message::Solicit(solicit))) = decode(TAG, &bytes) else { panic!("dropped") };
    assert_eq!(solicit.host.as_str(), "__reboot_");
}

#[test]
fn a_path_is_answered_by_its_target_alone() {
    let (me, other) = (NodeId([2; 16]), NodeId([3; 16]));
    let from_to = Header { sender: NodeId([1; 16]), recipient: me };
    let (plain, sealed) = (Codec::new(TAG, None), Codec::new(TAG, Some(&keys("a secret of 20 bytes"))));
    for codec in [&plain, &sealed] {
        let (bytes, answer) = codec.encode_path(from_to, 77);
        assert_eq!(codec.path_target(me).answer(&bytes), Some(answer));
        assert_eq!(codec.path_target(other).answer(&bytes), None, "another node's");
        // Each dial has an answer of its own.
        assert_ne!(codec.encode_path(from_to, 78).1, answer);
    }
    // Without the secret, nobody writes a token that is answered, nor an answer that counts.
    assert_eq!(sealed.path_target(me).answer(&plain.encode_path(from_to, 77).0), None);
    let (bytes, answer) = sealed.encode_path(from_to, 77);
    assert_eq!(plain.path_target(me).answer(&bytes), None);
    assert_ne!(token::answer(&bytes, None), answer);
}

fn keys(secret: &str) -> Keys {
    crate::Secret::new(secret.as_bytes()).unwrap().keys(&"foo".parse().unwrap())
}

#[test]
fn a_sealed_message_opens_once_and_only_with_the_same_secret() {
    let (ours, theirs) = (keys("a secret of 20 bytes"), keys("another secret, longer"));
    for message in largest() {
        let head = head(&message);
        let bytes = Codec::new(TAG, Some(&ours)).encode(head, &message);
        let mut receiver = Codec::new(TAG, Some(&ours));
        // An observer without the secret does not make a node warn of another secret.
        let dropped = if message == Message::Query { Dropped::Observer } else { Dropped::Unauthentic };
        assert_eq!(receiver.decode(&bytes), Ok((head, message.clone())));
        assert_eq!(receiver.decode(&bytes), Err(Dropped::Replayed));
        assert_eq!(Codec::new(TAG, Some(&theirs)).decode(&bytes), Err(dropped));
        assert_eq!(decode(TAG, &bytes), Err(dropped));
        let plain = encode(TAG, head, &message);
        assert_eq!(receiver.decode(&plain), Err(dropped));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Codec::new(TAG, Some(&ours)).decode(&changed).is_err(), "byte {at}: {message:?}");
        }
    }
}

#[test]
fn a_datagram_that_is_sealed_and_does_not_say_so_is_dropped() {
    let keys = keys("a secret of 20 bytes");
    let mut bytes = encode(TAG, HEAD, &short());
    Seal::new(&keys.seal).seal(HEAD.sender, HEADER, &mut bytes);
    assert_eq!(Codec::new(TAG, Some(&keys)).decode(&bytes), Err(Dropped::Unauthentic));
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect()
}

#[test]
fn a_codec_of_a_large_world_remembers_all_of_its_senders() {
    let keys = keys("a secret of 20 bytes");
    let mut sender = Codec::new(TAG, Some(&keys));
    let mut receiver = Codec::new(TAG, Some(&keys)).for_world(WorldSize::of(3000));
    let mut datagram = |number: u32| {
        let header = Header { sender: NodeId(u128::from(number).to_be_bytes()), ..HEAD };
        sender.encode(header, &short())
    };
    let first = datagram(1);
    assert!(receiver.decode(&first).is_ok());
    for number in 2..=6000 {
        assert!(receiver.decode(&datagram(number)).is_ok());
    }
    assert_eq!(receiver.decode(&first), Err(Dropped::Replayed));
}

#[test]
fn traits_come_back_as_they_were_sent_and_other_bytes_are_none() {
    let shown = |n: usize| Trait::shown(format!("a key of usual length {n}"), "v".repeat(n));
    for count in [0, 1, 30, 500] {
        let traits: Traits = (0..count).map(shown).chain([Trait::hidden("h", "x")]).collect();
        let bytes = encode_traits(&traits);
        assert_eq!(decode_traits(&bytes), Some(traits));
        assert_eq!(decode_traits(&bytes[1..]), None);
        assert_eq!(decode_traits(&bytes[..bytes.len() - 1]), None);
        // Twice the same key.
        assert_eq!(decode_traits(&[&bytes[..], &bytes].concat()), None);
    }
    assert_eq!(decode_traits(&vec![0xff; 32_000]), None);
    // A character that a terminal would obey.
    let bytes = encode_traits(&[Trait::shown("k", "abc")].into_iter().collect());
    let escaped: Vec<u8> = bytes.iter().map(|&byte| if byte == b'b' { 0x1b } else { byte }).collect();
    assert_eq!(decode_traits(&escaped), None);
}
