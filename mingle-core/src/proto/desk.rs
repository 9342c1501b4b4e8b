//! What a node of a world that stays answers to datagrams: newcomers learn who leads, and observers what this
//! node does.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand::RngExt as _;

use super::output::Output;
use super::report::Failure;
use super::scale::Scale;
use super::shared::Shared;
use super::timer::Time;
use crate::model::NodeId;
use crate::wire::world::Contact;
use crate::wire::{Message, Refusal, Reply};

/// The most hosts whose observers are answered at once, one on each.
const OBSERVERS: usize = 4;
/// The least time between two answers to observers: anybody can ask.
const PAUSE: Duration = Duration::from_millis(250);
/// Each rank answers a node's part of a turn after the rank below it, so that an observer can read all
/// answers. Later ranks than this begin anew: an observer asks again each second.
const LAST_TURN: u32 = 16_384;
/// Of all that hear a newcomer's question to all, the leader answers, which may not hear it, and about so
/// many others.
const OTHERS: u32 = 4;

/// The datagrams of a node beside its sessions.
pub(crate) struct Desk {
    shared: Shared,
    observers: BTreeMap<IpAddr, (NodeId, SocketAddr)>,
    /// When they are answered.
    due: Option<Time>,
    /// When the next answer may be sent.
    next: Time,
    /// The generation and the leader of another part of the job, the greatest that was heard of, and who has
    /// said so.
    other: Option<(u32, NodeId, SocketAddr)>,
    /// A node looks for the job.
    is_asked: bool,
}

/// Where a newcomer finds the world.
pub(crate) struct Sign<'a> {
    pub(crate) leader: &'a Contact,
    pub(crate) generation: u32,
    /// This node leads.
    pub(crate) leads: bool,
    /// How many nodes may hear the same question.
    pub(crate) members: u32,
}

