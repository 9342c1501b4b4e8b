//! The connections of a session: each is a task, which exchanges hellos and then frames.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::clock::random;
use super::error::Error;
use super::sockets::connection::TaskEvent;
use super::sockets::endpoint::{make_watch, reset_on_close};
use super::sockets::path::connect;
use crate::model::NodeId;
use crate::proto::{ConnId, DialId, Ends, Way};
use crate::wire::session::{HELLO, Hello, Hellos, Reader, Writer};
use crate::wire::{Frame, Header};

/// How long a connection may take until both hellos have been read.
const OPENING: Duration = Duration::from_secs(10);
/// How long a connection that is to leave nothing behind waits for the other end to close it.
const LINGER: Duration = Duration::from_secs(1);
/// The longest segment, in bytes: what MTUs from 1,232 bytes on let pass. A session would otherwise stall
/// where a router drops longer packets without a word.
pub(super) const SEGMENT: u32 = 1180;

/// The most frames of a connection that were read and are not heard yet. A process that writes without end
/// then waits, and takes neither this node's memory nor the time of others.
const UNHEARD: usize = 8;
/// The most frames that wait to be written on a connection: a batch, and the acknowledgement of each frame
/// that was read. A process that reads none of them loses the connection.
const UNWRITTEN: usize = 64;

/// What the task of a connection reports: in order, and its end last.
#[derive(Debug)]
pub(crate) enum News {
    /// The hello of a process has arrived. Sending this node's answers it, with the longest body of a frame
    /// that the process may send; otherwise the connection closes.
    Asked { peer: Hello, answer: oneshot::Sender<(Hello, usize)> },
    /// Both hellos have been read. Frames that are sent by `frames` are written in order; the connection
    /// closes when `frames` is dropped.
    Opened {
        way: Way,
        conn: ConnId,
        /// This node's hello.
        own: Hello,
        peer: Hello,
        frames: Sender<Frame>,
    },
    /// A dial to a process has failed.
    Failed(NodeId, DialId, io::Error),
    /// A frame was read. The permit is dropped when the frame has been heard.
    Read(ConnId, Frame, OwnedSemaphorePermit),
    /// A connection has ended, as the kernel says.
    Closed(ConnId, io::Result<()>),
}

/// A connection to dial.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) number: DialId,
    pub(crate) conn: ConnId,
    pub(crate) to: SocketAddr,
    pub(crate) hello: Hello,
}

/// The hello of a process to another, on a connection of the session with this number.
pub(crate) fn hello(own: NodeId, peer: NodeId, session: u64) -> Result<Hello, Error> {
    let header = Header { sender: own, recipient: peer };
    Ok(Hello { header, session, nonce: random()? })
}

/// What all connections of a node's sessions have in common.
#[derive(Debug, Clone)]
pub(crate) struct Carrier {
    pub(crate) hellos: Hellos,
    /// The longest body of a frame that a process may send that this one has dialled, in bytes.
    pub(crate) longest: usize,
    pub(crate) news: UnboundedSender<TaskEvent>,
}

impl Carrier {
    fn report(&self, news: News) {
        // Sending fails if the driver has ended.
        let _ = self.news.send(TaskEvent::Session(news));
    }
}

/// Opens a connection, and carries frames until one end closes it.
pub(crate) async fn dial(dial: Dial, carrier: Carrier) {
    let hellos = &carrier.hellos;
    let open = async {
        let mut stream = connect(dial.to, Some(SEGMENT)).await?;
        set_up(&stream)?;
        let asked = hellos.encode(dial.hello);
        stream.write_all(&asked).await?;
        let mut answer = [0; HELLO];
        stream.read_exact(&mut answer).await?;
        let peer = hellos.decode_answer(&asked, &answer).map_err(invalid)?;
        let (own, other) = (dial.hello.header, peer.header);
        if (other.sender, other.recipient) != (own.recipient, own.sender) {
            return Err(invalid("another process answers"));
        }
        let (mut writer, reader) = hellos.ends(&asked, &answer, true);
        stream.write_all(&writer.encode(&Frame::acknowledgement(0))).await?;
        Ok((stream, peer, (writer, reader)))
    };
    match within(open).await {
        Ok((stream, peer, ends)) => {
            let (frames, to_write) = channel(UNWRITTEN);
            let (way, conn, own) = (Way::Dialled(dial.number), dial.conn, dial.hello);
            carrier.report(News::Opened { way, conn, own, peer, frames });
            let (ended, closes, stream) = carry(stream, conn, ends, to_write, &carrier).await;
            if let Some(stream) = stream.filter(|_| !closes) {
                // The end that closes first would hold its port for a minute (TIME_WAIT), and the job may
                // need that port.
                let _ = reset_on_close(&stream);
            }
            carrier.report(News::Closed(conn, ended));
        }
        Err(error) => carrier.report(News::Failed(dial.hello.header.recipient, dial.number, error)),
    }
}

