//! Members that answer and hold up every round.

use std::time::Duration;

use super::{broken, failure, hear_from, join, leading, ready, rounds, sent, unready};
use crate::proto::tests::{endpoint, run};
use crate::proto::timer::Time;
use crate::proto::{Event, Node, Output, PathDial, PathNews};
use crate::wire::Message;

/// The answer of a member to a message, which it repeats while its round goes on.
fn honest(message: &Message) -> Option<Message> {
    Some(match message {
        Message::Prepare(prepare) => ready(prepare.round),
        Message::Commit(commit) => Message::Done(commit.round),
        Message::Ping => Message::Pong,
        _ => return None,
    })
}

/// Node 2 leads, and each of the members 3 and so on answers: node 4 by `wrong`, the others as they should.
/// Each repeats its answer five times a second. Goes on until the node has ended.
fn lead_with(node: &mut Node, members: u8, wrong: fn(&Message, &Node) -> Option<Message>) -> Vec<Output> {
    lead_with_wrong(node, members, &[4], wrong)
}

/// The same, where all of these are wrong, for two minutes at most.
fn lead_with_wrong(
    node: &mut Node,
    members: u8,
    all_wrong: &[u8],
    wrong: fn(&Message, &Node) -> Option<Message>,
) -> Vec<Output> {
    let (mut all, mut last) = (Vec::new(), vec![None; usize::from(members)]);
    while node.shared.now < Time::from_secs(120) && !node.has_ended() {
        let next = node.shared.now + Duration::from_millis(200);
        let outputs = run(node, next);
        for output in &outputs {
            if let Output::DialPath(PathDial { dial, .. }) = output {
                node.handle_path(next, *dial, &PathNews::Arrived);
            }
        }
        for (member, last) in (3..).zip(&mut last) {
            let mut answers = Vec::new();
            for (_, message) in sent(&outputs).iter().filter(|(to, _)| *to == endpoint(member)) {
                let is_wrong = all_wrong.contains(&member);
                let answer = if is_wrong { wrong(message, node) } else { None };
                answers.extend(answer.or_else(|| honest(message).filter(|_| !is_wrong)));
            }
            *last = answers.pop().or(last.take());
            if let Some(answer) = last {
                all.extend(hear_from(node, member, answer));
            }
        }
        all.extend(outputs);
    }
    all
}

/// Answers, and never gets ready.
#[allow(clippy::unnecessary_wraps, reason = "one of several ways to answer")]
fn never_ready(_: &Message, _: &Node) -> Option<Message> {
    Some(Message::Pong)
}

/// Says of every master, itself included, that it is out of reach.
fn never_proved(message: &Message, _: &Node) -> Option<Message> {
    match message {
        Message::Prepare(prepare) => Some(broken(prepare.round, prepare.master, prepare.master_at)),
        message => honest(message),
    }
}

#[test]
fn without_a_standby_a_member_that_reaches_no_master_not_even_itself_is_named() {
    let (mut node, _) = leading(3);
    let all = lead_with(&mut node, 2, never_proved);
    // Chosen as master itself, it is not ready either.
    assert_eq!(unready(&all), ["host-4"]);
}

#[test]
fn two_nodes_that_hold_up_rounds_do_not_take_turns_on_one_seat() {
    for wrong in [never_proved, never_ready] {
        let (mut node, _) = leading(3);
        join(&mut node, 5, endpoint(5));
        let all = lead_with_wrong(&mut node, 3, &[4, 5], wrong);
        assert_eq!(unready(&all), ["host-5"]);
    }
}

#[test]
fn members_that_hold_up_a_round_each_in_turn_are_not_named() {
    let (mut node, _) = leading(3);
    let mut all = Vec::new();
    while node.shared.now < Time::from_secs(80) && !node.has_ended() {
        let next = node.shared.now + Duration::from_millis(200);
        let outputs = run(&mut node, next);
        // Of rounds 1, 2, 3 and so on, node 3 holds up the odd ones and node 4 the even ones.
        let round =
            1 + all.iter().filter(|output| matches!(output, Output::Event(Event::Preparing { .. }))).count();
        for member in [3, 4] {
            let is_slow = u8::try_from(round % 2).unwrap() == member % 2;
            let answer = if is_slow { Message::Pong } else { ready(u64::try_from(round).unwrap()) };
            all.extend(hear_from(&mut node, member, &answer));
        }
        all.extend(outputs);
    }
    assert!(rounds(&all).len() >= 4 && failure(&all).is_none(), "{:?}", failure(&all));
}
