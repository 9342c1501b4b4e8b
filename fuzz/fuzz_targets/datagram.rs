//! Hands one datagram to a node: any bytes, and any body in a valid frame.
#![no_main]
#![allow(dead_code)]

#[path = "../../mingle-core/tests/hostile/machine.rs"]
mod machine;

use libfuzzer_sys::fuzz_target;
use mingle_core::proto::NodeId;
use mingle_core::proto::Time;

fuzz_target!(|data: &[u8]| {
    let Some((&[node, kind], body)) = data.split_first_chunk::<2>() else { return };
    let from = ([10, 0, 0, 2], 29500).into();
    machine::node(node).handle_datagram(Time::ZERO, from, data);
    let framed = machine::datagram(kind, NodeId([2; 16]), NodeId([1; 16]), body);
    machine::node(node).handle_datagram(Time::ZERO, from, &framed);
});
