//! A follower of the floor.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::paths::Paths;
use super::{COMMIT, DONE, GROUP, HERE, JOIN, PREPARE, READY, Repeat, WHO, group, message, receive, wait};

const DIALS: usize = 12;
const BETWEEN_DIALS: Duration = Duration::from_millis(40);

struct Follower {
    rank: u16,
    socket: UdpSocket,
    leader: Option<SocketAddr>,
    prepared: bool,
    world: u16,
    paths: Paths,
    /// Connections that are not established yet.
    dialled: Vec<TcpStream>,
    /// Connections on which the token was sent.
    established: Vec<TcpStream>,
    dialled_at: Instant,
}

/// Joins the leader, becomes ready, and ends with the commit.
pub(super) fn follow(rank: u16, world: u16) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_nonblocking(true)?;
    let group = group(None)?;
    let mut follower = Follower {
        rank,
        socket,
        leader: None,
        prepared: false,
        world,
        paths: Paths::listen()?,
        dialled: Vec::new(),
        established: Vec::new(),
        dialled_at: Instant::now(),
    };
    follower.send_current()?;
    let mut repeat = Repeat::new();
    loop {
        let mut sockets = vec![follower.socket.as_fd(), group.as_fd()];
        sockets.extend(follower.paths.readers());
        let dialled: Vec<_> =
            follower.dialled.iter().map(AsFd::as_fd).chain(follower.paths.writers()).collect();
        let racing = follower.leader.is_some() && !follower.prepared;
        let until = if racing { repeat.at.min(follower.dialled_at + BETWEEN_DIALS) } else { repeat.at };
        wait(&sockets, &dialled, follower.paths.next().map_or(until, |next| next.min(until)))?;
        follower.prove();
        let was_ready = follower.is_ready();
        follower.paths.advance()?;
        if follower.is_ready() && !was_ready {
            follower.send_current()?;
        }
        while let Some((kind, _, from)) = receive(&follower.socket).or_else(|| receive(&group)) {
            match kind {
                HERE if follower.leader.is_none() => {
                    follower.leader = Some(from);
                    follower.dial(from)?;
                }
                PREPARE if !follower.prepared => {
                    follower.prepared = true;
                    follower.paths.start(follower.rank, follower.world)?;
                }
                COMMIT => return follower.leave(from),
                _ => continue,
            }
            follower.send_current()?;
            repeat = Repeat::new();
        }
        if repeat.due() {
            follower.send_current()?;
        }
        if let Some(leader) = follower.leader
            && racing
            && Instant::now() >= follower.dialled_at + BETWEEN_DIALS
            && follower.dialled.len() + follower.established.len() < DIALS
        {
            follower.dial(leader)?;
        }
    }
}

impl Follower {
    /// Sends the message of the current phase.
    fn send_current(&self) -> io::Result<()> {
        match self.leader {
            None => self.send(WHO, GROUP.into()),
            Some(leader) if !self.prepared => self.send(JOIN, leader),
            Some(leader) if self.is_ready() => self.send(READY, leader),
            Some(_) => Ok(()),
        }
    }

    fn is_ready(&self) -> bool {
        self.prepared && self.paths.are_proved()
    }

    fn send(&self, kind: u8, to: SocketAddr) -> io::Result<()> {
        self.socket.send_to(&message(kind, self.rank), to).map(drop)
    }

    /// Sends `DONE` three times, since this process ends and cannot repeat it later. The end of the
    /// connection says the same, but its segment may be lost and is repeated only after 200 ms.
    fn leave(&self, leader: SocketAddr) -> io::Result<()> {
        (0..3).try_for_each(|_| self.send(DONE, leader))
    }

    fn dial(&mut self, to: SocketAddr) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(nix::libc::EINPROGRESS) => return Err(error),
            _ => self.dialled.push(socket.into()),
        }
        self.dialled_at = Instant::now();
        Ok(())
    }

    /// Sends the token on established connections.
    fn prove(&mut self) {
        let token = self.rank.to_le_bytes();
        let (established, dialled) =
            self.dialled.drain(..).partition(|mut stream| stream.write_all(&token).is_ok());
        self.dialled = dialled;
        self.established.extend::<Vec<_>>(established);
    }
}
