//! A hand-over to torchrun's own rendezvous: this process becomes torchrun, and its variables name the store,
//! the node that holds it and this host, so that torchrun need not guess: `cargo run --example c10d -- foo 4
//! torchrun train.py`.

use std::os::unix::process::CommandExt as _;
use std::{env, error::Error, process::Command};

use mingle_core::env::{Facts, Format};
use mingle_core::{Rendezvous, WorldSize};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [job, world, program, arguments @ ..] = &words[..] else {
        return Err("usage: c10d JOB WORLD PROGRAM [ARGUMENT]...".into());
    };
    let mut rendezvous = Rendezvous::new(job.parse()?, world.parse::<WorldSize>()?);
    let interface = env::var("MINGLE_INTERFACE").ok().map(|name| name.parse()).transpose()?;
    rendezvous.network.interfaces.extend(interface);
    let assignment = rendezvous.join().await?;
    let mut facts = Facts::new(&assignment.job, &assignment.formed);
    facts.interface = assignment.interface.as_deref();
    let variables = Format::C10D.variables(facts, |name| env::var(name).ok())?;
    let mut command = Command::new(program);
    variables.apply(command.args(arguments));
    Err(command.exec().into())
}
