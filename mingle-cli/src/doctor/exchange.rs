//! All hosts tell rank 0 what they have found, which tells all of it to each. They connect to the port of
//! rank 0 that each of them has reached before the world formed.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use mingle_core::tools::{from_bytes, reset, to_bytes};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout, timeout_at};

use super::notice::Record;

/// The hash of the roster, by which the hosts of the meeting know each other.
pub(super) type Token = [u8; 16];

/// How long a connection, and each message on it, may take.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// The pause before a connection is opened or accepted again.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a host opens another connection on which rank 0 may hear it sooner, and how many it has at most.
const AGAIN: Duration = Duration::from_millis(500);
const TRIES: usize = 8;
/// The most connections that are served at once.
const VISITORS: usize = 256;
/// The longest record, and the longest list of records, in bytes: each of many ports for RDMA names all that
/// it hears.
const RECORD: u32 = 1 << 20;
const RECORDS: u32 = 33 << 20;

/// What each host has found, by its rank; none where that is not known.
pub(super) type Records = Vec<Option<Record>>;

/// Accepts connections without end, and serves each that begins with the token.
pub(super) async fn serve<F: Future<Output = io::Result<()>> + Send>(
    listener: TcpListener,
    token: Token,
    serve: impl Fn(TcpStream) -> F + Clone + Send + 'static,
) {
    let slots = Arc::new(Semaphore::new(VISITORS));
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            // The error returns at once while its cause lasts, such as too few file descriptors.
            sleep(PAUSE).await;
            continue;
        };
        // Also where it is no host's.
        reset(&stream);
        let serve = serve.clone();
        tokio::spawn(async move {
            let (_slot, mut stream, mut said) = (slot, stream, Token::default());
            let heard = timeout(LIMIT, stream.read_exact(&mut said)).await;
            if matches!(heard, Ok(Ok(_))) && said == token {
                // A host whose connection is lost comes again.
                let _ = serve(stream).await;
            }
        });
    }
}

/// Collects at rank 0, which listens, what the other hosts tell, until then at the latest.
pub(super) async fn collect(
    listener: StdListener,
    token: Token,
    mut records: Records,
    until: Instant,
) -> Records {
    let Ok(listener) = TcpListener::from_std(listener) else { return records };
    let (sender, mut told) = mpsc::channel(VISITORS);
    let (answer, answers) = watch::channel(Vec::new());
    let visit = move |stream| visit(stream, sender.clone(), answers.clone());
    let serving = tokio::spawn(serve(listener, token, visit));
    let mut readers = BTreeSet::new();
    while records.iter().any(Option::is_none) {
        let Ok(Some((rank, said))) = timeout_at(until, told.recv()).await else { break };
        if let (Some(place), Said::Found(record)) = (records.get_mut(rank as usize), said) {
            place.get_or_insert(record);
            readers.insert(rank);
        }
    }
    // Nobody may wait for it.
    let _ = answer.send(to_bytes(&records));
    // A host whose connections are lost comes again.
    while !readers.is_empty() {
        let Ok(Some((rank, said))) = timeout_at(until + 2 * LIMIT, told.recv()).await else { break };
        if matches!(said, Said::HasRead) {
            readers.remove(&rank);
        }
    }
    serving.abort();
    records
}

/// What a host says on a connection.
enum Said {
    /// What it has found.
    Found(Record),
    /// It knows what all have found.
    HasRead,
}

/// Hears what a host tells, and answers it.
async fn visit(
    mut stream: TcpStream,
    told: mpsc::Sender<(u32, Said)>,
    mut answers: watch::Receiver<Vec<u8>>,
) -> io::Result<()> {
    let (rank, record): (u32, Record) = timeout(LIMIT, receive(&mut stream, RECORD)).await??;
    if !record.is_sane() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    told.send((rank, Said::Found(record))).await.map_err(io::Error::other)?;
    stream.write_u8(1).await?;
    answers.changed().await.map_err(io::Error::other)?;
    let answer = with_length(&answers.borrow());
    stream.write_all(&answer).await?;
    stream.read_u8().await?;
    told.send((rank, Said::HasRead)).await.map_err(io::Error::other)?;
    // The visitor closes first, so that the master's port keeps no closed connection.
    stream.read_u8().await.map(drop)
}

/// Tells rank 0 what this host, of this rank, has found. Returns what all have found, or nothing at that
/// time, or once rank 0 has ended.
pub(super) async fn tell(to: SocketAddr, token: Token, told: (u32, &Record), until: Instant) -> Records {
    let message: Arc<[u8]> = [&token[..], &with_length(&to_bytes(&told))].concat().into();
    let asked = async {
        loop {
            let Some(mut stream) = open(to, &message).await else { break Records::new() };
            match receive(&mut stream, RECORDS).await {
                Ok(records) => {
                    // Rank 0 waits for it, and not for ever.
                    let _ = stream.write_u8(1).await;
                    break records;
                }
                Err(error) => tracing::debug!(%error, "rank 0 does not answer"),
            }
            sleep(PAUSE).await;
        }
    };
    timeout_at(until, asked).await.unwrap_or_default()
}

