//! The connections of a session: each is a task, which exchanges hellos and then frames.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::sockets::endpoint::make_watch;
use super::sockets::path::connect;
use crate::model::NodeId;
use crate::proto::{ConnId, DialId};
use crate::wire::Frame;
use crate::wire::session::{HELLO, Hello, Hellos, Reader, Writer};

/// How long a connection may take until both hellos have been read.
const OPENING: Duration = Duration::from_secs(10);
/// The longest segment, in bytes: what MTUs from 1,232 bytes on let pass. A session would otherwise stall
/// where a router drops longer packets without a word.
pub(super) const SEGMENT: u32 = 1180;

/// What the task of a connection reports: in order, and its end last.
#[derive(Debug)]
pub(crate) enum News {
    /// The hello of a process has arrived. Sending this node's answers it; otherwise the connection closes.
    Asked {
        peer: Hello,
        answer: oneshot::Sender<Hello>,
    },
    /// Both hellos have been read. Frames that are sent by `frames` are written in order; the connection
    /// closes when `frames` is dropped.
    Opened {
        dial: Option<DialId>,
        conn: ConnId,
        from: IpAddr,
        /// This node's hello.
        own: Hello,
        peer: Hello,
        frames: UnboundedSender<Frame>,
    },
    /// A dial to a process has failed.
    Failed(NodeId, DialId, io::Error),
    Read(ConnId, Frame),
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
    /// The longest body of a frame that may arrive, in bytes.
    pub(crate) longest: usize,
}

/// Opens a connection, and carries frames until one end closes it.
pub(crate) async fn dial(dial: Dial, hellos: Hellos, news: UnboundedSender<News>) {
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
            let (frames, to_write) = unbounded_channel();
            let (own, conn, longest) = (dial.hello, dial.conn, dial.longest);
            let (dial, from) = (Some(dial.number), dial.to.ip());
            let _ = news.send(News::Opened { dial, conn, from, own, peer, frames });
            carry(stream, conn, ends, to_write, longest, news).await;
        }
        // Sending fails if the driver has ended.
        Err(error) => drop(news.send(News::Failed(dial.hello.header.recipient, dial.number, error))),
    }
}

