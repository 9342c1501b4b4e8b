//! Hands one hello to a node in any situation.
#![no_main]

#[path = "../../mingle-core/tests/hostile/machine/mod.rs"]
mod machine;

use libfuzzer_sys::fuzz_target;
use machine::stages::STAGES;
use mingle_core::proto::ConnId;

fuzz_target!(|data: &[u8]| {
    let Some((&[stage, secret], hello)) = data.split_first_chunk::<2>() else { return };
    let mut play = STAGES[usize::from(stage) % STAGES.len()].play(secret % 2 == 1);
    play.link.node(|node, now| node.handle_hello(now, ConnId(1), [10, 0, 0, 1].into(), [10, 0, 0, 1].into(), hello));
});
