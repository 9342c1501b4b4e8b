//! What a node makes of input that no node sends. The fuzz targets in `fuzz/` run the same program
//! with coverage as their guide.
#![allow(unreachable_pub, reason = "a module of a test")]

#[path = "hostile/machine.rs"]
mod machine;

use std::net::{IpAddr, Ipv4Addr};

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
            let (sender, to) = (mingle_core::NodeId([2; 16]), mingle_core::NodeId(recipient));
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
