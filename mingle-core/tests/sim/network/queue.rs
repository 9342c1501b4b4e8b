//! What will happen, in the order of (time, sequence).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use mingle_core::End;
use mingle_core::proto::Time;

/// A datagram on its way; the copies of a multicast share one.
#[derive(Debug)]
pub struct Packet {
    pub from: SocketAddr,
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
pub enum Happening {
    Start(usize),
    /// Nothing passes from the first to the second any more, or everything again.
    Cut(usize, usize, bool),
    /// A datagram of a stranger's.
    Forge(usize, u8, Vec<u8>),
    Replay(usize, Vec<u8>),
    /// The connections that a host has dialled are reset towards it, and not towards the others.
    Break(usize),
    /// A host's names resolve to these.
    Seeds(usize, Vec<SocketAddr>),
    /// An address appears on a host, or vanishes.
    Address(usize, IpAddr, bool),
    /// The process is stopped (SIGSTOP), or goes on.
    Pause(usize),
    Resume(usize),
    Kill(usize),
    /// A command ends: well, or not.
    Command(usize, Option<End>),
    /// A command that had to stop has done so.
    Stopped(usize),
    Wake(usize, Time),
    Datagram {
        to: usize,
        life: u32,
        packet: Rc<Packet>,
    },
    /// A SYN arrives, or its repeat.
    Syn {
        conn: u64,
    },
    Dialed {
        conn: u64,
    },
    Token {
        conn: u64,
    },
    /// The side that accepted learns of the end.
    Closed {
        conn: u64,
    },
    /// The side that dialled learns of the end.
    HungUp {
        conn: u64,
    },
}

#[derive(Debug)]
struct Entry {
    time: Time,
    sequence: u64,
    happening: Happening,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.sequence).cmp(&(other.time, other.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

#[derive(Debug, Default)]
pub struct Queue {
    entries: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
}

impl Queue {
    pub fn push(&mut self, time: Time, happening: Happening) {
        self.sequence += 1;
        self.entries.push(Reverse(Entry { time, sequence: self.sequence, happening }));
    }

    pub fn pop(&mut self) -> Option<(Time, Happening)> {
        self.entries.pop().map(|Reverse(entry)| (entry.time, entry.happening))
    }

    /// When the next thing happens.
    pub fn next(&self) -> Option<Time> {
        self.entries.peek().map(|Reverse(entry)| entry.time)
    }
}
