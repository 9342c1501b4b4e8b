//! The public view of a launcher's entry, and the errors of writing a world in its format.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::{Advice, Facts, Input, LAUNCHERS, Launcher, Shell, Syntax, UnsafeStatement, Variables};
use crate::model::Rank;

/// A format of the result: its syntax, and the variables of the launcher that reads the result.
///
/// ```
/// use mingle_core::env::{Format, Shell};
/// let format: Format = "tf-config".parse()?;
/// assert_eq!(format, Format::TF_CONFIG);
/// assert!(format.needs_roster() && format.shell().is_none());
/// assert_eq!("c10d".parse::<Format>()?.shell(), Some(Shell::Posix));
/// # Ok::<(), mingle_core::env::InvalidFormat>(())
/// ```
#[derive(Clone, Copy)]
pub struct Format(&'static Launcher);

/// The text is not the name of a [`Format`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the formats are {}", Format::all().map(Format::name).collect::<Vec<_>>().join(", "))]
#[non_exhaustive]
pub struct InvalidFormat;

/// Why a formed world cannot be written in a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The format lists all nodes, but the rendezvous was not built to collect the roster.
    #[error("the format {0} lists all nodes, but this rendezvous did not collect the roster")]
    NoRoster(Format),
    /// The text lists hosts by name, and two hosts have the same name.
    #[error("ranks {0} and {1} both have the host name {2:?}, and {by}", by = by_name(*.3))]
    SameName(Rank, Rank, String, Format),
    /// The text lists hosts by name, and this name may mean another host elsewhere, or reads as an address or
    /// an option.
    #[error("rank {0} has the host name {1:?}, which other hosts cannot use for it, and {by}", by = by_name(*.2))]
    Name(Rank, String, Format),
    /// The format cannot hold IPv6 addresses, and this node has an IPv6 address.
    #[error("rank {0} has the address {1}, and the format {2} cannot hold IPv6 addresses; use IPv4")]
    Ipv6(Rank, IpAddr, Format),
    /// The format writes the template in [`Facts`], and [`Facts::template`] is not set.
    #[error("the format template has no text to fill in")]
    NoTemplate,
    /// A template has a placeholder for a port, and this host does not hold so many ports.
    #[error("{{port{0}}} stands for a port that is not held")]
    NoPort(usize),
    /// A value did not pass the check for shells. This is a bug in mingle.
    #[error(transparent)]
    Unsafe(#[from] UnsafeStatement),
}

/// Why a format lists hosts by name, and what to do where that is not possible.
fn by_name(format: Format) -> String {
    if format == Format::TEMPLATE {
        "{hosts} and {node.host} stand for it; give each host a name of its own, or write {addrs} and {node.addr}".to_owned()
    } else {
        format!(
            "the format {format} lists hosts by name, since it cannot hold IPv6 addresses; give each host a name of \
             its own, or use IPv4"
        )
    }
}

impl Format {
    pub(super) const fn of(launcher: &'static Launcher) -> Self {
        Self(launcher)
    }

    /// All formats, in the order of help and documents.
    pub fn all() -> impl Iterator<Item = Self> {
        LAUNCHERS.iter().copied().map(Self)
    }

    /// The name of the format, such as `tf-config`.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// A short description for a list of formats, such as `torchrun with its c10d rendezvous`.
    pub const fn about(self) -> &'static str {
        self.0.about
    }

    /// The shell that evaluates this format; none if another program reads the format.
    pub const fn shell(self) -> Option<Shell> {
        match self.0.syntax {
            Syntax::Script(shell) => Some(shell),
            Syntax::Json | Syntax::Text(_) => None,
        }
    }

    /// Whether this format lists all nodes, so that the rendezvous must collect the roster.
    pub const fn needs_roster(self) -> bool {
        self.0.needs_roster
    }

    /// Whether the job listens only on the nodes' own ports, so that nodes should prove the paths to those
    /// ports.
    pub const fn uses_own_ports(self) -> bool {
        self.0.own_ports
    }

    /// Whether the launcher takes the arguments that [`Format::arguments`] returns.
    pub const fn has_arguments(self) -> bool {
        self.0.arguments.is_some()
    }

    /// The arguments that the launcher takes, in their order on the command line; none where the launcher
    /// reads variables or a file. `command` is the command line that will contain the arguments.
    ///
    /// ```
    /// # use mingle_core::env::Format;
    /// assert!(Format::VLLM.has_arguments() && !Format::JAX.has_arguments());
    /// ```
    pub fn arguments(self, facts: Facts<'_>, command: &[OsString]) -> Vec<String> {
        self.0.arguments.map_or_else(Vec::new, |arguments| arguments(Input { format: self, facts }, command))
    }

    /// The variables of this format: the variables of every world, and those that the format's launcher
    /// reads. A program can set them for the launcher that it starts, without a shell and without quoting; it
    /// removes [`Variables::unset`] first.
    ///
    /// `environment` returns the user's value of a variable, as in [`Variables::new`].
    ///
    /// # Errors
    /// [`Unfit`], except [`Unfit::Unsafe`], which only [`Format::render`] returns.
    pub fn variables(
        self,
        facts: Facts<'_>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Variables, Unfit> {
        let input = Input { format: self, facts };
        let owned = self.0.owns.iter().map(|(name, value)| Ok((*name, value(input)?)));
        let owned = owned.collect::<Result<Vec<_>, Unfit>>()?;
        let used = || Self::all().filter(|&format| format == self || facts.beside.contains(&format));
        let is_exported = !facts.stays_here && used().any(|format| format.0.exports);
        let advised = used().flat_map(|format| {
            let given = |advice: &&Advice| {
                let rival = advice.rival.and_then(&environment);
                rival.is_none_or(|value| value.is_empty())
            };
            let input = Input { format, facts };
            let advices = format.0.advises.iter().filter(given);
            advices.filter_map(|advice| Some((advice.name, (advice.value)(input)?))).collect::<Vec<_>>()
        });
        let advised = advised.collect();
        Ok(Variables::with(facts, self.0.left_out, owned, advised, is_exported, environment))
    }

    /// The world in this format: statements for a shell to evaluate, or the text for another program. It ends
    /// in a newline, unless it comes from a user's template that does not. None for JSON, which the caller
    /// writes. `variables` come from [`Format::variables`] of the same format.
    ///
    /// # Errors
    /// [`Unfit`] if the format cannot hold the world.
    pub fn render(self, facts: Facts<'_>, variables: &Variables) -> Result<Option<String>, Unfit> {
        Ok(match self.0.syntax {
            Syntax::Script(shell) => Some(shell.exports(variables)?),
            Syntax::Json => None,
            Syntax::Text(text) => Some(text(Input { format: self, facts }, variables)?),
        })
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Format").field(&self.name()).finish()
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = InvalidFormat;

    fn from_str(text: &str) -> Result<Self, InvalidFormat> {
        Self::all().find(|format| format.name() == text).ok_or(InvalidFormat)
    }
}
