//! The session with one other process, and what its connections say about that process: whether it is there,
//! silent or dead.
//!
//! The end of a connection is no answer but a question: a process that dies closes its connections, and so
//! does a router that restarts. So the session dials the process anew, and what comes of that answers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{Impossible, LOST, SessionEnd, SessionOutput};
use crate::proto::{ConnId, DialId, Time};
use crate::wire::{Body, Frame, kind_of};

/// How long the other process may take to acknowledge a batch before another connection is tried. With 60 ms
/// one world of four in a hundred took over 0.12 s at 1% loss, since a second connection was as unlucky.
pub(crate) const PATIENCE: Duration = Duration::from_millis(40);
/// A host that refuses a connection twice, so long apart, has no such process: a process may be refused once
/// where its queue of connections was full.
const REFUSED_AGAIN: Duration = Duration::from_millis(100);
/// A connection that was reset may have been reset by a router, and a router may refuse. A process is dead if
/// nobody has heard it for so long. And a process that ends closes and resets its connections within this
/// time.
const AFTER_RESET: Duration = Duration::from_secs(1);

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The other end has closed it.
    Closed,
    /// It was reset, or the kernel's probes got no answer.
    Broken,
}

/// Why a dial has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// The host refuses it, or another process answers there.
    Refused,
    /// Nothing has answered.
    Silent,
}

/// Who has opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// This process, by this dial.
    Dialled(DialId),
    /// The other process.
    Accepted(Ends),
}

/// The addresses of a connection that this process has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// This process's own.
    pub local: IpAddr,
    /// The other process's.
    pub remote: IpAddr,
}

/// What is known of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// A connection is open. The process may be stopped.
    There,
    /// There is no connection since then.
    Silent(Time),
    Dead,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct PeerLink {
    pub(crate) session: SessionEnd,
    /// Names this end's session: the other process begins anew where it has heard another number.
    pub(super) own_number: u64,
    other_number: Option<u64>,
    addresses: Vec<SocketAddr>,
    /// Which of the addresses is dialled next.
    next_address: usize,
    /// A connection of the session was opened at one of the addresses: this process has dialled it, or the
    /// other process has dialled from there.
    is_at_home: bool,
    /// Where the process has answered a dial last, or from where it has dialled first. At another address
    /// another host may refuse: each network has its own 10.0.0.1.
    pub(crate) met: Option<IpAddr>,
    /// The ends of the last connection that the process has dialled.
    pub(crate) ends: Option<Ends>,
    /// Since the process was heard last.
    refusals: Refusals,
    /// Since when the process is there, or since when no connection is open.
    pub(crate) since: Time,
    /// What was said last of each kind.
    said: BTreeMap<u8, Body>,
    /// When the other end has closed a connection, if none has opened since.
    ended: Option<Time>,
}

/// The dials that were refused.
#[derive(Debug, Clone, Copy, Default)]
struct Refusals {
    count: usize,
    /// When the first was at an address where the process has been met.
    first: Option<Time>,
    /// There was another there, [`REFUSED_AGAIN`] later.
    again: bool,
}

impl PeerLink {
    /// A link to a process to which no connection is open.
    pub(crate) fn new(closes: bool, number: u64, addresses: Vec<SocketAddr>, now: Time) -> Self {
        Self {
            session: SessionEnd::new(closes, PATIENCE),
            own_number: number,
            addresses,
            since: now,
            ..Self::default()
        }
    }

    /// Whether anything was said or read, or may have been dialled.
    pub(crate) fn has_begun(&self) -> bool {
        self.session.last > 0 || self.session.read > 0 || !self.addresses.is_empty()
    }

    /// Whether a connection is open that this process has dialled to this address.
    pub(crate) fn is_open_to(&self, address: SocketAddr) -> bool {
        self.session.connections.iter().any(|connection| connection.to == Some(address))
    }

