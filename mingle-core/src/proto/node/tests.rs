//! Messages and tokens that reach the wrong node or come in the wrong round have no effect. In the simulator,
//! harm would need a second fault.

use std::net::SocketAddr;

use crate::model::{Digest, HostName, JobId, Lineage, List, NodeId};
use crate::proto::follow::Follow;
use crate::proto::report::Event;
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, DialId, Node, Output};
use crate::wire::{
    Announce, Candidate, Codec, Commit, Header, Introduction, Join, Message, NodeInfo, Prepare, Token,
    Welcome,
};

const ME: NodeId = NodeId([2; 16]);
const LEADER: NodeId = NodeId([1; 16]);

fn endpoint(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 29500))
}

fn codec() -> Codec {
    Codec::new("misdirected".parse::<JobId>().unwrap().tag(), None)
}

fn node() -> Node {
    let tag = "misdirected".parse::<JobId>().unwrap().tag();
    let config = Config::plain(tag, 2, 2, endpoint(2));
    Node::new(config, 1, Time::ZERO)
}

fn outputs(node: &mut Node) -> Vec<Output> {
    std::iter::from_fn(|| node.poll_output()).collect()
}

fn hear(node: &mut Node, message: &Message) -> Vec<Output> {
    let datagram =
        codec().encode(Header { sender: LEADER, recipient: ME, lineage: Lineage::default() }, message);
    node.handle_datagram(Time::ZERO, endpoint(1), &datagram);
    outputs(node)
}

fn says(outputs: &[Output], wanted: fn(&Message) -> bool) -> bool {
    let sent = outputs.iter().filter_map(|output| match output {
        Output::Send { datagram, .. } => codec().decode(datagram).ok(),
        _ => None,
    });
    sent.into_iter().any(|(_, message)| wanted(&message))
}

fn has_formed(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Event(Event::Formed(_))))
}

/// A candidate of the world of two, at the address that ends in `last`.
fn candidate(id: NodeId, last: u8, explicit: bool) -> Candidate {
    Candidate {
        id,
        explicit,
        members: 1,
        world: 2,
        host: HostName::new("host"),
        endpoints: endpoint(last).into(),
    }
}

fn announce(candidate: Candidate) -> Message {
    let (newest, missing) = (List::from_iter([]), List::from_iter([]));
    Message::Announce(Announce { candidate, joined: 1, newest, missing, rdma: None })
}

/// A node that follows the leader, and its first dial.
fn following() -> (Node, u32) {
    let mut node = node();
    let _ = outputs(&mut node);
    let followed = hear(&mut node, &announce(candidate(LEADER, 1, false)));
    let dial = followed.iter().find_map(|output| match output {
        Output::Dial { dial, .. } => Some(*dial),
        _ => None,
    });
    let Some(DialId(lease)) = dial else { panic!("{followed:?}") };
    (node, lease)
}

#[test]
fn a_node_follows_a_redirect_only_to_a_better_leader() {
    let third = NodeId([3; 16]);
    for (last, explicit, followed) in [(3, false, false), (1, false, false), (3, true, true)] {
        let (mut node, lease) = following();
        hear(&mut node, &Message::Welcome(Welcome { lease: Some(lease), seated: true }));
        let to = Introduction { candidate: candidate(third, last, explicit), source: endpoint(3) };
        hear(&mut node, &Message::Redirect(to));
        let leader = node.follow.as_ref().map(Follow::leader_id);
        assert_eq!(leader, Some(if followed { third } else { LEADER }), "{last} {explicit}");
    }
}

#[test]
fn a_leader_does_not_yield_in_a_round() {
    let mut node = node();
    let _ = outputs(&mut node);
    let join = Join { world: 2, node: NodeInfo::new(HostName::new("host-9"), endpoint(9).into()) };
    hear(&mut node, &Message::Join(join));
    let token = Token { prover: LEADER, target: ME, dial: 1, dialled: endpoint(2) };
    node.handle_token(Time::ZERO, ConnId(1), endpoint(2).ip(), &codec().encode_token(&token));
    assert!(says(&outputs(&mut node), |message| matches!(message, Message::Prepare(_))));
    let better = NodeId([3; 16]);
    let datagram = codec().encode(
        Header { sender: better, recipient: NodeId::ALL, lineage: Lineage::default() },
        &announce(candidate(better, 1, true)),
    );
    node.handle_datagram(Time::ZERO, endpoint(1), &datagram);
    assert!(node.follow.is_none() && node.lead.is_proving());
}

#[test]
fn a_token_for_another_node_proves_nothing() {
    // The address may have been that of another node, which is gone.
    for (target, closed) in [(NodeId([9; 16]), true), (ME, false)] {
        let mut node = node();
        let token = Token { prover: LEADER, target, dial: 1, dialled: endpoint(2) };
        node.handle_token(Time::ZERO, ConnId(1), endpoint(2).ip(), &codec().encode_token(&token));
        assert_eq!(outputs(&mut node).contains(&Output::Close(ConnId(1))), closed);
        assert_eq!(node.arrivals.has(LEADER), !closed);
    }
}

#[test]
fn a_commit_of_another_round_forms_no_world() {
    let (mut node, lease) = following();
    hear(&mut node, &Message::Welcome(Welcome { lease: Some(lease), seated: true }));
    let prepare = Prepare {
        slots_before: 0,
        slots_total: 2,
        roster_bytes: 0,
        round: 7,
        lease,
        rank: 1,
        digest: Digest([0; 16]),
        master: LEADER,
        endpoints: endpoint(1).into(),
    };
    let prepared = hear(&mut node, &Message::Prepare(prepare));
    assert!(says(&prepared, |message| matches!(message, Message::Ready(_))), "{prepared:?}");
    for round in [0, 6, 8] {
        let outputs = hear(
            &mut node,
            &Message::Commit(Commit { round, endpoint: 0, verdict: crate::rdma::Verdict::default() }),
        );
        assert!(!has_formed(&outputs), "round {round}");
        assert!(!says(&outputs, |message| matches!(message, Message::Done(_))), "round {round}");
    }
    assert!(has_formed(&hear(
        &mut node,
        &Message::Commit(Commit { round: 7, endpoint: 0, verdict: crate::rdma::Verdict::default() })
    )));
}
