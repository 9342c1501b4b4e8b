//! The life of one connection: it carries a token, and then nothing until it closes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;

use super::endpoint::{make_lease, make_watch, reset_on_close};
use super::path;
use crate::proto::{ConnId, DialId, PathNews, PathTarget, TOKEN, Warning, WatchNews};

/// How long an accepted connection may take to send its token. The kernel repeats a lost segment after 0.2,
/// 0.4, 0.8 s and so on, so at 30% loss one token in a hundred thousand takes longer.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The byte that a node of a running world sends to one that watches it.
const GREETING: u8 = 1;
/// How long the opening of a connection that watches a node may take. Another follows every second.
const OPENING: Duration = Duration::from_secs(2);
/// How long an accepted connection of a path may take in all. The prover gives up earlier.
const PATH_TIMEOUT: Duration = Duration::from_secs(10);

/// A report from a task beside the driver. A connection's task sends its events in order, and its end last.
#[derive(Debug)]
pub(crate) enum TaskEvent {
    /// A connection that this node opens is established.
    Dialed(DialId),
    /// A connection that this node opened has closed, or could not be opened.
    HungUp(DialId),
    /// Something has happened on a connection that proves a path.
    Path(DialId, PathNews),
    /// Something has happened on a connection that watches another node.
    Watched(DialId, WatchNews),
    /// A connection that this node accepted has carried a token, to this local address from this remote one.
    Token(ConnId, IpAddr, IpAddr, [u8; TOKEN]),
    /// A connection that this node accepted has closed.
    Closed(ConnId),
    /// All addresses that seeds and folder give now.
    Seeds(Vec<SocketAddr>),
    /// Every name of a seed was looked up once, and the folder was read once, or was silent.
    Searched,
    /// A warning for the caller.
    Warning(Warning),
}

/// Opens a connection, sends the token and waits for the end.
pub(crate) async fn dial(
    dial: DialId,
    to: SocketAddr,
    token: [u8; TOKEN],
    events: UnboundedSender<TaskEvent>,
) {
    match TcpStream::connect(to).await {
        Ok(mut stream) => {
            if let Err(error) = make_lease(&stream) {
                tracing::debug!(?dial, %error, "keepalive");
            }
            // Before the token is sent, since its answer may come at once.
            let _ = events.send(TaskEvent::Dialed(dial));
            if stream.write_all(&token).await.is_ok() {
                closed(&mut stream).await;
            }
        }
        Err(error) => tracing::debug!(?dial, %to, %error, "dialling"),
    }
    // Sending fails if the driver has ended.
    let _ = events.send(TaskEvent::HungUp(dial));
}

/// Reads the token of an accepted connection, and then waits for its end.
///
/// The token of a path is answered here by `paths`, on any port. On a port for paths `only`, no other token
/// counts.
pub(crate) async fn hold(
    conn: ConnId,
    mut stream: TcpStream,
    paths: Arc<PathTarget>,
    only: bool,
    events: UnboundedSender<TaskEvent>,
) {
    let set_up = |set: io::Result<()>| {
        if let Err(error) = set {
            tracing::debug!(?conn, %error, "setting up an accepted connection");
        }
    };
    set_up(reset_on_close(&stream));
    let mut token = [0; TOKEN];
    let read = tokio::time::timeout(TOKEN_TIMEOUT, stream.read_exact(&mut token)).await;
    if let (Ok(Ok(_)), Ok(local), Ok(remote)) = (read, stream.local_addr(), stream.peer_addr()) {
        if let Some(answer) = paths.answer(&token) {
            let answered = path::answer(&mut stream, &answer);
            if !matches!(tokio::time::timeout(PATH_TIMEOUT, answered).await, Ok(Ok(()))) {
                tracing::debug!(?conn, %remote, "a path was not proved");
            }
        } else if !only {
            // Six system calls that a stranger does not cost: the more are accepted, the sooner it is a
            // node's turn.
            set_up(make_lease(&stream));
            let _ = events.send(TaskEvent::Token(conn, local.ip(), remote.ip().to_canonical(), token));
            closed(&mut stream).await;
        }
    }
    let _ = events.send(TaskEvent::Closed(conn));
}

/// Opens a connection that watches another node, and reports when it is open and how it ends.
pub(crate) async fn watch(dial: DialId, to: SocketAddr, events: UnboundedSender<TaskEvent>) {
    // Sending fails if the driver has ended.
    let report = |news| drop(events.send(TaskEvent::Watched(dial, news)));
    let mut stream = match tokio::time::timeout(OPENING, TcpStream::connect(to)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(?dial, %to, %error, "watching");
            let refused = error.kind() == io::ErrorKind::ConnectionRefused;
            return report(if refused { WatchNews::Refused } else { WatchNews::Silent });
        }
        Err(_) => return report(WatchNews::Silent),
    };
    if let Err(error) = make_watch(&stream).and_then(|()| reset_on_close(&stream)) {
        tracing::debug!(?dial, %error, "keepalive");
    }
    report(WatchNews::Opened);
    let mut end = stream.read_u8().await;
    if end.is_ok() {
        report(WatchNews::Greeted);
        end = stream.read_u8().await;
    }
    tracing::debug!(?dial, %to, ?end, "a watched connection has ended");
    // Any other error is the network's: a firewall that rejects by ICMP ends it by ConnectionRefused.
    let by_peer = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    report(match end {
        Err(error) if !by_peer.contains(&error.kind()) => WatchNews::Silent,
        _ => WatchNews::Closed,
    });
}

/// Greets on an accepted connection that watches this node, and waits for its end.
pub(crate) async fn keep(conn: ConnId, mut stream: TcpStream, events: UnboundedSender<TaskEvent>) {
    if let Err(error) = make_watch(&stream).and_then(|()| reset_on_close(&stream)) {
        tracing::debug!(?conn, %error, "keepalive");
    }
    if stream.write_u8(GREETING).await.is_ok() {
        closed(&mut stream).await;
    }
    let _ = events.send(TaskEvent::Closed(conn));
}

/// Waits until the peer closes the connection, or sends another byte, which no node does.
async fn closed(stream: &mut TcpStream) {
    let _ = stream.read_u8().await;
}
