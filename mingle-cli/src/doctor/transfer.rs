//! Short transfers between the hosts: in rounds of pairs, so that each host takes part in one at a time.
//!
//! A pair has one connection for each direction. The host that comes first in the order of all dials both.
//! The receiving host measures, and ends the transfer by a reset. A stranger who connects at the right moment
//! spoils one figure of a report.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::proto::JobTag;
use mingle_core::tools::reset;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::exchange::framed;
use super::live::Arrived;
use super::notice::{HostNotice, TransferOffer, encode};
use super::rounds::{partner, rounds};

/// How long a transfer takes, and how many bytes it has, at most.
const TIME: Duration = Duration::from_millis(300);
const BYTES: usize = 64 << 20;
/// The beginning that is not measured: until TCP has found its pace, or the transfer before has drained.
const WARM_TIME: Duration = Duration::from_millis(60);
const WARM_BYTES: usize = 8 << 20;
/// How long a transfer may take to begin, and to end.
const START: Duration = Duration::from_secs(1);
/// How long to wait for the other host of a round, which may still be busy with an earlier one.
const WAIT: Duration = Duration::from_secs(6);
const BLOCK: usize = 128 << 10;

/// A host that takes part.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransferHost {
    pub(super) id: u32,
    /// The address to dial; none if this pair has no working path, and rests.
    pub(super) at: Option<SocketAddr>,
}

/// The transfers of one host.
pub(super) struct Transfers {
    pub(super) tag: JobTag,
    /// All hosts in the same order on each.
    pub(super) hosts: Vec<TransferHost>,
    /// The index of this host.
    pub(super) me: usize,
    /// Connections that others have opened.
    pub(super) guests: mpsc::Receiver<(TransferOffer, TcpStream)>,
    /// Those that wait for their round.
    pub(super) waiting: Vec<(TransferOffer, TcpStream)>,
}

impl Transfers {
    /// Runs all rounds, and reports the rate at which the transfer of each host arrives.
    pub(super) async fn run(mut self, arrived: &mpsc::Sender<Arrived>) {
        for round in 0..rounds(self.hosts.len()) {
            let Some(at) = partner(self.me, round, self.hosts.len()) else { continue };
            let host = self.hosts[at];
            let Some(to) = host.at else { continue };
            let round = u32::try_from(round).unwrap_or(u32::MAX);
            // An error means that there is no figure.
            let rate =
                if self.me < at { self.dial(to, round).await } else { self.accept(host.id, round).await };
            if let Ok(rate) = rate {
                let _ = arrived.send(Arrived::Rate { id: host.id, rate }).await;
            }
        }
    }

    async fn dial(&self, to: SocketAddr, round: u32) -> io::Result<u32> {
        let offer = |sends| TransferOffer { id: self.hosts[self.me].id, round, sends };
        let mut stream = self.open(to, offer(true)).await?;
        send(&mut stream).await;
        measure(&mut self.open(to, offer(false)).await?).await
    }

    /// Opens a connection, and waits until the other host is ready for its transfer.
    async fn open(&self, to: SocketAddr, offer: TransferOffer) -> io::Result<TcpStream> {
        let opened = async {
            let mut stream = TcpStream::connect(to).await?;
            reset(&stream);
            stream.write_all(&framed(&encode(self.tag, &HostNotice::Transfer(offer)))).await?;
            stream.read_u8().await?;
            io::Result::Ok(stream)
        };
        timeout(WAIT, opened).await?
    }

    async fn accept(&mut self, id: u32, round: u32) -> io::Result<u32> {
        let rate = measure(&mut self.guest(TransferOffer { id, round, sends: true }).await?).await;
        send(&mut self.guest(TransferOffer { id, round, sends: false }).await?).await;
        rate
    }

    /// Waits for the connection of this offer, and tells the other host that its turn has come.
    async fn guest(&mut self, wanted: TransferOffer) -> io::Result<TcpStream> {
        let until = Instant::now() + WAIT;
        self.waiting.retain(|(offer, _)| offer.round >= wanted.round);
        loop {
            if let Some(found) = self.waiting.iter().position(|(offer, _)| *offer == wanted) {
                let (_, mut stream) = self.waiting.swap_remove(found);
                stream.write_u8(1).await?;
                return Ok(stream);
            }
            let next = timeout_at(until, self.guests.recv()).await?.ok_or(io::ErrorKind::BrokenPipe)?;
            // Each other host has at most one connection waiting.
            if self.waiting.len() > self.hosts.len() {
                self.waiting.remove(0);
            }
            self.waiting.push(next);
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
    let micros = (last - since).as_micros().max(1);
    let bits = u128::try_from(total - before).unwrap_or_default() * 8;
    Ok(u32::try_from(bits * 1000 / micros).unwrap_or(u32::MAX))
}
