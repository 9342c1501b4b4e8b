//! What a node of a world that stays hears and says by datagrams, beside its sessions: newcomers and
//! observers learn who leads, and nodes that may have been left behind ask.

use std::net::SocketAddr;

use rand::RngExt as _;

use super::lead::WorldLead;
use super::{Action, Time, World, WorldChange};
use crate::model::NodeId;
use crate::proto::report::{Event, Failure, Warning};
use crate::wire::world::STATUS;
use crate::wire::{Message, Refusal};

/// Of all that hear the question of a newcomer or an observer to all, the leader answers, which may not hear
/// it, and about so many others.
const OTHERS: usize = 4;

impl World {
    /// A datagram has arrived: of a node that looks for the job, or of an observer; or it answers this node.
    pub(crate) fn handle_datagram(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) {
        let Ok((header, message)) = self.shared.codec.decode(bytes) else { return };
        let to_all = header.recipient == NodeId::ALL;
        let is_recipient = to_all || [NodeId::ANYONE, self.own.id].contains(&header.recipient);
        if !is_recipient || header.sender == self.own.id {
            return;
        }
        let generation = self.reign.epoch.generation;
        match message {
            Message::Solicit(_) | Message::Announce(_) | Message::Query => {
                self.ask_leader(now);
                // A node that has no seat hears the question beside all that wait.
                let waiting = || usize::try_from(self.reign.waiting).unwrap_or(usize::MAX);
                let members = self.plan.as_ref().map_or_else(waiting, |plan| plan.seats().len()).max(1);
                let answers = !to_all || self.leads() || self.shared.rng.random_range(0..members) < OTHERS;
                if let Some(leader) = self.who_knows().filter(|_| answers).cloned() {
                    let generation = self.said_generation();
                    let running = self.shared.running(leader.id, generation, &leader.addresses);
                    self.shared.send(from, header.sender, &running);
                }
            }
            // A member may have led the round, or have gone on without this node. A job of another user is
            // another job.
            Message::Running(running)
                if !to_all
                    && (!self.expects(running.leader) || running.generation > generation)
                    && !self.shared.config.node.attributes.user.differs(&running.user) =>
            {
                self.hear_of_others(running.generation, running.leader, from);
            }
            _ => {}
        }
    }

    /// A process says that another part of the job has this generation and this leader.
    fn hear_of_others(&mut self, generation: u32, leader: NodeId, from: SocketAddr) {
        if self.gives_way_to(generation, leader) {
            self.is_dirty = true;
            self.end_round();
            self.lead.iter_mut().for_each(WorldLead::give_way);
            self.actions.push_back(Action::Report(WorldChange::Lost));
        } else if self.leads_commands()
            && generation >= self.epoch.generation
            && self.other.replace(from).is_none()
        {
            // A datagram ends no command: anybody who may join the job could send it.
            self.shared.event(Event::Warning(Warning::AnotherWorld { from }));
        }
    }

    /// Somebody looks for the job. A node that waits for its first seat has nothing to say, so it does not
    /// notice that its leader is stopped: it asks whether the leader is there.
    pub(super) fn ask_leader(&mut self, now: Time) {
        if self.is_guest() {
            self.at(now);
            if let Some(peer) = self.peers.get_mut(self.reign.leader.id) {
                peer.link.say_again(STATUS);
            }
        }
    }

    /// Asks all nodes who leads.
    pub(super) fn ask_all(&mut self) {
        self.shared.call(&self.shared.solicit());
    }

