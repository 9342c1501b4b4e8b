//! Runs a node from start to end: datagrams, tokens, connections and time in any order.
#![no_main]
#![allow(dead_code)]

#[path = "../../mingle-core/tests/hostile/machine.rs"]
mod machine;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| machine::run(data));
