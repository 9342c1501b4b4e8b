//! Attacks that once did harm, or would without one check. Each shows first that it reaches the state that it
//! is about, and that the node goes on where the attacker keeps to the protocol.

use std::time::Duration;

use mingle_core::Event;
use mingle_core::proto::testing::{Forger, Phase, Scene, Seen, seen};
use mingle_core::proto::{ConnId, Ending, Failure, Formed};

use crate::machine::promises::TIMEOUT;
use crate::machine::said;
use crate::machine::stages::{EVE, Play, STAGES, endpoint, id, play, stranger};

/// How long a node is ready at most, from its first Prepare on.
const LONGEST_READY: Duration = Duration::from_secs(30);

/// An attacker that leads a node, and its connection.
struct Led {
    play: Play,
    conn: ConnId,
}

impl Led {
    /// The attacker says this of its first round, where it is rank 0 and the node has rank 1.
    fn says(&mut self, what: &str, fields: &[u8], change: impl FnOnce(&mut Scene)) {
        let me = self.play.own();
        let change = |scene: &mut Scene| {
            (scene.rounds, scene.ranks) = (vec![1], vec![1]);
            (scene.nodes, scene.endpoints) = (vec![id(EVE), id(me)], vec![stranger(1), endpoint(me)]);
            change(scene);
        };
        self.play.says(self.conn, what, change, fields);
    }
}

impl Play {
    /// The attacker announces itself as better than every other, accepts the connection, and welcomes the
    /// node: it joins.
    fn follows_eve(mut self) -> Led {
        self.hear("Announce", EVE, |scene| scene.nodes = vec![id(EVE)], &[]);
        let mut dials = self.link.own_dials().into_iter().rev();
        let dial = dials.find(|&at| self.link.dials[at].to == stranger(1));
        let conn = self.link.accept(dial.expect("it dials the attacker"), 1);
        assert_eq!(self.link.phase(), Phase::Joining, "nobody has welcomed it");
        let mut led = Led { play: self, conn };
        // No round is void.
        led.says("Welcome", &[], |scene| scene.rounds = vec![0]);
        assert_eq!(led.play.link.phase(), Phase::Joined, "the node has joined the attacker");
        led
    }

    fn formed(&self) -> Option<&Formed> {
        self.link.watch.formed.as_ref()
    }

    /// The attacker opens a session in this name.
    fn intrudes(&mut self, name: u8) -> ConnId {
        self.intrude(id(name)).expect("the node answers")
    }

    /// The attacker has read all that it was told, and is ready in a round that there is not alone.
    fn answers(&mut self, conn: ConnId) {
        if self.link.intrusions.iter().any(|own| own.conn == conn) {
            self.says(conn, "Part", |scene| scene.rounds = vec![9], &[]);
        }
    }

    /// The attacker joins this leader.
    fn joined_by_eve(&mut self) -> ConnId {
        let conn = self.intrudes(EVE);
        self.says(conn, "Join", |_| (), &[]);
        conn
    }
}

#[test]
fn an_attacker_that_keeps_to_the_protocol_leads_a_world() {
    for name in ["leads alone", "looks, given rank 1"] {
        let mut led = play(name).follows_eve();
        led.says("Prepare", &[], |_| ());
        assert_eq!(led.play.link.phase(), Phase::Ready, "{name}");
        led.says("Commit", &[], |_| ());
        let formed = led.play.formed().expect("the world has formed");
        assert_eq!((formed.rank.get(), formed.master), (1, stranger(1)), "{name}");
    }
}

