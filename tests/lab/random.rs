//! Numbers from a seed that every test prints, so that a failure can be repeated.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64, which is good enough for orders and delays.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// See [`announced_seed`].
    pub fn announced(what: &str) -> Self {
        Self(announced_seed(what))
    }

    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// The seed of a test: MINGLE_TEST_SEED where that is set, and printed in any case.
pub fn announced_seed(what: &str) -> u64 {
    let given = std::env::var("MINGLE_TEST_SEED").ok().map(|text| text.parse().unwrap());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let seed = given.unwrap_or_else(|| u64::from(now()));
    let _ = writeln!(std::io::stderr(), "{what}: MINGLE_TEST_SEED={seed}");
    seed
}