impl Desk {
    /// In the place of a node whose rendezvous has ended. In a job with a secret the datagrams' counters go
    /// on, so that none is used twice.
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared, observers: BTreeMap::new(), due: None, next: Time::ZERO, other: None, is_asked: false }
    }

    /// A datagram has arrived. Those of members are of their rounds, and mean other recipients.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Time,
        from: SocketAddr,
        bytes: &[u8],
        (rank, sign): (Option<u32>, Option<Sign<'_>>),
        is_member: impl Fn(NodeId) -> bool,
    ) {
        self.shared.now = self.shared.now.max(now);
        let Ok((header, message)) = self.shared.codec.decode(bytes) else { return };
        let to_all = header.recipient == NodeId::ALL;
        let is_recipient = to_all || [NodeId::ANYONE, self.shared.me()].contains(&header.recipient);
        if !is_recipient || header.sender == self.shared.me() {
            return;
        }
        match message {
            Message::Query => {
                if let Some(rank) = rank.filter(|_| self.observers.len() < OBSERVERS) {
                    self.observers.insert(from.ip(), (header.sender, from));
                    let turn = self.shared.now + Scale(rank % LAST_TURN).turn();
                    let due = turn.max(self.next);
                    self.due = Some(self.due.map_or(due, |known| known.min(due)));
                }
            }
            Message::Solicit(_) | Message::Announce(_) => {
                self.is_asked = true;
                let Some(Sign { leader, generation, leads, members }) = sign else { return };
                if !to_all || leads || self.shared.rng.random_range(0..members.max(1)) < OTHERS {
                    let running = self.shared.running(leader.id, generation, &leader.addresses);
                    self.shared.send(from, header.sender, &running);
                }
            }
            // A member may have led the round. A job of another user is another job.
            Message::Running(running)
                if !to_all
                    && !is_member(running.leader)
                    && !self.shared.config.node.attributes.user.differs(&running.user) =>
            {
                self.other = self.other.max(Some((running.generation, running.leader, from)));
            }
            _ => {}
        }
    }

    /// Asks all nodes, and those at these addresses, who leads: too few are left here.
    pub(crate) fn ask(&mut self, seeds: &[SocketAddr]) {
        let solicit = self.shared.solicit();
        for &seed in seeds {
            self.shared.send(seed, NodeId::ANYONE, &solicit);
        }
        self.shared.multicast(&solicit);
    }

    /// The generation and the leader of another part of the job that was heard of since the last call, and
    /// who has said so.
    pub(crate) fn take_other(&mut self) -> Option<(u32, NodeId, SocketAddr)> {
        self.other.take()
    }

    /// Whether a node has looked for the job since the last call.
    pub(crate) fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.is_asked)
    }

    /// What this node learns from the reason why no world forms.
    pub(crate) fn failure(&self, refusal: Refusal) -> Option<Failure> {
        self.shared.failure(refusal, self.shared.peer())
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    /// Answers the observers that have asked, if it is time to.
    pub(crate) fn handle_timeout(&mut self, now: Time, reply: impl FnOnce() -> Reply) {
        self.shared.now = self.shared.now.max(now);
        if self.due.take_if(|due| *due <= now).is_none() {
            return;
        }
        self.next = now + PAUSE;
        let reply = Message::Reply(reply());
        for (observer, source) in std::mem::take(&mut self.observers).into_values() {
            self.shared.send(source, observer, &reply);
        }
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.shared.next_output()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HostName, Lineage};
    use crate::proto::config::Config;
    use crate::proto::tests::{codec, endpoint, id, tag};
    use crate::wire::{Doing, Header, Running};

    /// The desk of node 2.
    fn desk(seed: u64) -> Desk {
        Desk::new(Shared::new(Config::plain(tag(), 4, 2, endpoint(2)), seed, Time::ZERO))
    }

    fn leader() -> Contact {
        Contact { id: id(1), addresses: vec![([10, 0, 0, 1], 41_877).into()] }
    }

    fn ms(milliseconds: u64) -> Time {
        Time::from_millis(milliseconds)
    }

    impl Desk {
        /// Node `from` writes to node 2, which has this rank and may know who leads. Returns the answers.
        fn hear(
            &mut self,
            from: u8,
            recipient: NodeId,
            message: &Message,
            signs: (Option<u32>, Option<Sign<'_>>),
        ) -> Vec<(SocketAddr, Message)> {
            let header = Header { sender: id(from), recipient };
            let datagram = codec().encode(header, message);
            self.handle_datagram(self.shared.now, endpoint(from), &datagram, signs, |_| false);
            self.sent()
        }

        fn sent(&mut self) -> Vec<(SocketAddr, Message)> {
            let outputs = std::iter::from_fn(|| self.poll_output());
            let sent = outputs.map(|output| match output {
                Output::Send { to, datagram } => (to, codec().decode(&datagram).unwrap().1),
                other => panic!("{other:?}"),
            });
            sent.collect()
        }

        /// The observers that are answered at this time.
        fn answered(&mut self, now: Time) -> Vec<SocketAddr> {
            self.handle_timeout(now, || reply(0));
            let sent = self.sent().into_iter();
            sent.filter(|(_, message)| *message == Message::Reply(reply(0))).map(|(to, _)| to).collect()
        }
    }

    fn reply(rank: u32) -> Reply {
        Reply {
            epoch: Lineage::default(),
            rank,
            world: 4,
            host: HostName::new("b"),
            doing: Doing::Runs,
            restarts_left: None,
            suspected: [].into_iter().collect(),
            waiting: 0,
            ended: None,
        }
    }

    fn solicit() -> Message {
        Shared::new(Config::plain(tag(), 4, 9, endpoint(9)), 1, Time::ZERO).solicit()
    }

    #[test]
    fn a_newcomer_that_asks_all_hears_of_the_leader_by_the_leader_and_about_four_others() {
        let contact = leader();
        let answers = |leads, members, recipient| {
            let count = |seed| {
                let sign = Some(Sign { leader: &contact, generation: 3, leads, members });
                desk(seed).hear(9, recipient, &solicit(), (Some(1), sign)).len()
            };
            (0..200).map(count).sum::<usize>()
        };
        assert_eq!(answers(true, 100, NodeId::ALL), 200);
        assert_eq!(answers(false, 4, NodeId::ALL), 200, "of few, each answers");
        let some = answers(false, 20, NodeId::ALL);
        assert!((20..60).contains(&some), "a fifth of 200: {some}");
        // Nobody else has read a question to this node alone.
        assert_eq!((answers(false, 100, NodeId::ANYONE), answers(false, 100, id(2))), (200, 200));
    }

    #[test]
    fn a_newcomer_is_told_who_leads_and_where_if_this_node_knows_it() {
        let (mut desk, contact) = (desk(1), leader());
        let sign = Some(Sign { leader: &contact, generation: 3, leads: false, members: 4 });
        let addresses = contact.addresses.iter().copied().collect();
        let expected = (
            endpoint(9),
            Message::Running(Running {
                leader: id(1),
                generation: 3,
                addresses,
                host: HostName::new("host-2"),
                user: crate::model::User::default(),
            }),
        );
        assert_eq!(desk.hear(9, NodeId::ALL, &solicit(), (Some(1), sign)), [expected]);
        assert_eq!(desk.hear(9, NodeId::ALL, &solicit(), (Some(1), None)), []);
    }

    #[test]
    fn what_a_member_writes_to_another_node_and_what_this_node_has_written_is_not_answered() {
        let (mut desk, contact) = (desk(1), leader());
        for (from, recipient, message) in [(3, id(1), solicit()), (2, NodeId::ALL, solicit())] {
            let sign = Some(Sign { leader: &contact, generation: 3, leads: true, members: 4 });
            assert_eq!(desk.hear(from, recipient, &message, (Some(1), sign)), [], "{from} to {recipient}");
        }
    }

    #[test]
    fn the_observers_on_four_hosts_are_answered_at_once_and_then_none_for_250_milliseconds() {
        let mut desk = desk(1);
        for observer in [5, 6, 7, 8, 9] {
            desk.hear(observer, NodeId::ALL, &Message::Query, (Some(0), None));
        }
        assert_eq!(desk.poll_timeout(), Some(ms(0)));
        assert_eq!(desk.answered(ms(0)), [5, 6, 7, 8].map(endpoint));
        assert_eq!((desk.poll_timeout(), desk.answered(ms(200))), (None, vec![]));
        desk.hear(9, NodeId::ALL, &Message::Query, (Some(0), None));
        assert_eq!((desk.poll_timeout(), desk.answered(ms(249))), (Some(ms(250)), vec![]));
        assert_eq!(desk.answered(ms(250)), [endpoint(9)]);
    }

    #[test]
    fn each_rank_answers_observers_50_microseconds_after_the_rank_below_it() {
        for (rank, at) in [(0, 0), (1, 50), (1000, 50_000), (16_384, 0), (16_385, 50)] {
            let mut desk = desk(1);
            desk.hear(9, NodeId::ALL, &Message::Query, (Some(rank), None));
            assert_eq!(desk.poll_timeout(), Some(Time::from_micros(at)), "{rank}");
        }
        let mut desk = desk(1);
        desk.hear(9, NodeId::ALL, &Message::Query, (None, None));
        assert_eq!(desk.poll_timeout(), None, "it has no rank");
    }
}
