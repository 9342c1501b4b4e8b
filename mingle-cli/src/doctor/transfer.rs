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

use mingle_core::proto::JobTag;
use mingle_core::tools::{self, reset};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::exchange::framed;
use super::live::Arrived;
use super::notice::{HostNotice, encode};

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

/// The transfers of one host.
#[derive(Clone)]
pub(super) struct Transfers {
    pub(super) tag: JobTag,
    /// A single permit, which whoever uses the link holds; none before this host begins.
    pub(super) link: Arc<Semaphore>,
    pub(super) sender: mpsc::Sender<Arrived>,
}

impl Transfers {
    /// Measures the transfers of these hosts.
    pub(super) async fn run(&self, mut waiting: VecDeque<(u32, SocketAddr)>) {
        while let Some((id, at)) = waiting.pop_front() {
            if let Ok(rate) = self.ask(at).await {
                let _ = self.sender.send(Arrived::Rate { id, rate }).await;
            } else {
                waiting.push_back((id, at));
                sleep(PAUSE + PAUSE * (tools::run_id().unwrap_or_default() % 4)).await;
            }
        }
    }

    /// Asks a host for its transfer. Returns the rate in kbit/s.
    async fn ask(&self, at: SocketAddr) -> io::Result<u32> {
        let Ok(_permit) = self.link.acquire().await else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let mut stream = timeout(START, TcpStream::connect(at)).await??;
        reset(&stream);
        stream.write_all(&framed(&encode(self.tag, &HostNotice::Transfer))).await?;
        measure(&mut stream).await
    }

    /// Sends to a host that has asked for it, if this one has time.
    pub(super) async fn answer(&self, stream: &mut TcpStream) {
        if let Ok(_permit) = self.link.try_acquire() {
            send(stream).await;
        }
    }
}

/// Sends until the other host has enough.
async fn send(stream: &mut TcpStream) {
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
    let mut total = timeout(START, stream.read(&mut block)).await??;
    let started = Instant::now();
    // The time and the bytes when the measurement began.
    let mut warm: Option<(Instant, usize)> = None;
    let mut last = started;
    while total < BYTES {
        match timeout_at(started + TIME, stream.read(&mut block)).await {
            Ok(Ok(length)) if length > 0 => {
                total += length;
                last = Instant::now();
            }
            Ok(Ok(_)) => break,
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                last = started + TIME;
                break;
            }
        }
        if last - started >= WARM_TIME || total >= WARM_BYTES {
            warm.get_or_insert((last, total));
        }
    }
    let (since, before) = warm.unwrap_or((started, 0));
    if total == before {
        // It has stalled, and would say nothing of the link.
        return Err(io::ErrorKind::TimedOut.into());
    }
    let micros = (last - since).as_micros().max(1);
    let bits = u128::try_from(total - before).unwrap_or_default() * 8;
    Ok(u32::try_from(bits * 1000 / micros).unwrap_or(u32::MAX))
}
