//! Variables that the user asks mingle to set.

use std::fmt;
use std::str::FromStr;

use super::shell::is_name;
use super::variables::is_result;

/// A variable that mingle prints unchanged, such as `NCCL_IB_TIMEOUT=22` from a platform's guide. Settings
/// are for values that mingle cannot find out. A setting replaces mingle's own advice and the user's
/// environment.
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

/// The variables that are read-only, computed or tied to another in bash, zsh, ksh or fish.
const SHELLS_OWN: &str = "\
    ARGC BASHOPTS BASHPID BASH_ARGC BASH_ARGV BASH_COMMAND BASH_LINENO BASH_SOURCE BASH_SUBSHELL \
    BASH_VERSINFO DIRSTACK EGID EPOCHREALTIME EPOCHSECONDS EUID FISH_VERSION FUNCNAME GID GROUPS \
    HISTCMD LINENO OLDPWD OPTARG OPTIND PIPESTATUS PPID PWD RANDOM SECONDS SHELLOPTS SHLVL SRANDOM \
    TTYIDLE UID USERNAME _ argv cdpath fignore fish_pid fpath history hostname mailpath manpath \
    module_path path pipestatus psvar status umask version watch zsh_eval_context";

/// Why a text is not a [`Setting`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSetting {
    /// The text has no `=`.
    #[error("write NAME=VALUE, such as NCCL_IB_TIMEOUT=22")]
    NoValue,
    /// The text before the `=` is not the name of a variable.
    #[error("the name {0:?} must be letters, digits and _, and not begin with a digit: shells know no other")]
    Name(String),
    /// Some shell sets this variable itself, makes it read-only, or ties it to another variable.
    #[error("{0} is a variable of the shells themselves, and some of them would not take it")]
    Shell(String),
    /// The variable is part of the result, or begins with `MINGLE_` or `PET_`.
    #[error("{0} is part of mingle's result or the variable of an option, and cannot be set")]
    Result(String),
    /// The value has a NUL byte.
    #[error("{0:?} in the value: no process can carry it")]
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
        if SHELLS_OWN.split(' ').any(|own| own == name) {
            return Err(InvalidSetting::Shell(name.to_owned()));
        }
        match value.chars().find(|c| *c == '\0') {
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
    fn names_and_values_that_no_shell_or_process_can_carry_are_refused() {
        for (text, expected) in [
            ("NCCL_IB_TIMEOUT", InvalidSetting::NoValue),
            ("", InvalidSetting::NoValue),
            ("=1", InvalidSetting::Name(String::new())),
            ("1a=1", InvalidSetting::Name("1a".to_owned())),
            ("a-b=1", InvalidSetting::Name("a-b".to_owned())),
            ("ä=1", InvalidSetting::Name("ä".to_owned())),
            ("A;reboot=1", InvalidSetting::Name("A;reboot".to_owned())),
            ("UID=0", InvalidSetting::Shell("UID".to_owned())),
            ("path=/bin", InvalidSetting::Shell("path".to_owned())),
            ("MASTER_ADDR=10.0.0.1", InvalidSetting::Result("MASTER_ADDR".to_owned())),
            ("MINGLE_SET=", InvalidSetting::Result("MINGLE_SET".to_owned())),
            ("MINGLE_WORLD_MIN=1", InvalidSetting::Result("MINGLE_WORLD_MIN".to_owned())),
            ("MINGLE_PORT_LIST=1", InvalidSetting::Result("MINGLE_PORT_LIST".to_owned())),
            ("PET_NNODES=2", InvalidSetting::Result("PET_NNODES".to_owned())),
            ("A=a\0b", InvalidSetting::Value('\0')),
        ] {
            assert_eq!(text.parse::<Setting>(), Err(expected), "{text}");
        }
        assert_eq!(settings(&["A=", "UCX_TLS=rc,cuda=x"])[1].value(), "rc,cuda=x");
        for text in ["NCCL_IB_HCA=^mlx5_0", "http_proxy=http://a:b@c/?d=$e", "_x=", "A=$(reboot) 'é'\n"] {
            assert_eq!(settings(&[text])[0].to_string(), text);
        }
    }
}
