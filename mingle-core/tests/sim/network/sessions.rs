//! What the processes at the ends of a connection do: they exchange hellos, and then frames.

use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::proto::testing::describe;
use mingle_core::proto::{ConnId, Ending, Ends, Failed, Frame, NodeId, Order, Time, Way};

use super::hosts::PORT;
use super::queue::Happening;
use super::tcp::{Segment, Stage};
use super::{Fact, Network};

/// The bytes of a hello, and of an acknowledgement alone.
const HELLO: usize = 108;
const ACKNOWLEDGEMENT: usize = 21;
/// How long a dial may take until both hellos have been read.
const OPENING: Duration = Duration::from_secs(10);
/// A stranger that opens sessions.
const STRANGER: NodeId = NodeId([0xee; 16]);

impl Network {
    /// A stranger that knows the job's tag opens a session with a host's node, and writes this frame.
    pub fn forge_at(&mut self, host: usize, frame: Frame, at: Time) {
        self.at(at, Happening::Forge(host, frame));
    }

    pub(super) fn forge(&mut self, host: usize, frame: Frame) {
        self.note(host, || format!("a stranger writes {}", describe(&frame)));
        self.next_connection += 1;
        let (conn, me) = (ConnId(self.next_connection), self.hosts[host].config.id);
        let local = self.hosts[host].config.node.endpoints[0].ip();
        let ends = Ends { local, remote: SocketAddr::from(([10, 9, 9, 9], PORT)).ip() };
        self.with(host, |node, now| {
            if let Some(own) = node.handle_asked(now, STRANGER, me) {
                node.handle_opened(now, STRANGER, Way::Accepted(ends), conn, (own, 0));
                let _ = node.handle_frame(now, conn, frame);
            }
        });
    }

    pub(super) fn carry(&mut self, host: usize, order: Order) {
        match order {
            Order::Dial { to, peer, dial, number } => {
                self.hosts[host].dials += 1;
                let conn = self.connect(host, to, (peer, dial, number));
                self.at(self.now + OPENING, Happening::DialExpires { conn });
            }
            Order::Write(conn, frame) => self.write(host, conn, frame),
            Order::Close(conn) => {
                if let Some(end) = self.end_of(host, conn) {
                    self.close(conn.0, end);
                }
            }
        }
    }

    /// The host that was dialled accepts the connection, or refuses it.
    pub(super) fn syn_answered(&mut self, conn: u64, target: usize) {
        match self.is_accepted(conn, target) {
            Some(true) => self.send(conn, 0, Segment::Hello, HELLO),
            Some(false) => {
                self.leave(conn, 0, Stage::Gone);
                self.dial_fails(conn, Failed::Refused);
            }
            None => {}
        }
    }

    pub(super) fn dial_expires(&mut self, conn: u64) {
        if self.end(conn, 0).stage == Stage::Opening {
            self.close(conn, 0);
            self.dial_fails(conn, Failed::Silent);
        }
    }

    fn dial_fails(&mut self, conn: u64, failed: Failed) {
        let connection = &self.connections[&conn];
        let (host, peer, dial) = (connection.ends[0].host, connection.peer, connection.dial);
        self.note(host, || format!("dial {conn}: {failed:?}"));
        self.with(host, |node, now| node.handle_dial_failed(now, peer, dial, failed));
    }

    fn write(&mut self, host: usize, conn: ConnId, frame: Frame) {
        let Some(end) = self.end_of(host, conn) else { return };
        let ConnId(conn) = conn;
        if self.end(conn, end).stage != Stage::Open {
            return;
        }
        self.hosts[host].frames += 1;
        self.hosts[host].frame_bytes += u64::try_from(frame.length()).unwrap();
        let reader = self.end(conn, 1 - end).id;
        self.check_written(host, reader, &frame);
        let length = frame.length();
        self.send(conn, end, Segment::Frame(frame), length);
    }

