//! Every order of events of a small session: the real state machine at both ends, connections between them,
//! and a bounded number of faults.
//!
//! Whatever is under way may happen next: a process says its next state, a dial is accepted, a hello is
//! answered, a frame or the end of a connection arrives. So each connection stalls for as long as any other
//! event takes, and a process that does nothing while all others go on is one that is stopped. As often as
//! the budget says, a timer fires although something is under way, a dial fails, and a connection breaks: for
//! one end at once, with all that is under way on it, and for the other end whenever that learns of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;

const PATIENCE: Duration = Duration::from_millis(60);
const NAMES: [&str; 2] = ["leader", "member"];

#[derive(Debug, Clone, Copy)]
struct Budget {
    early_timers: u32,
    failed_dials: u32,
    breaks: u32,
}

/// What is under way to one end of a connection.
#[derive(Debug, Clone)]
enum Segment {
    Frame(Frame),
    End,
}

#[derive(Debug, Clone)]
struct Wire {
    /// The dial that the dialer has not seen answered yet, with the dialer.
    unanswered: Option<(usize, DialId)>,
    open: [bool; 2],
    to: [VecDeque<Segment>; 2],
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Says(usize),
    Accepts { from: usize, dial: DialId },
    Refuses { from: usize, dial: DialId },
    Answered(u64),
    Arrives { at: usize, conn: u64 },
    Breaks { at: usize, conn: u64 },
    Timer(usize),
}

/// All that decides what can happen from here on.
#[derive(Debug, Clone)]
struct State {
    now: Time,
    budget: Budget,
    ends: [SessionEnd; 2],
    /// The kinds that each end has said, by number, and those that it will say.
    said: [Vec<u8>; 2],
    to_say: [VecDeque<u8>; 2],
    /// The number of the last frame that each end was given to read.
    read: [u64; 2],
    dials: BTreeSet<(usize, DialId)>,
    wires: BTreeMap<u64, Wire>,
    next_wire: u64,
}

impl State {
    fn new(budget: Budget, to_say: [&[u8]; 2]) -> Self {
        let ends = [true, false].map(|closes| SessionEnd::new(closes, PATIENCE));
        let mut state = Self {
            now: Time::ZERO,
            budget,
            ends,
            said: Default::default(),
            to_say: to_say.map(|kinds| kinds.iter().copied().collect()),
            read: [0, 0],
            dials: BTreeSet::new(),
            wires: BTreeMap::new(),
            next_wire: 0,
        };
        state.ends[1].advance(Time::ZERO);
        state.carry_out();
        state
    }

