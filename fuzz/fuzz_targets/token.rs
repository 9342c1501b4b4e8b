//! Hands one token to the port for paths of a node in any situation.
#![no_main]

#[path = "../../mingle-core/tests/hostile/machine/mod.rs"]
mod machine;

use libfuzzer_sys::fuzz_target;
use machine::stages::STAGES;
use mingle_core::proto::TOKEN;

fuzz_target!(|data: &[u8]| {
    let Some((&[stage, secret], rest)) = data.split_first_chunk::<2>() else { return };
    let Some(token) = rest.first_chunk::<TOKEN>() else { return };
    let mut play = STAGES[usize::from(stage) % STAGES.len()].play(secret % 2 == 1);
    play.link.node(|node, _| node.path_target().answer(token));
});