    /// What this node learns from the reason why no world forms.
    pub(crate) fn failure(&self, refusal: Refusal) -> Option<Failure> {
        self.shared.failure(refusal, self.shared.peer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{End, Epoch, HostName, Roster};
    use crate::proto::config::Config;
    use crate::proto::shared::Shared;
    use crate::proto::tests::{codec, endpoint, id, seat, tag};
    use crate::proto::world::Action;
    use crate::proto::{ConnId, Ends, Output, Way};
    use crate::wire::world::{Plan, RoundId, Terms};
    use crate::wire::{Header, Running};

    /// Node 2 in the fourth world of its job, of so many nodes, of which `leader` leads.
    fn member(seed: u64, members: u8, leader: u8) -> World {
        let roster = Roster::new((1..=members).map(seat).collect()).unwrap();
        let round = RoundId { leader: id(leader), number: 1 };
        let epoch = Epoch { generation: 3, origin: 7 };
        let plan = Plan { round, epoch, terms: Terms { roster, ..Terms::default() } };
        let config = Config::plain(tag(), members.into(), 2, endpoint(2));
        let mut world = World::member(Shared::new(config, seed, Time::ZERO), plan);
        world.sent();
        world
    }

    impl World {
        /// Node `from` writes to node 2. Returns the answers.
        fn hear_from(
            &mut self,
            from: u8,
            recipient: NodeId,
            message: &Message,
        ) -> Vec<(SocketAddr, Message)> {
            let header = Header { sender: id(from), recipient };
            self.handle_datagram(Time::ZERO, endpoint(from), &codec().encode(header, message));
            self.sent()
        }

        fn sent(&mut self) -> Vec<(SocketAddr, Message)> {
            let actions = std::iter::from_fn(|| self.poll_action());
            let sent = actions.filter_map(|action| match action {
                Action::Output(Output::Send { to, datagram }) => {
                    Some((to, codec().decode(&datagram).unwrap().1))
                }
                _ => None,
            });
            sent.collect()
        }
    }

    fn solicit() -> Message {
        Shared::new(Config::plain(tag(), 4, 9, endpoint(9)), 1, Time::ZERO).solicit()
    }

    #[test]
    fn a_newcomer_or_an_observer_that_asks_all_hears_of_the_leader_by_the_leader_and_about_four_others() {
        let asked = |question: &Message, leader, members, recipient| {
            let count = |seed| member(seed, members, leader).hear_from(250, recipient, question).len();
            (0..200).map(count).sum::<usize>()
        };
        let answers = |leader, members, recipient| asked(&solicit(), leader, members, recipient);
        assert_eq!(answers(2, 100, NodeId::ALL), 200, "it leads");
        assert_eq!(answers(1, 4, NodeId::ALL), 200, "of few, each answers");
        let some = answers(1, 20, NodeId::ALL);
        assert!((20..60).contains(&some), "a fifth of 200: {some}");
        assert_eq!(asked(&Message::Query, 2, 100, NodeId::ALL), 200);
        // Nobody else has read a question to this node alone.
        assert_eq!((answers(1, 100, NodeId::ANYONE), answers(1, 100, id(2))), (200, 200));
    }

    #[test]
    fn a_newcomer_is_told_who_leads_and_where() {
        let (mut world, config) = (member(1, 4, 2), Config::plain(tag(), 4, 2, endpoint(2)));
        let expected = Message::Running(Running {
            leader: id(2),
            generation: 3,
            addresses: world.own.addresses.iter().copied().collect(),
            host: config.node.host,
            user: config.node.attributes.user,
        });
        assert_eq!(world.hear_from(9, NodeId::ALL, &solicit()), [(endpoint(9), expected)]);
    }

    #[test]
    fn what_a_member_writes_to_another_node_and_what_this_node_has_written_is_not_answered() {
        let mut world = member(1, 4, 2);
        for (from, recipient) in [(3, id(1)), (2, NodeId::ALL)] {
            assert_eq!(world.hear_from(from, recipient, &solicit()), [], "{from} to {recipient}");
        }
    }

    #[test]
    fn a_leader_that_is_alone_with_too_few_nodes_names_generation_0_so_that_others_do_not_join_it() {
        let mut world = member(1, 4, 2);
        let generation = |world: &mut World| match &world.hear_from(9, NodeId::ALL, &solicit())[..] {
            [(_, Message::Running(running))] => running.generation,
            other => panic!("{other:?}"),
        };
        assert_eq!(generation(&mut world), 3, "its world runs");
        world.ended(Time::ZERO, Some(End::Exited(1)));
        assert_eq!(generation(&mut world), 3, "its world is over, and its command stops");
        world.stopped(Time::ZERO);
        world.sent();
        assert_eq!(generation(&mut world), 0);
        let number = world.answers(Time::ZERO, id(3), id(2)).unwrap();
        let ends = Ends { local: endpoint(2).ip(), remote: endpoint(3).ip() };
        world.opened(Time::ZERO, id(3), Way::Accepted(ends), ConnId(1), (number, 9));
        assert_eq!(generation(&mut world), 3, "another member is there");
    }

    #[test]
    fn a_new_leader_does_not_join_the_leader_that_it_has_succeeded_because_others_still_name_that() {
        let mut world = member(1, 4, 1);
        world.dead.insert(id(1));
        world.advance(Time::ZERO);
        world.sent();
        world.stopped(Time::ZERO);
        world.sent();
        assert!(world.leads() && world.is_alone());
        let (addresses, user) = ([endpoint(1)].into_iter().collect(), crate::model::User::default());
        let host = HostName::new("host-9");
        let running = Message::Running(Running { leader: id(1), generation: 3, addresses, host, user });
        let datagram = codec().encode(Header { sender: id(9), recipient: id(2) }, &running);
        let gives_way = |tenth: &u64| {
            let now = Time::from_millis(100 * tenth);
            world.advance(now);
            world.handle_datagram(now, endpoint(9), &datagram);
            std::iter::from_fn(|| world.poll_action())
                .any(|action| action == Action::Report(WorldChange::Lost))
        };
        assert_eq!((0..100).find(gives_way), Some(30), "tenths of a second");
    }

    #[test]
    fn a_leader_hears_of_another_world_only_if_one_of_its_members_has_gone_on_without_it() {
        for (generation, is_other) in [(3, false), (4, true)] {
            let (host, user) = (HostName::new("host-4"), crate::model::User::default());
            let addresses = [endpoint(3)].into_iter().collect();
            let running = Message::Running(Running { leader: id(3), generation, addresses, host, user });
            let mut world = member(1, 4, 2);
            let header = Header { sender: id(4), recipient: id(2) };
            world.handle_datagram(Time::ZERO, endpoint(4), &codec().encode(header, &running));
            let actions: Vec<Action> = std::iter::from_fn(|| world.poll_action()).collect();
            let warning = Warning::AnotherWorld { from: endpoint(4) };
            let another = Action::Output(Output::Event(Event::Warning(warning)));
            assert_eq!(actions.contains(&another), is_other, "{generation}");
        }
    }
}
