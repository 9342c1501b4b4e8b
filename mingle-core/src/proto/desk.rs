//! What a node of a world that stays answers to datagrams: newcomers and observers learn who leads.

use std::net::SocketAddr;

use rand::RngExt as _;

use super::output::Output;
use super::report::Failure;
use super::shared::Shared;
use super::timer::Time;
use crate::model::NodeId;
use crate::wire::world::Contact;
use crate::wire::{Message, Refusal};

/// Of all that hear the question of a newcomer or an observer to all, the leader answers, which may not hear
/// it, and about so many others.
const OTHERS: u32 = 4;

/// The datagrams of a node beside its sessions.
pub(crate) struct Desk {
    shared: Shared,
    /// The generation and the leader of another part of the job, the greatest that was heard of, and who has
    /// said so.
    other: Option<(u32, NodeId, SocketAddr)>,
    /// A node looks for the job.
    is_asked: bool,
}

/// Where a newcomer or an observer finds the world.
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
        Self { shared, other: None, is_asked: false }
    }

    /// A datagram has arrived. Those of members are of their rounds, and mean other recipients.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Time,
        from: SocketAddr,
        bytes: &[u8],
        sign: Option<Sign<'_>>,
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
            Message::Solicit(_) | Message::Announce(_) | Message::Query => {
                self.is_asked = true;
                let Some(Sign { leader, generation, leads, members }) = sign else { return };
                if !to_all || leads || self.shared.rng.random_range(0..members.max(1)) < OTHERS {
                    let running = self.shared.running(leader.id, generation, &leader.addresses);
                    self.shared.send(from, header.sender, &running);
                }
            }
            // A member may have led the round, or have gone on without this node. A job of another user is
            // another job.
            Message::Running(running)
                if !to_all
                    && (!is_member(running.leader)
                        || sign.is_some_and(|sign| running.generation > sign.generation))
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

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.shared.next_output()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::HostName;
    use crate::proto::config::Config;
    use crate::proto::tests::{codec, endpoint, id, tag};
    use crate::wire::{Header, Running};

    /// The desk of node 2.
    fn desk(seed: u64) -> Desk {
        Desk::new(Shared::new(Config::plain(tag(), 4, 2, endpoint(2)), seed, Time::ZERO))
    }

    fn leader() -> Contact {
        Contact { id: id(1), addresses: vec![([10, 0, 0, 1], 41_877).into()] }
    }

    impl Desk {
        /// Node `from` writes to node 2, which has this rank and may know who leads. Returns the answers.
        fn hear(
            &mut self,
            from: u8,
            recipient: NodeId,
            message: &Message,
            sign: Option<Sign<'_>>,
        ) -> Vec<(SocketAddr, Message)> {
            let header = Header { sender: id(from), recipient };
            let datagram = codec().encode(header, message);
            self.handle_datagram(self.shared.now, endpoint(from), &datagram, sign, |_| false);
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
    }

    fn solicit() -> Message {
        Shared::new(Config::plain(tag(), 4, 9, endpoint(9)), 1, Time::ZERO).solicit()
    }

    #[test]
    fn a_newcomer_or_an_observer_that_asks_all_hears_of_the_leader_by_the_leader_and_about_four_others() {
        let contact = leader();
        let asked = |question: &Message, leads, members, recipient| {
            let count = |seed| {
                let sign = Some(Sign { leader: &contact, generation: 3, leads, members });
                desk(seed).hear(9, recipient, question, sign).len()
            };
            (0..200).map(count).sum::<usize>()
        };
        let answers = |leads, members, recipient| asked(&solicit(), leads, members, recipient);
        assert_eq!(answers(true, 100, NodeId::ALL), 200);
        assert_eq!(answers(false, 4, NodeId::ALL), 200, "of few, each answers");
        let some = answers(false, 20, NodeId::ALL);
        assert!((20..60).contains(&some), "a fifth of 200: {some}");
        assert_eq!(asked(&Message::Query, true, 100, NodeId::ALL), 200);
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
        assert_eq!(desk.hear(9, NodeId::ALL, &solicit(), sign), [expected]);
        assert_eq!(desk.hear(9, NodeId::ALL, &solicit(), None), []);
    }

    #[test]
    fn what_a_member_writes_to_another_node_and_what_this_node_has_written_is_not_answered() {
        let (mut desk, contact) = (desk(1), leader());
        for (from, recipient, message) in [(3, id(1), solicit()), (2, NodeId::ALL, solicit())] {
            let sign = Some(Sign { leader: &contact, generation: 3, leads: true, members: 4 });
            assert_eq!(desk.hear(from, recipient, &message, sign), [], "{from} to {recipient}");
        }
    }

    #[test]
    fn a_member_is_another_part_of_the_job_only_if_it_has_gone_on_without_this_node() {
        let contact = leader();
        for (generation, is_other) in [(3, false), (4, true)] {
            let sign = Some(Sign { leader: &contact, generation: 3, leads: true, members: 4 });
            let (host, user) = (HostName::new("host-4"), crate::model::User::default());
            let addresses = contact.addresses.iter().copied().collect();
            let running = Message::Running(Running { leader: id(3), generation, addresses, host, user });
            let datagram = codec().encode(Header { sender: id(4), recipient: id(2) }, &running);
            let mut desk = desk(1);
            desk.handle_datagram(Time::ZERO, endpoint(4), &datagram, sign, |_| true);
            assert_eq!(desk.take_other().is_some(), is_other, "{generation}");
        }
    }
}
