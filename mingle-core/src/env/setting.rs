//! Variables that the user asks mingle to set.

use std::fmt;
use std::str::FromStr;

use super::shell::{is_name, is_plain};
use super::variables::is_result;

/// A variable that mingle prints unchanged, such as `NCCL_IB_TIMEOUT=22` from a platform's guide: a value
/// that no probe can find. It replaces mingle's own advice and the user's environment.
///
/// ```
/// use mingle_core::env::Setting;
/// let setting: Setting = "NCCL_IB_SL=1".parse()?;
/// assert_eq!((setting.name(), setting.value()), ("NCCL_IB_SL", "1"));
/// assert!("RANK=0".parse::<Setting>().is_err());
/// # Ok::<(), mingle_core::env::InvalidSetting>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    name: String,
    value: String,
}

/// A text is not a [`Setting`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSetting {
    /// The text has no `=`.
    #[error("write NAME=VALUE, such as NCCL_IB_TIMEOUT=22")]
    NoValue,
    /// The text before the `=` is not the name of a variable.
    #[error("the name {0:?} must be capital letters, digits and _, and begin with a letter")]
    Name(String),
    /// The variable is part of the result, or begins with `MINGLE_` or `PET_`.
    #[error("{0} is part of mingle's result, and cannot be set")]
    Result(String),
    /// The value has a character that some shell does not read as itself.
    #[error("{0:?} in the value: only letters, digits and _ . , : = / @ % + - are safe in every shell")]
    Value(char),
}

impl Setting {
    /// The variable's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The variable's value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// A hash of `settings` that does not depend on their order: nodes with the same settings have the same
    /// hash. 0 for none.
    pub fn hash(settings: &[Self]) -> u64 {
        if settings.is_empty() {
            return 0;
        }
        let mut sorted: Vec<_> = settings.iter().map(Self::to_string).collect();
        sorted.sort_unstable();
        let mut hasher = blake3::Hasher::new_derive_key("mingle 1 settings");
        for line in sorted {
            // No value has a line end.
            hasher.update(line.as_bytes()).update(b"\n");
        }
        let mut hash = [0; 8];
        hash.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(hash)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl FromStr for Setting {
    type Err = InvalidSetting;

    fn from_str(text: &str) -> Result<Self, InvalidSetting> {
        let (name, value) = text.split_once('=').ok_or(InvalidSetting::NoValue)?;
        if !is_name(name) {
            return Err(InvalidSetting::Name(name.to_owned()));
        }
        if is_result(name) || name.starts_with("MINGLE_") || name.starts_with("PET_") {
            return Err(InvalidSetting::Result(name.to_owned()));
        }
        match value.chars().find(|c| !is_plain(*c)) {
            Some(c) => Err(InvalidSetting::Value(c)),
            None => Ok(Self { name: name.to_owned(), value: value.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(texts: &[&str]) -> Vec<Setting> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn names_and_values_that_are_unsafe_in_a_shell_are_refused() {
        for (text, expected) in [
            ("NCCL_IB_TIMEOUT", InvalidSetting::NoValue),
            ("", InvalidSetting::NoValue),
            ("=1", InvalidSetting::Name(String::new())),
            ("nccl=1", InvalidSetting::Name("nccl".to_owned())),
            ("A;reboot=1", InvalidSetting::Name("A;reboot".to_owned())),
            ("MASTER_ADDR=10.0.0.1", InvalidSetting::Result("MASTER_ADDR".to_owned())),
            ("MINGLE_SET=", InvalidSetting::Result("MINGLE_SET".to_owned())),
            ("PET_NNODES=2", InvalidSetting::Result("PET_NNODES".to_owned())),
            ("A=$(reboot)", InvalidSetting::Value('$')),
            ("A=a b", InvalidSetting::Value(' ')),
            ("A='", InvalidSetting::Value('\'')),
            ("A=\n", InvalidSetting::Value('\n')),
            ("A=é", InvalidSetting::Value('é')),
        ] {
            assert_eq!(text.parse::<Setting>(), Err(expected), "{text}");
        }
        assert_eq!(settings(&["A=", "UCX_TLS=rc,cuda=x"])[1].value(), "rc,cuda=x");
    }

    #[test]
    fn the_hash_does_not_depend_on_the_order() {
        let hash = |texts: &[&str]| Setting::hash(&settings(texts));
        assert_eq!(hash(&["A=1", "B=2"]), hash(&["B=2", "A=1"]));
        assert_ne!(hash(&["A=1", "B=2"]), hash(&["A=1", "B=3"]));
        assert_ne!(hash(&["A=1"]), hash(&[]));
    }
}
