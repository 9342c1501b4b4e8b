//! The beginning of an accepted connection: it proves a path, or is a session's. And what the tasks beside
//! the driver report.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

use super::endpoint::reset_on_close;
use super::path;
use crate::model::NodeId;
use crate::net::session::{self, Carrier};
use crate::proto::{ConnId, DialId, Ending, Failed, PathNews, PathTarget, Warning, Way};
use crate::wire::session::HELLO;
use crate::wire::{Frame, begins_path};

/// How long an accepted connection may take to send its hello or token. The kernel repeats a lost segment
/// after 0.2, 0.4, 0.8 s and so on, so at 30% loss one in a hundred thousand takes longer.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the padding of a path may take behind its token. The prover gives up earlier.
const PATH_TIMEOUT: Duration = Duration::from_secs(10);

/// A report from a task beside the driver. A connection's task sends its events in order, and its end last;
/// that of an accepted connection as that of a session's, whatever it was for.
#[derive(Debug)]
pub(crate) enum TaskEvent {
    /// The hello of a process has arrived, which means the process `meant`. Sending the number of this node's
    /// session answers it, with the longest body of a frame that the process may send; otherwise the
    /// connection closes.
    Asked { peer: NodeId, meant: NodeId, answer: oneshot::Sender<(u64, usize)> },
    /// Both hellos have been read: this node has said the first of the numbers of sessions, and the process
    /// the second. Frames that are sent by `frames` are written in order; the connection closes when `frames`
    /// is dropped.
    Opened { peer: NodeId, way: Way, conn: ConnId, numbers: (u64, u64), frames: Sender<Frame> },
    /// A dial to a process has failed.
    DialFailed(NodeId, DialId, Failed),
    /// A frame was read. The permit is dropped when the frame has been heard.
    Read(ConnId, Frame, OwnedSemaphorePermit),
    /// A connection has ended.
    Closed(ConnId, Ending),
    /// Something has happened on a connection that proves a path. It ends when the path is proved or has
    /// failed.
    Path(DialId, PathNews),
    /// All addresses that the seeds give now, or those that are in the shared folder.
    Seeds { in_folder: bool, seeds: Vec<SocketAddr> },
    /// A warning for the caller.
    Warning(Warning),
}

/// What an accepted connection may be for.
#[derive(Debug, Clone)]
pub(crate) struct Purposes {
    /// Answers the tokens of paths.
    pub(crate) paths: Option<Arc<PathTarget>>,
    /// Carries sessions.
    pub(crate) sessions: Option<Carrier>,
    /// The connection leaves no TIME_WAIT on its port, which the job will use.
    pub(crate) resets: bool,
}

/// Reads the first bytes of an accepted connection, and then serves its purpose. Returns how it has ended.
pub(crate) async fn hold(conn: ConnId, mut stream: TcpStream, purposes: Purposes) -> Ending {
    if purposes.resets
        && let Err(error) = reset_on_close(&stream)
    {
        tracing::debug!(?conn, %error, "setting up an accepted connection");
    }
    let mut first = [0; HELLO];
    if !matches!(timeout(HELLO_TIMEOUT, stream.read_exact(&mut first)).await, Ok(Ok(_))) {
        return Ending::Closed;
    }
    if begins_path(&first) {
        let proved = async {
            let answer = purposes.paths.and_then(|paths| paths.answer(&first));
            path::answer(&mut stream, &answer.ok_or(std::io::ErrorKind::InvalidData)?).await
        };
        if !matches!(timeout(PATH_TIMEOUT, proved).await, Ok(Ok(()))) {
            tracing::debug!(?conn, "a path was not proved");
        }
        return Ending::Closed;
    }
    match purposes.sessions {
        Some(carrier) => session::accept(conn, stream, first, purposes.resets, carrier).await,
        None => Ending::Closed,
    }
}