    /// The process at this end of a connection reads.
    pub(super) fn read(&mut self, conn: u64, end: usize, segment: Segment) {
        let (host, stage) = (self.end(conn, end).host, self.end(conn, end).stage);
        match (stage, end, segment) {
            (Stage::Opening, 1, Segment::Hello) => self.hello(conn),
            (Stage::Opening, 0, Segment::Answer) => self.answer(conn),
            (Stage::Opening, 1, Segment::First) => self.first(conn),
            (Stage::Open, _, Segment::Frame(frame)) => self.frame(conn, end, frame),
            (Stage::Opening | Stage::Open, _, Segment::End(ending)) => {
                match ending {
                    Ending::Closed => self.close(conn, end),
                    Ending::Broken => _ = self.leave(conn, end, Stage::Gone),
                }
                if stage == Stage::Open {
                    self.note(host, || format!("{conn}: {ending:?}"));
                    self.with(host, |node, now| node.handle_closed(now, ConnId(conn), ending));
                } else if end == 0 {
                    self.dial_fails(conn, Failed::Silent);
                }
            }
            _ => {}
        }
    }

    /// The hello has arrived. The process that is meant answers it.
    fn hello(&mut self, conn: u64) {
        let connection = &self.connections[&conn];
        let (dialer, acceptor, meant) = (&connection.ends[0], &connection.ends[1], connection.peer);
        let (from, host, is_target) = (dialer.id, acceptor.host, acceptor.id == meant);
        self.note(host, || format!("{conn}: hello of {from}"));
        let mut answer = None;
        self.with(host, |node, now| answer = node.handle_asked(now, from, meant));
        match answer {
            Some(number) => {
                self.connections.get_mut(&conn).unwrap().numbers[1] = number;
                self.send(conn, 1, Segment::Answer, HELLO);
                if !is_target {
                    self.broken.push(format!("{host} answers a hello that is another node's"));
                }
            }
            None => self.close(conn, 1),
        }
    }

    /// The answer to the hello has arrived: the connection is open for its dialer.
    fn answer(&mut self, conn: u64) {
        let connection = &self.connections[&conn];
        let (peer, dial, [own, theirs]) = (connection.peer, connection.dial, connection.numbers);
        let (host, acceptor, to) = (connection.ends[0].host, connection.ends[1].host, connection.to);
        self.end(conn, 0).stage = Stage::Open;
        self.kernel_sees_process(conn, 0);
        self.promises.proved.insert((host, self.hosts[host].life, to, acceptor));
        self.send(conn, 0, Segment::First, ACKNOWLEDGEMENT);
        self.note(host, || format!("{conn}: open to {peer}"));
        self.with(host, |node, now| {
            node.handle_opened(now, peer, Way::Dialled(dial), ConnId(conn), (own, theirs));
        });
    }

    /// The dialer's first frame has arrived: the connection is open for its acceptor.
    fn first(&mut self, conn: u64) {
        let connection = &self.connections[&conn];
        let (dialer, acceptor, [theirs, own]) =
            (&connection.ends[0], &connection.ends[1], connection.numbers);
        let (from, host, peer, to) = (dialer.host, acceptor.host, dialer.id, connection.to);
        let remote = self.source(from, to).unwrap_or(self.hosts[from].config.node.endpoints[0]).ip();
        self.end(conn, 1).stage = Stage::Open;
        self.kernel_sees_process(conn, 1);
        if self.are_near(from, host) {
            self.saw(Fact::Neighbours);
        }
        if self.hosts[from].translated.is_some() {
            self.saw(Fact::Translated);
        }
        self.note(host, || format!("{conn}: open from {peer}"));
        let way = Way::Accepted(Ends { local: to.ip(), remote });
        self.with(host, |node, now| node.handle_opened(now, peer, way, ConnId(conn), (own, theirs)));
    }

    fn frame(&mut self, conn: u64, end: usize, frame: Frame) {
        let ends = &self.connections[&conn].ends;
        let (host, writer) = (ends[end].host, ends[1 - end].id);
        self.note(host, || format!("{conn}: read {}", describe(&frame)));
        self.check_read(host, writer, &frame);
        let mut is_wrong = false;
        self.with(host, |node, now| is_wrong = node.handle_frame(now, ConnId(conn), frame).is_err());
        if is_wrong {
            self.broken.push(format!("{host} has read a frame that no node writes"));
        }
    }
}
