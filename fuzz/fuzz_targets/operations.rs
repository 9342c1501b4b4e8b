//! Runs a node to its end: datagrams, sessions, paths and time in any order.
#![no_main]

#[path = "../../mingle-core/tests/hostile/machine/mod.rs"]
mod machine;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    machine::run(data);
});
