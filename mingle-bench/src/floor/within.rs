//! The same of many nodes within one process, one after the other: a word to a loopback address has arrived when it has
//! been sent, so nothing waits.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::{COMMIT, DONE, GROUP, HERE, JOIN, PREPARE, READY, group, hear, word};
use crate::parts::loopback::address;

const LOOPBACK: u32 = 1;

struct Member {
    socket: UdpSocket,
    group: UdpSocket,
    /// Both ends of the connection.
    connection: Option<(TcpStream, TcpStream)>,
}

/// Forms a world of so many nodes, each with its address in 127.0.0.0/8, a connection to the first, and a membership in
/// the group.
///
/// # Errors
/// Where the kernel refuses something, such as so many open files.
pub fn within(nodes: u32) -> io::Result<Duration> {
    let begun = Instant::now();
    let (leader, listener) = leader()?;
    let to = leader.local_addr()?;
    let mut members = (1..nodes).map(member).collect::<io::Result<Vec<_>>>()?;
    leader.send_to(&word(HERE, 0), GROUP)?;
    for (member, number) in members.iter_mut().zip(1..) {
        expect(&member.group, HERE)?;
        member.connection = Some(connect(&listener, number, to)?);
        member.socket.send_to(&word(JOIN, 0), to)?;
        expect(&leader, JOIN)?;
    }
    for (question, answer) in [(PREPARE, READY), (COMMIT, DONE)] {
        for member in &members {
            leader.send_to(&word(question, 0), member.socket.local_addr()?)?;
            expect(&member.socket, question)?;
            member.socket.send_to(&word(answer, 0), to)?;
            expect(&leader, answer)?;
        }
    }
    drop(members);
    Ok(begun.elapsed())
}

fn leader() -> io::Result<(UdpSocket, Socket)> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&SocketAddr::from((address(0), 0)).into())?;
    listener.listen(4096)?;
    let at = listener.local_addr()?.as_socket_ipv4().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let leader = UdpSocket::bind(at)?;
    SockRef::from(&leader).set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
    Ok((leader, listener))
}

fn member(number: u32) -> io::Result<Member> {
    let socket = UdpSocket::bind((address(number), 0))?;
    Ok(Member { socket, group: group(Some(LOOPBACK))?, connection: None })
}

fn connect(listener: &Socket, number: u32, to: SocketAddr) -> io::Result<(TcpStream, TcpStream)> {
    let dialler = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    dialler.bind(&SocketAddr::from((address(number), 0)).into())?;
    dialler.connect(&to.into())?;
    let (mut dialled, mut accepted): (TcpStream, TcpStream) = (dialler.into(), listener.accept()?.0.into());
    dialled.write_all(&number.to_le_bytes())?;
    accepted.read_exact(&mut [0; 4])?;
    Ok((dialled, accepted))
}

fn expect(socket: &UdpSocket, kind: u8) -> io::Result<()> {
    match hear(socket) {
        Some((heard, ..)) if heard == kind => Ok(()),
        _ => Err(io::Error::other("a word to a loopback address is lost")),
    }
}