#[test]
fn a_ready_node_ends_30_s_after_its_first_prepare_whatever_its_leader_repeats() {
    // A higher round is another one, and none begins after the deadline.
    for (grows, longest) in [(false, LONGEST_READY), (true, TIMEOUT + Duration::from_secs(1))] {
        let mut led = play("leads alone").follows_eve();
        led.says("Prepare", &[], |_| ());
        assert_eq!(led.play.link.phase(), Phase::Ready);
        let started = led.play.link.now;
        for round in 2.. {
            let until = led.play.link.now + Duration::from_millis(10);
            led.play.link.run_until(until);
            if led.play.link.phase() == Phase::Ended {
                break;
            }
            assert!(led.play.link.now <= started + longest, "still ready; higher rounds: {grows}");
            led.says("Prepare", &[], |scene| scene.rounds = vec![if grows { round } else { 1 }]);
        }
        let (end, at) = led.play.link.watch.end.clone().expect("an end");
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
    // Round, rank, size, roster, slots on lower ranks, and then in all.
    ("2^64 - 1 slots", |_, _| (), &[0, 0, 0, 0, 0, 4]),
    ("no slots in all", |_, _| (), &[0, 0, 0, 0, 0, 1]),
];

#[test]
fn a_follower_is_never_ready_for_a_prepare_that_cannot_be_true() {
    for (lie, change, fields) in LIES {
        let mut led = play("looks, given rank 1").follows_eve();
        let me = led.play.own();
        led.says("Prepare", fields, |scene| change(scene, me));
        let ready = led.play.said("answer: Ready");
        led.says("Commit", &[], |_| ());
        assert!(ready == 0 && led.play.formed().is_none(), "{lie}: {:?}", led.play.formed());
        // It waits for a round that can be true.
        led.says("Prepare", &[], |scene| scene.rounds = vec![2]);
        assert_eq!((led.play.link.phase(), led.play.said("answer: Ready")), (Phase::Ready, 1), "after {lie}");
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
        let mut led = play("leads alone and wants the roster").follows_eve();
        let rosters = vec![Play::roster_of(&members)];
        led.says("Roster", &[], |scene| scene.rosters.clone_from(&rosters));
        assert_ne!(led.play.link.phase(), Phase::Ready, "it waits for the prepare");
        led.says("Prepare", &[], |scene| scene.rosters.clone_from(&rosters));
        assert_eq!(led.play.link.phase() == Phase::Ready, ready, "{what}");
        led.says("Commit", &[], |_| ());
        assert_eq!(led.play.formed().is_some(), ready, "{what}");
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
fn a_member_that_answers_and_is_never_ready_is_named_after_one_round() {
    let mut play = play("leads a member");
    let eve = play.joined_by_eve();
    assert_eq!(play.link.phase(), Phase::Proving, "a round has begun");
    while play.link.phase() != Phase::Ended {
        let until = play.link.now + Duration::from_millis(50);
        play.link.run_until(until);
        play.answers(eve);
        assert!(play.link.now < Duration::from_secs(19), "{:?}", play.link.phase());
    }
    let has_begun = |round| play.link.watch.said.iter().any(|frame| seen(frame) == Seen::Prepare(round));
    assert!(has_begun(1) && !has_begun(2));
    let (end, _) = play.link.watch.end.clone().expect("an end");
    // The member is named, by its host or its address: it was here, and was never ready.
    let Event::Failed(failure) = &end else { panic!("{end:?}") };
    assert!(failure.to_string().contains("198.18.0.1"), "{failure}");
}

#[test]
fn a_member_that_is_never_ready_gives_its_seat_to_a_node_that_waits() {
    // Whether it answers or not.
    for answers in [true, false] {
        let mut play = play("leads a member");
        let eve = play.joined_by_eve();
        assert_eq!(play.link.phase(), Phase::Proving, "a round has begun with the attacker");
        play.add(3);
        while play.link.phase() != Phase::Ended && play.link.now < TIMEOUT {
            let until = play.link.now + Duration::from_millis(50);
            play.link.run_until(until);
            if answers {
                play.answers(eve);
            }
        }
        assert!(play.formed().is_some(), "the world forms without the attacker: {:?}", play.link.watch.end);
    }
}

/// What one node can say to another: what it is, and the bytes of the fields. Round 1 is the only one.
const SAYINGS: &[(&str, &[u8])] = &[
    ("Join", &[]),
    ("Part", &[]),
    ("Welcome", &[]),
    ("Prepare", &[]),
    ("Roster", &[]),
    ("Commit", &[]),
    ("Refuse", &[]),
    // Closing, and a redirect to a candidate that was given rank 0.
    ("Refuse", &[3]),
    ("Refuse", &[10]),
];

#[test]
fn a_ready_node_is_released_in_its_leaders_name_alone() {
    for stage in ["is ready", "is ready, given rank 1", "is ready past its deadline"] {
        let phase = play(stage).link.phase();
        for name in [EVE, 3] {
            let mut play = play(stage);
            let conn = play.intrudes(name);
            for (what, fields) in SAYINGS {
                play.says(conn, what, |scene| scene.rounds = vec![1], fields);
                assert_eq!(play.link.phase(), phase, "{stage}: {what} in the name of {name}");
            }
            play.link.hang_up(conn, Ending::Closed);
            assert_eq!(play.link.phase(), phase, "{stage}");
        }
    }
    // Whoever knows the leader's ID can pass for it where there is no secret.
    for (what, fields, phase) in [
        ("Welcome", &[][..], Phase::Joined),
        ("Commit", &[], Phase::Ended),
        ("Refuse", &[], Phase::Ready),
        ("Refuse", &[3], Phase::Ready),
        ("Refuse", &[10], Phase::Ready),
    ] {
        let mut play = play("is ready");
        let conn = play.intrudes(1);
        play.says(conn, what, |scene| scene.rounds = vec![1], fields);
        assert_eq!((play.link.phase(), play.formed().is_some()), (phase, what == "Commit"), "{what}");
    }
}

#[test]
fn who_acknowledges_what_was_never_said_loses_the_connection_and_changes_nothing() {
    for stage in STAGES {
        for name in [EVE, 1, 2, 3] {
            let mut play = stage.play(false);
            let Some(conn) = play.intrude(id(name)) else { continue };
            for (what, _) in SAYINGS {
                let frame =
                    Forger::frame(said(what), 1, u64::MAX, &play.scene, &[]).expect("a kind of frame");
                assert!(!play.link.write(conn, frame), "{}: {what} in the name of {name}", stage.name);
            }
            assert_eq!((play.link.phase(), play.link.intrusions.len()), (stage.phase, 0), "{}", stage.name);
        }
    }
}

#[test]
fn whoever_passes_for_all_members_can_say_that_they_are_ready_and_for_fewer_cannot() {
    let mut play = play("leads a round");
    let numbers = [2, 3].map(|member| play.later_number(id(member)));
    play.link.silence();
    for (name, number, phase) in [
        (2, numbers[0], Phase::Proving),
        (EVE, 1, Phase::Proving),
        (2, numbers[0], Phase::Proving),
        (3, numbers[1], Phase::Committed),
    ] {
        let conn = play.link.intrude(id(name), number).expect("the leader answers");
        play.says(conn, "Part", |scene| scene.rounds = vec![1], &[]);
        play.link.run_until(play.link.now);
        assert_eq!(play.link.phase(), phase, "after {name}");
    }
}

#[test]
fn a_stranger_has_a_nodes_session_by_its_number_and_begins_another_only_at_the_nodes_own_address() {
    // That of a leader with its member, and that of a member with its leader.
    for (stage, name) in [("leads a member", 2), ("has joined", 1)] {
        let own = [(0, true), (1, true), (u64::MAX, false)].map(|(later, has)| (endpoint(name), later, has));
        let others = [0, 1, 1 << 62, u64::MAX].map(|later| (stranger(1), later, later == 0));
        for (from, later, has) in own.into_iter().chain(others) {
            let mut play = play(stage);
            let number = play.link.number_of(id(name)).expect("it is there").wrapping_add(later);
            let answered = play.link.ask(id(name)).expect("it answers");
            let conn = play.link.open_from(from, id(name), (answered, number));
            let until = play.link.now + Duration::from_secs(1);
            play.link.run_until(until);
            assert_eq!(play.link.intrusions.len(), usize::from(has), "{stage}, {later}");
            assert_eq!(play.link.phase(), play.phase(), "{stage}, {later}");
            if has {
                play.link.hang_up(conn, Ending::Closed);
            }
            play.add(3);
            play.link.run_to(Phase::Ended, Duration::from_secs(5));
            assert!(play.formed().is_some(), "{stage}, {later}: {:?}", play.link.watch.end);
        }
    }
}
