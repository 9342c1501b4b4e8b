//! Hands one token to a node.
#![no_main]
#![allow(dead_code)]

#[path = "../../mingle-core/tests/hostile/machine.rs"]
mod machine;

use libfuzzer_sys::fuzz_target;
use mingle_core::proto::{ConnId, TOKEN, Time};

fuzz_target!(|data: &[u8]| {
    let Some((&[node], token)) = data.split_first_chunk::<1>() else { return };
    let Some(token) = token.first_chunk::<TOKEN>() else { return };
    machine::node(node).handle_token(Time::ZERO, ConnId(1), [10, 0, 0, 1].into(), token);
});
