//! The connections of a session: each is a task, which exchanges hellos and then frames.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, UnboundedSender, channel};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::clock::random;
use super::sockets::connection::TaskEvent;
use super::sockets::endpoint::{make_watch, reset_on_close};
use super::sockets::path::connect;
use crate::model::NodeId;
use crate::proto::{ConnId, DialId, Ending, Ends, Failed, Way};
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

/// A connection to dial, of the session with this number.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) number: DialId,
    pub(crate) conn: ConnId,
    pub(crate) to: SocketAddr,
    pub(crate) peer: NodeId,
    pub(crate) session: u64,
    /// The longest body of a frame that the process may send, in bytes.
    pub(crate) longest: usize,
}

/// The hello of a process to another, on a connection of the session with this number.
fn hello(own: NodeId, peer: NodeId, session: u64) -> io::Result<Hello> {
    let header = Header { sender: own, recipient: peer };
    Ok(Hello { header, session, nonce: random().map_err(io::Error::other)? })
}

/// What all connections of a node's sessions have in common.
#[derive(Debug, Clone)]
pub(crate) struct Carrier {
    /// The process whose sessions these are.
    pub(crate) own: NodeId,
    pub(crate) hellos: Hellos,
    pub(crate) events: UnboundedSender<TaskEvent>,
}

impl Carrier {
    fn report(&self, event: TaskEvent) {
        // Sending fails if the driver has ended.
        let _ = self.events.send(event);
    }

    /// Reports that a connection is open. Returns the frames to write.
    fn opened(&self, peer: NodeId, way: Way, conn: ConnId, numbers: (u64, u64)) -> Receiver<Frame> {
        let (frames, to_write) = channel(UNWRITTEN);
        self.report(TaskEvent::Opened { peer, way, conn, numbers, frames });
        to_write
    }
}

/// Opens a connection, and carries frames until one end closes it.
pub(crate) async fn dial(dial: Dial, carrier: Carrier) {
    let Dial { number, conn, to, peer, session, longest } = dial;
    let hellos = &carrier.hellos;
    let open = async {
        let mut stream = connect(to, Some(SEGMENT)).await?;
        set_up(&stream)?;
        let asked = hellos.encode(hello(carrier.own, peer, session)?);
        stream.write_all(&asked).await?;
        let mut answer = [0; HELLO];
        stream.read_exact(&mut answer).await?;
        let other = hellos.decode_answer(&asked, &answer).map_err(invalid)?;
        if (other.header.sender, other.header.recipient) != (peer, carrier.own) {
            return Err(invalid("another process answers"));
        }
        let (mut writer, reader) = hellos.ends(&asked, &answer, true);
        stream.write_all(&writer.encode(&Frame::acknowledgement(0))).await?;
        Ok((stream, other.session, (writer, reader)))
    };
    match timeout(OPENING, open).await.unwrap_or_else(|late| Err(late.into())) {
        Ok((mut stream, other, ends)) => {
            let to_write = carrier.opened(peer, Way::Dialled(number), conn, (session, other));
            let (ending, closes) = carry(&mut stream, conn, ends, to_write, longest, &carrier).await;
            if !closes {
                // The end that closes first would hold its port for a minute (TIME_WAIT), and the job may
                // need that port.
                let _ = reset_on_close(&stream);
            }
            carrier.report(TaskEvent::Closed(conn, ending));
        }
        Err(error) => {
            tracing::debug!(%peer, ?number, %error, "dialling");
            let refused = [io::ErrorKind::ConnectionRefused, io::ErrorKind::InvalidData];
            let failed = if refused.contains(&error.kind()) { Failed::Refused } else { Failed::Silent };
            carrier.report(TaskEvent::DialFailed(peer, number, failed));
        }
    }
}

