//! A node that joins.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::{COMMIT, DONE, GROUP, HERE, JOIN, PREPARE, READY, Repeat, WHO, group, hear, wait, word};

const DIALS: usize = 12;
const BETWEEN_DIALS: Duration = Duration::from_millis(60);

struct Follower {
    rank: u16,
    socket: UdpSocket,
    leader: Option<SocketAddr>,
    prepared: bool,
    /// Connections that do not stand yet.
    dialled: Vec<TcpStream>,
    /// Those that have brought their token.
    running: Vec<TcpStream>,
    dialled_at: Instant,
}

/// Joins, is ready, and goes with the commit.
pub(super) fn follow(rank: u16) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_nonblocking(true)?;
    let group = group(None)?;
    let mut follower = Follower {
        rank,
        socket,
        leader: None,
        prepared: false,
        dialled: Vec::new(),
        running: Vec::new(),
        dialled_at: Instant::now(),
    };
    follower.speak()?;
    let mut repeat = Repeat::new();
    loop {
        let sockets = [follower.socket.as_fd(), group.as_fd()];
        let dialled: Vec<_> = follower.dialled.iter().map(AsFd::as_fd).collect();
        let racing = follower.leader.is_some() && !follower.prepared;
        let until = if racing { repeat.at.min(follower.dialled_at + BETWEEN_DIALS) } else { repeat.at };
        wait(&sockets, &dialled, until)?;
        follower.prove();
        while let Some((kind, _, from)) = hear(&follower.socket).or_else(|| hear(&group)) {
            match kind {
                HERE if follower.leader.is_none() => {
                    follower.leader = Some(from);
                    follower.dial(from)?;
                }
                PREPARE if !follower.prepared => follower.prepared = true,
                COMMIT => return follower.leave(from),
                _ => continue,
            }
            follower.speak()?;
            repeat = Repeat::new();
        }
        if repeat.due() {
            follower.speak()?;
        }
        if let Some(leader) = follower.leader
            && racing
            && Instant::now() >= follower.dialled_at + BETWEEN_DIALS
            && follower.dialled.len() + follower.running.len() < DIALS
        {
            follower.dial(leader)?;
        }
    }
}

impl Follower {
    /// Says what is to be said now.
    fn speak(&self) -> io::Result<()> {
        match self.leader {
            None => self.say(WHO, GROUP.into()),
            Some(leader) => self.say(if self.prepared { READY } else { JOIN }, leader),
        }
    }

    fn say(&self, kind: u8, to: SocketAddr) -> io::Result<()> {
        self.socket.send_to(&word(kind, self.rank), to).map(drop)
    }

    /// Three times, since nobody is here to be asked again; the end of the connection would tell as well, but its
    /// segment may be lost, and is repeated after 200 ms.
    fn leave(&self, leader: SocketAddr) -> io::Result<()> {
        (0..3).try_for_each(|_| self.say(DONE, leader))
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

    /// Sends the token on connections that stand.
    fn prove(&mut self) {
        let token = self.rank.to_le_bytes();
        let (running, dialled) =
            self.dialled.drain(..).partition(|mut stream| stream.write_all(&token).is_ok());
        self.dialled = dialled;
        self.running.extend::<Vec<_>>(running);
    }
}
