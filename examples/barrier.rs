//! A barrier at the start of a program: no node continues before all nodes have connected to rank 0, which
//! takes over the listening socket of the rendezvous. Run it on each of four hosts, or four times on one
//! host: `cargo run --example barrier -- foo 4 [lo]`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::{env, error::Error, io, time::Duration};

use mingle_core::{Assignment, Event, Rendezvous};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::{net, sync::mpsc::unbounded_channel, time};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(job), Some(world)) = (args.next(), args.next()) else {
        return Err("usage: barrier JOB WORLD [INTERFACE]...".into());
    };
    let interfaces = args.map(|name| name.parse()).collect::<Result<_, _>>()?;
    let (sender, mut events) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let Event::Progress(progress) = event {
                eprintln!("{progress}");
            }
        }
    });
    let rendezvous = Rendezvous::builder(job.parse()?, world.parse()?).interfaces(interfaces);
    let mut place = rendezvous.keep_listener(true).events(sender).join().await?;
    time::timeout(Duration::from_secs(10), barrier(&mut place)).await??;
    println!("rank {} of {}: all nodes have connected to {}", place.rank, place.world, place.master);
    Ok(())
}

/// Every node sends rank 0 the digest, which only the nodes of this world know, and rank 0 sends it back to
/// all.
async fn barrier(place: &mut Assignment) -> io::Result<()> {
    let Some(listener) = place.listener.take() else {
        // Rank 0 has listened since before the rendezvous, so the first attempt succeeds.
        let mut stream = net::TcpStream::connect(place.master).await?;
        stream.write_all(&place.digest.0).await?;
        return stream.read_exact(&mut [0; 16]).await.map(drop);
    };
    let (listener, mut here) = (net::TcpListener::from_std(listener)?, Vec::new());
    while here.len() + 1 < place.world.get() as usize {
        let (mut node, mut shown) = (listener.accept().await?.0, [0; 16]);
        let read = node.read_exact(&mut shown).await;
        here.extend((read.is_ok() && shown == place.digest.0).then_some(node));
    }
    for mut node in here {
        node.write_all(&place.digest.0).await?;
    }
    Ok(())
}
