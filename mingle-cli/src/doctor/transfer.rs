//! Short transfers between the hosts, of which each host takes part in one at a time.
//!
//! A host asks each other one for a transfer, over a connection for each, measures it, and ends it by a
//! reset. A host that is busy closes such a connection, and is asked again. A stranger who connects at the
//! right moment spoils one figure of a report.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mingle_core::tools::{self, reset};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::exchange;
use super::live::Shared;
use super::notice::{Message, encode};

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

/// Measures the transfers of these hosts.
pub(super) async fn run(shared: Arc<Shared>, mut waiting: VecDeque<(u32, SocketAddr)>) {
    while let Some((id, at)) = waiting.pop_front() {
        if let Ok(rate) = ask(&shared, at).await {
            if let Some(contact) = shared.board.lock().await.own.about.get_mut(&id) {
                contact.rate = Some(rate);
            }
        } else {
            waiting.push_back((id, at));
            sleep(PAUSE + PAUSE * (tools::run_id().unwrap_or_default() % 4)).await;
        }
    }
}

/// Asks a host for its transfer. Returns the rate in kbit/s.
async fn ask(shared: &Shared, at: SocketAddr) -> io::Result<u32> {
    let Ok(_permit) = shared.link.acquire().await else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let mut stream = timeout(START, TcpStream::connect(at)).await??;
    reset(&stream);
    exchange::send(&mut stream, &encode(shared.tag, &Message::Transfer)).await?;
    measure(&mut stream).await
}

/// Sends to a host that has asked for it, until that has enough, if this one has time.
pub(super) async fn answer(shared: &Shared, stream: &mut TcpStream) {
    let Ok(_permit) = shared.link.try_acquire() else { return };
    let sending = async {
        let block = vec![0; BLOCK];
        for _ in 0..BYTES / BLOCK {
            stream.write_all(&block).await?;
        }
        stream.shutdown().await?;
        stream.read_u8().await
    };
    let _: Result<io::Result<u8>, _> = timeout(START + TIME, sending).await;
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
