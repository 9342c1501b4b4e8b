//! The forms in which a world is handed over, each for one program; a file a launcher.

mod c10d;
mod deepspeed;
mod dotenv;
mod horovod;
mod hostfile;
mod hosts;
mod jax;
mod nodes;
mod ray;
mod skypilot;
mod slots;
mod tf_config;
mod ti_one;

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use super::{Document, Facts, Script, Shell, UnsafeStatement, Variable, Variables};
use crate::model::{Rank, Roster};

/// What a formed world is written as.
///
/// ```
/// use mingle_core::env::{Format, Shell};
/// let format: Format = "tf-config".parse()?;
/// assert_eq!(format.to_string(), "tf-config");
/// assert!(format.needs_roster() && format.shell().is_none());
/// assert_eq!("c10d".parse::<Format>()?.shell(), Some(Shell::Posix));
/// # Ok::<(), mingle_core::env::InvalidFormat>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Format {
    /// Statements for a shell like POSIX's.
    Sh,
    /// Statements for fish.
    Fish,
    /// One JSON object, with all that is known.
    Json,
    /// A line `NAME=VALUE` each, for `docker run --env-file` and systemd's `EnvironmentFile=`.
    Dotenv,
    /// For eval: torchrun with the rendezvous c10d.
    C10d,
    /// A hostfile of Open MPI.
    Hostfile,
    /// A hostfile of DeepSpeed.
    Deepspeed,
    /// The list that `horovodrun -H` and `mpirun -H` take.
    Horovod,
    /// For eval: that list as NODE_IP_SLOT_LIST.
    Slots,
    /// A marked block of lines for /etc/hosts.
    Hosts,
    /// The value of TF_CONFIG.
    TfConfig,
    /// For eval: RAY_ADDRESS.
    Ray,
    /// For eval: JAX_COORDINATOR_ADDRESS.
    Jax,
    /// For eval: the variables of TI-ONE's DDP jobs.
    TiOne,
    /// For eval: the variables of a SkyPilot task.
    Skypilot,
}

/// A text that names no [`Format`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the formats are {}", Format::all().map(Format::name).join(", "))]
#[non_exhaustive]
pub struct InvalidFormat;

/// A world in one format.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Rendered<'a> {
    /// For a shell.
    Script(Script),
    /// For another program, with a newline at the end.
    Text(String),
    /// For programs that read JSON; serialize it with whatever writes JSON.
    Document(Box<Document<'a>>),
}

/// Why a world cannot be written in a format. The world has formed all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// All nodes are listed in it, and nobody has asked for the roster.
    #[error("the format {0} lists all nodes, and this rendezvous was not asked for the roster")]
    NoRoster(Format),
    /// Its lists have no way to write IPv6, so hosts go by name, and two names are the same.
    #[error(
        "ranks {0} and {1} both call their host {2:?}, and the format {3} names hosts, since it cannot hold \
         addresses of IPv6; give the hosts different names, or use IPv4"
    )]
    SameName(Rank, Rank, String, Format),
    /// Its lists have no way to write IPv6, so hosts go by name, and one's name is no other host's way to it.
    #[error(
        "rank {0} calls its host {1:?}, and the format {2} names hosts, since it cannot hold addresses of IPv6; give \
         the host a name of its own, or use IPv4"
    )]
    Name(Rank, String, Format),
    /// All ranks would be parameter servers.
    #[error("{0} parameter servers leave no worker in a world of {1}; ask for fewer")]
    NoWorkers(u32, u32),
    /// A bug that was stopped in time.
    #[error(transparent)]
    Unsafe(#[from] UnsafeStatement),
}

/// What is set for one launcher alone, in all formats.
const LAUNCHERS: [&str; 19] = [
    "PET_RDZV_BACKEND",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID",
    "PET_RDZV_CONF",
    "PET_LOCAL_ADDR",
    "NODE_IP_SLOT_LIST",
    "TF_CONFIG",
    "RAY_ADDRESS",
    "JAX_COORDINATOR_ADDRESS",
    "NODE_LIST",
    "INDEX",
    "GPU_NUM",
    "GPU_NUM_PER_NODE",
    "HEAD_ADDR",
    "HEAD_PORT",
    "SKYPILOT_NODE_IPS",
    "SKYPILOT_NODE_RANK",
    "SKYPILOT_NUM_NODES",
    "SKYPILOT_NUM_GPUS_PER_NODE",
];

/// Whether a format sets this variable for its launcher.
pub(super) fn is_launchers(name: &str) -> bool {
    LAUNCHERS.contains(&name)
}

