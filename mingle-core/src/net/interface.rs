//! The host's network interfaces: which may be used, and in which order.

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface;
/// What an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {}
/// Which interfaces may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {}
/// Why a text is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("")]
pub struct InvalidFilter;
impl std::str::FromStr for Filter {
    type Err = InvalidFilter;
    fn from_str(_: &str) -> Result<Self, InvalidFilter> {
        Err(InvalidFilter)
    }
}
