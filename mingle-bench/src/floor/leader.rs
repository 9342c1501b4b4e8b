//! The leader of the floor.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;

use super::paths::Paths;
use super::{COMMIT, DONE, GROUP, HERE, JOIN, PREPARE, READY, Repeat, WHO, group, message, receive, wait};

#[derive(Clone, Default)]
struct Member {
    address: Option<SocketAddr>,
    proved: bool,
    ready: bool,
    done: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Collecting,
    Preparing,
    Committing,
}

struct Leader {
    socket: UdpSocket,
    members: Vec<Member>,
    phase: Phase,
    paths: Paths,
}

/// Collects all members, prepares, commits, and ends once all know of the commit.
pub(super) fn lead(world: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    listener.set_nonblocking(true)?;
    let socket = UdpSocket::bind(listener.local_addr()?)?;
    socket.set_nonblocking(true)?;
    let group = group(None)?;
    let members = vec![Member::default(); usize::from(world) - 1];
    let mut leader = Leader { socket, members, phase: Phase::Collecting, paths: Paths::listen()? };
    leader.socket.send_to(&message(HERE, 0), GROUP)?;
    let mut streams: Vec<(TcpStream, Option<usize>)> = Vec::new();
    let mut repeat = Repeat::new();
    while leader.phase != Phase::Committing || leader.members.iter().any(|member| !member.done) {
        let mut read = vec![leader.socket.as_fd(), group.as_fd(), listener.as_fd()];
        read.extend(streams.iter().map(|(stream, _)| stream.as_fd()));
        read.extend(leader.paths.readers());
        let written: Vec<_> = leader.paths.writers().collect();
        wait(&read, &written, leader.paths.next().map_or(repeat.at, |next| next.min(repeat.at)))?;
        leader.paths.advance()?;
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true)?;
            streams.push((stream, None));
        }
        streams.retain_mut(|(stream, member)| leader.read(stream, member));
        while let Some((kind, rank, from)) = receive(&leader.socket).or_else(|| receive(&group)) {
            leader.handle(kind, rank, from)?;
        }
        if leader.advance() {
            if leader.phase == Phase::Preparing {
                leader.paths.start(0, world)?;
            }
            leader.send()?;
            repeat = Repeat::new();
        } else if repeat.due() {
            leader.send()?;
        }
    }
    Ok(())
}

impl Leader {
    /// Reads a token or the end of the connection, which counts as `DONE` after the commit. Returns whether
    /// the connection stays open.
    fn read(&mut self, stream: &mut TcpStream, member: &mut Option<usize>) -> bool {
        let mut token = [0; 2];
        match stream.read(&mut token) {
            Ok(2) => {
                let index = usize::from(u16::from_le_bytes(token)) - 1;
                self.members[index].proved = true;
                *member = Some(index);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            _ => {
                if let (Phase::Committing, Some(index)) = (self.phase, *member) {
                    self.members[index].done = true;
                }
                false
            }
        }
    }

    fn handle(&mut self, kind: u8, rank: u16, from: SocketAddr) -> io::Result<()> {
        if kind == WHO {
            return self.socket.send_to(&message(HERE, 0), from).map(drop);
        }
        let Some(member) = self.members.get_mut(usize::from(rank).wrapping_sub(1)) else { return Ok(()) };
        match kind {
            JOIN => member.address = Some(from),
            READY => member.ready = true,
            DONE => member.done = true,
            _ => {}
        }
        Ok(())
    }

    /// Begins the next phase if all members allow it. Returns whether it has begun.
    fn advance(&mut self) -> bool {
        let all = |test: fn(&Member) -> bool| self.members.iter().all(test);
        let next = match self.phase {
            Phase::Collecting if all(|member| member.address.is_some() && member.proved) => Phase::Preparing,
            Phase::Preparing if all(|member| member.ready) && self.paths.are_proved() => Phase::Committing,
            _ => return false,
        };
        self.phase = next;
        true
    }

    /// Sends the phase's message to each member that has not answered.
    fn send(&self) -> io::Result<()> {
        for (member, rank) in self.members.iter().zip(1..) {
            let kind = match self.phase {
                Phase::Preparing if !member.ready => PREPARE,
                Phase::Committing if !member.done => COMMIT,
                _ => continue,
            };
            if let Some(address) = member.address {
                self.socket.send_to(&message(kind, rank), address)?;
            }
        }
        Ok(())
    }
}
