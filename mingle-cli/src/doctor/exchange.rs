//! All hosts tell rank 0 what they have found, which tells all of it to each. They connect to the port of
//! rank 0 that each of them has reached before the world formed.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use mingle_core::tools::{from_bytes, reset, to_bytes};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::notice::Record;

/// The hash of the roster, which the hosts of the meeting know.
pub(super) type Token = [u8; 16];

/// How long a connection, and each message on it, may take.
const LIMIT: Duration = Duration::from_secs(2);
/// The pause before a connection is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest message that is read, in bytes: each of many ports for RDMA names all that it hears.
const LONGEST: u32 = 32 << 20;

/// What each host has found, by its rank; none where that is not known.
type Records = Vec<Option<Record>>;

/// Collects at rank 0, which listens, what the other hosts tell, until then at the latest.
pub(super) async fn collect(listener: StdListener, token: Token, records: &mut Records, until: Instant) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut visitors = Vec::new();
    while records.iter().any(Option::is_none) {
        let Ok(Ok((mut stream, _))) = timeout_at(until, listener.accept()).await else { break };
        // Also where it is no host's.
        reset(&stream);
        if let Ok(Ok((rank, record))) = timeout(LIMIT, hear(&mut stream, token)).await
            && let Some(place) = records.get_mut(rank as usize)
        {
            *place = Some(record);
            visitors.push(stream);
        }
    }
    let answer = to_bytes(records);
    for stream in &mut visitors {
        let tell = async {
            send(stream, &answer).await?;
            // The visitor closes first, so that the master's port keeps no closed connection.
            stream.read_u8().await
        };
        let _: Result<io::Result<u8>, _> = timeout(LIMIT, tell).await;
    }
}

async fn hear(stream: &mut TcpStream, token: Token) -> io::Result<(u32, Record)> {
    let mut said = Token::default();
    stream.read_exact(&mut said).await?;
    if said == token { receive(stream).await } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Tells rank 0 what this host, of this rank, has found. Returns what all have found, or nothing at that
/// time.
pub(super) async fn tell(to: SocketAddr, token: Token, told: (u32, &Record), until: Instant) -> Records {
    let ask = async || {
        let mut stream = timeout(LIMIT, TcpStream::connect(to)).await??;
        stream.write_all(&token).await?;
        send(&mut stream, &to_bytes(&told)).await?;
        receive(&mut stream).await
    };
    let asked = async {
        loop {
            match ask().await {
                Ok(records) => break records,
                Err(error) => tracing::debug!(%error, "rank 0 does not answer"),
            }
            sleep(PAUSE).await;
        }
    };
    timeout_at(until, asked).await.unwrap_or_default()
}

/// Sends a message with its length before it.
async fn send(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).unwrap_or_default();
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await
}

async fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let length = stream.read_u32().await?.min(LONGEST);
    let mut bytes = Vec::new();
    // Grows with what arrives, not with what was announced.
    stream.take(length.into()).read_to_end(&mut bytes).await?;
    from_bytes(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
