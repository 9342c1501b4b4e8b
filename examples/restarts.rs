//! A launcher with restarts: if the command fails on any node, or a node is gone, all nodes form another
//! world and start their commands again, three times in a row at most: `cargo run --example restarts -- foo 4
//! sh -c 'echo $RANK'`, on each of four hosts, or four times on one host with MINGLE_INTERFACE=lo.

#![allow(clippy::print_stderr, reason = "a program")]

use std::{env, error::Error, future::pending, io, process::ExitStatus};

use mingle_core::{Change, Happening, Rendezvous, WorldSize};
use tokio::process::{Child, Command};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [job, world, program, arguments @ ..] = &words[..] else {
        return Err("usage: restarts JOB WORLD PROGRAM [ARGUMENT]...".into());
    };
    let mut rendezvous = Rendezvous::new(job.parse()?, world.parse::<WorldSize>()?);
    let interface = env::var("MINGLE_INTERFACE").ok().map(|name| name.parse()).transpose()?;
    rendezvous.network.interfaces.extend(interface);
    rendezvous.restarts.most = Some(3);
    let (mut session, mut child) = (rendezvous.session(), None);
    loop {
        let happening = tokio::select! {
            happening = session.next() => happening?,
            status = end(&mut child) => {
                session.ended(status?);
                continue;
            }
        };
        session.sentence(&happening).iter().for_each(|sentence| eprintln!("{sentence}"));
        match happening {
            Happening::Formed(world) => {
                let mut command = Command::new(program);
                world.variables().apply(command.args(arguments).as_std_mut());
                child = Some(command.spawn()?);
            }
            Happening::Running(Change::Over(_)) => child.iter_mut().try_for_each(Child::start_kill)?,
            Happening::Running(Change::Finished) => return Ok(()),
            _ => {}
        }
    }
}

/// How the command has ended; forever, where none runs.
async fn end(child: &mut Option<Child>) -> io::Result<ExitStatus> {
    let Some(running) = child else { return pending().await };
    let status = running.wait().await;
    *child = None;
    status
}
