//! The launchers: one file with one [`Launcher`] entry each, and the list of all of them.

mod format;
mod node_list;

use std::ffi::OsString;
use std::net::SocketAddr;

use super::{Facts, Shell, UnsafeStatement, Variables};
use crate::model::Roster;

pub use format::{Format, InvalidFormat, Unfit};
pub(super) use node_list::check_names;

/// Declares for each line the module `mod $module`, its `Format::$CONSTANT`, and its entry in [`LAUNCHERS`].
///
/// `cargo fmt` does not see modules that a macro declares: use `rustfmt --edition 2024 FILE`.
macro_rules! launchers {
    ($($module:ident => $constant:ident,)*) => {
        $(mod $module;)*

        /// All launchers, in the order in which help, messages and documents list them.
        const LAUNCHERS: &[&Launcher] = &[$(&$module::LAUNCHER,)*];

        /// The formats, by name.
        impl Format {
            $(
                #[doc = concat!("The format that env/launcher/", stringify!($module), ".rs defines.")]
                pub const $constant: Self = Self::of(&$module::LAUNCHER);
            )*
        }
    };
}

launchers! {
    sh => SH,
    fish => FISH,
    json => JSON,
    dotenv => DOTENV,
    c10d => C10D,
    hostfile => HOSTFILE,
    deepspeed => DEEPSPEED,
    horovod => HOROVOD,
    slots => SLOTS,
    hosts => HOSTS,
    tf_config => TF_CONFIG,
    ray => RAY,
    jax => JAX,
    vllm => VLLM,
    sglang => SGLANG,
    mlx => MLX,
    ti_one => TI_ONE,
    skypilot => SKYPILOT,
    template => TEMPLATE,
}

/// A launcher, or another reader of the result: everything that the rest of mingle knows about its format.
struct Launcher {
    /// The name of the format, as users write it: lower case, digits and `-`.
    name: &'static str,
    /// A short description for a list of formats: no capital at the beginning unless it is a name, no full
    /// stop, at most 56 characters.
    about: &'static str,
    /// The syntax.
    syntax: Syntax,
    /// Whether the format lists all nodes, so that the rendezvous must collect the roster.
    needs_roster: bool,
    /// Whether the job listens on the ports that the nodes held during the rendezvous, and on no others. Most
    /// listen on ports that the kernel chooses.
    own_ports: bool,
    /// Whether the launcher gives variables of its own environment to the workers of all hosts, so that those
    /// of this host alone must not be among them.
    exports: bool,
    /// The arguments that the launcher takes instead of variables, where it does.
    arguments: Option<Arguments>,
    /// The names of the world that this launcher must not see.
    left_out: &'static [&'static str],
    /// The variables that are set for this launcher beside those of the world, with their values, in the
    /// order in which they are printed. A later result in another format removes them.
    owns: &'static [(&'static str, LauncherValue)],
    /// The variables that are set for this launcher only where the user has not set them, in the order in
    /// which they are printed. A later result in another format removes them as well.
    advises: &'static [Advice],
}

impl Launcher {
    /// What most launchers have in common. An entry gives a name and a short description, and states what
    /// else differs.
    const PLAIN: Self = Self {
        name: "",
        about: "",
        syntax: Syntax::Script(Shell::Posix),
        needs_roster: false,
        own_ports: false,
        exports: false,
        arguments: None,
        left_out: &[],
        owns: &[],
        advises: &[],
    };
}

/// Computes the arguments for the launcher, from the command line in which they will stand.
type Arguments = fn(Input<'_>, &[OsString]) -> Vec<String>;

/// Computes the value of a variable.
type LauncherValue = fn(Input<'_>) -> Result<String, Unfit>;

/// A variable that yields to the user's.
struct Advice {
    name: &'static str,
    /// The launcher does not accept both this variable and `name`, or reads only one of the two: where the
    /// user has set this one, `name` is not set.
    rival: Option<&'static str>,
    /// Computes the value, if there is one for this world.
    value: fn(Input<'_>) -> Option<String>,
}

/// The syntax of a format.
#[derive(Clone, Copy)]
enum Syntax {
    /// Statements that set the variables, for a shell to evaluate.
    Script(Shell),
    /// One JSON object, which the program writes.
    Json,
    /// The text that this function writes.
    Text(fn(Input<'_>, &Variables) -> Result<String, Unfit>),
}

/// The input of a launcher's functions.
#[derive(Clone, Copy)]
struct Input<'a> {
    /// The launcher's own format, for errors.
    format: Format,
    facts: Facts<'a>,
}

impl<'a> Input<'a> {
    fn roster(self) -> Result<&'a Roster, Unfit> {
        self.facts.formed.roster.as_ref().ok_or(Unfit::NoRoster(self.format))
    }

    /// The master's endpoint, such as `10.0.0.1:29503`.
    fn master(self) -> String {
        endpoint(self.facts.formed.master)
    }
}

/// `10.0.0.1:29503` or `[fd00::1]:29503`, without an IPv6 scope, which has no meaning on another host.
pub(super) fn endpoint(address: SocketAddr) -> String {
    SocketAddr::new(address.ip(), address.port()).to_string()
}

/// Whether the variable `name` is set for some launcher beside those of the world.
pub(super) fn is_owned(name: &str) -> bool {
    let own = |launcher: &&Launcher| {
        launcher.owns.iter().any(|(owned, _)| *owned == name)
            || launcher.advises.iter().any(|advice| advice.name == name)
    };
    LAUNCHERS.iter().any(own)
}

#[cfg(test)]
pub(super) mod tests;
