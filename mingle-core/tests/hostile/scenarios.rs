//! Attacks that once did harm, or would without one check. Each shows first that it reaches the state that it
//! is about, and that the node goes on where the attacker keeps to the protocol.

use std::time::Duration;

use mingle_core::Event;
use mingle_core::proto::testing::{Phase, Scene};
use mingle_core::proto::{ConnId, DialId, Failure, Formed};

use crate::machine::promises::TIMEOUT;
use crate::machine::stages::{EVE, Play, endpoint, id, play, stranger};

/// How long a node is ready at most, from its first Prepare on.
const LONGEST_READY: Duration = Duration::from_secs(30);

impl Play {
    fn round_of_eve(&mut self, kind: &str, fields: &[u8], change: impl FnOnce(&mut Scene)) {
        let lease = self.link.watch.last_dial(stranger(1)).expect("the node has dialled the attacker");
        let me = self.own();
        let honest = |scene: &mut Scene| {
            (scene.dials, scene.rounds, scene.ranks) = (vec![lease], vec![1], vec![1]);
            (scene.nodes, scene.endpoints) = (vec![id(EVE), id(me)], vec![stranger(1), endpoint(me)]);
        };
        let change = |scene: &mut Scene| {
            honest(scene);
            change(scene);
        };
        self.hear(kind, EVE, change, fields);
    }

    /// The attacker announces itself as better than every other, and accepts the connection: the node joins
    /// it.
    fn follows_eve(mut self) -> Self {
        self.hear("Announce", EVE, |scene| scene.nodes = vec![id(EVE)], &[]);
        let dial = self.link.watch.last_dial(stranger(1)).expect("it dials the attacker");
        self.link.watch.connected(DialId(dial));
        self.link.node(|node, now| node.handle_dialed(now, DialId(dial)));
        self.round_of_eve("Welcome", &[], |_| ());
        assert_eq!(self.link.phase(), Phase::Joined, "the node has joined the attacker");
        self
    }

    fn formed(&self) -> Option<&Formed> {
        self.link.watch.formed.as_ref()
    }

    /// The attacker joins this leader and proves its connection.
    fn joined_by_eve(&mut self) {
        self.hear("Join", EVE, |_| (), &[]);
        let hello = self.forger.hello(id(EVE), self.link.own_id(), 1, endpoint(self.own()));
        let local = endpoint(self.own()).ip();
        self.link.node(|node, now| node.handle_hello(now, ConnId(99), local, local, &hello));
    }
}

#[test]
fn an_attacker_that_keeps_to_the_protocol_leads_a_world() {
    for name in ["leads alone", "looks, given rank 1"] {
        let mut play = play(name).follows_eve();
        play.round_of_eve("Prepare", &[], |_| ());
        assert_eq!(play.link.phase(), Phase::Ready, "{name}");
        play.round_of_eve("Commit", &[], |_| ());
        let formed = play.formed().expect("the world has formed");
        assert_eq!((formed.rank.get(), formed.master), (1, stranger(1)), "{name}");
    }
}

#[test]
fn a_ready_node_ends_30_s_after_its_first_prepare_whatever_its_leader_repeats() {
    // A higher round is another one, and none begins after the deadline.
    for (grows, longest) in [(false, LONGEST_READY), (true, TIMEOUT + Duration::from_secs(1))] {
        let mut play = play("leads alone").follows_eve();
        play.round_of_eve("Prepare", &[], |_| ());
        assert_eq!(play.link.phase(), Phase::Ready);
        let started = play.link.now;
        for round in 2.. {
            let until = play.link.now + Duration::from_millis(10);
            play.link.run_until(until);
            if play.link.phase() == Phase::Ended {
                break;
            }
            assert!(play.link.now <= started + longest, "still ready; higher rounds: {grows}");
            play.round_of_eve("Prepare", &[], |scene| scene.rounds = vec![if grows { round } else { 1 }]);
        }
        let (end, at) = play.link.watch.end.clone().expect("an end");
        let is_unknown = matches!(end, Event::Failed(Failure::OutcomeUnknown { .. }));
        let is_late = matches!(end, Event::Failed(Failure::Deadline(_)));
        assert!(if grows { is_unknown || is_late } else { is_unknown }, "{end:?} at {at:?}");
        assert!(at >= Duration::from_secs(10), "it hears the leader: {at:?}");
    }
}

/// A lie of a leader in Prepare: its name, a change of the scene, and the bytes of the fields.
type Lie = (&'static str, fn(&mut Scene, u8), &'static [u8]);

const LIES: &[Lie] = &[
    ("another rank than the given one", |scene, _| scene.ranks = vec![2], &[]),
    ("rank 0, although the leader is the master", |scene, _| scene.ranks = vec![0], &[]),
    ("a rank that the world has not", |scene, _| scene.ranks = vec![3], &[]),
    (
        "this node is the master at another address",
        |scene, me| {
            (scene.nodes, scene.ranks) = (vec![id(me)], vec![0]);
            scene.endpoints = vec![([8, 8, 8, 8], 53).into()];
        },
        &[],
    ),
    (
        "this node is the master at its loopback",
        |scene, me| {
            (scene.nodes, scene.ranks) = (vec![id(me)], vec![0]);
            scene.endpoints = vec![([127, 0, 0, 1], 22).into()];
        },
        &[],
    ),
    (
        "this node is the master and rank 1",
        |scene, me| (scene.nodes, scene.endpoints) = (vec![id(me)], vec![endpoint(me)]),
        &[],
    ),
    // Round, lease, rank, size, roster, slots on lower ranks, and then in all.
    ("2^64 - 1 slots", |_, _| (), &[0, 0, 0, 0, 0, 0, 4]),
    ("no slots in all", |_, _| (), &[0, 0, 0, 0, 0, 0, 1]),
];

