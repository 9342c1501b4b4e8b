//! Connections between hosts that run the doctor: each carries one message in each direction, or a transfer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mingle_core::tools::reset;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};

use super::live::Arrived;
use super::notice::{HostNotice, decode};
use super::transfer::Transfers;

/// How long a connection may take to open. Three retries of a lost SYN would take 7 s, so a new connection is
/// quicker.
const DIAL: Duration = Duration::from_millis(900);
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);
/// The most connections that are served at once.
const VISITORS: usize = 128;
/// The longest message that is read, in bytes: a contact has a few hundred.
const LONGEST: u32 = 1 << 20;

/// Tries the endpoints of a host one after the other, to send a message and to read the other's.
pub(super) async fn dial(id: u32, at: Vec<SocketAddr>, own: Arc<Vec<u8>>, sender: mpsc::Sender<Arrived>) {
    for at in at {
        let Ok(Ok(mut stream)) = timeout(DIAL, TcpStream::connect(at)).await else { continue };
        let exchange = async {
            stream.write_all(&own).await?;
            message(&mut stream).await
        };
        if let Ok(Ok(bytes)) = timeout(DIAL, exchange).await {
            let _ = sender.send(Arrived::Answer { id, at, bytes }).await;
            return;
        }
    }
    let _ = sender.send(Arrived::Failed { id }).await;
}

/// Accepts connections, and answers each with the latest message, unless it is for a transfer.
pub(super) fn receive(listener: TcpListener, latest: watch::Receiver<Arc<Vec<u8>>>, transfers: Transfers) {
    let slots = Arc::new(Semaphore::new(VISITORS));
    tokio::spawn(async move {
        while !transfers.sender.is_closed() {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let Ok((mut stream, _)) = listener.accept().await else {
                // For example no file descriptor is left. The error returns at once while its cause lasts.
                sleep(PAUSE).await;
                continue;
            };
            let (latest, transfers) = (latest.clone(), transfers.clone());
            tokio::spawn(async move {
                // Also where the connection is dropped before its turn.
                reset(&stream);
                let Ok(Ok(bytes)) = timeout(DIAL, message(&mut stream)).await else { return };
                if let Some(HostNotice::Transfer) = decode(transfers.tag, &bytes) {
                    transfers.answer(&mut stream).await;
                    return;
                }
                let own = Arc::clone(&latest.borrow());
                let _ = transfers.sender.send(Arrived::Visit { bytes }).await;
                let answer = async {
                    stream.write_all(&own).await?;
                    // The dialling host closes first, so that the master's port keeps no closed connection.
                    stream.read_u8().await
                };
                let _: Result<io::Result<u8>, _> = timeout(DIAL, answer).await;
                drop(slot);
            });
        }
    });
}

/// A message with its length before it.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or_default();
    [&length.to_be_bytes(), message].concat()
}

async fn message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    // Grows with what arrives, not with what was announced.
    stream.take(length.into()).read_to_end(&mut bytes).await?;
    Ok(bytes)
}
