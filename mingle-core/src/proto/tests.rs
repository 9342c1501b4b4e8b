//! Nodes that have numbers, for the tests of several parts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};

use super::{ConnId, Ending, Ends, Node, Order, Output, Time, Way};
use crate::model::{HostName, JobId, JobTag, Member, Metadata, NodeId, Rank};
use crate::wire::{Codec, Frame, Said};

pub(super) fn tag() -> JobTag {
    "numbered".parse::<JobId>().unwrap().tag()
}

pub(super) fn codec() -> Codec {
    Codec::new(tag(), None)
}

pub(super) fn id(node: u8) -> NodeId {
    NodeId([node; 16])
}

pub(super) fn endpoint(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 29500))
}

/// Node `node`, counted from 1, in a world in which the nodes have their ranks in the order of their numbers.
pub(super) fn seat(node: u8) -> Member {
    Member {
        rank: Rank(u32::from(node) - 1),
        id: id(node),
        host: HostName::new("host"),
        address: endpoint(node),
        slots: 1,
        metadata: Metadata::default(),
        session_port: 41_877,
    }
}

/// A node, and the other ends of its sessions: node `n` has the connection `n`, and acknowledges at once what
/// it is told, unless it is mute.
pub(super) struct Hand {
    node: Node,
    me: u8,
    now: Time,
    pub(super) mute: BTreeSet<u8>,
    frames: u64,
    /// The number of the last frame on each connection.
    written: BTreeMap<ConnId, u64>,
    open: BTreeSet<ConnId>,
}

impl Deref for Hand {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl DerefMut for Hand {
    fn deref_mut(&mut self) -> &mut Node {
        &mut self.node
    }
}

impl Hand {
    pub(super) fn new(node: Node, me: u8) -> Self {
        Self {
            node,
            me,
            now: Time::ZERO,
            mute: BTreeSet::new(),
            frames: 0,
            written: BTreeMap::new(),
            open: BTreeSet::new(),
        }
    }

    pub(super) fn outputs(&mut self) -> Vec<Output> {
        let mut all = Vec::new();
        while let Some(output) = self.node.poll_output() {
            match &output {
                Output::Carry(Order::Write(conn, frame)) if frame.number > 0 => {
                    self.written.insert(*conn, frame.number);
                    if !self.mute.contains(&u8::try_from(conn.0).unwrap()) {
                        let read = Frame::acknowledgement(frame.number);
                        self.node.handle_frame(self.now, *conn, read).unwrap();
                    }
                }
                Output::Carry(Order::Close(conn)) => _ = self.open.remove(conn),
                _ => {}
            }
            all.push(output);
        }
        all
    }

    /// Lets the time pass until `until`. Returns what the node does meanwhile.
    pub(super) fn run(&mut self, until: Time) -> Vec<Output> {
        let mut all = self.outputs();
        while let Some(at) = self.node.poll_timeout().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.node.handle_timeout(at);
            all.extend(self.outputs());
        }
        self.now = self.now.max(until);
        // No input, but its time counts.
        self.node.handle_timeout(until);
        all.extend(self.outputs());
        all
    }

    /// The session with this node is open: by the first of these dials to it, or else by its own dial.
    pub(super) fn open(&mut self, now: Time, peer: u8, outputs: &[Output]) {
        let conn = ConnId(peer.into());
        self.now = self.now.max(now);
        if !self.open.insert(conn) {
            return;
        }
        self.written.remove(&conn);
        let dialled = outputs.iter().find_map(|output| match output {
            Output::Carry(Order::Dial { peer: to, dial, number, .. }) if *to == id(peer) => {
                Some((Way::Dialled(*dial), *number))
            }
            _ => None,
        });
        let ends = Ends { local: endpoint(self.me).ip(), remote: endpoint(peer).ip() };
        let accepted = || {
            let number = self.node.handle_asked(now, id(peer), id(self.me));
            (Way::Accepted(ends), number.expect("it is answered"))
        };
        let (way, number) = dialled.unwrap_or_else(accepted);
        self.node.handle_opened(now, id(peer), way, conn, (number, u64::from(peer)));
    }

    /// Node `peer` says this on its session, which it opens if it is not open.
    pub(super) fn say(&mut self, now: Time, peer: u8, said: &Said) -> Vec<Output> {
        self.open(now, peer, &[]);
        let mut all = self.outputs();
        let conn = ConnId(peer.into());
        self.frames += 1;
        let body = said.encode();
        let is_mute = self.mute.contains(&peer);
        let read = self.written.get(&conn).copied().filter(|_| !is_mute).unwrap_or_default();
        let frame = Frame { number: self.frames, read, body };
        self.node.handle_frame(now, conn, frame).unwrap();
        all.extend(self.outputs());
        all
    }

    /// Node `peer` has read all that it was told.
    pub(super) fn acknowledge(&mut self, now: Time, peer: u8) -> Vec<Output> {
        self.now = self.now.max(now);
        let conn = ConnId(peer.into());
        let read = self.written.get(&conn).copied().unwrap_or_default();
        self.node.handle_frame(now, conn, Frame::acknowledgement(read)).unwrap();
        self.outputs()
    }

    /// The process of node `peer` has ended, or its connection was reset.
    pub(super) fn close(&mut self, now: Time, peer: u8, ending: Ending) -> Vec<Output> {
        let conn = ConnId(peer.into());
        self.open.remove(&conn);
        self.now = self.now.max(now);
        self.node.handle_closed(now, conn, ending);
        self.outputs()
    }
}

/// What was said on sessions, and to whom.
pub(super) fn said(outputs: &[Output]) -> Vec<(u8, Said)> {
    let said = outputs.iter().filter_map(|output| match output {
        Output::Carry(Order::Write(ConnId(conn), frame)) if frame.number > 0 => {
            Some((u8::try_from(*conn).unwrap(), Said::decode(&frame.body).unwrap()))
        }
        _ => None,
    });
    said.collect()
}
