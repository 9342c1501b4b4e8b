//! What will happen, ordered by (time, sequence).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::vec;

use mingle_core::proto::{Frame, PathNews, Time};

use super::tcp::Segment;

/// A datagram on its way; the copies of a multicast share one.
#[derive(Debug)]
pub struct Packet {
    pub from: SocketAddr,
    pub bytes: Vec<u8>,
}

/// One of the copies of a datagram: when it arrives, at which host, in which of its lives.
#[derive(Debug)]
pub struct Arrival {
    pub at: Time,
    pub to: usize,
    pub life: u32,
}

#[derive(Debug)]
pub enum Happening {
    Start(usize),
    /// Nothing passes from the first host to the second any more, or all does again.
    Cut(usize, usize, bool),
    /// A stranger opens a session with the node of a host, and writes this frame.
    Forge(usize, Frame),
    /// A recorded datagram arrives.
    Replay(usize, Vec<u8>),
    /// The connections that a host has dialled are reset towards it, and not towards their acceptors.
    Break(usize),
    /// A host's seeds resolve to these endpoints.
    Seeds(usize, Vec<SocketAddr>),
    /// An address appears on a host, or vanishes.
    Address(usize, IpAddr, bool),
    /// The process is stopped (SIGSTOP).
    Pause(usize),
    /// The process goes on (SIGCONT).
    Resume(usize),
    Kill(usize),
    /// The host loses power: its processes are gone, and nothing tells the others.
    PowerLoss(usize),
    /// The host's kernel runs again.
    PowerOn(usize),
    /// The kernel at this end of a connection probes the other end, whose host has lost power.
    Probe {
        conn: u64,
        end: usize,
        number: u32,
    },
    /// Nothing has passed between the ends of a connection since a cut of that time, if it still lasts: the
    /// kernel at this end gives the connection up.
    Starved {
        conn: u64,
        end: usize,
        since: Time,
    },
    /// The kernel at this end of a connection gives it up.
    GiveUp {
        conn: u64,
        end: usize,
    },
    /// The timeout that a node has asked for.
    Wake(usize, Time),
    Datagram {
        to: usize,
        life: u32,
        packet: Rc<Packet>,
    },
    /// The kernel repeats a SYN.
    Syn {
        conn: u64,
    },
    /// The same of a connection that proves a path.
    PathSyn {
        path: u64,
    },
    /// Something has happened on a connection that proves a path.
    Path {
        path: u64,
        news: PathNews,
    },
    /// The answer to a SYN arrives, which has reached this host.
    SynAnswered {
        conn: u64,
        target: usize,
    },
    /// A dial has taken too long.
    DialExpires {
        conn: u64,
    },
    /// What is due next at this end of a connection arrives at its kernel.
    Arrive {
        conn: u64,
        end: usize,
    },
    /// The process at this end of a connection reads.
    Read {
        conn: u64,
        end: usize,
        segment: Segment,
    },
}

#[derive(Debug)]
struct Entry {
    time: Time,
    sequence: u64,
    happening: Happening,
    /// The further copies of a datagram, the next one first. A multicast to 10,000 nodes is one entry and not
    /// 10,000.
    further: vec::IntoIter<Arrival>,
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
        self.enter(time, happening, Vec::new().into_iter());
    }

    /// Enters the copies of a datagram. Copies that arrive at the same time keep their order.
    pub fn push_copies(&mut self, packet: Rc<Packet>, mut arrivals: Vec<Arrival>) {
        arrivals.sort_by_key(|arrival| arrival.at);
        let mut arrivals = arrivals.into_iter();
        if let Some(Arrival { at, to, life }) = arrivals.next() {
            self.enter(at, Happening::Datagram { to, life, packet }, arrivals);
        }
    }

    fn enter(&mut self, time: Time, happening: Happening, further: vec::IntoIter<Arrival>) {
        self.sequence += 1;
        self.entries.push(Reverse(Entry { time, sequence: self.sequence, happening, further }));
    }

    pub fn pop(&mut self) -> Option<(Time, Happening)> {
        let mut top = self.entries.peek_mut()?;
        let Reverse(entry) = &mut *top;
        if let Happening::Datagram { packet, .. } = &entry.happening
            && let Some(Arrival { at, to, life }) = entry.further.next()
        {
            let next = Happening::Datagram { to, life, packet: Rc::clone(packet) };
            return Some((mem::replace(&mut entry.time, at), mem::replace(&mut entry.happening, next)));
        }
        let Reverse(entry) = PeekMut::pop(top);
        Some((entry.time, entry.happening))
    }

    /// The time of what happens next.
    pub fn next(&self) -> Option<Time> {
        self.entries.peek().map(|Reverse(entry)| entry.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_arrive_in_the_order_of_their_times_and_then_of_their_sending() {
        let ms = Time::from_millis;
        let mut queue = Queue::default();
        queue.push(ms(3), Happening::Start(30));
        let to = |to, at| Arrival { at: ms(at), to, life: 1 };
        let packet = Rc::new(Packet { from: SocketAddr::from(([10, 0, 0, 1], 1)), bytes: Vec::new() });
        queue.push_copies(packet, vec![to(50, 5), to(20, 2), to(31, 3), to(21, 2)]);
        queue.push(ms(2), Happening::Start(22));
        let mut order = Vec::new();
        while let Some((time, happening)) = queue.pop() {
            let (Happening::Start(host) | Happening::Datagram { to: host, .. }) = happening else {
                panic!("{happening:?}")
            };
            order.push((time, host));
        }
        assert_eq!(order, [(ms(2), 20), (ms(2), 21), (ms(2), 22), (ms(3), 30), (ms(3), 31), (ms(5), 50)]);
    }
}
