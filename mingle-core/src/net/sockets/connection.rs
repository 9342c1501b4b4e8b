//! The life of one connection: it carries a token, and then nothing until it closes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;

use super::endpoint::{make_lease, reset_on_close};
use super::path;
use crate::proto::{ConnId, DialId, PathNews, PathTarget, TOKEN, Warning};

/// How long an accepted connection may take to send its token. The kernel repeats a lost segment after 0.2,
/// 0.4, 0.8 s and so on, so at 30% loss one token in a hundred thousand takes longer.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

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

/// Waits until the peer closes the connection, or sends another byte, which no node does.
async fn closed(stream: &mut TcpStream) {
    let _ = stream.read_u8().await;
}
