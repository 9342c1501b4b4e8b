//! The floor of many nodes within one process, one after the other. A datagram to a loopback address arrives
//! as soon as it is sent, so no node waits.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::{COMMIT, DONE, GROUP, HERE, JOIN, PREPARE, READY, group, message, receive};
use crate::parts::loopback::address;

const LOOPBACK: u32 = 1;

struct Member {
    socket: UdpSocket,
    group: UdpSocket,
    /// Both ends of the connection.
    connection: Option<(TcpStream, TcpStream)>,
}

/// Forms a world of this many nodes. Each has an address in 127.0.0.0/8, a connection to the first node, and
/// a membership in the group.
///
/// # Errors
/// If a system call fails, for example because too many files are open.
pub fn within(nodes: u32) -> io::Result<Duration> {
    let begun = Instant::now();
    let (leader, listener) = leader()?;
    let to = leader.local_addr()?;
    let mut members = (1..nodes).map(member).collect::<io::Result<Vec<_>>>()?;
    leader.send_to(&message(HERE, 0), GROUP)?;
    for (member, number) in members.iter_mut().zip(1..) {
        expect(&member.group, HERE)?;
        member.connection = Some(connect(&listener, number, to)?);
        member.socket.send_to(&message(JOIN, 0), to)?;
        expect(&leader, JOIN)?;
    }
    for (question, answer) in [(PREPARE, READY), (COMMIT, DONE)] {
        for member in &members {
            leader.send_to(&message(question, 0), member.socket.local_addr()?)?;
            expect(&member.socket, question)?;
            member.socket.send_to(&message(answer, 0), to)?;
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
    match receive(socket) {
        Some((heard, ..)) if heard == kind => Ok(()),
        _ => Err(io::Error::other("a datagram to a loopback address is lost")),
    }
}
