//! The members of a running world: whose word counts, who is answered, and who is released.

use super::{address, config, hear, id, over, releasing, run, running, running_of, sent, tag};
use crate::model::{End, NodeId};
use crate::proto::Time;
use crate::proto::running::{Change, RunningNode};
use crate::wire::{Codec, Header, Message, Running, Solicit};

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

fn solicit() -> Message {
    Message::Solicit(Solicit { rank: None, host: config(8).node.host })
}

/// This node sends a message to this recipient.
fn hear_to(running: &mut RunningNode, from: u8, to: NodeId, message: &Message) {
    let header = Header { sender: id(from), recipient: to, lineage: running.lineage() };
    let datagram = Codec::new(tag(), None).encode(header, message);
    let now = running.context.now();
    running.handle_datagram(now, address(from), &datagram);
}

fn changes(running: &mut RunningNode) -> Vec<Change> {
    std::iter::from_fn(|| running.poll_change()).collect()
}

#[test]
fn a_node_alone_in_its_world_has_nobody_to_notify_nor_to_release() {
    let mut running = running_of(1, 0, None);
    running.handle_failure(ms(0), End::Exited(1));
    assert_eq!((changes(&mut running), running.poll_timeout()), (vec![Change::Notified], None));
    let mut running = running_of(1, 0, None);
    running.handle_success(ms(0));
    assert_eq!((changes(&mut running), running.poll_timeout()), (vec![Change::Finished], None));
}

#[test]
fn rank_0_counts_the_commands_of_members_alone() {
    let mut running = running_of(2, 0, None);
    running.handle_success(ms(0));
    let own = running.lineage();
    hear(&mut running, ms(0), 9, own, &Message::Finished);
    assert!(run(&mut running, ms(1)).is_empty() && sent(&mut running).is_empty());
    hear(&mut running, ms(1), 2, own, &Message::Finished);
    running.handle_timeout(ms(1));
    assert!(sent(&mut running).contains(&(false, Message::Released)));
}

#[test]
fn only_rank_0_releases_a_member_and_only_one_whose_command_has_ended_well() {
    for (finished, from, released) in [(true, 1, true), (true, 3, false), (false, 1, false)] {
        let mut running = running(1, None);
        if finished {
            running.handle_success(ms(0));
        }
        sent(&mut running);
        let own = running.lineage();
        hear(&mut running, ms(0), from, own, &Message::Released);
        let leaving = vec![(false, Message::Leaving); if released { 6 } else { 0 }];
        assert_eq!(sent(&mut running), leaving, "from {from}, finished: {finished}");
        assert_eq!(changes(&mut running), if released { vec![Change::Finished] } else { vec![] });
    }
}

#[test]
fn a_newcomer_is_told_that_the_job_runs_by_rank_0_or_by_who_is_asked_alone_while_it_runs() {
    for (rank, to_all, answers) in [(0, true, 1), (0, false, 1), (2, true, 0), (2, false, 1)] {
        for recipient in [Some(NodeId::ANYONE), None] {
            let mut running = running(rank, None);
            let own = running.context.own_id();
            let to = if to_all { NodeId::ALL } else { recipient.unwrap_or(own) };
            hear_to(&mut running, 9, to, &solicit());
            let told = sent(&mut running);
            let running = Message::Running(Running { first: address(1), door: None });
            assert_eq!(told, vec![(false, running); answers], "rank {rank}, to {to}");
        }
    }
    // A member that asks is none. When the world is over, its members say that they are there.
    let mut running = running(0, None);
    let own = running.context.own_id();
    hear_to(&mut running, 2, own, &solicit());
    assert_eq!(sent(&mut running), []);
    running.handle_failure(ms(0), End::Exited(1));
    sent(&mut running);
    hear_to(&mut running, 9, own, &solicit());
    assert_eq!(sent(&mut running), [(false, Message::Pong)]);
}

#[test]
fn a_node_that_has_been_released_goes_on_to_no_later_formation() {
    let mut released = running(1, None);
    released.handle_success(ms(0));
    for (mut running, from, word) in [(released, 1, Message::Released), (releasing(), 2, Message::Leaving)] {
        let own = running.lineage();
        hear(&mut running, ms(0), from, own, &word);
        assert_eq!(changes(&mut running), [Change::Finished]);
        sent(&mut running);
        hear(&mut running, ms(1), from, own.next().unwrap(), &over(0));
        running.handle_failure(ms(2), End::Exited(1));
        assert_eq!((changes(&mut running), sent(&mut running)), (vec![], vec![]));
        assert_eq!((running.lineage(), running.poll_timeout()), (own, None));
    }
}
