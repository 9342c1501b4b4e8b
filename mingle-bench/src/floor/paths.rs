//! The paths of the floor: a connection to each other node, which carries two full segments and an answer.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use crate::lab::address;

/// Each node has a namespace of its own, so all have this port.
const PORT: u16 = 29600;
/// A token as long as mingle's, and two segments of 1,448 bytes.
const QUESTION: usize = 114 + 2 * 1448;
const ANSWER: [u8; 32] = [7; 32];
/// The first dials to a node that does not answer are this far apart, as mingle's.
const AGAIN: Duration = Duration::from_millis(20);
const HASTY: usize = 12;
const LATER: Duration = Duration::from_millis(500);

/// The paths from this node and to it.
pub(super) struct Paths {
    listener: TcpListener,
    /// Connections from others, with the number of bytes that each has carried.
    accepted: Vec<(TcpStream, usize)>,
    /// The nodes to which the path is not proved yet.
    left: Vec<Path>,
}

struct Path {
    host: usize,
    /// Connections, and whether the question was sent.
    open: Vec<(TcpStream, bool)>,
    dials: usize,
    next: Instant,
}

impl Paths {
    pub(super) fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, accepted: Vec::new(), left: Vec::new() })
    }

    /// Dials all nodes but this one.
    pub(super) fn start(&mut self, rank: u16, world: u16) -> io::Result<()> {
        let others = (0..world).filter(|&other| other != rank).map(usize::from);
        self.left =
            others.map(|host| Path { host, open: Vec::new(), dials: 0, next: Instant::now() }).collect();
        self.advance()
    }

    pub(super) fn are_proved(&self) -> bool {
        self.left.is_empty()
    }

    pub(super) fn readers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let accepted = self.accepted.iter().map(|(stream, _)| stream.as_fd());
        let asked = self.left.iter().flat_map(|path| &path.open).filter(|(_, asked)| *asked);
        [self.listener.as_fd()].into_iter().chain(accepted).chain(asked.map(|(stream, _)| stream.as_fd()))
    }

    pub(super) fn writers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let dialled = self.left.iter().flat_map(|path| &path.open).filter(|(_, asked)| !asked);
        dialled.map(|(stream, _)| stream.as_fd())
    }

    /// When the next dial is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.left.iter().map(|path| path.next).min()
    }

    /// Does all that can be done without waiting.
    pub(super) fn advance(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            self.accepted.push((stream, 0));
        }
        let mut buffer = [0; 4096];
        self.accepted.retain_mut(|(stream, carried)| match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(read) => {
                *carried += read;
                *carried < QUESTION || stream.write_all(&ANSWER).is_ok()
            }
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        let mut left = std::mem::take(&mut self.left);
        left.retain_mut(|path| !path.is_proved());
        self.left = left;
        let now = Instant::now();
        self.left.iter_mut().filter(|path| path.next <= now).try_for_each(Path::dial)
    }
}

impl Path {
    fn dial(&mut self) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        let to = std::net::SocketAddr::from((address(self.host), PORT));
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(nix::libc::EINPROGRESS) => return Err(error),
            _ => self.open.push((socket.into(), false)),
        }
        self.dials += 1;
        if self.open.len() > HASTY {
            self.open.remove(0);
        }
        self.next = Instant::now() + if self.dials < HASTY { AGAIN } else { LATER };
        Ok(())
    }

    /// Sends the question where a connection is open. Returns whether an answer has arrived.
    fn is_proved(&mut self) -> bool {
        let mut answer = [0; ANSWER.len()];
        for (stream, asked) in &mut self.open {
            if !*asked {
                *asked = stream.write_all(&[0; QUESTION]).is_ok();
            } else if stream.read_exact(&mut answer).is_ok() && answer == ANSWER {
                // As in mingle, the connection ends by a reset.
                return SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).is_ok();
            }
        }
        false
    }
}