    pub(crate) fn set_addresses(&mut self, addresses: &[SocketAddr]) {
        if self.addresses != addresses {
            if self.addresses.is_empty() {
                self.session.dials_at_once = true;
            }
            self.addresses = addresses.to_vec();
            self.next_address = self.first_address();
            self.is_at_home |= self.ends.is_some_and(|ends| self.is_home(Way::Accepted(ends)));
        }
    }

    /// The address that is dialled first: where the process was met, or where no dial is under way.
    fn first_address(&self) -> usize {
        let fits = |to: &SocketAddr| match self.met {
            Some(met) => met == to.ip(),
            None => !self.session.dials.values().any(|dialled| *dialled == Some(*to)),
        };
        self.addresses.iter().position(fits).unwrap_or(0)
    }

    /// Where this dial, which is under way, goes.
    fn dialled(&self, dial: DialId) -> Option<IpAddr> {
        self.session.dials.get(&dial).copied().flatten().map(|to| to.ip())
    }

    /// Says this state, unless it was said last of its kind.
    pub(crate) fn say(&mut self, now: Time, body: &Body) {
        if self.said.get(&kind_of(body)) != Some(body) {
            self.said.insert(kind_of(body), Body::clone(body));
            self.session.say(now, Body::clone(body));
        }
    }

    /// What was said last of this kind is said again when it is said next: the other process may have
    /// forgotten it, or its acknowledgement is to show that it is there.
    pub(crate) fn say_again(&mut self, kind: u8) {
        self.said.remove(&kind);
    }

    /// Whether a connection is of an earlier session of the other process, whose numbers grow, or of a
    /// stranger that uses its name: while the process is where it is known to be, and until it is clear that
    /// it is not, no other session begins from elsewhere. The session itself goes on from anywhere, since
    /// networks translate addresses.
    pub(crate) fn is_outdated(&self, now: Time, way: Way, number: u64) -> bool {
        let Some(known) = self.other_number.filter(|known| *known != number) else { return false };
        let is_earlier = known.wrapping_sub(number) <= u64::MAX / 2;
        match (self.is_at_home, self.is_home(way)) {
            (true, false) => is_earlier || self.is_there() || now < self.since + LOST,
            (false, true) => false,
            (true, true) | (false, false) => is_earlier,
        }
    }

    /// Whether this session was open at an address where the process is known to be.
    pub(crate) fn is_at_home(&self) -> bool {
        self.is_at_home
    }

    fn is_home(&self, way: Way) -> bool {
        match way {
            Way::Dialled(_) => true,
            Way::Accepted(ends) => self.addresses.iter().any(|address| address.ip() == ends.remote),
        }
    }

    /// A connection is open. Where the other process has begun a new session, it has read nothing of what was
    /// said, and all is said again.
    pub(crate) fn opened(&mut self, now: Time, way: Way, conn: ConnId, number: u64) {
        let is_known = self.other_number.is_none_or(|known| known == number);
        self.is_at_home = self.is_home(way) || (is_known && self.is_at_home);
        let dial = match way {
            Way::Dialled(dial) => {
                self.met = self.dialled(dial).or(self.met);
                Some(dial)
            }
            Way::Accepted(ends) => {
                self.ends = Some(ends);
                self.met = self.met.or(Some(ends.remote));
                None
            }
        };
        self.next_address = self.first_address();
        if !is_known {
            // A stranger that uses the process's name would close none of them.
            self.session.begin_anew();
        }
        self.other_number = Some(number);
        if !self.is_there() {
            self.since = now;
            if !self.is_at_home && !self.addresses.is_empty() {
                // It may be behind a router, or have dialled from another interface; or it is a stranger.
                self.session.dials_beside = true;
            }
        }
        self.ended = None;
        self.forget_refusals();
        self.session.opened(now, dial, conn);
        if !is_known {
            for body in self.said.clone().into_values() {
                self.session.say(now, body);
            }
        }
    }