/// Reads the hello on a connection that was accepted. If it is answered, carries frames until one end closes.
pub(crate) async fn accept(
    conn: ConnId,
    mut stream: TcpStream,
    hellos: Hellos,
    longest: usize,
    news: UnboundedSender<News>,
) {
    let open = async {
        let mut asked = [0; HELLO];
        stream.read_exact(&mut asked).await?;
        let peer = hellos.decode(&asked).map_err(invalid)?;
        let (answer, answered) = oneshot::channel();
        let _ = news.send(News::Asked { peer, answer });
        let own = answered.await.map_err(|_| invalid("another process is meant"))?;
        set_up(&stream)?;
        let answer = hellos.answer(&asked, own);
        stream.write_all(&answer).await?;
        let from = stream.peer_addr()?.ip().to_canonical();
        let (writer, mut reader) = hellos.ends(&asked, &answer, false);
        first(&mut stream, &mut reader).await?;
        Ok((peer, own, from, (writer, reader)))
    };
    match within(open).await {
        Ok((peer, own, from, ends)) => {
            let (frames, to_write) = unbounded_channel();
            let _ = news.send(News::Opened { dial: None, conn, from, own, peer, frames });
            carry(stream, conn, ends, to_write, longest, news).await;
        }
        Err(error) => {
            tracing::debug!(?conn, %error, "a connection is no session's");
            let _ = news.send(News::Closed(conn, Ok(())));
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

async fn carry(
    stream: TcpStream,
    conn: ConnId,
    (writer, reader): (Writer, Reader),
    to_write: UnboundedReceiver<Frame>,
    longest: usize,
    news: UnboundedSender<News>,
) {
    let (from, to) = stream.into_split();
    // Whichever ends first ends the connection.
    let ended = tokio::select! {
        ended = read(from, reader, conn, longest, &news) => ended,
        ended = write(to, writer, to_write) => ended,
    };
    let _ = news.send(News::Closed(conn, ended));
}

async fn read(
    mut from: OwnedReadHalf,
    mut reader: Reader,
    conn: ConnId,
    longest: usize,
    news: &UnboundedSender<News>,
) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        while let Some(frame) = reader.next_frame(longest).map_err(invalid)? {
            let _ = news.send(News::Read(conn, frame));
        }
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        reader.push(&buffer[..length]);
    }
}

/// Writes frames until the sender of `frames` is dropped. A session gives a connection a batch at a time, so
/// the channel is short although it has no bound.
async fn write(
    mut to: OwnedWriteHalf,
    mut writer: Writer,
    mut frames: UnboundedReceiver<Frame>,
) -> io::Result<()> {
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
    use tokio::time::Instant;

    use super::super::namespace_tests::inside;
    use super::*;
    use crate::model::{JobId, Lineage, NodeId, Secret};
    use crate::proto::Time;
    use crate::proto::session::{Output, Role, Session};
    use crate::wire::Header;

    const PATIENCE: Duration = Duration::from_millis(60);

    /// One process of a session, on the sockets of this one.
    struct End {
        id: NodeId,
        other: NodeId,
        session: Session,
        hellos: Hellos,
        listener: TcpListener,
        to: SocketAddr,
        frames: BTreeMap<ConnId, UnboundedSender<Frame>>,
        news: (UnboundedSender<News>, UnboundedReceiver<News>),
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
            let header = Header { sender: self.id, recipient: self.other, lineage: Lineage::default() };
            let hello = Hello { header, session: 0, nonce };
            (ConnId(self.next_conn), hello)
        }

        fn carry_out(&mut self) {
            while let Some(output) = self.session.poll_output() {
                match output {
                    Output::Dial(number) => {
                        let (conn, hello) = self.hello();
                        let asked = Dial { number, conn, to: self.to, hello, longest: 1000 };
                        tokio::spawn(dial(asked, self.hellos.clone(), self.news.0.clone()));
                    }
                    Output::Write(conn, frame) => {
                        self.frames.get(&conn).map(|frames| frames.send(frame));
                    }
                    Output::Close(conn) => {
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
                        let (conn, _) = self.hello();
                        tokio::spawn(accept(conn, stream, self.hellos.clone(), 1000, self.news.0.clone()));
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
                    let _ = answer.send(self.hello().1);
                }
                News::Opened { dial, conn, peer, frames, .. } => {
                    assert_eq!(peer.header.sender, self.other);
                    self.frames.insert(conn, frames);
                    self.session.opened(now, dial, conn);
                }
                News::Failed(_, dial, error) => {
                    println!("{dial:?} has failed: {error}");
                    self.session.dial_failed(now, dial);
                }
                News::Read(conn, frame) => return self.session.receive(now, conn, frame).unwrap(),
                News::Closed(conn, _) => {
                    self.frames.remove(&conn);
                    self.session.closed(now, conn);
                }
            }
            None
        }
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
            session: Session::new(role, PATIENCE),
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
                assert_eq!(*question.body, [number]);
                let now = leader.now();
                leader.session.say(now, 2, question.body);
            }
            leader.read().await;
        };
        let questions = async {
            for number in 0..count {
                let now = member.now();
                member.session.say(now, 1, [number].into());
                assert_eq!(*member.read().await.body, [number]);
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
        let (accepted, _) = listener.accept().await.unwrap();
        tokio::spawn(accept(ConnId(1), accepted, ours.clone(), 1000, news));
        let hello = |sender, recipient| {
            let header = Header { sender, recipient, lineage: Lineage::default() };
            Hello { header, session: 7, nonce: [5; 16] }
        };
        let (member, own) = (NodeId([1; 16]), NodeId([2; 16]));
        let asked = ours.encode(hello(member, own));
        stranger.write_all(&asked).await.unwrap();
        let mut reports = Vec::new();
        let mut says = Some(says);
        while let Some(news) = heard.recv().await {
            reports.push(match news {
                News::Asked { answer, .. } => {
                    answer.send(hello(own, member)).unwrap();
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
        let frame = Frame { number: 1, read: 0, kind: 1, body: (*b"body").into() };
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