/// The hello `asked` has arrived on a connection that was accepted. If it is answered, carries frames until
/// one end closes. If the connection `resets`, it leaves no TIME_WAIT behind.
pub(crate) async fn accept(
    conn: ConnId,
    mut stream: TcpStream,
    asked: [u8; HELLO],
    resets: bool,
    carrier: Carrier,
) {
    let hellos = &carrier.hellos;
    let open = async {
        let peer = hellos.decode(&asked).map_err(invalid)?;
        let (answer, answered) = oneshot::channel();
        carrier.report(News::Asked { peer, answer });
        let (own, longest) = answered.await.map_err(|_| invalid("another process is meant"))?;
        set_up(&stream)?;
        let answer = hellos.answer(&asked, own);
        stream.write_all(&answer).await?;
        let (local, remote) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        let ends = Ends { local: local.to_canonical(), remote: remote.to_canonical() };
        let (writer, mut reader) = hellos.ends(&asked, &answer, false);
        first(&mut stream, &mut reader).await?;
        Ok((peer, own, ends, (writer, reader), longest))
    };
    match within(open).await {
        Ok((peer, own, ends, keys, longest)) => {
            let (frames, to_write) = channel(UNWRITTEN);
            let carrier = Carrier { longest, ..carrier };
            carrier.report(News::Opened { way: Way::Accepted(ends), conn, own, peer, frames });
            let (ended, closes, stream) = carry(stream, conn, keys, to_write, &carrier).await;
            if let Some(mut stream) = stream.filter(|_| closes && resets) {
                // A reset from this side could overtake what was written.
                let rest = async {
                    stream.shutdown().await?;
                    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
                };
                let _ = tokio::time::timeout(LINGER, rest).await;
            }
            carrier.report(News::Closed(conn, ended));
        }
        Err(error) => {
            tracing::debug!(?conn, %error, "a connection is no session's");
            carrier.report(News::Closed(conn, Ok(())));
        }
    }
}

/// Reads the acknowledgement of nothing that the dialer sends first. A hello can be anybody's, and a
/// recording: in a job with a secret only the process that it names can seal this frame.
async fn first(stream: &mut TcpStream, reader: &mut Reader) -> io::Result<()> {
    let mut buffer = [0; 64];
    loop {
        if let Some(frame) = reader.next_frame(0).map_err(invalid)? {
            let is_first = frame == Frame::acknowledgement(0);
            return if is_first { Ok(()) } else { Err(invalid("the first frame says something")) };
        }
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        reader.push(&buffer[..length]);
    }
}

fn set_up(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_tcp_nodelay(true)?;
    make_watch(stream)
}

fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

async fn within<T>(open: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let opened = tokio::time::timeout(OPENING, open).await;
    opened.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no hello has arrived in time")))
}

/// Carries frames. Returns how the connection has ended, whether this end is the first to close it, and the
/// connection.
async fn carry(
    stream: TcpStream,
    conn: ConnId,
    (writer, reader): (Writer, Reader),
    to_write: Receiver<Frame>,
    carrier: &Carrier,
) -> (io::Result<()>, bool, Option<TcpStream>) {
    let (mut from, mut to) = stream.into_split();
    // Whichever ends first ends the connection.
    let (ended, closes) = tokio::select! {
        ended = read(&mut from, reader, conn, carrier) => (ended, false),
        ended = write(&mut to, writer, to_write) => (ended, true),
    };
    (ended, closes, from.reunite(to).ok())
}

