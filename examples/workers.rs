//! A launcher that starts several workers on each node, and gives each worker its rank among all workers:
//! `cargo run --example workers -- foo 4 2 sh -c 'echo $RANK of $WORLD_SIZE'`, on each of four hosts, or four
//! times on one host with MINGLE_INTERFACE=lo. Nodes may have different numbers of workers.

#![allow(clippy::print_stderr, reason = "a program")]

use std::process::{Child, Command};
use std::{env, error::Error, io};

use mingle_core::{Rendezvous, Roster, WorldSize};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [job, world, slots, program, arguments @ ..] = &words[..] else {
        return Err("usage: workers JOB WORLD SLOTS PROGRAM [ARGUMENT]...".into());
    };
    let mut rendezvous = Rendezvous::new(job.parse()?, world.parse::<WorldSize>()?);
    let interface = env::var("MINGLE_INTERFACE").ok().map(|name| name.parse()).transpose()?;
    rendezvous.network.interfaces.extend(interface);
    rendezvous.attributes.slots = slots.parse()?;
    rendezvous.attributes.metadata.insert("pid", &std::process::id().to_string())?;
    rendezvous.attributes.wants_roster = true;
    let formed = rendezvous.join().await?.formed;
    for node in formed.roster.iter().flat_map(Roster::members) {
        let pid = node.metadata.get("pid").unwrap_or("unknown");
        eprintln!("rank {} on {}: {} workers, launcher {pid}", node.rank, node.host, node.slots);
    }
    // The rendezvous has released the port, so the first worker of rank 0 can listen on it.
    let start = |local: u32| {
        Command::new(program)
            .args(arguments)
            .env("RANK", (formed.slots.before + u64::from(local)).to_string())
            .env("WORLD_SIZE", formed.slots.total.to_string())
            .env("LOCAL_RANK", local.to_string())
            .env("MASTER_ADDR", formed.master.ip().to_string())
            .env("MASTER_PORT", formed.master.port().to_string())
            .spawn()
    };
    let workers: Vec<Child> = (0..formed.slots.own).map(start).collect::<io::Result<_>>()?;
    for mut worker in workers {
        let status = worker.wait()?;
        if !status.success() {
            return Err(format!("a worker failed: {status}").into());
        }
    }
    Ok(())
}
