//! All hosts tell rank 0 what they have found, which tells all of it to each. They connect to the port of
//! rank 0 that each of them has reached before the world formed.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use mingle_core::tools::{from_bytes, reset, to_bytes};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::notice::Record;

/// The hash of the roster, by which the hosts of the meeting know each other.
pub(super) type Token = [u8; 16];

/// How long a connection, and each message on it, may take.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// The pause before a connection is opened or accepted again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a connection may take to open: where packets are lost, the next may open sooner.
const OPEN: Duration = Duration::from_secs(1);
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
    let answer = Arc::new(watch::Sender::new(Vec::new()));
    let answers = Arc::clone(&answer);
    let visit = move |stream| visit(stream, sender.clone(), answers.subscribe());
    let serving = tokio::spawn(serve(listener, token, visit));
    while records.iter().any(Option::is_none) {
        let Ok(Some((rank, record))) = timeout_at(until, told.recv()).await else { break };
        if let Some(place) = records.get_mut(rank as usize) {
            place.get_or_insert(record);
        }
    }
    answer.send_replace(to_bytes(&records));
    serving.abort();
    // Until each host that has told something has read the answer, or is gone.
    let _ = timeout_at(until + 2 * LIMIT, answer.closed()).await;
    records
}

/// Hears what a host tells, and answers it.
async fn visit(
    mut stream: TcpStream,
    told: mpsc::Sender<(u32, Record)>,
    mut answers: watch::Receiver<Vec<u8>>,
) -> io::Result<()> {
    let (rank, record): (u32, Record) = timeout(LIMIT, receive(&mut stream, RECORD)).await??;
    if !record.is_sane() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    told.send((rank, record)).await.map_err(io::Error::other)?;
    let answer = with_length(&answers.wait_for(|answer| !answer.is_empty()).await.map_err(io::Error::other)?);
    stream.write_all(&answer).await?;
    // The visitor closes once it has read that. It closes first, so that the master's port keeps no closed
    // connection.
    stream.read_u8().await.map(drop)
}

/// Tells rank 0 what this host, of this rank, has found. Returns what all have found, or nothing at that
/// time, or once nobody listens there: rank 0 does from before the world forms until it has answered.
pub(super) async fn tell(to: SocketAddr, token: Token, told: (u32, &Record), until: Instant) -> Records {
    let message = [&token[..], &with_length(&to_bytes(&told))].concat();
    let asked = async {
        loop {
            match ask(to, &message).await {
                Ok(records) => break records,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break Records::new(),
                Err(error) => tracing::debug!(%error, "rank 0 does not answer"),
            }
            sleep(PAUSE).await;
        }
    };
    timeout_at(until, asked).await.unwrap_or_default()
}

/// Tells rank 0 on a connection, and waits for its answer.
async fn ask(to: SocketAddr, message: &[u8]) -> io::Result<Records> {
    let mut stream = timeout(OPEN, TcpStream::connect(to)).await??;
    stream.write_all(message).await?;
    receive(&mut stream, RECORDS).await
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
        let (token, of) = ([7; 16], |rate| Record { rates: [(0, rate)].into(), ..Record::default() });
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
    async fn a_rank_0_that_closes_the_first_connections_is_told_on_the_next_and_its_end_is_noticed() {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (at, token) = (listener.local_addr().unwrap(), [7; 16]);
        let until = Instant::now() + Duration::from_secs(60);
        let telling = tokio::spawn(async move { tell(at, token, (1, &Record::default()), until).await });
        let busy = TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
        for _ in 0..3 {
            drop(busy.accept().await.unwrap());
        }
        drop(busy);
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
        let message = [&token[..], &with_length(&to_bytes(&(1_u32, &record)))].concat();
        let mut lost = TcpStream::connect(at).await.unwrap();
        lost.write_all(&message).await.unwrap();
        drop(lost);
        let again = record.clone();
        let again = tokio::spawn(async move { tell(at, token, (1, &again), until).await });
        let all = tell(at, token, (2, &record), until).await;
        assert_eq!(all, vec![Some(record); 3]);
        assert_eq!((again.await.unwrap(), collected.await.unwrap()), (all.clone(), all));
        assert!(Instant::now() < until, "rank 0 knows that all have read");
    }
}