/// The hello `asked` has arrived on a connection that was accepted. If it is answered, carries frames until
/// one end closes. If the connection `resets`, it leaves no TIME_WAIT behind. Returns how it has ended.
pub(crate) async fn accept(
    conn: ConnId,
    mut stream: TcpStream,
    asked: [u8; HELLO],
    resets: bool,
    carrier: Carrier,
) -> Ending {
    let hellos = &carrier.hellos;
    let open = async {
        let other = hellos.decode(&asked).map_err(invalid)?;
        let Header { sender: peer, recipient: meant } = other.header;
        let (answer, answered) = oneshot::channel();
        carrier.report(TaskEvent::Asked { peer, meant, answer });
        let (session, longest) = answered.await.map_err(|_| invalid("another process is meant"))?;
        set_up(&stream)?;
        let answer = hellos.answer(&asked, hello(meant, peer, session)?);
        stream.write_all(&answer).await?;
        let (local, remote) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        let way = Way::Accepted(Ends { local: local.to_canonical(), remote: remote.to_canonical() });
        let (writer, mut reader) = hellos.ends(&asked, &answer, false);
        // The dialer acknowledges nothing first. A hello can be anybody's, and a recording: in a job with a
        // secret only the process that it names can seal this frame.
        match next_frame(&mut stream, &mut reader, 0).await? {
            Some(frame) if frame == Frame::acknowledgement(0) => {}
            _ => return Err(invalid("the first frame is missing, or says something")),
        }
        Ok((peer, way, (session, other.session), (writer, reader), longest))
    };
    match timeout(OPENING, open).await.unwrap_or_else(|late| Err(late.into())) {
        Ok((peer, way, numbers, ends, longest)) => {
            let to_write = carrier.opened(peer, way, conn, numbers);
            let (ending, closes) = carry(&mut stream, conn, ends, to_write, longest, &carrier).await;
            if closes && resets {
                // A reset from this side could overtake what was written.
                let rest = async {
                    stream.shutdown().await?;
                    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
                };
                let _ = timeout(LINGER, rest).await;
            }
            ending
        }
        Err(error) => {
            tracing::debug!(?conn, %error, "a connection is no session's");
            Ending::Closed
        }
    }
}

/// The next frame whose body has at most `most` bytes; nothing at the end of the connection.
async fn next_frame(
    from: &mut (impl AsyncRead + Unpin),
    reader: &mut Reader,
    most: usize,
) -> io::Result<Option<Frame>> {
    loop {
        if let Some(frame) = reader.next_frame(most).map_err(invalid)? {
            return Ok(Some(frame));
        }
        let mut buffer = [0; 4096];
        match from.read(&mut buffer).await? {
            0 => return Ok(None),
            length => reader.push(&buffer[..length]),
        }
    }
}

fn set_up(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_tcp_nodelay(true)?;
    make_watch(stream)
}

fn invalid(error: impl std::fmt::Debug) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{error:?}"))
}