    /// What may happen next.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for end in 0..2 {
            // The leader doesn't know the member before its first connection.
            if !self.to_say[end].is_empty() && (end == 1 || self.next_wire > 0) {
                steps.push(Step::Says(end));
            }
        }
        for &(from, dial) in &self.dials {
            steps.push(Step::Accepts { from, dial });
            if self.budget.failed_dials > 0 {
                steps.push(Step::Refuses { from, dial });
            }
        }
        for (&conn, wire) in &self.wires {
            if wire.unanswered.is_some() {
                steps.push(Step::Answered(conn));
            }
            for at in 0..2 {
                if !wire.to[at].is_empty() && wire.open[at] {
                    steps.push(Step::Arrives { at, conn });
                }
                if self.budget.breaks > 0 && wire.open == [true, true] {
                    steps.push(Step::Breaks { at, conn });
                }
            }
        }
        let timers = (0..2).filter(|&end| self.ends[end].poll_timeout().is_some());
        if steps.is_empty() {
            let next = timers.min_by_key(|&end| self.ends[end].poll_timeout());
            steps.extend(next.map(Step::Timer));
        } else if self.budget.early_timers > 0 {
            steps.extend(timers.map(Step::Timer));
        }
        steps
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let is_under_way = self.steps() != [step.clone()];
        match *step {
            Step::Says(end) => {
                let kind = self.to_say[end].pop_front().unwrap();
                self.said[end].push(kind);
                let number = u8::try_from(self.said[end].len()).unwrap();
                self.ends[end].say(self.now, [kind, number].into());
            }
            Step::Accepts { from, dial } => {
                self.dials.remove(&(from, dial));
                let mut open = [true, true];
                open[from] = false;
                self.next_wire += 1;
                let wire = Wire { unanswered: Some((from, dial)), open, to: Default::default() };
                self.wires.insert(self.next_wire, wire);
                self.ends[1 - from].opened(self.now, None, ConnId(self.next_wire));
            }
            Step::Refuses { from, dial } => {
                self.budget.failed_dials -= 1;
                self.dials.remove(&(from, dial));
                self.ends[from].dial_failed(self.now, dial);
            }
            Step::Answered(conn) => {
                let wire = self.wires.get_mut(&conn).unwrap();
                let (from, dial) = wire.unanswered.take().unwrap();
                wire.open[from] = true;
                self.ends[from].opened(self.now, Some(dial), ConnId(conn));
            }
            Step::Arrives { at, conn } => self.arrives(at, conn)?,
            Step::Breaks { at, conn } => {
                self.budget.breaks -= 1;
                let wire = self.wires.get_mut(&conn).unwrap();
                wire.to = Default::default();
                self.close(at, conn);
                self.ends[at].closed(self.now, ConnId(conn));
            }
            Step::Timer(end) => {
                if is_under_way {
                    self.budget.early_timers -= 1;
                }
                self.now = self.now.max(self.ends[end].poll_timeout().unwrap());
                self.ends[end].advance(self.now);
            }
        }
        self.carry_out();
        self.check()
    }

    fn arrives(&mut self, at: usize, conn: u64) -> Result<(), String> {
        let wire = self.wires.get_mut(&conn).unwrap();
        let frame = match wire.to[at].pop_front().unwrap() {
            Segment::Frame(frame) => frame,
            Segment::End => {
                wire.open[at] = false;
                self.ends[at].closed(self.now, ConnId(conn));
                return Ok(());
            }
        };
        let received = self.ends[at].receive(self.now, ConnId(conn), frame);
        let Some(frame) = received.map_err(|_| "an honest frame is impossible")? else { return Ok(()) };
        let said = &self.said[1 - at];
        let (number, last) = (frame.number, self.read[at]);
        self.read[at] = number;
        let kind_of = |number: u64| said[usize::try_from(number).unwrap() - 1];
        if number <= last || frame.body[0] != kind_of(number) || u64::from(frame.body[1]) != number {
            return Err(format!("the {} reads {frame:?} after {last}", NAMES[at]));
        }
        // What it passes over was replaced by something that was said later.
        let newest = u64::try_from(said.len()).unwrap();
        for passed in last + 1..number {
            if !(passed + 1..=newest).any(|later| kind_of(later) == kind_of(passed)) {
                return Err(format!("the {} reads {number} and will never read {passed}", NAMES[at]));
            }
        }
        Ok(())
    }

    fn close(&mut self, at: usize, conn: u64) {
        let wire = self.wires.get_mut(&conn).unwrap();
        wire.open[at] = false;
        wire.to[at].clear();
        wire.to[1 - at].push_back(Segment::End);
    }

    fn carry_out(&mut self) {
        for end in 0..2 {
            while let Some(output) = self.ends[end].poll_output() {
                match output {
                    SessionOutput::Dial(dial) => {
                        self.dials.insert((end, dial));
                    }
                    // The driver may have read the end of a connection before it writes to it.
                    SessionOutput::Write(ConnId(conn), frame) => {
                        if let Some(wire) = self.wires.get_mut(&conn).filter(|wire| wire.open[end]) {
                            wire.to[1 - end].push_back(Segment::Frame(frame));
                        }
                    }
                    SessionOutput::Close(ConnId(conn)) => self.close(end, conn),
                }
            }
        }
        self.wires.retain(|_, wire| wire.open != [false, false] || wire.unanswered.is_some());
    }

    fn check(&self) -> Result<(), String> {
        for (end, session) in self.ends.iter().enumerate() {
            let kinds: BTreeSet<u8> = session.waiting.iter().map(|frame| kind_of(&frame.body)).collect();
            if kinds.len() < session.waiting.len() {
                return Err(format!("two states of one kind wait at the {}", NAMES[end]));
            }
            if session.connections.len() > MOST || session.dials.len() > MOST {
                return Err(format!("the {} has too many connections", NAMES[end]));
            }
        }
        for wire in self.wires.values() {
            for (at, segments) in wire.to.iter().enumerate() {
                let states = segments.iter().filter(|segment| match segment {
                    Segment::Frame(frame) => !frame.is_acknowledgement(),
                    Segment::End => false,
                });
                let kinds: BTreeSet<u8> = self.said[1 - at].iter().copied().collect();
                if states.count() > kinds.len() {
                    return Err(format!("more than a batch is under way to the {}", NAMES[at]));
                }
            }
        }
        Ok(())
    }

    /// Nothing happens any more. All was said and read, and a connection is left at both ends, or a second
    /// on which nothing was read.
    fn check_end(&self) -> Result<(), String> {
        for end in 0..2 {
            let said = u64::try_from(self.said[1 - end].len()).unwrap();
            if self.read[end] != said {
                return Err(format!("the {} has read {} of {said}", NAMES[end], self.read[end]));
            }
            if !self.ends[1 - end].is_read() {
                return Err(format!("the {} does not know that all was read", NAMES[1 - end]));
            }
        }
        let open: Vec<_> = self.wires.values().filter(|wire| wire.open == [true, true]).collect();
        if matches!(open.len(), 1 | 2) { Ok(()) } else { Err(format!("{} connections are left", open.len())) }
    }

    fn hash(&self) -> [u8; 32] {
        *blake3::hash(format!("{self:?}").as_bytes()).as_bytes()
    }
}

