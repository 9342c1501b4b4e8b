//! A connection that proves a path: that two full segments pass, and that the target reads them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::TcpMaxSeg};
use socket2::Type;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc::UnboundedSender;

use super::connection::TaskEvent;
use super::endpoint::{open, reset_on_close};
use crate::proto::{ANSWER, Fault, PathDial, PathNews};

/// The bytes of each segment that the kernel's figure leaves out: the option for timestamps (RFC 7323).
const TIMESTAMPS: u32 = 12;
/// How long the target may take to answer, once all has been written. The round is over before.
const LINGER: Duration = Duration::from_secs(10);

/// Opens the connection, and reports how far the proof of the path is.
pub(crate) async fn prove(path: PathDial, events: UnboundedSender<TaskEvent>) {
    let dial = path.dial;
    let (to, report) = (path.to, |news| {
        // Sending fails if the driver has ended.
        let _ = events.send(TaskEvent::Path(dial, news));
    });
    let mut opened = false;
    match try_to_prove(path, &report, &mut opened).await {
        Ok(()) => report(PathNews::Arrived),
        Err(error) => {
            tracing::debug!(?dial, %to, %error, "proving a path");
            report(PathNews::Failed(fault(&error, opened)));
        }
    }
}

async fn try_to_prove(path: PathDial, report: &impl Fn(PathNews), opened: &mut bool) -> io::Result<()> {
    let headers = if path.to.is_ipv6() { 60 } else { 40 };
    let segment = path.packet.map(|packet| packet.saturating_sub(headers));
    let mut stream = connect(path.to, segment).await?;
    *opened = true;
    reset_on_close(&stream)?;
    // Otherwise the end of the padding, which fills no segment, would wait for an acknowledgement.
    stream.set_nodelay(true)?;
    let segment = getsockopt(&stream, TcpMaxSeg).unwrap_or(536);
    report(PathNews::Opened { packet: path.packet.unwrap_or(segment.saturating_add(headers + TIMESTAMPS)) });
    let length = u16::try_from(segment.saturating_mul(2)).unwrap_or(u16::MAX);
    let mut bytes = path.token.to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.resize(bytes.len() + usize::from(length), 0);
    stream.write_all(&bytes).await?;
    let mut answer = [0; ANSWER];
    tokio::time::timeout(LINGER, stream.read_exact(&mut answer)).await??;
    // Another program's bytes are no answer.
    if answer == path.answer { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Opens a connection whose segments have at most so many bytes, at this end.
pub(crate) async fn connect(to: SocketAddr, segment: Option<u32>) -> io::Result<TcpStream> {
    let Some(segment) = segment else { return TcpStream::connect(to).await };
    let socket = open(to, Type::STREAM)?;
    socket.set_tcp_mss(segment)?;
    TcpSocket::from_std_stream(socket.into()).connect(to).await
}

/// The fault of the path that an error shows.
fn fault(error: &io::Error, opened: bool) -> Fault {
    match error.kind() {
        _ if opened => Fault::Unanswered,
        io::ErrorKind::ConnectionRefused => Fault::Refused,
        // The last two of a route or rule that drops or prohibits.
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied => {
            Fault::NoRoute
        }
        io::ErrorKind::HostUnreachable => Fault::Unreachable,
        io::ErrorKind::TimedOut => Fault::Silent,
        _ => Fault::Local,
    }
}

/// Answers the token of a path, which has been read, when the padding behind it has arrived.
pub(crate) async fn answer(stream: &mut TcpStream, answer: &[u8]) -> io::Result<()> {
    let padding = u64::from(stream.read_u16_le().await?);
    if tokio::io::copy(&mut (&mut *stream).take(padding), &mut tokio::io::sink()).await? < padding {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    stream.write_all(answer).await?;
    // The prover ends the connection, by a reset; one from this side might overtake the answer.
    let _ = stream.read_u8().await;
    Ok(())
}
