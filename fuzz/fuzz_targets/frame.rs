//! Writes one frame to a node in any situation, on a new connection in anybody's name.
#![no_main]

#[path = "../../mingle-core/tests/hostile/machine/mod.rs"]
mod machine;

use libfuzzer_sys::fuzz_target;
use machine::stages::STAGES;
use machine::{Attack, Bytes};

fuzz_target!(|data: &[u8]| {
    let Some((&[stage, secret], rest)) = data.split_first_chunk::<2>() else { return };
    let mut play = STAGES[usize::from(stage) % STAGES.len()].play(secret % 2 == 1);
    let mut bytes = Bytes::new(rest);
    let attack = Attack::read_frame(&mut bytes, &play);
    attack.send(&mut play, bytes.rest());
});
