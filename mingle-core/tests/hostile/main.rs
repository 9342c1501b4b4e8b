//! Input that no node sends must neither crash nor hang a node. The fuzz targets in `fuzz/` run the same
//! program, guided by coverage.
#![allow(unreachable_pub, reason = "a module of a test")]

mod machine;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use mingle_core::proto::NodeId;
use mingle_core::proto::{ConnId, Output, TOKEN, Time};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_as_a_datagram_do_no_harm(kind: u8, bytes in vec(any::<u8>(), 0..1400)) {
        let mut node = machine::node(kind);
        node.handle_datagram(Time::ZERO, ([10, 0, 0, 2], 29500).into(), &bytes);
    }

    #[test]
    fn any_body_in_a_valid_frame_does_no_harm(
        kind: u8,
        message in 0u8..28,
        body in vec(any::<u8>(), 0..1200),
    ) {
        let mut node = machine::node(kind);
        for recipient in [[0; 16], [1; 16]] {
            let (sender, to) = (NodeId([2; 16]), NodeId(recipient));
            let datagram = machine::datagram(message, sender, to, &body);
            node.handle_datagram(Time::ZERO, ([10, 0, 0, 2], 29500).into(), &datagram);
        }
    }

    #[test]
    fn any_bytes_as_a_token_do_no_harm(kind: u8, bytes: [[u8; TOKEN / 4]; 4]) {
        let mut node = machine::node(kind);
        let token: Vec<u8> = bytes.concat();
        let token = token.try_into().unwrap();
        node.handle_token(Time::ZERO, ConnId(1), IpAddr::from(Ipv4Addr::LOCALHOST), &token);
    }

    #[test]
    fn whatever_happens_in_any_order_a_node_neither_panics_nor_hangs(program in vec(any::<u8>(), 0..600)) {
        machine::run(&program);
    }
}

#[test]
fn a_member_that_answers_and_is_never_ready_does_not_keep_its_leader_past_the_deadline() {
    let (me, them) = (NodeId([1; 16]), NodeId([2; 16]));
    let from = SocketAddr::from(([10, 0, 0, 2], 29500));
    let mut node = machine::plain_node(2, 0);
    // World 2, no rank, host "x", the endpoint 10.0.0.2:29500, 1 slot, no metadata, may be master, wants no
    // roster, no fabric, no settings.
    let mut join = vec![2, 0, 1, b'x', 1, 0, 10, 0, 0, 2, 0xfb, 0x3c, 0x73, 1, 0, 1, 0];
    join.extend([0; 9]);
    let join = machine::datagram(5, them, me, &join);
    node.handle_datagram(Time::ZERO, from, &join);
    let token = machine::token(them, me, 1);
    node.handle_token(Time::ZERO, ConnId(1), IpAddr::from(Ipv4Addr::new(10, 0, 0, 1)), &token);
    let pong = machine::datagram(9, them, me, &[]);
    let (mut now, mut prepares) = (Time::ZERO, 0);
    while let Some(next) = node.poll_timeout() {
        now = now.max(next);
        node.handle_timeout(now);
        node.handle_datagram(now, from, &pong);
        while let Some(output) = node.poll_output() {
            prepares += u32::from(matches!(output, Output::Send { datagram, .. } if datagram[5] == 10));
        }
        assert!(now < Duration::from_secs(80), "the node has not ended at {now:?}");
    }
    assert!(prepares > 0, "the member has joined");
    assert!(now >= Duration::from_secs(60), "the deadline is a minute: {now:?}");
}
