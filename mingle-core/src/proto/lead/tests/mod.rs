//! A leader and its members: their silence, the roster, and seats that two of them want.

mod book;
mod broken;
mod elastic;
mod rounds;
mod unfit;

use std::net::SocketAddr;

use crate::model::{Endpoints, HostName, List, NodeId, Traits, User, WorldSize};
use crate::proto::tests::{Hand, codec, endpoint, id, said, tag};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, Ending, Event, Node, Order, Output, PathNews, Warning};
use crate::wire::{
    Announce, Answer, Candidate, Count, Header, Join, Message, NodeInfo, Part, Refusal, Said, Solicit,
    encode_traits,
};
use mingle_rdma::Summary;
use rounds::path_dials;

/// Node 1, which leads a world.
struct Leader {
    node: Hand,
    world: WorldSize,
    now: Time,
}

/// The two endpoints of a node.
fn endpoints(node: u8) -> Endpoints {
    Endpoints::new(vec![endpoint(node), SocketAddr::from(([10, 0, 1, node], 29500))]).unwrap()
}

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

impl Leader {
    fn new(world: u32) -> Self {
        Self::of(world, |_| {})
    }

    fn of(world: u32, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::plain(tag(), world, 1, endpoint(1));
        config.node.endpoints = endpoints(1);
        config.timeout = None;
        change(&mut config);
        let world = config.world;
        let node = Hand::new(Node::new(config, 1, Time::ZERO), 1);
        let mut leader = Self { node, world, now: Time::ZERO };
        leader.outputs();
        leader
    }

    /// A leader of a world of which these nodes are members.
    fn with(world: u32, members: &[u8]) -> Self {
        let mut leader = Self::new(world);
        for &member in members {
            leader.join(member, |_| {});
        }
        leader
    }

    fn outputs(&mut self) -> Vec<Output> {
        self.node.outputs()
    }

    fn hear_announce(&mut self, from: u8, message: &Message) -> Vec<Output> {
        let header = Header { sender: id(from), recipient: id(1) };
        let datagram = codec().encode(header, message);
        self.node.handle_datagram(self.now, endpoint(from), &datagram);
        self.outputs()
    }

    fn hear(&mut self, from: u8, said: &Said) -> Vec<Output> {
        self.node.say(self.now, from, said)
    }

    /// A node asks for a seat.
    fn join(&mut self, from: u8, change: impl FnOnce(&mut NodeInfo)) -> Vec<Output> {
        self.join_with(from, &Traits::default(), change)
    }

    fn join_with(&mut self, from: u8, traits: &Traits, change: impl FnOnce(&mut NodeInfo)) -> Vec<Output> {
        let mut node = NodeInfo::new(HostName::new(&format!("host-{from}")), endpoints(from));
        change(&mut node);
        let join = Join { world: self.world, node, traits: encode_traits(traits), misfit: None };
        self.hear(from, &Said::Join(Box::new(join)))
    }

    /// The process of a node has ended.
    fn close(&mut self, from: u8) -> Vec<Output> {
        self.node.close(self.now, from, Ending::Closed)
    }

    /// Lets the time pass until then. Returns what the leader does meanwhile.
    fn run(&mut self, until: Time) -> Vec<Output> {
        self.now = until;
        self.node.run(until)
    }
}

/// A candidate of a world of this size, which was given rank 0 or not.
fn announced_by(node: u8, explicit: bool, world: WorldSize) -> Message {
    let (host, endpoints) = (HostName::new("other"), endpoint(node).into());
    let candidate = Candidate { id: id(node), explicit, members: 1, world, host, endpoints };
    let count = Count { joined: 1, newest: List::default(), missing: List::default() };
    Message::Announce(Announce { candidate, count, user: User::default() })
}

fn to(outputs: &[Output], node: u8, wanted: fn(&Said) -> bool) -> usize {
    said(outputs).iter().filter(|(to, said)| *to == node && wanted(said)).count()
}

fn is_prepare(said: &Said) -> bool {
    matches!(said, Said::Prepare(_))
}

/// The member says how far it is in this round.
fn part(round: u64, answer: Answer) -> Said {
    Said::Part(Part { round, answer })
}

fn ready() -> Said {
    part(1, Answer::Ready)
}

/// The member is there, and has nothing to say.
fn idle() -> Said {
    part(0, Answer::Ready)
}

/// The last rounds that a node was told are void.
fn voided(outputs: &[Output], node: u8) -> Option<u64> {
    let voided = said(outputs).into_iter().filter_map(|(to, said)| match said {
        Said::Welcome(welcome) if to == node => Some(welcome.void),
        _ => None,
    });
    voided.max()
}

