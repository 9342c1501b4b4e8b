//! Connections between hosts that run the doctor: each carries the messages of both, or opens a transfer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mingle_core::proto::JobTag;
use mingle_core::tools::reset;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};

use super::live::Arrived;
use super::notice::{HostNotice, LARGEST, LONGEST, TransferOffer, decode};

/// How long a connection may take to open. Three retries of a lost SYN would take 7 s, so a new connection is
/// quicker.
const DIAL: Duration = Duration::from_millis(900);
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);
/// The most connections that are served at once.
const VISITORS: usize = 128;
/// The most messages on a connection in one direction: a row has fewer parts.
const MESSAGES: usize = LARGEST as usize;

/// Tries the endpoints of a host one after the other, to send this host's messages and to read the other's.
pub(super) async fn dial(
    id: u32,
    at: Vec<SocketAddr>,
    own: Arc<Vec<Vec<u8>>>,
    sender: mpsc::Sender<Arrived>,
) {
    for at in at {
        let Ok(Ok(mut stream)) = timeout(DIAL, TcpStream::connect(at)).await else { continue };
        let exchange = async {
            write(&mut stream, &own).await?;
            read(&mut stream, None).await
        };
        if let Ok(Ok(messages)) = timeout(DIAL, exchange).await {
            let _ = sender.send(Arrived::Dialled { id, messages, at }).await;
            return;
        }
    }
    let _ = sender.send(Arrived::Failed { id }).await;
}

/// Accepts connections, and answers each with the latest messages. Those for transfers go to `guests`.
pub(super) fn receive(
    tag: JobTag,
    listener: TcpListener,
    latest: watch::Receiver<Arc<Vec<Vec<u8>>>>,
    sender: mpsc::Sender<Arrived>,
    guests: mpsc::Sender<(TransferOffer, TcpStream)>,
) {
    let slots = Arc::new(Semaphore::new(VISITORS));
    tokio::spawn(async move {
        while !sender.is_closed() {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let Ok((mut stream, _)) = listener.accept().await else {
                // For example no file descriptor is left. The error returns at once while its cause lasts.
                sleep(PAUSE).await;
                continue;
            };
            let (latest, sender, guests) = (latest.clone(), sender.clone(), guests.clone());
            tokio::spawn(async move {
                // Also where the connection is dropped before its turn.
                reset(&stream);
                let first = timeout(DIAL, message(&mut stream)).await;
                let Ok(Ok(Some(first))) = first else { return };
                if let Some(HostNotice::Transfer(offer)) = decode(tag, &first) {
                    let _ = guests.try_send((offer, stream));
                    return;
                }
                let exchange = async {
                    let messages = read(&mut stream, Some(first)).await?;
                    let own = Arc::clone(&latest.borrow());
                    write(&mut stream, &own).await?;
                    // The dialling host closes first, so that the master's port keeps no closed connection.
                    let _ = stream.read(&mut [0; 1]).await;
                    io::Result::Ok(messages)
                };
                if let Ok(Ok(messages)) = timeout(DIAL, exchange).await {
                    let _ = sender.send(Arrived::Visited { messages }).await;
                }
                drop(slot);
            });
        }
    });
}

/// A message with its length before it.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or_default();
    [&length.to_be_bytes(), message].concat()
}

async fn write(stream: &mut TcpStream, messages: &[Vec<u8>]) -> io::Result<()> {
    let mut bytes: Vec<u8> = messages.iter().flat_map(|message| framed(message)).collect();
    bytes.extend(framed(&[]));
    stream.write_all(&bytes).await
}

/// Reads messages up to an empty one; `first` has been read already.
async fn read(stream: &mut TcpStream, first: Option<Vec<u8>>) -> io::Result<Vec<Vec<u8>>> {
    let mut messages: Vec<Vec<u8>> = first.into_iter().collect();
    while let Some(message) = message(stream).await? {
        if messages.len() == MESSAGES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        messages.push(message);
    }
    Ok(messages)
}

async fn message(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let length = usize::from(stream.read_u16().await?);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok((length > 0).then_some(bytes))
}
