//! What a node makes of input that no node sends. The fuzz targets in `fuzz/` run the same program
//! with coverage as their guide.
#![allow(unreachable_pub, reason = "a module of a test")]

#[path = "hostile/machine.rs"]
mod machine;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use mingle_core::proto::NodeId;
use mingle_core::proto::{ConnId, TOKEN, Time};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_a_datagram_that_does_no_harm(kind: u8, bytes in vec(any::<u8>(), 0..1400)) {
        let mut node = machine::node(kind);
        node.handle_datagram(Time::ZERO, ([10, 0, 0, 2], 29500).into(), &bytes);
    }

    #[test]
    fn any_body_in_a_valid_frame_does_no_harm(kind: u8, message in 0u8..24, body in vec(any::<u8>(), 0..1200)) {
        let mut node = machine::node(kind);
        for recipient in [[0; 16], [1; 16]] {
            let (sender, to) = (NodeId([2; 16]), NodeId(recipient));
            let datagram = machine::datagram(message, sender, to, &body);
            node.handle_datagram(Time::ZERO, ([10, 0, 0, 2], 29500).into(), &datagram);
        }
    }

    #[test]
    fn any_bytes_are_a_token_that_does_no_harm(kind: u8, bytes: [[u8; TOKEN / 4]; 4]) {
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
fn a_member_that_answers_and_is_never_ready_does_not_keep_a_leader_past_its_deadline() {
    let (me, them) = (NodeId([1; 16]), NodeId([2; 16]));
    let from = SocketAddr::from(([10, 0, 0, 2], 29500));
    let mut node = machine::plain_node(2, 0);
    // World 2, no rank, host "x", no endpoint, 1 slot, may be master, wants no roster.
    let join = machine::datagram(5, them, me, &[2, 0, 1, b'x', 0, 1, 1, 0]);
    node.handle_datagram(Time::ZERO, from, &join);
    let token = machine::token(them, me, 1);
    node.handle_token(Time::ZERO, ConnId(1), IpAddr::from(Ipv4Addr::new(10, 0, 0, 1)), &token);
    let pong = machine::datagram(9, them, me, &[]);
    let mut now = Time::ZERO;
    while let Some(next) = node.poll_timeout() {
        now = now.max(next);
        node.handle_timeout(now);
        node.handle_datagram(now, from, &pong);
        while node.poll_output().is_some() {}
        assert!(now < Duration::from_secs(80), "still there at {now:?}");
    }
    assert!(now >= Duration::from_secs(60), "the deadline is a minute: {now:?}");
}