/// Carries frames, of which the other end may send bodies of at most `longest` bytes. Returns how the
/// connection has ended, and whether this end is the first to close it.
async fn carry(
    stream: &mut TcpStream,
    conn: ConnId,
    (mut writer, mut reader): (Writer, Reader),
    mut to_write: Receiver<Frame>,
    longest: usize,
    carrier: &Carrier,
) -> (Ending, bool) {
    // An owned half would close its direction when it is dropped with the task, and a master's port would be
    // held for a minute where the other end closes at that time, too.
    let (mut from, mut to) = stream.split();
    let read = async {
        let unheard = Arc::new(Semaphore::new(UNHEARD));
        while let Some(frame) = next_frame(&mut from, &mut reader, longest).await? {
            let permit = Arc::clone(&unheard).acquire_owned().await.map_err(io::Error::other)?;
            carrier.report(TaskEvent::Read(conn, frame, permit));
        }
        Ok(())
    };
    let write = async {
        while let Some(frame) = to_write.recv().await {
            let mut batch = writer.encode(&frame);
            while let Ok(frame) = to_write.try_recv() {
                batch.extend(writer.encode(&frame));
            }
            to.write_all(&batch).await?;
        }
        Ok(())
    };
    // Whichever ends first ends the connection.
    let (ended, closes): (io::Result<()>, _) = tokio::select! {
        ended = read => (ended, false),
        ended = write => (ended, true),
    };
    tracing::debug!(?conn, ?ended, closes, "the connection of a session has ended");
    let ending = if ended.is_ok() { Ending::Closed } else { Ending::Broken };
    (ending, closes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write as _;

    use tokio::net::TcpListener;
    use tokio::runtime;
    use tokio::sync::mpsc::{Sender, UnboundedReceiver, unbounded_channel};
    use tokio::time::Instant;

    use super::super::namespace_tests::inside;
    use super::*;
    use crate::model::{JobId, Secret};
    use crate::proto::Time;
    use crate::proto::session::{SessionEnd, SessionOutput};

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

        fn next_conn(&mut self) -> ConnId {
            self.next_conn += 1;
            ConnId(self.next_conn)
        }

        fn carrier(&self) -> Carrier {
            carrier(self.id, self.hellos.clone(), self.news.0.clone())
        }

        fn carry_out(&mut self) {
            while let Some(output) = self.session.poll_output() {
                match output {
                    SessionOutput::Dial(number) => {
                        let (conn, to, peer) = (self.next_conn(), self.to, self.other);
                        tokio::spawn(dial(
                            Dial { number, conn, to, peer, session: 0, longest: 1000 },
                            self.carrier(),
                        ));
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
                    Some(news) = self.news.1.recv() => {
                        if let Some(frame) = self.hear(news) {
                            self.carry_out();
                            return frame;
                        }
                    }
                    Ok((stream, _)) = self.listener.accept() => {
                        tokio::spawn(accepted(self.next_conn(), stream, self.carrier()));
                    }
                    () = tokio::time::sleep(due) => {
                        let now = self.now();
                        self.session.advance(now);
                    }
                }
            }
        }

        fn hear(&mut self, news: TaskEvent) -> Option<Frame> {
            let now = self.now();
            match news {
                TaskEvent::Asked { meant, answer, .. } => {
                    assert_eq!(meant, self.id);
                    let _ = answer.send((0, 1000));
                }
                TaskEvent::Opened { way, conn, peer, frames, .. } => {
                    assert_eq!(peer, self.other);
                    self.frames.insert(conn, frames);
                    let dial = if let Way::Dialled(dial) = way { Some(dial) } else { None };
                    self.session.opened(now, dial, conn);
                }
                TaskEvent::DialFailed(_, dial, failed) => {
                    println!("{dial:?} has failed: {failed:?}");
                    self.session.dial_failed(now, dial);
                }
                TaskEvent::Read(conn, frame, _) => return self.session.receive(now, conn, frame).unwrap(),
                TaskEvent::Closed(conn, _) => {
                    self.frames.remove(&conn);
                    self.session.closed(now, conn);
                }
                other => panic!("{other:?}"),
            }
            None
        }
    }

    fn carrier(own: NodeId, hellos: Hellos, news: UnboundedSender<TaskEvent>) -> Carrier {
        Carrier { own, hellos, events: news }
    }

    /// Reads the hello of an accepted connection, and then its frames.
    async fn accepted(conn: ConnId, mut stream: TcpStream, carrier: Carrier) {
        let mut asked = [0; HELLO];
        stream.read_exact(&mut asked).await.unwrap();
        let ending = accept(conn, stream, asked, false, carrier.clone()).await;
        carrier.report(TaskEvent::Closed(conn, ending));
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
        [(true, 0), (false, 1)].map(|(closes, index)| End {
            id: NodeId([1 + index; 16]),
            other: NodeId([2 - index; 16]),
            session: SessionEnd::new(closes, PATIENCE),
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
            let taken = runtime().block_on(async { timeout(OPENING, exchange(secret, 100)).await });
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
        let (member, own) = (NodeId([1; 16]), NodeId([2; 16]));
        tokio::spawn(accepted(ConnId(1), stream, carrier(own, ours.clone(), news)));
        let asked = ours.encode(hello(member, own, 7).unwrap());
        stranger.write_all(&asked).await.unwrap();
        let mut reports = Vec::new();
        let mut says = Some(says);
        while let Some(news) = heard.recv().await {
            reports.push(match news {
                TaskEvent::Asked { answer, .. } => {
                    answer.send((7, 1000)).unwrap();
                    let mut answer = [0; HELLO];
                    stranger.read_exact(&mut answer).await.unwrap();
                    if let Some(says) = says.take() {
                        stranger.write_all(&says(&others, &asked, &answer)).await.unwrap();
                    }
                    stranger.shutdown().await.unwrap();
                    "asked"
                }
                TaskEvent::Opened { .. } => "opened",
                TaskEvent::DialFailed(..) => "failed",
                TaskEvent::Read(..) => "read",
                TaskEvent::Closed(..) => "closed",
                other => panic!("{other:?}"),
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
        let (mut stream, _) = listener.accept().await.unwrap();
        let (news, mut heard) = unbounded_channel();
        let hellos = Hellos::new("foo".parse::<JobId>().unwrap().tag(), None);
        let carrier = carrier(NodeId([2; 16]), hellos.clone(), news);
        let (_frames, to_write) = channel(UNWRITTEN);
        let ends = hellos.ends(&[0; HELLO], &[0; HELLO], false);
        let mut writer = hellos.ends(&[0; HELLO], &[0; HELLO], true).0;
        let frame = |number| Frame { number, read: 0, body: (*b"body").into() };
        let bytes: Vec<u8> = (1..=ALL as u64).flat_map(|number| writer.encode(&frame(number))).collect();
        stranger.write_all(&bytes).await.unwrap();
        tokio::spawn(async move { carry(&mut stream, ConnId(1), ends, to_write, 1000, &carrier).await.0 });
        let mut unheard = std::collections::VecDeque::new();
        for number in 1..=ALL as u64 {
            match heard.recv().await {
                Some(TaskEvent::Read(_, read, permit)) => {
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
