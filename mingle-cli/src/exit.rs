//! How a run ends without a world: the exit code, the message for people, the kind for programs.

use std::fmt;
use std::io;
use std::num::NonZeroU8;

use mingle_core::env::Unfit;
use mingle_core::{End, Error, Outlook};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{advice, stderr};

/// Why this process ends with another code than 0.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The arguments or the variables are wrong.
    Usage(String),
    /// No world formed.
    Rendezvous(Error),
    /// The doctor found what keeps a world from forming, and its report has been printed.
    Findings { code: NonZeroU8, summary: String },
    /// A signal asked to stop before the world had formed.
    Signal(Signal),
    /// The result could not be written.
    Stdout(io::Error),
    /// The command of `mingle run` could not be started.
    Command(String, io::Error),
    /// The command of `mingle run` has ended with this code; the message, if there is one.
    Ended(NonZeroU8, Option<String>),
    /// The operating system refused what every run needs.
    System(&'static str, io::Error),
    /// Another failure: its kind for programs, and the message.
    Other(&'static str, String),
}

impl Stop {
    /// The exit code, as in `--help`.
    pub(crate) fn code(&self) -> NonZeroU8 {
        NonZeroU8::new(self.class().0).unwrap_or(NonZeroU8::MIN)
    }

    /// What programs are told.
    pub(crate) fn document(&self) -> Value {
        json!({ "code": self.code(), "kind": self.class().1, "message": self.to_string() })
    }

    /// The exit code, and a name for programs, which stays when the messages change.
    fn class(&self) -> (u8, &'static str) {
        match self {
            Self::Usage(_) => (advice::USAGE, "usage"),
            Self::Rendezvous(error) => advice::class(error),
            Self::Findings { code, .. } => (code.get(), "findings"),
            Self::Ended(code, _) => (code.get(), "ended"),
            // As of a shell and env(1).
            Self::Command(_, error) if error.kind() == io::ErrorKind::NotFound => (127, "command"),
            Self::Command(..) => (126, "command"),
            // As of a shell, for a process that the signal has killed: 128 and the signal's number.
            Self::Signal(signal) => (128 + *signal as u8, "signal"),
            Self::Stdout(_) => (advice::OTHER, "stdout"),
            Self::System(..) => (advice::OTHER, "system"),
            Self::Other(kind, _) => (advice::OTHER, kind),
        }
    }

    /// Prints the message on stderr.
    pub(crate) fn report(&self) {
        match self {
            Self::Ended(_, None) => {}
            Self::Rendezvous(error) if stderr::is_live() => {
                stderr::insist(format_args!("error: {}", advice::error_in_parts(error)));
            }
            _ => stderr::insist(format_args!("error: {self}")),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Other(_, message) | Self::Findings { summary: message, .. } => {
                f.write_str(message)
            }
            Self::Rendezvous(error) => f.write_str(&advice::error(error)),
            Self::Signal(signal) => write!(f, "ended by {signal}; this node has left the world"),
            Self::Stdout(error) => write!(f, "cannot write the result to stdout: {error}"),
            Self::Command(name, error) => write!(f, "cannot start {name}: {error}"),
            Self::Ended(_, message) => f.write_str(message.as_deref().unwrap_or("the command has ended")),
            Self::System(what, error) => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        let Error::Ended(ended) = &error else { return Self::Rendezvous(error) };
        // The node that failed ends with the same exit code, and has said why.
        let is_told = ended.is_own && ended.outlook != Outlook::GivesSeat;
        let text = (!is_told).then(|| error.to_string());
        Self::Ended(NonZeroU8::new(of_command(ended.over.end)).unwrap_or(NonZeroU8::MIN), text)
    }
}

/// The exit code for the end of a command, as a shell gives it.
pub(crate) fn of_command(end: End) -> u8 {
    match end {
        End::Exited(code) => code,
        End::Killed(signal) => 128_u8.saturating_add(signal),
        _ => 1,
    }
}

impl From<Unfit> for Stop {
    fn from(error: Unfit) -> Self {
        match error {
            // The alphabet of every value is checked where the value is made, so this is a bug.
            Unfit::Unsafe(error) => Self::Other("bug", format!("{error}; please report this")),
            Unfit::Ipv6(..) => Self::Usage(format!("{error}; or choose another --format")),
            other => Self::Other("format", format!("the world has formed, but cannot be printed: {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use mingle_core::env::Format;

    use super::*;

    #[test]
    fn the_exit_codes_are_those_of_the_help() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let socket = Error::Socket { what: "bind".to_owned(), source: denied() };
        for (stop, code, kind) in [
            (Stop::Usage("x".to_owned()), 2, "usage"),
            (
                Stop::Rendezvous(Error::NoInterface { reasons: "none".to_owned(), is_filtered: false }),
                5,
                "no_interface",
            ),
            (Stop::Rendezvous(socket), 5, "socket"),
            (Stop::Signal(Signal::SIGINT), 130, "signal"),
            (Stop::Signal(Signal::SIGTERM), 143, "signal"),
            (Stop::Stdout(denied()), 1, "stdout"),
            (Unfit::NoRoster(Format::HOSTFILE).into(), 1, "format"),
            (Stop::System("start the runtime", denied()), 1, "system"),
        ] {
            assert_eq!((stop.code().get(), stop.class().1), (code, kind), "{stop}");
        }
    }
}
