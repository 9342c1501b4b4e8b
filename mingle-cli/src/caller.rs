//! The program that this thread works for, where that is not `mingle`: it is told what `mingle` would print.

use std::cell::RefCell;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::exit::Stop;

/// What the caller is told: of which kind it is, and what it is.
///
/// | kind | what |
/// | --- | --- |
/// | `line` | a line for people, which `mingle` prints on stderr; a warning begins with `warning: ` |
/// | `event` | an event, as `--events` writes it, without its time of day |
/// | `formed` | a world has formed: the document of `--format json`, and the world's `generation` |
/// | `failed` | why no world forms: the `code`, `kind` and `message` of `mingle`, and known `facts` by name |
#[derive(Debug)]
pub struct Told {
    /// The kind.
    pub kind: &'static str,
    /// What is told.
    pub what: Value,
    /// For `formed` on rank 0, the socket that listens on MASTER_PORT.
    pub listener: Option<TcpListener>,
}

/// How this thread reaches its caller.
struct Caller {
    told: Box<dyn Fn(Told)>,
    ends: UnixStream,
}

thread_local! {
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
}

/// Does this work for a caller, which makes `ends` readable to end the work.
pub(crate) fn during<T>(told: impl Fn(Told) + 'static, ends: UnixStream, work: impl FnOnce() -> T) -> T {
    CALLER.set(Some(Caller { told: Box::new(told), ends }));
    let done = work();
    CALLER.set(None);
    done
}

/// Tells the caller, if there is one.
pub(crate) fn tell(kind: &'static str, what: impl FnOnce() -> Value, listener: Option<TcpListener>) -> bool {
    let told = || Told { kind, what: what(), listener };
    CALLER.with_borrow(|caller| caller.as_ref().map(|caller| (caller.told)(told())).is_some())
}

/// Whether there is a caller.
pub(crate) fn is_there() -> bool {
    CALLER.with_borrow(Option::is_some)
}

/// What becomes readable when the caller asks for the end.
pub(crate) fn ends() -> Option<Result<tokio::net::UnixStream, Stop>> {
    let ends = CALLER.with_borrow(|caller| caller.as_ref().map(|caller| caller.ends.try_clone()))?;
    let ends = ends.and_then(tokio::net::UnixStream::from_std);
    Some(ends.map_err(|error| Stop::System("hear the caller", error)))
}
