//! What a thread with descriptors of its own tells Python: values in memory, and descriptors through a
//! socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mingle_cli::embed::Told;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg,
    sendmsg, socketpair,
};

/// Something that has happened: its kind, a text of JSON, and a descriptor.
pub(crate) type Item = (&'static str, String, Option<RawFd>);

/// What has happened and was not taken yet, and whether a descriptor belongs to it.
type Items = Arc<Mutex<Vec<(&'static str, String, bool)>>>;

/// The end that Python reads.
pub(crate) struct Queue {
    items: Items,
    socket: Mutex<Option<OwnedFd>>,
}

/// The end that a thread writes.
pub(crate) struct Writer {
    items: Items,
    socket: OwnedFd,
}

impl Queue {
    pub(crate) fn new() -> io::Result<(Self, Writer)> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let items = Items::default();
        Ok((Self { items: items.clone(), socket: Mutex::new(Some(near)) }, Writer { items, socket: far }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        lock(&self.socket).as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Sends a word to the thread. Where there is none, the thread has ended.
    pub(crate) fn say(&self, word: &str, code: u8) {
        let code = [code];
        let packet = [IoSlice::new(&code), IoSlice::new(word.as_bytes())];
        let _ = sendmsg::<UnixAddr>(self.fd(), &packet, &[], MsgFlags::MSG_NOSIGNAL, None);
    }

    pub(crate) fn close(&self) {
        lock(&self.socket).take();
    }

    /// Takes all, each with its descriptor.
    pub(crate) fn take(&self) -> io::Result<Vec<Item>> {
        let mut items = lock(&self.items);
        let mut sent = VecDeque::new();
        loop {
            let mut byte = [0];
            let mut buffer = [IoSliceMut::new(&mut byte)];
            let mut space = nix::cmsg_space!(RawFd);
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            match recvmsg::<UnixAddr>(self.fd(), &mut buffer, Some(&mut space), flags) {
                Ok(message) => {
                    let more = message.cmsgs()?.filter_map(|part| match part {
                        ControlMessageOwned::ScmRights(more) => Some(more),
                        _ => None,
                    });
                    sent.extend(more.flatten());
                    if message.bytes == 0 {
                        break;
                    }
                }
                Err(Errno::EINTR) => {}
                // EAGAIN, or the thread has ended without reading: nothing more comes.
                Err(_) => break,
            }
        }
        let with = |(kind, text, has): (_, _, bool)| (kind, text, has.then(|| sent.pop_front()).flatten());
        Ok(items.drain(..).map(with).collect())
    }
}

impl Writer {
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// A copy of the socket, which becomes readable when Python asks for the end.
    pub(crate) fn socket(&self) -> io::Result<UnixStream> {
        self.socket.try_clone().map(UnixStream::from)
    }

    pub(crate) fn tell(&self, told: &Told) {
        let mut items = lock(&self.items);
        let fd = told.listener.as_ref().map(AsRawFd::as_raw_fd);
        let message = [ControlMessage::ScmRights(fd.as_slice())];
        let message = if fd.is_some() { &message[..] } else { &[] };
        // A socket that is readable already says that there is something to take, so few messages wait in it.
        let is_sent = (items.is_empty() || fd.is_some())
            && sendmsg::<UnixAddr>(self.fd(), &[IoSlice::new(b"!")], message, MsgFlags::MSG_NOSIGNAL, None)
                .is_ok();
        items.push((told.kind, told.what.to_string(), is_sent && fd.is_some()));
    }
}

/// No code panics while it holds the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
