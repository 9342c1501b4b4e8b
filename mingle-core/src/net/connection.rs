//! The life of one connection: a token, and then nothing until it closes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;

use super::endpoint::{make_lease, reset_on_close};
use crate::proto::{ConnId, DialId, TOKEN, Warning};

/// How long an accepted connection may take to send its token. The kernel repeats a lost segment
/// after 0.2, 0.4, 0.8 s and so on, so at 30% loss one in a hundred thousand takes longer.
const TOKEN_PATIENCE: Duration = Duration::from_secs(10);

/// What a connection has to tell. Each task sends in order, and its end last.
#[derive(Debug)]
pub(super) enum Happened {
    /// A connection that this node opens stands, at this own address.
    Dialed(DialId, IpAddr),
    /// It has closed, or could not be opened.
    HungUp(DialId),
    /// A connection that this node accepted has brought a token, to this own address.
    Token(ConnId, IpAddr, [u8; TOKEN]),
    /// It has closed.
    Closed(ConnId),
    /// Where others may be: all that is known now.
    Seeds(Vec<SocketAddr>),
    /// Something that the user should know.
    Warning(Warning),
}

/// Opens a connection, sends the token and waits for the end.
pub(super) async fn dial(dial: DialId, to: SocketAddr, token: [u8; TOKEN], tell: UnboundedSender<Happened>) {
    match TcpStream::connect(to).await {
        Ok(stream) => prove(dial, stream, &token, &tell).await,
        Err(error) => tracing::debug!(?dial, %to, %error, "dialling"),
    }
    // The driver may have ended meanwhile, and hears nothing any more.
    let _ = tell.send(Happened::HungUp(dial));
}

async fn prove(dial: DialId, mut stream: TcpStream, token: &[u8; TOKEN], tell: &UnboundedSender<Happened>) {
    let Ok(local) = stream.local_addr() else { return };
    if let Err(error) = make_lease(&stream) {
        tracing::debug!(?dial, %error, "keepalive");
    }
    // Before the token: no answer to it may come first.
    let _ = tell.send(Happened::Dialed(dial, local.ip()));
    if stream.write_all(token).await.is_ok() {
        end(&mut stream).await;
    }
}

/// Waits for the token of an accepted connection, and then for its end.
pub(super) async fn hold(conn: ConnId, mut stream: TcpStream, tell: UnboundedSender<Happened>) {
    for set in [make_lease(&stream), reset_on_close(&stream)] {
        if let Err(error) = set {
            tracing::debug!(?conn, %error, "setting up an accepted connection");
        }
    }
    let mut token = [0; TOKEN];
    let read = tokio::time::timeout(TOKEN_PATIENCE, stream.read_exact(&mut token)).await;
    if let (Ok(Ok(_)), Ok(local)) = (read, stream.local_addr()) {
        let _ = tell.send(Happened::Token(conn, local.ip(), token));
        end(&mut stream).await;
    }
    let _ = tell.send(Happened::Closed(conn));
}

/// Until the other side closes, or sends something, which no node does.
async fn end(stream: &mut TcpStream) {
    let _ = stream.read_u8().await;
}