impl Format {
    /// All of them.
    pub const fn all() -> [Self; 15] {
        [
            Self::Sh,
            Self::Fish,
            Self::Json,
            Self::Dotenv,
            Self::C10d,
            Self::Hostfile,
            Self::Deepspeed,
            Self::Horovod,
            Self::Slots,
            Self::Hosts,
            Self::TfConfig,
            Self::Ray,
            Self::Jax,
            Self::TiOne,
            Self::Skypilot,
        ]
    }

    /// Its name, as in `--format`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sh => "sh",
            Self::Fish => "fish",
            Self::Json => "json",
            Self::Dotenv => "dotenv",
            Self::C10d => "c10d",
            Self::Hostfile => "hostfile",
            Self::Deepspeed => "deepspeed",
            Self::Horovod => "horovod",
            Self::Slots => "slots",
            Self::Hosts => "hosts",
            Self::TfConfig => "tf-config",
            Self::Ray => "ray",
            Self::Jax => "jax",
            Self::TiOne => "ti-one",
            Self::Skypilot => "skypilot",
        }
    }

    /// The shell that evaluates it, if it is for eval.
    pub const fn shell(self) -> Option<Shell> {
        match self {
            Self::Sh | Self::C10d | Self::Slots | Self::Ray | Self::Jax | Self::TiOne | Self::Skypilot => {
                Some(Shell::Posix)
            }
            Self::Fish => Some(Shell::Fish),
            Self::Json
            | Self::Dotenv
            | Self::Hostfile
            | Self::Deepspeed
            | Self::Horovod
            | Self::Hosts
            | Self::TfConfig => None,
        }
    }

    /// Whether it lists all nodes, so that the rendezvous must be asked for the roster.
    pub const fn needs_roster(self) -> bool {
        match self {
            Self::Sh | Self::Fish | Self::Dotenv | Self::C10d | Self::Ray | Self::Jax => false,
            Self::Json
            | Self::Hostfile
            | Self::Deepspeed
            | Self::Horovod
            | Self::Slots
            | Self::Hosts
            | Self::TfConfig
            | Self::TiOne
            | Self::Skypilot => true,
        }
    }

    /// The variables that this format stands for: those of every world, and what its launcher reads beside
    /// them. They can be set for a program that is started, without a shell and without quoting; what
    /// [`Variables::unset`] lists is to be removed first.
    ///
    /// # Errors
    /// [`Unfit`], but for a value that no shell may see: here none does.
    pub fn variables(
        self,
        facts: Facts<'_>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Variables, Unfit> {
        let launcher = match self {
            Self::Sh
            | Self::Fish
            | Self::Json
            | Self::Dotenv
            | Self::Hostfile
            | Self::Deepspeed
            | Self::Horovod
            | Self::Hosts => Vec::new(),
            Self::C10d => c10d::variables(facts),
            Self::Slots => slots::variables(self.roster(facts)?)?,
            Self::TfConfig => vec![("TF_CONFIG".into(), tf_config::value(facts, self.roster(facts)?)?)],
            Self::Ray => ray::variables(facts),
            Self::Jax => jax::variables(facts),
            Self::TiOne => ti_one::variables(facts, self.roster(facts)?)?,
            Self::Skypilot => skypilot::variables(facts, self.roster(facts)?),
        };
        let left_out: &[&str] = if self == Self::C10d { &c10d::LEFT_OUT } else { &[] };
        Ok(Variables::with(facts, left_out, launcher, environment))
    }

    /// The text of this format, where `variables` are its own.
    ///
    /// # Errors
    /// [`Unfit`].
    pub fn render<'a>(self, facts: Facts<'a>, variables: &'a Variables) -> Result<Rendered<'a>, Unfit> {
        if let Some(shell) = self.shell() {
            return Ok(Rendered::Script(Script::exports(shell, variables)?));
        }
        Ok(Rendered::Text(match self {
            Self::Json => return Ok(Rendered::Document(Box::new(Document::new(facts, variables)))),
            Self::Hostfile => hostfile::text(self.roster(facts)?)?,
            Self::Deepspeed => deepspeed::text(self.roster(facts)?),
            Self::Horovod => horovod::list(self, self.roster(facts)?)? + "\n",
            Self::Hosts => hosts::block(facts.job, self.roster(facts)?),
            Self::TfConfig => tf_config::value(facts, self.roster(facts)?)? + "\n",
            _ => dotenv::text(variables)?,
        }))
    }

    fn roster(self, facts: Facts<'_>) -> Result<&Roster, Unfit> {
        facts.formed.roster.as_ref().ok_or(Unfit::NoRoster(self))
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
        Self::all().into_iter().find(|format| format.name() == text).ok_or(InvalidFormat)
    }
}

/// `10.0.0.1:29503` or `[fd00::1]:29503`, without a scope, which means nothing on another host.
fn endpoint(address: SocketAddr) -> String {
    SocketAddr::new(address.ip(), address.port()).to_string()
}

#[cfg(test)]
mod tests;
