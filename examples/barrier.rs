//! A barrier at the start of any program: no node continues before all nodes have connected to rank 0, which
//! takes over the listening socket of the rendezvous. Run it on each of four hosts, or four times on one:
//! `cargo run --example barrier -- foo 4 [lo]`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::{env, error::Error, io, time::Duration};

use mingle_core::{Assignment, Event, Rendezvous, WorldSize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::{net, time};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(job), Some(world)) = (args.next(), args.next()) else {
        return Err("usage: barrier JOB WORLD [INTERFACE]...".into());
    };
    let mut rendezvous = Rendezvous::new(job.parse()?, world.parse::<WorldSize>()?);
    rendezvous.network.interfaces = args.map(|name| name.parse()).collect::<Result<_, _>>()?;
    rendezvous.keep_listener = true;
    rendezvous.on_event(|event| {
        if let Event::Progress(progress) = event {
            eprintln!("{progress}");
        }
    });
    let mut assignment = rendezvous.join().await?;
    time::timeout(Duration::from_secs(10), barrier(&mut assignment)).await??;
    let formed = assignment.formed;
    println!("rank {} of {}: all nodes have connected to {}", formed.rank, formed.world, formed.master);
    Ok(())
}

/// Each node sends rank 0 the digest, which only the nodes of this world have, and waits for it to come back.
async fn barrier(assignment: &mut Assignment) -> io::Result<()> {
    let (listener, formed) = (assignment.listener.take(), &assignment.formed);
    let Some(listener) = listener else {
        // The socket has listened since before the rendezvous, so one attempt is enough.
        let mut stream = net::TcpStream::connect(formed.master).await?;
        stream.write_all(&formed.digest.0).await?;
        return stream.read_exact(&mut [0; 16]).await.map(drop);
    };
    let (listener, mut here) = (net::TcpListener::from_std(listener)?, Vec::new());
    while here.len() + 1 < formed.world.get() as usize {
        let (mut node, mut shown) = (listener.accept().await?.0, [0; 16]);
        let read = node.read_exact(&mut shown).await;
        here.extend((read.is_ok() && shown == formed.digest.0).then_some(node));
    }
    for mut node in here {
        node.write_all(&formed.digest.0).await?;
    }
    Ok(())
}