/// Visits every state once. Returns how many there are, and how many of them are ends.
fn search(budget: Budget, to_say: [&[u8]; 2]) -> Result<(usize, usize), String> {
    let start = State::new(budget, to_say);
    let (mut seen, mut ends) = (BTreeSet::from([start.hash()]), 0);
    // Each with the steps to it.
    let mut open = vec![(start, Vec::new())];
    while let Some((state, path)) = open.pop() {
        let steps = state.steps();
        let fail = |error: String, path: &[Step]| format!("{error}\n{path:?}");
        if steps.is_empty() {
            ends += 1;
            state.check_end().map_err(|error| fail(error, &path))?;
        }
        for step in steps {
            let mut next = state.clone();
            let path = [path.as_slice(), std::slice::from_ref(&step)].concat();
            next.step(&step).map_err(|error| fail(error, &path))?;
            // Otherwise a session that dials for ever would be searched for ever.
            if next.now > Time::from_secs(100) {
                return Err(fail("no end within 100 s".to_owned(), &path));
            }
            if seen.insert(next.hash()) {
                open.push((next, path));
            }
        }
    }
    Ok((seen.len(), ends))
}

fn finds_nothing(budget: Budget, to_say: [&[u8]; 2]) {
    let (states, ends) =
        search(budget, to_say).unwrap_or_else(|error| panic!("{budget:?}, {to_say:?}: {error}"));
    println!("{budget:?}, {to_say:?}: {states} states, {ends} ends");
    assert!(ends > 0, "no end was reached");
}

#[test]
fn without_a_fault_every_state_is_read_or_replaced_in_any_order_of_events() {
    finds_nothing(Budget { early_timers: 0, failed_dials: 0, breaks: 0 }, [&[1, 2, 1], &[1]]);
}

#[test]
fn with_a_break_and_a_refusal_every_state_is_read_or_replaced() {
    finds_nothing(Budget { early_timers: 0, failed_dials: 1, breaks: 1 }, [&[1, 2, 1], &[1]]);
}

#[test]
fn while_a_connection_stalls_every_state_is_read_or_replaced() {
    finds_nothing(Budget { early_timers: 1, failed_dials: 0, breaks: 0 }, [&[1, 2, 1], &[]]);
    finds_nothing(Budget { early_timers: 1, failed_dials: 0, breaks: 0 }, [&[1, 1], &[1]]);
}

#[test]
fn while_a_connection_stalls_and_another_breaks_every_state_is_read_or_replaced() {
    finds_nothing(Budget { early_timers: 1, failed_dials: 0, breaks: 1 }, [&[1, 2], &[]]);
}

#[test]
fn with_two_breaks_every_state_is_read_or_replaced() {
    finds_nothing(Budget { early_timers: 0, failed_dials: 0, breaks: 2 }, [&[1, 2, 1], &[1]]);
}
