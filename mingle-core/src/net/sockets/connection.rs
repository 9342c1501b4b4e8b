//! The life of one connection: it carries a hello, and in the other direction the rosters of rounds.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::endpoint::{make_lease, reset_on_close};
use super::path;
use crate::model::World;
use crate::net::session::SEGMENT;
use crate::proto::{ConnId, DialId, PathNews, PathTarget, TOKEN, Warning};
use crate::wire::{HELLO, rest_of_hello, rest_of_roster};

/// How long an accepted connection may take to send its token, and then the rest of its hello. The kernel
/// repeats a lost segment after 0.2, 0.4, 0.8 s and so on, so at 30% loss one token in a hundred thousand
/// takes longer.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an accepted connection of a path may take in all. The prover gives up earlier.
const PATH_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two rosters of one connection: a leader sends one each round, and a stranger in its
/// place must not fill this node's memory.
const NEXT_ROSTER: Duration = Duration::from_millis(50);

/// A report from a task beside the driver. A connection's task sends its events in order, and its end last.
#[derive(Debug)]
pub(crate) enum TaskEvent {
    /// A connection that this node opens is established.
    Dialed(DialId),
    /// A roster has arrived on a connection that this node opened.
    Roster(DialId, Vec<u8>),
    /// A connection that this node opened has closed, or could not be opened.
    HungUp(DialId),
    /// Something has happened on a connection that proves a path.
    Path(DialId, PathNews),
    /// A connection that this node accepted has carried a hello, to this local address from this remote one.
    Hello(ConnId, IpAddr, IpAddr, Vec<u8>),
    /// A connection that this node accepted has closed.
    Closed(ConnId),
    /// All addresses that seeds and folder give now.
    Seeds(Vec<SocketAddr>),
    /// Every name of a seed was looked up once, and the folder was read once, or was silent.
    Searched,
    /// A warning for the caller.
    Warning(Warning),
}

/// Opens a connection, sends the hello, and reads rosters of at most so many nodes until it closes.
pub(crate) async fn dial(
    dial: DialId,
    to: SocketAddr,
    hello: Vec<u8>,
    world: World,
    events: UnboundedSender<TaskEvent>,
) {
    // A router may drop longer packets without a word. The paths of a round show that, and name them.
    match path::connect(to, Some(SEGMENT)).await {
        Ok(mut stream) => {
            if let Err(error) = make_lease(&stream) {
                tracing::debug!(?dial, %error, "keepalive");
            }
            // Before the hello is sent, since its answer may come at once.
            let _ = events.send(TaskEvent::Dialed(dial));
            if stream.write_all(&hello).await.is_ok() {
                let mut next = Instant::now();
                while let Some(roster) = read_roster(&mut stream, world).await {
                    sleep_until(next).await;
                    let _ = events.send(TaskEvent::Roster(dial, roster));
                    next = Instant::now() + NEXT_ROSTER;
                }
            }
        }
        Err(error) => tracing::debug!(?dial, %to, %error, "dialling"),
    }
    // Sending fails if the driver has ended.
    let _ = events.send(TaskEvent::HungUp(dial));
}

/// Reads the hello of an accepted connection, and then writes the newest of the `rosters` until the
/// connection closes.
///
/// The token of a path is answered here by `paths`, on any port. On a port for paths `only`, no hello counts.
pub(crate) async fn hold(
    conn: ConnId,
    mut stream: TcpStream,
    paths: Arc<PathTarget>,
    only: bool,
    rosters: watch::Receiver<Arc<[u8]>>,
    events: UnboundedSender<TaskEvent>,
) {
    let set_up = |set: io::Result<()>| {
        if let Err(error) = set {
            tracing::debug!(?conn, %error, "setting up an accepted connection");
        }
    };
    set_up(reset_on_close(&stream));
    let mut token = [0; TOKEN];
    let read = timeout(HELLO_TIMEOUT, stream.read_exact(&mut token)).await;
    if let (Ok(Ok(_)), Ok(local), Ok(remote)) = (read, stream.local_addr(), stream.peer_addr()) {
        if let Some(answer) = paths.answer(&token) {
            let answered = path::answer(&mut stream, &answer);
            if !matches!(timeout(PATH_TIMEOUT, answered).await, Ok(Ok(()))) {
                tracing::debug!(?conn, %remote, "a path was not proved");
            }
        } else if !only && let Ok(Some(hello)) = timeout(HELLO_TIMEOUT, read_hello(&mut stream, &token)).await
        {
            // Six system calls that a stranger does not cost: the more are accepted, the sooner it is a
            // node's turn.
            set_up(make_lease(&stream));
            let _ = events.send(TaskEvent::Hello(conn, local.ip(), remote.ip().to_canonical(), hello));
            serve(stream, rosters).await;
        }
    }
    let _ = events.send(TaskEvent::Closed(conn));
}

/// The hello that begins with this token.
async fn read_hello(stream: &mut TcpStream, token: &[u8; TOKEN]) -> Option<Vec<u8>> {
    let mut first = [0; HELLO];
    first[..TOKEN].copy_from_slice(token);
    stream.read_exact(&mut first[TOKEN..]).await.ok()?;
    read_rest(stream, &first, rest_of_hello(&first)?).await
}

/// The next roster; nothing at the end of the connection.
async fn read_roster(stream: &mut TcpStream, world: World) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.ok()?;
    read_rest(stream, &length, rest_of_roster(length, world)?).await
}

/// The first bytes and so many more, which take memory as they arrive.
async fn read_rest(stream: &mut TcpStream, first: &[u8], rest: usize) -> Option<Vec<u8>> {
    let mut bytes = first.to_vec();
    let read = stream.take(u64::try_from(rest).ok()?).read_to_end(&mut bytes).await.ok()?;
    (read == rest).then_some(bytes)
}

/// Writes the newest roster, until the peer closes the connection or sends another byte, which no node does.
async fn serve(mut stream: TcpStream, mut rosters: watch::Receiver<Arc<[u8]>>) {
    let (mut reader, mut writer) = stream.split();
    let write = async {
        // The driver forgets the sender when it ends this task.
        while rosters.changed().await.is_ok() {
            let roster = Arc::clone(&rosters.borrow_and_update());
            let _ = writer.write_all(&roster).await;
        }
    };
    tokio::select! {
        _ = reader.read_u8() => {}
        () = write => {}
    }
}
