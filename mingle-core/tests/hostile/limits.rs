//! How much an attacker draws from a node: datagrams and connections to an address that has sent nothing,
//! answers to one datagram, and memory.

use std::collections::BTreeSet;
use std::time::Duration;

use mingle_core::proto::testing::{Frame, KINDS, name};
use mingle_core::proto::{Ending, NodeId};

use crate::machine::cells::{RECIPIENTS, Way};
use crate::machine::link::Actor;
use crate::machine::promises::{Drawn, LEFT_TO_THE_OTHER};
use crate::machine::stages::{EVE, STAGES, Stage, id, play, stranger};
use crate::machine::{Attack, said};

/// The most that one forged datagram draws to addresses at which nobody is, in all the time that follows: a
/// node that is sent after a leader asks it seven times, by twelve datagrams at most, and dials it thrice
/// within a second.
const FORGED: Drawn = Drawn { datagrams: 12, bytes: 12 * 576, dials: 3 };
/// The most bytes that are drawn by one byte: the questions are as long as what draws them.
const AMPLIFICATION: usize = 12;
/// The most connections that are opened in that time to the addresses of a stranger that has joined: four at
/// once, and then ever fewer.
const JOINED: usize = 20;
/// How long the node is watched after that datagram.
const WATCHED: Duration = Duration::from_secs(20);
/// Senders and connections that a node may remember.
const CROWD: u32 = 5_000;
/// The connections of the crowd that are open at the same time.
const HELD: usize = 100;
/// The most bytes that a node takes for one of them in its Debug text, which has all that it remembers.
const EACH: usize = 50;

/// The most that one forged datagram of this kind draws from a node in this situation, and its length.
fn drawn_by(stage: &Stage, kind: u8, fields: &[u8]) -> Option<(Drawn, usize)> {
    let mut drawn = None;
    for recipient in RECIPIENTS {
        let mut play = stage.play(false);
        let sender = NodeId([20; 16]);
        // The attacker claims the address of another, and names it in the message.
        play.scene.endpoints.truncate(3);
        play.scene.nodes.insert(0, sender);
        let way = Way::Datagram(recipient);
        let attack = Attack { kind, way, sender, source: stranger(1) };
        let Some(datagram) = attack.datagram(&mut play, fields) else { continue };
        if play.forger.read(&datagram).is_err() {
            continue;
        }
        let before = play.link.watch.drawn;
        play.link.attack(stranger(1), &datagram);
        let until = play.link.now + WATCHED;
        play.link.run_until(until);
        let after = play.link.watch.drawn;
        let more = Drawn {
            datagrams: after.datagrams - before.datagrams,
            bytes: after.bytes - before.bytes,
            dials: after.dials - before.dials,
        };
        if drawn.is_none_or(|(most, _): (Drawn, _)| (more.bytes, more.dials) > (most.bytes, most.dials)) {
            drawn = Some((more, datagram.len()));
        }
    }
    drawn
}

#[test]
fn one_forged_datagram_draws_little_to_an_address_that_has_sent_nothing() {
    let mut most = Drawn::default();
    let mut broken = Vec::new();
    for stage in STAGES {
        for (kind, _) in KINDS {
            // The plain message, and one with six endpoints where there can be.
            for fields in [&[][..], &[0, 0, 0, 0, 0, 0, 5, 1, 2, 1, 2, 1, 2], &[3, 1, 1, 7, 3, 9, 4, 1, 2, 1]]
            {
                let Some((drawn, length)) = drawn_by(stage, *kind, fields) else { continue };
                let within = drawn.datagrams <= FORGED.datagrams
                    && drawn.bytes <= FORGED.bytes.min(AMPLIFICATION * length)
                    && drawn.dials <= FORGED.dials;
                if !within {
                    broken.push(format!("{}: {} of {length} bytes: {drawn:?}", stage.name, name(*kind)));
                }
                most.datagrams = most.datagrams.max(drawn.datagrams);
                most.bytes = most.bytes.max(drawn.bytes);
                most.dials = most.dials.max(drawn.dials);
            }
        }
    }
    assert!(
        broken.is_empty(),
        "{} break it, of them\n{}",
        broken.len(),
        broken[..broken.len().min(12)].join("\n")
    );
    // Otherwise nothing has been sent after a leader that is not there, and the test shows nothing.
    assert!(most.datagrams > 1 && most.dials > 1, "{most:?}");
}

