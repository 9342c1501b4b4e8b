//! Connections between hosts that run the doctor: each carries one message in each direction, or a transfer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mingle_core::proto::JobTag;
use mingle_core::tools::reset;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::live::Shared;
use super::notice::{Message, Way, decode};
use super::transfer;

/// How long a connection and its messages may take. Three retries of a lost SYN would take 7 s, so a new
/// connection is quicker.
const LIMIT: Duration = Duration::from_millis(900);
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);
/// The most connections that are served at once.
const VISITORS: usize = 128;
/// The longest message that is read, in bytes: a contact has a few hundred, and each of many ports for RDMA
/// names all that it hears.
const LONGEST: u32 = 4 << 20;

/// Exchanges news with an endpoint of a host again and again.
pub(super) async fn visit(id: u32, at: SocketAddr, again: Duration, shared: Arc<Shared>) {
    loop {
        let exchange = async {
            let mut stream = TcpStream::connect(at).await?;
            send(&mut stream, &shared.news().await).await?;
            message(&mut stream, shared.tag).await
        };
        if let Ok(Ok(Message::News(from, records))) = timeout(LIMIT, exchange).await {
            // The address may belong to another host, or to this one.
            let by = (from == id).then_some((Way::Tcp, at.ip()));
            shared.board.lock().await.hear(from, records, by);
        }
        sleep(again).await;
    }
}

/// Accepts connections, and answers each with the news, or with the transfer for which it asks.
pub(super) async fn receive(listener: TcpListener, shared: Arc<Shared>) {
    let slots = Arc::new(Semaphore::new(VISITORS));
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let Ok((mut stream, _)) = listener.accept().await else {
            // For example no file descriptor is left. The error returns at once while its cause lasts.
            sleep(PAUSE).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _slot = slot;
            // Also where the connection is dropped before its turn.
            reset(&stream);
            match timeout(LIMIT, message(&mut stream, shared.tag)).await {
                Ok(Ok(Message::Transfer)) => transfer::answer(&shared, &mut stream).await,
                Ok(Ok(Message::News(from, records))) => {
                    shared.board.lock().await.hear(from, records, None);
                    let answer = async {
                        send(&mut stream, &shared.news().await).await?;
                        // The visitor closes first, so that the master's port keeps no closed connection.
                        stream.read_u8().await
                    };
                    let _: Result<io::Result<u8>, _> = timeout(LIMIT, answer).await;
                }
                _ => {}
            }
        });
    }
}

/// Sends a message with its length before it.
pub(super) async fn send(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).unwrap_or_default();
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await
}

async fn message(stream: &mut TcpStream, tag: JobTag) -> io::Result<Message> {
    let length = stream.read_u32().await?.min(LONGEST);
    let mut bytes = Vec::new();
    // Grows with what arrives, not with what was announced.
    stream.take(length.into()).read_to_end(&mut bytes).await?;
    decode(tag, &bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
