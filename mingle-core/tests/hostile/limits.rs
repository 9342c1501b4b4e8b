//! How much an attacker draws from a node: datagrams and connections to an address that has sent nothing,
//! answers to one datagram, and memory.

use std::collections::BTreeSet;
use std::time::Duration;

use mingle_core::proto::testing::{Frame, KINDS, name};
use mingle_core::proto::{ConnId, NodeId};

use crate::machine::Attack;
use crate::machine::cells::{RECIPIENTS, Relation};
use crate::machine::link::Actor;
use crate::machine::promises::Drawn;
use crate::machine::stages::{STAGES, Stage, endpoint, stranger};

/// The most that one forged datagram draws to addresses at which nobody is, in all the time that follows: a
/// node that is sent after a leader sends its Join seven times, twelve datagrams at most, and dials it once.
const FORGED: Drawn = Drawn { datagrams: 12, bytes: 12 * 576, dials: 1 };
/// The most bytes that are drawn by one byte: the Joins are as long as what draws them.
const AMPLIFICATION: usize = 12;
/// How long the node is watched after that datagram.
const WATCHED: Duration = Duration::from_secs(20);
/// Senders and connections that a node may remember.
const CROWD: u32 = 5_000;
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
        let attack = Attack { kind, recipient, relation: Relation::Same, sender, source: stranger(1) };
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
    assert!(most.datagrams > 1 && most.dials == 1, "{most:?}");
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
            let frame =
                Frame { sender: NodeId(sender), recipient: play.link.own_id(), lineage: play.lineage };
            // One of four senders of each kind brings a hello, too.
            let (kind, _) = KINDS[usize::try_from(number / 4).unwrap() % KINDS.len()];
            play.scene.nodes[0] = NodeId(sender);
            // A follower would leave its leader for the first that redirects it.
            let datagram = play.forger.datagram(kind, frame, &play.scene, &[0, 1]).unwrap();
            play.link.attack(stranger(1), &datagram);
            if number % 4 == 0 {
                let hello = play.forger.hello(NodeId(sender), play.link.own_id(), 1, endpoint(1));
                let conn = ConnId(1000 + u64::from(number));
                play.link.node(|node, now| {
                    node.handle_hello(now, conn, endpoint(1).ip(), endpoint(1).ip(), &hello);
                });
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