    pub(crate) fn dial_failed(&mut self, now: Time, dial: DialId, failed: Failed) {
        let is_met = self.dialled(dial).is_some_and(|to| self.met == Some(to));
        if failed == Failed::Refused {
            self.refusals.count += 1;
            if is_met {
                let first = *self.refusals.first.get_or_insert(now);
                self.refusals.again |= now >= first + REFUSED_AGAIN;
            }
        }
        // A second refusal is evidence where the first one was.
        if self.met.is_some() && (!is_met || failed == Failed::Silent) {
            self.turn();
        }
        self.session.dial_failed(now, dial);
    }

    /// The process, or a stranger that uses its name, opens a connection to this one. The process may have
    /// closed the port where it was met meanwhile, so that earlier refusals say nothing of it.
    pub(crate) fn asked(&mut self, now: Time) {
        if !self.is_there() && now < self.since + LOST {
            self.forget_refusals();
        }
    }

    /// An open connection has ended.
    pub(crate) fn closed(&mut self, now: Time, conn: ConnId, ending: Ending) {
        if !self.session.has(conn) {
            // Of an earlier session, or closed by this process: its end says nothing.
            return;
        }
        self.session.closed(now, conn);
        if ending == Ending::Closed {
            self.ended = Some(now);
        }
        if !self.is_there() {
            self.since = now;
        }
    }

    pub(crate) fn receive(
        &mut self,
        now: Time,
        conn: ConnId,
        frame: Frame,
    ) -> Result<Option<Frame>, Impossible> {
        self.forget_refusals();
        self.session.receive(now, conn, frame)
    }

    /// Whether the process has closed its last connection itself, or another just before, and has not come
    /// back.
    pub(crate) fn has_left(&self) -> bool {
        // A process that ends resets the connections of which it has not read all, and closes the others.
        !self.is_there() && self.ended.is_some_and(|ended| self.since < ended + AFTER_RESET)
    }

    pub(crate) fn presence(&self, now: Time) -> Presence {
        if self.is_there() {
            Presence::There
        } else if self.refusals.again && (self.has_left() || now >= self.since + AFTER_RESET) {
            Presence::Dead
        } else {
            Presence::Silent(self.since)
        }
    }

    /// Whether the process is dead, if it listens as long as it lives. Then a connection that seems open is
    /// no sign of life, unless what is said is acknowledged: the packets that end a connection may be lost.
    pub(crate) fn listens_no_more(&self, now: Time) -> bool {
        self.refusals.again && self.lost_at(now, AFTER_RESET).is_some_and(|at| now >= at)
    }

    pub(crate) fn is_there(&self) -> bool {
        !self.session.connections.is_empty()
    }

    /// Whether no connection is open, and the host has refused as often as it has addresses.
    pub(crate) fn is_refused(&self) -> bool {
        !self.is_there() && self.refusals.count >= self.addresses.len().max(1)
    }

    /// Whether the process accepts no connections any more, though one is open: it has stopped accepting, or
    /// it has ended, and the packets that say so are lost.
    pub(crate) fn accepts_no_more(&self) -> bool {
        self.refusals.again
    }

    /// The process was heard, or is told now to accept no more: refusals until now say nothing of it.
    pub(crate) fn forget_refusals(&mut self) {
        self.refusals = Refusals::default();
    }

    /// Since when the other process owes an acknowledgement.
    pub(crate) fn owes_since(&self) -> Option<Time> {
        self.session.waiting.iter().map(|frame| frame.since.max(self.since)).min()
    }

    /// When the process is lost, if it stays as it is, to what waits for so long for a process that is silent
    /// or owes an acknowledgement: one that is stopped has open connections.
    pub(crate) fn lost_at(&self, now: Time, limit: Duration) -> Option<Time> {
        match self.presence(now) {
            Presence::Dead => Some(now),
            Presence::Silent(since) => Some(since + limit),
            Presence::There => self.owes_since().map(|since| since + limit),
        }
    }

    /// Whether a connection is open, and the process does not owe an acknowledgement for long.
    pub(crate) fn answers(&self, now: Time) -> bool {
        self.is_there() && self.lost_at(now, LOST).is_none_or(|at| now < at)
    }

