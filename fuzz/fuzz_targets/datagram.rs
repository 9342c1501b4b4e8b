//! Hands one datagram to a node in any situation: any bytes, and any message of the real encoder.
#![no_main]

#[path = "../../mingle-core/tests/hostile/machine/mod.rs"]
mod machine;

use libfuzzer_sys::fuzz_target;
use machine::stages::{STAGES, stranger};
use machine::{Attack, Bytes};

fuzz_target!(|data: &[u8]| {
    let Some((&[stage, secret], rest)) = data.split_first_chunk::<2>() else { return };
    let mut play = STAGES[usize::from(stage) % STAGES.len()].play(secret % 2 == 1);
    play.clone().link.attack(stranger(1), rest);
    let mut bytes = Bytes::new(rest);
    let attack = Attack::read(&mut bytes, &play);
    attack.send(&mut play, bytes.rest());
});
