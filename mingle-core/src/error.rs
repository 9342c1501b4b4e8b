//! Why a rendezvous failed, and why a text or number is not a valid name.
//!
//! [`Error`] covers everything that ends a rendezvous on real sockets; [`Failure`] is how the protocol ends
//! without a world. An `Invalid...` type is the error of the `FromStr` or constructor of the type that its
//! name contains.

pub use crate::host::InvalidFilter;
pub use crate::model::{InvalidId, InvalidMetadata, InvalidSecret};
pub use crate::net::{Ended, Error, InvalidSeed};
pub use crate::proto::{Cause, Failure, Heard, RankRange, Report};

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;

    use super::*;
    use crate::{env, rdma};

    #[test]
    fn every_public_error_is_an_error_that_moves_between_threads() {
        fn is_error<T: StdError + Send + Sync + 'static>() {}
        is_error::<Error>();
        is_error::<Failure>();
        is_error::<InvalidId>();
        is_error::<InvalidMetadata>();
        is_error::<InvalidSecret>();
        is_error::<env::InvalidFormat>();
        is_error::<env::InvalidJobVariable>();
        is_error::<env::Unfit>();
        is_error::<env::UnsafeStatement>();
        is_error::<rdma::InvalidAddress>();
        is_error::<InvalidFilter>();
        is_error::<InvalidSeed>();
    }
}
