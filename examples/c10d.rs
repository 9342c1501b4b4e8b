//! A launcher for torchrun's c10d rendezvous: this process becomes torchrun, with variables for the endpoint
//! of the store, the node that opens it, and this node's address, so that torchrun does not guess them:
//! `cargo run --example c10d -- foo 4 torchrun train.py`.

use std::os::unix::process::CommandExt as _;
use std::{env, error::Error, process::Command};

use mingle_core::Rendezvous;
use mingle_core::env::{Facts, Format};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [job, world, program, arguments @ ..] = &words[..] else {
        return Err("usage: c10d JOB WORLD PROGRAM [ARGUMENT]...".into());
    };
    let interface = env::var("MINGLE_INTERFACE").ok().map(|name| name.parse()).transpose()?;
    let rendezvous = Rendezvous::builder(job.parse()?, world.parse()?);
    let place = rendezvous.interfaces(interface.into_iter().collect()).join().await?;
    let formed = place.formed();
    let facts = Facts {
        job: &place.job,
        formed: &formed,
        interface: place.interface.as_deref(),
        fabric: &[],
        settings: &[],
        slots_given: false,
        parameter_servers: 0,
    };
    let variables = Format::C10D.variables(facts, |name| env::var(name).ok())?;
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.set().iter().map(|(name, value)| (&**name, value)));
    for name in variables.unset() {
        command.env_remove(name);
    }
    Err(command.exec().into())
}