    /// Whether no connection is open, and what cannot wait for the process goes on without it.
    pub(crate) fn is_gone(&self, now: Time) -> bool {
        !self.is_there() && (self.has_left() || self.lost_at(now, LOST).is_some_and(|at| now >= at))
    }

    /// When time alone changes what is known, or a dial is due.
    pub(crate) fn next(&self, now: Time) -> Option<Time> {
        // Where as many dials as there may be are under way, none follows that would show that it is lost.
        let limit = if self.refusals.again { AFTER_RESET } else { LOST };
        let lost = self.lost_at(now, limit).filter(|lost| *lost > now);
        lost.into_iter().chain(self.session.poll_timeout()).min()
    }

    pub(crate) fn forgive(&mut self, stopped: Duration) {
        self.session.forgive(stopped);
        self.since += stopped;
        self.ended = self.ended.map(|ended| ended + stopped);
    }

    /// What is to be done, and for a dial where to.
    pub(crate) fn poll_output(&mut self) -> Option<(SessionOutput, Option<SocketAddr>)> {
        let output = self.session.poll_output()?;
        let SessionOutput::Dial(dial) = output else { return Some((output, None)) };
        let to = self.addresses.get(self.next_address).copied();
        self.session.dials.insert(dial, to);
        if self.met.is_none() {
            // The dials to all addresses race (RFC 8305).
            self.turn();
        }
        Some((output, to))
    }