#[test]
fn the_master_learns_of_the_commit_first_and_the_others_when_it_has_answered_or_after_a_second() {
    for answers in [true, false] {
        let mut leader = Leader::of(3, |config| config.node.attributes.may_be_master = false);
        leader.join(2, |_| {});
        let outputs = leader.join(3, |_| {});
        let dials = path_dials(&outputs);
        leader.node.handle_path(
            leader.now,
            *dials.first().expect("the leader dials the master"),
            &PathNews::Arrived,
        );
        leader.node.mute.insert(2);
        leader.hear(2, &ready());
        leader.hear(3, &ready());
        let is_commit = |said: &Said| matches!(said, Said::Commit(_));
        let outputs = leader.run(ms(500));
        assert!(to(&outputs, 2, is_commit) == 1 && to(&outputs, 3, is_commit) == 0);
        if answers {
            leader.node.acknowledge(leader.now, 2);
            assert_eq!(to(&leader.run(ms(500)), 3, is_commit), 1);
        } else {
            assert_eq!(to(&leader.run(ms(999)), 3, is_commit), 0);
            assert_eq!(to(&leader.run(ms(1300)), 3, is_commit), 1);
        }
    }
}

#[test]
fn a_leader_whose_world_has_formed_announces_itself_no_more_and_says_that_the_world_is_full() {
    let mut leader = Leader::of(2, |config| config.node.attributes.may_be_master = false);
    let outputs = leader.join(2, |_| {});
    leader.node.handle_path(leader.now, path_dials(&outputs)[0], &PathNews::Arrived);
    leader.node.mute.insert(2);
    leader.hear(2, &ready());
    leader.run(ms(1));
    let is_datagram = |output: &Output| matches!(output, Output::Send { .. } | Output::Multicast { .. });
    let solicit = Message::Solicit(Solicit { rank: None, host: HostName::new("c") });
    let mut outputs = leader.hear_announce(3, &solicit);
    outputs.extend(leader.hear_announce(4, &announced_by(4, false, leader.world)));
    outputs.extend(leader.run(ms(3000)));
    assert!(!outputs.iter().any(is_datagram), "{outputs:?}");
    let full = |said: &Said| *said == Said::Refuse(Refusal::WorldFull);
    assert_eq!(to(&leader.join(3, |_| {}), 3, full), 1);
}

#[test]
fn a_node_of_another_host_that_has_only_a_loopback_address_gets_no_seat_until_it_has_another() {
    let mut leader = Leader::new(2);
    let outputs = leader.join(2, |node| node.endpoints = SocketAddr::from(([127, 0, 0, 1], 29500)).into());
    assert_eq!((to(&outputs, 2, |_| true), to(&outputs, 2, is_prepare)), (0, 0));
    assert!(to(&leader.join(2, |_| {}), 2, is_prepare) > 0);
}

fn is_refusal(said: &Said) -> bool {
    matches!(said, Said::Refuse(_))
}

/// The master of each prepare, with the address at which it is to be reached.
fn masters(outputs: &[Output]) -> Vec<(u64, NodeId, SocketAddr)> {
    let masters = said(outputs).into_iter().filter_map(|(_, said)| match said {
        Said::Prepare(prepare) => Some((prepare.round, prepare.master, prepare.master_at)),
        _ => None,
    });
    masters.collect()
}

#[test]
fn a_member_that_is_stopped_in_a_round_loses_its_seat_five_seconds_after_it_was_asked() {
    let mut leader = Leader::with(3, &[2, 3]);
    let closed = |node: u64| Output::Carry(Order::Close(ConnId(node)));
    // It has read of the round, and is stopped.
    leader.node.mute.insert(3);
    let outputs = leader.run(ms(5900));
    assert!(!outputs.contains(&closed(3)));
    let outputs = leader.run(ms(7100));
    assert!(outputs.contains(&closed(3)) && !outputs.contains(&closed(2)));
    assert_eq!(voided(&outputs, 2), Some(1));
    let left =
        |output: &Output| matches!(output, Output::Event(Event::Progress(progress)) if progress.joined == 2);
    assert!(outputs.iter().any(left), "{outputs:?}");
}

#[test]
fn a_member_whose_connection_was_reset_has_three_seconds_to_come_back_and_one_that_closes_has_left() {
    for (ending, at) in [(Ending::Broken, 3000), (Ending::Closed, 0)] {
        let mut leader = Leader::with(3, &[2]);
        let mut all = leader.node.close(leader.now, 2, ending);
        let left = |all: &[Output]| {
            all.iter().any(|o| matches!(o, Output::Event(Event::Progress(p)) if p.joined == 1))
        };
        if at > 0 {
            all.extend(leader.run(ms(at - 100)));
            assert!(!left(&all), "{ending:?}");
            all.extend(leader.run(ms(at + 2000)));
        }
        assert!(left(&all), "{ending:?}");
    }
}

#[test]
fn a_standby_whose_connection_was_down_when_a_seat_became_free_gets_it_when_it_is_back() {
    let mut leader = Leader::with(2, &[2, 3]);
    leader.node.close(leader.now, 3, Ending::Broken);
    leader.close(2);
    assert_eq!(to(&leader.run(ms(1000)), 3, is_prepare), 0);
    leader.node.open(leader.now, 3, &[]);
    assert_eq!(to(&leader.run(ms(1100)), 3, is_prepare), 1);
}
