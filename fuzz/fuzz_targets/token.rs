//! Hands one token to a node in any situation.
#![no_main]

#[path = "../../mingle-core/tests/hostile/machine/mod.rs"]
mod machine;

use libfuzzer_sys::fuzz_target;
use machine::stages::STAGES;
use mingle_core::proto::{ConnId, TOKEN};

fuzz_target!(|data: &[u8]| {
    let Some((&[stage, secret], token)) = data.split_first_chunk::<2>() else { return };
    let Some(token) = token.first_chunk::<TOKEN>() else { return };
    let mut play = STAGES[usize::from(stage) % STAGES.len()].play(secret % 2 == 1);
    play.link.node(|node, now| node.handle_token(now, ConnId(1), [10, 0, 0, 1].into(), [10, 0, 0, 1].into(), token));
});