async fn read(
    from: &mut OwnedReadHalf,
    mut reader: Reader,
    conn: ConnId,
    carrier: &Carrier,
) -> io::Result<()> {
    let unheard = Arc::new(Semaphore::new(UNHEARD));
    let mut buffer = [0; 4096];
    loop {
        while let Some(frame) = reader.next_frame(carrier.longest).map_err(invalid)? {
            let permit = Arc::clone(&unheard).acquire_owned().await.map_err(io::Error::other)?;
            carrier.report(News::Read(conn, frame, permit));
        }
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        reader.push(&buffer[..length]);
    }
}

/// Writes frames until the sender of `frames` is dropped.
async fn write(to: &mut OwnedWriteHalf, mut writer: Writer, mut frames: Receiver<Frame>) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        to.write_all(&writer.encode(&frame)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write as _;

    use tokio::net::TcpListener;
    use tokio::runtime;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::time::Instant;

    use super::super::namespace_tests::inside;
    use super::*;
    use crate::model::{JobId, Secret};
    use crate::proto::Time;
    use crate::proto::session::{Role, SessionEnd, SessionOutput};

    const PATIENCE: Duration = Duration::from_millis(60);

    /// One process of a session, on the sockets of this one.
    struct End {
        id: NodeId,
        other: NodeId,
        session: SessionEnd,
        hellos: Hellos,
        listener: TcpListener,
        to: SocketAddr,
        frames: BTreeMap<ConnId, Sender<Frame>>,
        news: (UnboundedSender<TaskEvent>, UnboundedReceiver<TaskEvent>),
        next_conn: u64,
        begun: Instant,
    }

    impl End {
        fn now(&self) -> Time {
            self.begun.elapsed()
        }

        fn hello(&mut self) -> (ConnId, Hello) {
            self.next_conn += 1;
            // Both nonces together are new for each connection of a test, and nobody records it.
            let nonce = u128::from(self.next_conn).to_le_bytes();
            let header = Header { sender: self.id, recipient: self.other };
            let hello = Hello { header, session: 0, nonce };
            (ConnId(self.next_conn), hello)
        }

        fn carrier(&self) -> Carrier {
            Carrier { hellos: self.hellos.clone(), longest: 1000, news: self.news.0.clone() }
        }

        fn carry_out(&mut self) {
            while let Some(output) = self.session.poll_output() {
                match output {
                    SessionOutput::Dial(number) => {
                        let (conn, hello) = self.hello();
                        tokio::spawn(dial(Dial { number, conn, to: self.to, hello }, self.carrier()));
                    }
                    SessionOutput::Write(conn, frame) => {
                        self.frames.get(&conn).map(|frames| frames.try_send(frame));
                    }
                    SessionOutput::Close(conn) => {
                        self.frames.remove(&conn);
                    }
                }
            }
        }

        /// Runs until a frame is read. Never ends where nothing is said.
        async fn read(&mut self) -> Frame {
            loop {
                self.carry_out();
                let due = self.session.poll_timeout();
                let due = due.map_or(Duration::from_secs(60), |at| at.saturating_sub(self.now()));
                tokio::select! {
                    biased;
                    Some(TaskEvent::Session(news)) = self.news.1.recv() => {
                        if let Some(frame) = self.hear(news) {
                            self.carry_out();
                            return frame;
                        }
                    }
                    Ok((stream, _)) = self.listener.accept() => {
                        let (conn, _) = self.hello();
                        tokio::spawn(accepted(conn, stream, self.carrier()));
                    }
                    () = tokio::time::sleep(due) => {
                        let now = self.now();
                        self.session.advance(now);
                    }
                }
            }
        }

        fn hear(&mut self, news: News) -> Option<Frame> {
            let now = self.now();
            match news {
                News::Asked { peer, answer, .. } => {
                    assert_eq!(peer.header.recipient, self.id);
                    let _ = answer.send((self.hello().1, 1000));
                }
                News::Opened { way, conn, peer, frames, .. } => {
                    assert_eq!(peer.header.sender, self.other);
                    self.frames.insert(conn, frames);
                    let dial = if let Way::Dialled(dial) = way { Some(dial) } else { None };
                    self.session.opened(now, dial, conn);
                }
                News::Failed(_, dial, error) => {
                    println!("{dial:?} has failed: {error}");
                    self.session.dial_failed(now, dial);
                }
                News::Read(conn, frame, _) => return self.session.receive(now, conn, frame).unwrap(),
                News::Closed(conn, _) => {
                    self.frames.remove(&conn);
                    self.session.closed(now, conn);
                }
            }
            None
        }
    }

    /// Reads the hello of an accepted connection, and then its frames.
    async fn accepted(conn: ConnId, mut stream: TcpStream, carrier: Carrier) {
        let mut asked = [0; HELLO];
        stream.read_exact(&mut asked).await.unwrap();
        accept(conn, stream, asked, false, carrier).await;
    }

    /// Both ends of a session on loopback.
    async fn pair(secret: Option<&str>) -> [End; 2] {
        let job: JobId = "foo".parse().unwrap();
        let keys = secret.map(|secret| Secret::new(secret.as_bytes()).unwrap().keys(&job));
        let listeners = [
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        ];
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let mut listeners = listeners.into_iter();
        [(Role::Leader, 0), (Role::Member, 1)].map(|(role, index)| End {
            id: NodeId([1 + index; 16]),
            other: NodeId([2 - index; 16]),
            session: SessionEnd::new(role, PATIENCE),
            hellos: Hellos::new(job.tag(), keys.as_ref()),
            listener: listeners.next().unwrap(),
            to: addresses[usize::from(1 - index)],
            frames: BTreeMap::new(),
            news: unbounded_channel(),
            next_conn: 0,
            begun: Instant::now(),
        })
    }

    /// Connects, and exchanges `count` questions and answers. Returns how long all took together.
    async fn exchange(secret: Option<&str>, count: u8) -> Duration {
        let [mut leader, mut member] = pair(secret).await;
        let begun = Instant::now();
        let answers = async {
            for number in 0..count {
                let question = leader.read().await;
                assert_eq!(*question.body, [1, number]);
                let now = leader.now();
                leader.session.say(now, question.body);
            }
            leader.read().await;
        };
        let questions = async {
            for number in 0..count {
                let now = member.now();
                member.session.say(now, [1, number].into());
                assert_eq!(*member.read().await.body, [1, number]);
            }
        };
        tokio::select! { () = answers => unreachable!(), () = questions => begun.elapsed() }
    }

    fn runtime() -> runtime::Runtime {
        runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn two_processes_exchange_states_with_and_without_a_secret() {
        for secret in [None, Some("a secret of many bytes")] {
            let taken =
                runtime().block_on(async { tokio::time::timeout(OPENING, exchange(secret, 100)).await });
            println!("{secret:?}: {taken:?}");
            assert!(taken.is_ok());
        }
    }

    /// What a node of a job with a secret reports of a process that says a member's hello, and then this.
    async fn reports(says: impl FnOnce(&Hellos, &[u8; HELLO], &[u8; HELLO]) -> Vec<u8>) -> Vec<&'static str> {
        let job: JobId = "foo".parse().unwrap();
        let secret = |text: &[u8]| Hellos::new(job.tag(), Some(&Secret::new(text).unwrap().keys(&job)));
        let (ours, others) = (secret(b"a secret of many bytes"), secret(b"another one of many"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (news, mut heard) = unbounded_channel();
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(accepted(ConnId(1), stream, Carrier { hellos: ours.clone(), longest: 1000, news }));
        let hello = |sender, recipient| {
            let header = Header { sender, recipient };
            Hello { header, session: 7, nonce: [5; 16] }
        };
        let (member, own) = (NodeId([1; 16]), NodeId([2; 16]));
        let asked = ours.encode(hello(member, own));
        stranger.write_all(&asked).await.unwrap();
        let mut reports = Vec::new();
        let mut says = Some(says);
        while let Some(TaskEvent::Session(news)) = heard.recv().await {
            reports.push(match news {
                News::Asked { answer, .. } => {
                    answer.send((hello(own, member), 1000)).unwrap();
                    let mut answer = [0; HELLO];
                    stranger.read_exact(&mut answer).await.unwrap();
                    if let Some(says) = says.take() {
                        stranger.write_all(&says(&others, &asked, &answer)).await.unwrap();
                    }
                    stranger.shutdown().await.unwrap();
                    "asked"
                }
                News::Opened { .. } => "opened",
                News::Failed(..) => "failed",
                News::Read(..) => "read",
                News::Closed(..) => "closed",
            });
        }
        reports
    }

    #[test]
    fn a_process_without_the_secret_is_no_member_whatever_it_says_after_a_members_hello() {
        let frame = Frame { number: 1, read: 0, body: (*b"body").into() };
        runtime().block_on(async {
            assert_eq!(reports(|_, _, _| Vec::new()).await, ["asked", "closed"]);
            assert_eq!(reports(|_, _, _| vec![0; 100]).await, ["asked", "closed"]);
            assert_eq!(reports(|_, _, _| u32::MAX.to_le_bytes().to_vec()).await, ["asked", "closed"]);
            for said in [Frame::acknowledgement(0), frame] {
                let says =
                    |others: &Hellos, asked: &_, answer: &_| others.ends(asked, answer, true).0.encode(&said);
                assert_eq!(reports(says).await, ["asked", "closed"]);
            }
        });
    }

    #[tokio::test]
    async fn a_process_that_writes_without_end_waits_until_its_frames_are_heard() {
        const ALL: usize = 3 * UNHEARD;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let (news, mut heard) = unbounded_channel();
        let hellos = Hellos::new("foo".parse::<JobId>().unwrap().tag(), None);
        let carrier = Carrier { hellos: hellos.clone(), longest: 1000, news };
        let (_frames, to_write) = channel(UNWRITTEN);
        let ends = hellos.ends(&[0; HELLO], &[0; HELLO], false);
        let mut writer = hellos.ends(&[0; HELLO], &[0; HELLO], true).0;
        let frame = |number| Frame { number, read: 0, body: (*b"body").into() };
        let bytes: Vec<u8> = (1..=ALL as u64).flat_map(|number| writer.encode(&frame(number))).collect();
        stranger.write_all(&bytes).await.unwrap();
        tokio::spawn(async move { carry(stream, ConnId(1), ends, to_write, &carrier).await.0 });
        let mut unheard = std::collections::VecDeque::new();
        for number in 1..=ALL as u64 {
            match heard.recv().await {
                Some(TaskEvent::Session(News::Read(_, read, permit))) => {
                    assert_eq!(read, frame(number));
                    unheard.push_back(permit);
                }
                other => panic!("{other:?}"),
            }
            if unheard.len() == UNHEARD {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                assert!(heard.try_recv().is_err(), "read before an earlier one was heard");
                unheard.pop_front();
            }
        }
    }

    #[test]
    #[ignore = "a measurement of minutes; CONTRIBUTING.md has the command and the figures"]
    fn connecting_and_four_exchanges_at_1_5_and_30_percent_loss() {
        let name = "connecting_and_four_exchanges_at_1_5_and_30_percent_loss";
        if !inside(
            module_path!(),
            name,
            "nft add table inet t && nft add chain inet t c '{ type filter hook input priority 0; }'",
        ) {
            return;
        }
        for loss in [0, 1, 5, 30] {
            let rule = format!("flush table inet t; add rule inet t c numgen random mod 100 < {loss} drop");
            assert!(std::process::Command::new("nft").arg(rule).status().unwrap().success());
            let mut taken: Vec<Duration> =
                (0..300).map(|_| runtime().block_on(exchange(Some("a secret of many bytes"), 4))).collect();
            taken.sort();
            let (median, most, worst) = (taken[150], taken[297], taken[299]);
            let _ = writeln!(io::stderr(), "{loss}% loss: median {median:?}, 99% {most:?}, worst {worst:?}");
        }
    }
}