/// A connection on which rank 0 has heard the message. On a network that loses packets another may be faster.
/// None if nobody listens there: rank 0 does from before the world forms until it has answered.
async fn open(to: SocketAddr, message: &Arc<[u8]>) -> Option<TcpStream> {
    let (mut tries, mut again) = (JoinSet::new(), interval(AGAIN));
    loop {
        tokio::select! {
            _ = again.tick(), if tries.len() < TRIES => {
                let message = Arc::clone(message);
                tries.spawn(timeout(LIMIT, async move {
                    let mut stream = TcpStream::connect(to).await?;
                    stream.write_all(&message).await?;
                    stream.read_u8().await.map(|_| stream)
                }));
            }
            Some(tried) = tries.join_next() => match tried {
                Ok(Ok(Ok(stream))) => return Some(stream),
                Ok(Ok(Err(error))) if error.kind() == io::ErrorKind::ConnectionRefused => return None,
                // An end of the connection, or five seconds without an answer.
                _ => {}
            },
        }
    }
}

/// A message with its length before it.
fn with_length(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or_default();
    [&length.to_be_bytes(), message].concat()
}

async fn receive<T: DeserializeOwned>(stream: &mut TcpStream, longest: u32) -> io::Result<T> {
    let length = stream.read_u32().await?.min(longest);
    let mut bytes = Vec::new();
    // Grows with what arrives, not with what was announced.
    stream.take(length.into()).read_to_end(&mut bytes).await?;
    from_bytes(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream as StdStream;

    use super::*;

    #[tokio::test]
    async fn strangers_and_a_host_that_is_gone_keep_no_other_from_the_records() {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        let silent: Vec<StdStream> = (0..20).map(|_| StdStream::connect(at).unwrap()).collect();
        let (token, of) = ([7; 16], |mtu| Record { mtu, ..Record::default() });
        let now = Instant::now();
        let until = now + Duration::from_secs(1);
        let own = vec![Some(of(1000)), None, None, None];
        let collected = tokio::spawn(collect(listener, token, own, until));
        let stranger = tokio::spawn(async move { tell(at, [0; 16], (2, &of(666)), until).await });
        let twice = tokio::spawn(async move { tell(at, token, (0, &of(666)), until + LIMIT).await });
        let told = tell(at, token, (1, &of(1001)), until + LIMIT).await;
        let expected = vec![Some(of(1000)), Some(of(1001)), None, None];
        assert_eq!((&told, stranger.await.unwrap()), (&expected, Vec::new()));
        assert_eq!((twice.await.unwrap(), collected.await.unwrap()), (told.clone(), told));
        assert!(now.elapsed() >= Duration::from_secs(1) && now.elapsed() < 2 * LIMIT, "{:?}", now.elapsed());
        drop(silent);
    }

    #[tokio::test]
    async fn a_rank_0_that_closes_all_first_connections_is_told_on_the_next_and_its_end_is_noticed() {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (at, token) = (listener.local_addr().unwrap(), [7; 16]);
        let until = Instant::now() + Duration::from_secs(60);
        let telling = tokio::spawn(async move { tell(at, token, (1, &Record::default()), until).await });
        let busy = TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
        let mut open = Vec::new();
        while open.len() < TRIES {
            open.push(busy.accept().await.unwrap());
        }
        drop((open, busy));
        let own = vec![Some(Record::default()), None];
        let all = collect(listener, token, own, until).await;
        assert_eq!((telling.await.unwrap(), all.len()), (all, 2));
        assert_eq!(tell(at, token, (1, &Record::default()), until).await, Records::new());
        assert!(Instant::now() < until, "it has noticed that nobody listens");
    }

    #[tokio::test]
    async fn a_host_whose_connection_is_lost_before_the_answer_comes_again_and_gets_it() {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (at, token) = (listener.local_addr().unwrap(), [7; 16]);
        let until = Instant::now() + LIMIT;
        let record = Record::default();
        let own = vec![Some(record.clone()), None, None];
        let collected = tokio::spawn(collect(listener, token, own, until));
        let message: Arc<[u8]> = [&token[..], &with_length(&to_bytes(&(1_u32, &record)))].concat().into();
        drop(open(at, &message).await.unwrap());
        let all = tell(at, token, (2, &record), until).await;
        assert_eq!(all, vec![Some(record.clone()); 3]);
        assert_eq!(tell(at, token, (1, &record), until).await, all);
        assert_eq!(collected.await.unwrap(), all);
        assert!(Instant::now() < until, "rank 0 knows that all have read");
    }
}
