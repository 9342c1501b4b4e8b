//! Datagrams and the token.

/// The version of the protocol that this library speaks.
pub const VERSION: u8 = 1;