#[test]
fn a_follower_is_never_ready_for_a_prepare_that_cannot_be_true() {
    for (lie, change, fields) in LIES {
        let mut play = play("looks, given rank 1").follows_eve();
        let me = play.own();
        play.round_of_eve("Prepare", fields, |scene| change(scene, me));
        let ready = play.sent("Ready");
        play.round_of_eve("Commit", &[], |_| ());
        assert!(ready == 0 && play.formed().is_none(), "{lie}: {:?}", play.formed());
        // It waits for a round that can be true.
        play.round_of_eve("Prepare", &[], |scene| scene.rounds = vec![2]);
        assert_eq!(play.link.phase(), Phase::Ready, "after {lie}");
    }
}

#[test]
fn a_roster_without_this_node_or_with_it_at_another_rank_makes_no_node_ready() {
    let (me, other) = (2, 9);
    for (what, members, ready) in [
        ("this node at its rank", [EVE, me, other], true),
        ("without it", [EVE, 8, other], false),
        ("at another rank", [EVE, other, me], false),
        ("twice", [EVE, me, me], false),
        ("another master", [8, me, other], false),
    ] {
        let mut play = play("leads alone and wants the roster").follows_eve();
        let rosters = vec![Play::roster_of(&members)];
        play.round_of_eve("Prepare", &[], |scene| scene.rosters.clone_from(&rosters));
        assert_eq!(play.link.phase(), Phase::Preparing, "it waits for the roster");
        let dial = play.link.watch.last_dial(stranger(1)).expect("the node has dialled the attacker");
        let roster = play.forger.roster(id(EVE), 1, &rosters[0]);
        play.link.node(|node, now| node.handle_roster(now, DialId(dial), &roster));
        assert_eq!(play.link.phase() == Phase::Ready, ready, "{what}");
        play.round_of_eve("Commit", &[], |_| ());
        assert_eq!(play.formed().is_some(), ready, "{what}");
    }
}

#[test]
fn running_puts_no_node_aside_whose_world_has_one_size() {
    for name in ["leads alone", "leads a member", "has joined"] {
        let mut play = play(name);
        let phase = play.link.phase();
        play.hear("Running", EVE, |_| (), &[]);
        assert_eq!(play.link.phase(), phase, "{name}");
    }
}

#[test]
fn a_world_of_one_size_forms_although_every_node_hears_running() {
    let mut play = play("leads a member");
    play.hear("Running", EVE, |_| (), &[]);
    play.add(3);
    play.link.run_to(Phase::Ended, Duration::from_secs(2));
    assert!(play.formed().is_some(), "{:?}", play.link.watch.end);
}

#[test]
fn a_node_that_stands_aside_looks_again_before_its_deadline() {
    let mut play = play("stands aside");
    assert_eq!(play.link.phase(), Phase::StandsAside);
    play.link.run_to(Phase::Alone, TIMEOUT);
}

#[test]
fn a_member_that_answers_and_is_never_ready_does_not_keep_its_leader_past_the_deadline() {
    let mut play = play("leads a member");
    play.joined_by_eve();
    assert_eq!(play.link.phase(), Phase::Proving, "a round has begun");
    let prepares = play.sent("Prepare");
    while play.link.phase() != Phase::Ended {
        let until = play.link.now + Duration::from_millis(50);
        play.link.run_until(until);
        play.hear("Pong", EVE, |_| (), &[]);
        assert!(play.link.now < TIMEOUT + Duration::from_secs(16), "{:?}", play.link.phase());
    }
    assert!(prepares > 0 && play.sent("Prepare") > 10 + prepares, "Prepare is repeated to the member");
    let (end, at) = play.link.watch.end.clone().expect("an end");
    assert!(at >= TIMEOUT, "{end:?} at {at:?}");
    // The member is named, by its host or its address: it was here, and was never ready.
    let Event::Failed(failure) = &end else { panic!("{end:?}") };
    assert!(failure.to_string().contains("198.18.0.1"), "{failure}");
}

#[test]
fn a_member_that_is_never_ready_gives_its_seat_to_a_node_that_waits() {
    let mut play = play("leads a member");
    play.joined_by_eve();
    assert_eq!(play.link.phase(), Phase::Proving, "a round has begun with the attacker");
    play.add(3);
    while play.link.phase() != Phase::Ended && play.link.now < TIMEOUT {
        let until = play.link.now + Duration::from_millis(50);
        play.link.run_until(until);
        play.hear("Pong", EVE, |_| (), &[]);
    }
    assert!(play.formed().is_some(), "the world forms without the attacker: {:?}", play.link.watch.end);
}

#[test]
fn a_leader_that_names_a_dial_before_it_is_connected_is_not_joined() {
    let mut play = play("leads alone");
    play.hear("Announce", EVE, |scene| scene.nodes = vec![id(EVE)], &[]);
    let dial = play.link.watch.last_dial(stranger(1)).expect("it dials the attacker");
    play.round_of_eve("Welcome", &[], |_| ());
    assert_eq!(play.link.phase(), Phase::Joining, "nothing was proved");
    play.link.watch.connected(DialId(dial));
    play.link.node(|node, now| node.handle_dialed(now, DialId(dial)));
    play.round_of_eve("Welcome", &[], |_| ());
    assert_eq!(play.link.phase(), Phase::Joined);
}
