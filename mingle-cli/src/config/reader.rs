//! Reads each value from its argument, or else from its variable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mingle_core::{JobId, Secret, User};
use nix::unistd::{self, geteuid};

use super::values::{flag, job_argument, job_variable, rdma, timeout};
use crate::advice;
use crate::args::JoinArgs;
use crate::exit::Stop;
use crate::fabric::Wanted;
use crate::host::beginning;
use crate::output::OutputFile;
use crate::scheduler::Environment;

/// The largest file that can be a secret, in bytes.
const LONGEST_SECRET: u64 = 4096;

/// A list with commas is in the variable alone.
const IN_VARIABLE: fn(&Given) -> bool = |given| given.is_variable;

/// The environment, for values without an argument.
pub(crate) struct Reader<'a>(pub(crate) Environment<'a>);

impl Reader<'_> {
    /// The value, if there is one. An empty variable counts as not set: templates and `docker run -e NAME=`
    /// leave a variable out that way.
    pub(crate) fn given(
        &self,
        argument: Option<String>,
        option: &'static str,
    ) -> Result<Option<Given>, Stop> {
        if let Some(text) = argument {
            return Ok(Some(Given { option, text, is_variable: false }));
        }
        let Some(value) = (self.0)(&variable(option)).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        match value.into_string() {
            Ok(text) => Ok(Some(Given { option, text, is_variable: true })),
            Err(raw) => Err(Stop::Usage(format!("{}={}: not UTF-8", variable(option), raw.display()))),
        }
    }

    /// The value as `parse` reads it, if there is one.
    pub(crate) fn read<T, E: fmt::Display>(
        &self,
        argument: Option<String>,
        option: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Stop> {
        self.given(argument, option)?.map(|given| given.parse(parse)).transpose()
    }

    /// A time, where none means for ever.
    pub(crate) fn time(
        &self,
        argument: Option<String>,
        option: &'static str,
        default: Duration,
    ) -> Result<Option<Duration>, Stop> {
        Ok(self.read(argument, option, timeout)?.unwrap_or(Some(default)))
    }

    pub(crate) fn job(&self, argument: Option<String>) -> Result<Option<JobId>, Stop> {
        let given = self.given(argument, "job-id")?;
        let job = given.map(|given| given.parse(if given.is_variable { job_variable } else { job_argument }));
        job.transpose()
    }

    /// Who runs this node: MINGLE_USER, or else the user of this process.
    pub(crate) fn user(&self) -> User {
        if let Some(name) = (self.0)("MINGLE_USER").filter(|name| !name.is_empty()) {
            return User::new(Some(&name.to_string_lossy()), None);
        }
        let number = geteuid();
        // A container may know no name for the number.
        let known = unistd::User::from_uid(number).ok().flatten();
        User::new(known.as_ref().map(|user| user.name.as_str()), Some(number.as_raw()))
    }

    pub(crate) fn flag(&self, argument: bool, option: &'static str) -> Result<bool, Stop> {
        Ok(argument || self.read(None, option, flag)?.unwrap_or(false))
    }

    pub(crate) fn fabric(&self, low: &JoinArgs) -> Result<Wanted, Stop> {
        let root = (self.0)("MINGLE_SYSFS_ROOT").filter(|value| !value.is_empty()).map(PathBuf::from);
        Ok(Wanted { rdma: self.read(low.rdma.clone(), "rdma", rdma)?.unwrap_or_default(), root })
    }

    /// The pairs of `--same`, by their keys.
    pub(crate) fn same(&self, arguments: Vec<String>) -> Result<BTreeMap<String, String>, Stop> {
        let mut pairs = BTreeMap::new();
        self.list(arguments, "same", IN_VARIABLE, |part| {
            let pair = part.split_once('=').filter(|(key, _)| !key.is_empty());
            let (key, value) = pair.ok_or("write KEY=VALUE, such as image=v7")?;
            match pairs.insert(key.to_owned(), value.to_owned()) {
                Some(other) if other != value => {
                    Err(format!("{key} is {other:?} already; give each key once"))
                }
                _ => Ok(()),
            }
        })?;
        Ok(pairs)
    }

    /// The secret of `--secret-file`, or else of MINGLE_SECRET, and warnings about it.
    pub(crate) fn secret(&self, argument: Option<String>) -> Result<(Option<Secret>, Vec<String>), Stop> {
        if let Some(file) = self.given(argument, "secret-file")? {
            return file.parse(|path| secret_of(Path::new(path)));
        }
        // Not through `given`, whose errors show the value.
        let Some(value) = (self.0)("MINGLE_SECRET").filter(|value| !value.is_empty()) else {
            return Ok((None, Vec::new()));
        };
        let secret = Secret::new(value.as_encoded_bytes());
        let secret =
            secret.map_err(|error| Stop::Usage(format!("MINGLE_SECRET: {}", advice::secret(&error))))?;
        Ok((Some(secret), Vec::new()))
    }

    /// All `--output` arguments, or else what MINGLE_OUTPUT lists.
    pub(crate) fn outputs(&self, arguments: Vec<String>) -> Result<Vec<OutputFile>, Stop> {
        let mut paths = BTreeSet::new();
        self.list(arguments, "output", IN_VARIABLE, |part| {
            let output = OutputFile::parse(part)?;
            if !paths.insert(output.path.clone()) {
                let path = output.path.display();
                return Err(format!("{path} is written twice; give each format a file of its own"));
            }
            Ok(output)
        })
    }

    /// All values of a repeatable option, or else those of its variable. `splits` says whether what was given
    /// is a list with commas.
    pub(crate) fn list<T, E: fmt::Display>(
        &self,
        arguments: Vec<String>,
        option: &'static str,
        splits: impl Fn(&Given) -> bool,
        mut parse: impl FnMut(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, Stop> {
        let of_argument = |text| Given { option, text, is_variable: false };
        let mut all: Vec<Given> = arguments.into_iter().map(of_argument).collect();
        if all.is_empty() {
            all.extend(self.given(None, option)?);
        }
        let mut values = Vec::new();
        for given in &all {
            for part in given.text.split(|c| c == ',' && splits(given)) {
                values.push(given.parse(|_| parse(part))?);
            }
        }
        Ok(values)
    }
}

/// A value as it was given, and its option.
pub(crate) struct Given {
    option: &'static str,
    text: String,
    pub(crate) is_variable: bool,
}

impl Given {
    pub(crate) fn parse<T, E: fmt::Display>(
        &self,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Stop> {
        read(&self.text).map_err(|reason| Stop::Usage(format!("{self}: {reason}")))
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_variable {
            write!(f, "{}={}", variable(self.option), self.text)
        } else if self.text.is_empty() {
            // As from --job-id "$JOB", where JOB is not set.
            write!(f, "--{} ''", self.option)
        } else {
            write!(f, "--{} {}", self.option, self.text)
        }
    }
}

/// `MINGLE_MASTER_PORT` for `master-port`.
fn variable(option: &str) -> String {
    format!("MINGLE_{}", option.to_ascii_uppercase().replace('-', "_"))
}

/// The secret in a file, and a warning where every user can read it.
fn secret_of(path: &Path) -> Result<(Option<Secret>, Vec<String>), String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    let bytes = beginning(path, LONGEST_SECRET + 1).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LONGEST_SECRET {
        return Err(format!("has more than {LONGEST_SECRET} bytes, which is too many for a secret"));
    }
    let secret = Secret::new(&bytes).map_err(|error| advice::secret(&error))?;
    let mode = metadata.permissions().mode();
    let warning = (mode & 0o004 != 0).then(|| {
        let path = path.display();
        format!("every user of this host can read the secret in {path}; give it the mode 600")
    });
    Ok((Some(secret), warning.into_iter().collect()))
}