    /// The next dial goes to another address.
    fn turn(&mut self) {
        self.next_address = (self.next_address + 1) % self.addresses.len().max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 30000);
    const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 30000);

    /// The process has dialled from this address.
    fn accepted_from(remote: SocketAddr) -> Way {
        Way::Accepted(Ends { local: ELSEWHERE.ip(), remote: remote.ip() })
    }

    /// A link whose only connection has ended so, at second 1.
    fn ended(ending: Ending) -> PeerLink {
        let mut link = PeerLink::new(false, 1, vec![THERE, ELSEWHERE], Time::ZERO);
        link.opened(Time::ZERO, accepted_from(THERE), ConnId(1), 2);
        assert_eq!(link.presence(Time::ZERO), Presence::There);
        link.closed(Time::from_secs(1), ConnId(1), ending);
        link
    }

    fn refuse(link: &mut PeerLink, ms: u64) -> Presence {
        refuse_at(link, THERE, ms)
    }

    fn refuse_at(link: &mut PeerLink, to: SocketAddr, ms: u64) -> Presence {
        let now = Time::from_millis(ms);
        link.session.dials.insert(DialId(0), Some(to));
        link.dial_failed(now, DialId(0), Failed::Refused);
        link.presence(now)
    }

    #[test]
    fn a_process_that_has_closed_and_is_refused_twice_is_dead_at_once() {
        let mut link = ended(Ending::Closed);
        let silent = Presence::Silent(Time::from_secs(1));
        assert_eq!(refuse(&mut link, 1010), silent, "its queue of connections may be full");
        assert_eq!(refuse(&mut link, 1109), silent);
        assert_eq!(refuse(&mut link, 1110), Presence::Dead);
    }

    #[test]
    fn a_process_whose_connection_was_reset_has_a_second_to_be_heard() {
        let mut link = ended(Ending::Broken);
        let silent = Presence::Silent(Time::from_secs(1));
        assert_eq!((refuse(&mut link, 1010), refuse(&mut link, 1990)), (silent, silent));
        assert_eq!(link.presence(Time::from_secs(2)), Presence::Dead);
        link.opened(Time::from_secs(4), accepted_from(THERE), ConnId(2), 2);
        assert_eq!(link.presence(Time::from_secs(9)), Presence::There);
    }

    #[test]
    fn a_process_that_closes_one_connection_and_resets_another_with_unread_bytes_has_ended() {
        for (closed, opens, is_dead) in [(950, false, true), (950, true, false), (0, false, false)] {
            let mut link = PeerLink::new(false, 1, vec![THERE, ELSEWHERE], Time::ZERO);
            for conn in [1, 2] {
                link.opened(Time::ZERO, accepted_from(THERE), ConnId(conn), 2);
            }
            link.closed(Time::from_millis(closed), ConnId(1), Ending::Closed);
            if opens {
                link.opened(Time::from_millis(closed), accepted_from(THERE), ConnId(3), 2);
                link.closed(Time::from_secs(1), ConnId(3), Ending::Broken);
            }
            link.closed(Time::from_secs(1), ConnId(2), Ending::Broken);
            refuse(&mut link, 1010);
            assert_eq!(refuse(&mut link, 1110) == Presence::Dead, is_dead, "closed at {closed} ms");
        }
    }

    /// Of three connections the process closes two, and the first of these ends makes this end close the
    /// third, which has long been silent. The driver carries that out when it has heard of both.
    #[test]
    fn a_process_that_closes_the_last_connection_that_this_end_has_kept_is_dead_if_it_is_refused_twice() {
        let mut link = PeerLink::new(true, 1, vec![THERE], Time::ZERO);
        for conn in [1, 2, 3] {
            link.opened(Time::ZERO, accepted_from(THERE), ConnId(conn), 2);
        }
        link.receive(Time::from_secs(1), ConnId(3), Frame::acknowledgement(0)).unwrap();
        while link.poll_output().is_some() {}
        let end = Time::from_secs(2);
        link.closed(end, ConnId(2), Ending::Closed);
        assert_eq!(link.presence(end), Presence::There);
        link.closed(end, ConnId(3), Ending::Closed);
        while link.poll_output().is_some() {}
        assert!(link.session.connections.is_empty());
        assert_eq!(link.presence(end), Presence::Silent(end));
        refuse(&mut link, 2010);
        assert_eq!(refuse(&mut link, 2110), Presence::Dead);
    }

    #[test]
    fn a_process_that_dials_this_one_is_not_dead_by_the_refusals_before() {
        let mut link = ended(Ending::Closed);
        let silent = Presence::Silent(Time::from_secs(1));
        assert_eq!(refuse(&mut link, 1010), silent);
        link.asked(Time::from_millis(1020));
        assert_eq!((refuse(&mut link, 1200), refuse(&mut link, 1299)), (silent, silent));
        link.asked(Time::from_millis(3999));
        assert_eq!(refuse(&mut link, 4000), silent);
        link.asked(Time::from_secs(4));
        assert_eq!(refuse(&mut link, 4100), Presence::Dead, "a stranger hides no death for longer");
    }

    #[test]
    fn a_process_that_listens_as_long_as_it_lives_is_dead_if_it_refuses_and_owes_an_answer() {
        let mut link = PeerLink::new(false, 1, vec![THERE, ELSEWHERE], Time::ZERO);
        link.opened(Time::ZERO, accepted_from(THERE), ConnId(1), 2);
        let is_dead = |link: &PeerLink, ms| link.listens_no_more(Time::from_millis(ms));
        refuse(&mut link, 100);
        refuse(&mut link, 200);
        assert!(!is_dead(&link, 8999), "a router may refuse, and the process owes nothing");
        link.say(Time::from_secs(9), &[1].into());
        assert!(!is_dead(&link, 9999));
        assert!(is_dead(&link, 10_000), "the packets that ended its connections were lost");
        assert_eq!(link.presence(Time::from_secs(10)), Presence::There, "it may have closed its port");
        link.receive(Time::from_secs(10), ConnId(1), Frame::acknowledgement(1)).unwrap();
        link.say(Time::from_secs(11), &[2].into());
        assert!(!is_dead(&link, 20_000), "it may be stopped: then its kernel refuses nothing");
        for ms in [20_000, 20_200] {
            refuse_at(&mut link, ELSEWHERE, ms);
        }
        assert!(!is_dead(&link, 20_200), "another host");
        refuse(&mut link, 20_300);
        assert!(!is_dead(&link, 20_399), "its queue of connections may be full");
        refuse(&mut link, 20_400);
        assert!(is_dead(&link, 20_400));
    }

    #[test]
    fn silence_alone_is_no_death() {
        let mut link = ended(Ending::Closed);
        for second in 2..1000 {
            link.dial_failed(Time::from_secs(second), DialId(0), Failed::Silent);
        }
        assert_eq!(link.presence(Time::from_secs(1000)), Presence::Silent(Time::from_secs(1)));
    }

    #[test]
    fn a_refusal_where_the_process_was_never_met_is_silence() {
        let mut link = ended(Ending::Closed);
        for ms in [1010, 1200, 9000] {
            assert_eq!(refuse_at(&mut link, ELSEWHERE, ms), Presence::Silent(Time::from_secs(1)));
        }
    }

    #[test]
    fn a_process_at_another_address_takes_no_name_of_a_process_that_is_there_or_has_just_gone() {
        let mut link = PeerLink::new(false, 1, Vec::new(), Time::ZERO);
        link.opened(Time::ZERO, accepted_from(THERE), ConnId(1), 5);
        link.set_addresses(&[THERE]);
        let begins = |link: &PeerLink, second, way| !link.is_outdated(Time::from_secs(second), way, 6);
        assert!(!begins(&link, 9, accepted_from(ELSEWHERE)), "a stranger");
        assert!(!link.is_outdated(Time::ZERO, accepted_from(ELSEWHERE), 5), "its own session goes on");
        assert!(begins(&link, 0, accepted_from(THERE)) && begins(&link, 0, Way::Dialled(DialId(1))));
        assert!(link.is_outdated(Time::ZERO, accepted_from(THERE), 4), "it has given that session up");
        link.closed(Time::ZERO, ConnId(1), Ending::Closed);
        assert!(!begins(&link, 2, accepted_from(ELSEWHERE)), "who retries would hide its death");
        assert!(begins(&link, 3, accepted_from(ELSEWHERE)), "it may have moved");
    }

    #[test]
    fn a_process_where_it_is_known_to_be_gets_its_name_back_whatever_number_a_stranger_has_said() {
        let mut link = PeerLink::new(false, 1, vec![THERE], Time::ZERO);
        link.opened(Time::ZERO, accepted_from(ELSEWHERE), ConnId(1), 1 << 62);
        let is_outdated = |link: &PeerLink, way, number| link.is_outdated(Time::ZERO, way, number);
        assert!(is_outdated(&link, accepted_from(ELSEWHERE), 5), "an earlier session");
        for way in [accepted_from(THERE), Way::Dialled(DialId(1))] {
            assert!(!is_outdated(&link, way, 5), "{way:?}");
        }
        link.opened(Time::ZERO, accepted_from(THERE), ConnId(2), 5);
        assert!(is_outdated(&link, accepted_from(ELSEWHERE), (1 << 62) + 1));
    }

    #[test]
    fn a_process_that_has_come_from_elsewhere_is_dialled_where_it_is_known_to_be() {
        let now = Time::ZERO;
        for (from, is_dialled) in [(ELSEWHERE, true), (THERE, false)] {
            let mut link = PeerLink::new(false, 1, vec![THERE], now);
            link.opened(now, accepted_from(from), ConnId(1), 5);
            let outputs: Vec<_> = std::iter::from_fn(|| link.poll_output()).collect();
            let dialled = outputs.iter().find_map(|(output, to)| match output {
                SessionOutput::Dial(dial) => Some((*dial, *to)),
                _ => None,
            });
            assert_eq!(dialled.map(|(_, to)| to), is_dialled.then_some(Some(THERE)));
            if let Some((dial, _)) = dialled {
                assert!(!link.is_at_home());
                link.opened(now, Way::Dialled(dial), ConnId(2), 5);
            }
            assert!(link.is_at_home() && link.is_there());
        }
    }
}
