//! The real clock and real randomness: nothing else in `net` reads either.

use std::io;
use std::time::Instant;

use rand::TryRng;
use rand::rngs::SysRng;

use crate::net::error::Error;

#[allow(clippy::disallowed_methods, reason = "the driver is where the protocol gets its time from")]
pub(crate) fn clock() -> Instant {
    Instant::now()
}

/// Random bytes from the operating system: two nodes must never have the same ID.
///
/// # Errors
/// [`Error::Socket`] if the operating system gives none.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let failed = Error::socket("cannot read random bytes from the operating system");
    SysRng.try_fill_bytes(&mut bytes).map_err(io::Error::other).map_err(failed)?;
    Ok(bytes)
}
