//! Short texts that are shown to people and come from the network.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// A text of at most `MAX` characters, all of them printable ASCII.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Label<const MAX: usize>(String);

impl<const MAX: usize> Label<MAX> {
    /// The first `MAX` characters of a text, with `?` for each that is not printable ASCII.
    pub(crate) fn cut(text: &str) -> Self {
        let plain = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
        Self(text.chars().take(MAX).map(plain).collect())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for Label<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&str>::deserialize(deserializer)?;
        let label = Self::cut(text);
        if label.0 == text { Ok(label) } else { Err(D::Error::custom("not a label")) }
    }
}