#[test]
fn a_stranger_that_joins_and_reads_nothing_draws_few_connections_to_the_addresses_that_it_names() {
    for name in ["leads alone", "leads a member"] {
        // It keeps its connection, or breaks it.
        for breaks in [false, true] {
            let mut play = play(name);
            let before = play.link.watch.drawn;
            let conn = play.intrude(id(EVE)).expect("the node answers");
            // Six endpoints.
            play.says(conn, "Join", |_| (), &[0, 1, 0, 0, 0, 0, 5, 1, 2, 1, 2, 0]);
            if breaks {
                play.link.hang_up(conn, Ending::Broken);
            }
            let until = play.link.now + WATCHED;
            play.link.run_until(until);
            let dials = play.link.watch.drawn.dials - before.dials;
            assert!((1..=JOINED).contains(&dials), "{name}: {dials}");
        }
    }
}

/// How long the text of all that a node remembers is.
fn memory(actor: &Actor) -> usize {
    match actor {
        Actor::Node(node) => format!("{node:?}").len(),
        Actor::Gone => 0,
    }
}

#[test]
fn a_crowd_of_strangers_takes_a_bounded_part_of_a_nodes_memory() {
    // One situation of each phase.
    let mut phases = BTreeSet::new();
    for stage in STAGES.iter().filter(|stage| phases.insert(stage.phase)) {
        let mut play = stage.play(false);
        let mut sizes = [0; 2];
        for number in 0..2 * CROWD {
            let mut sender = [0xee; 16];
            sender[..4].copy_from_slice(&number.to_be_bytes());
            let frame = Frame { sender: NodeId(sender), recipient: play.link.own_id() };
            let (kind, _) = KINDS[usize::try_from(number / 4).unwrap() % KINDS.len()];
            play.scene.nodes[0] = NodeId(sender);
            // A follower would leave its leader for the first that redirects it.
            let datagram = play.forger.datagram(kind, frame, &play.scene, &[0, 1]).unwrap();
            play.link.attack(stranger(1), &datagram);
            // One of four senders of each kind opens a session, too, and every other one of these joins. The
            // driver permits so many connections.
            if number % 4 == 0
                && let Some(conn) = play.intrude(NodeId(sender))
            {
                if number % 8 == 0 {
                    let scene = play.scene.clone();
                    play.write(conn, said("Join"), &scene, &[]);
                }
                if let Some(oldest) =
                    play.link.intrusions.first().filter(|_| play.link.intrusions.len() > HELD)
                {
                    play.link.hang_up(oldest.conn, Ending::Closed);
                }
            }
            if number + 1 == CROWD {
                sizes[0] = memory(play.link.target());
            }
        }
        sizes[1] = memory(play.link.target());
        let grown = sizes[1].saturating_sub(sizes[0]);
        assert!(grown < EACH * CROWD as usize / 4, "{}: {sizes:?}", stage.name);
    }
}

#[test]
fn whoever_opens_many_connections_in_one_name_has_eight_at_a_time_at_most() {
    for stage in STAGES {
        let mut play = stage.play(false);
        let names: Vec<NodeId> = play.peers.iter().copied().chain([EVE]).map(id).collect();
        for name in names {
            // Of one session, and of one after the other.
            let first = play.later_number(name);
            for round in 0..40 {
                let own = play.link.intrude(name, first.wrapping_add(round / 20 * round));
                if let Some(conn) = own.filter(|_| round % 3 == 2) {
                    play.link.hang_up(conn, Ending::Closed);
                }
            }
            let open = play.link.intrusions.iter().filter(|own| own.peer == name).count();
            assert!(open <= LEFT_TO_THE_OTHER, "{}: {open} in the name of {name}", stage.name);
        }
    }
}
