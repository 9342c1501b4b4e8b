//! The text by which nodes without a given rank are ordered.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{InvalidId, Label};

/// A text that orders the nodes without a given rank: 1 to 128 printable ASCII characters. Numbers in the
/// text compare as numbers, so `node-9` comes before `node-10`. The default is no key.
///
/// ```
/// use mingle_core::RankKey;
/// assert_eq!("block-1/rack-7/host".parse::<RankKey>()?.to_string(), "block-1/rack-7/host");
/// assert!("".parse::<RankKey>().is_err());
/// # Ok::<(), mingle_core::error::InvalidId>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RankKey(Label<{ RankKey::MAX }>);

impl RankKey {
    /// The most characters of a key.
    pub const MAX: usize = 128;

    /// The text, which is empty where there is no key.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for RankKey {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let label = Label::cut(text);
        if label.as_str() == text && !text.is_empty() { Ok(Self(label)) } else { Err(InvalidId::RankKey) }
    }
}

impl fmt::Display for RankKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
