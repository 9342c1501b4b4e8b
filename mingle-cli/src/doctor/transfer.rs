//! Short transfers between the hosts, of which each host takes part in one at a time.
//!
//! A host asks each other one for a transfer, over a connection for each, measures it, and ends it by a
//! reset. A host that is busy closes such a connection, and is asked again.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mingle_core::tools::{self, reset};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::exchange::Token;

/// How long a transfer takes, and how many bytes it has, at most.
const TIME: Duration = Duration::from_millis(300);
const BYTES: usize = 64 << 20;
/// The beginning that is not measured: until TCP has found its pace, or the transfer before has drained.
const WARM_TIME: Duration = Duration::from_millis(60);
const WARM_BYTES: usize = 8 << 20;
/// How long a transfer may take to begin, and to end.
const START: Duration = Duration::from_secs(1);
/// The least pause after a host was busy; the most is four times that.
const PAUSE: Duration = Duration::from_millis(10);
const BLOCK: usize = 128 << 10;

/// The link of this host, which has a single permit: whoever has it uses the link for a transfer.
pub(super) type Link = Arc<Semaphore>;

/// Measures the transfers of these hosts until then, by their ranks. Returns the rates in kbit/s.
pub(super) async fn measure_all(
    link: &Link,
    token: Token,
    mut waiting: VecDeque<(u32, SocketAddr)>,
    until: Instant,
) -> BTreeMap<u32, u32> {
    let mut rates = BTreeMap::new();
    while let Some((rank, at)) = waiting.pop_front() {
        match timeout_at(until, ask(link, token, at)).await {
            Ok(Ok(rate)) => drop(rates.insert(rank, rate)),
            // It listens from before the world forms until it ends.
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Ok(Err(_)) => {
                waiting.push_back((rank, at));
                sleep(PAUSE + PAUSE * u32::from(tools::random::<1>().unwrap_or_default()[0] % 4)).await;
            }
            Err(_) => break,
        }
    }
    rates
}

/// Asks a host for its transfer. Returns the rate in kbit/s.
async fn ask(link: &Link, token: Token, at: SocketAddr) -> io::Result<u32> {
    let _permit = link.acquire().await.map_err(io::Error::other)?;
    let mut stream = timeout(START, TcpStream::connect(at)).await??;
    reset(&stream);
    stream.write_all(&token).await?;
    measure(&mut stream).await
}

/// Sends to a host that has asked for it, until that has enough, if this one has time.
pub(super) async fn answer(link: Link, mut stream: TcpStream) -> io::Result<()> {
    let Ok(_permit) = link.try_acquire() else { return Ok(()) };
    let sending = async {
        let block = vec![0; BLOCK];
        for _ in 0..BYTES / BLOCK {
            stream.write_all(&block).await?;
        }
        stream.shutdown().await?;
        stream.read_u8().await.map(drop)
    };
    timeout(START + TIME, sending).await?
}

/// Reads for the time of a transfer. Returns the rate in kbit/s.
async fn measure(stream: &mut TcpStream) -> io::Result<u32> {
    let mut block = vec![0; BLOCK];
    timeout(START, stream.read(&mut block)).await??;
    let started = Instant::now();
    let (_, since) = read_until(stream, &mut block, started + WARM_TIME, WARM_BYTES).await?;
    let (bytes, last) = read_until(stream, &mut block, started + TIME, BYTES).await?;
    if bytes == 0 {
        // It has stalled, and would say nothing of the link.
        return Err(io::ErrorKind::TimedOut.into());
    }
    let micros = (last - since).as_micros().max(1);
    let bits = u128::try_from(bytes).unwrap_or_default() * 8;
    Ok(u32::try_from(bits * 1000 / micros).unwrap_or(u32::MAX))
}

/// Reads until then, or so many bytes. Returns how many it has read, and when it had read them.
async fn read_until(
    stream: &mut TcpStream,
    block: &mut [u8],
    end: Instant,
    most: usize,
) -> io::Result<(usize, Instant)> {
    let mut total = 0;
    while total < most {
        match timeout_at(end, stream.read(block)).await {
            Ok(Ok(0)) => break,
            Ok(length) => total += length?,
            Err(_) => return Ok((total, end)),
        }
    }
    Ok((total, Instant::now()))
}
