//! Members that answer and hold up every round.

use std::time::Duration;

use super::{broken, hear_from, join, leading, ready, said, unready};
use crate::proto::tests::Hand;
use crate::proto::timer::Time;
use crate::proto::{Output, PathDial, PathNews};
use crate::wire::Said;

/// What a member answers to a prepare as it should.
fn honest(said: &Said) -> Option<Said> {
    match said {
        Said::Prepare(prepare) => Some(ready(prepare.round)),
        _ => None,
    }
}

/// Node 2 leads, and has said so much; each of the members 3 and so on answers: these by `wrong`, the others
/// as they should. Each says its answer five times a second, and acknowledges what it reads. Goes on until
/// the node has ended, for two minutes at most.
fn lead_with(
    (node, mut all): (&mut Hand, Vec<Output>),
    members: u8,
    all_wrong: &[u8],
    wrong: fn(&Said) -> Option<Said>,
) -> Vec<Output> {
    let mut last = vec![None; usize::from(members)];
    while node.shared.now < Time::from_secs(120) && !node.has_ended() {
        let next = node.shared.now + Duration::from_millis(200);
        let outputs = node.run(next);
        for output in &outputs {
            if let Output::DialPath(PathDial { dial, .. }) = output {
                node.handle_path(next, *dial, &PathNews::Arrived);
            }
        }
        for (member, last) in (3..).zip(&mut last) {
            let answer = if all_wrong.contains(&member) { wrong } else { honest };
            let told = said(&all).into_iter().chain(said(&outputs)).filter(|(to, _)| *to == member);
            let newest = told.rev().find_map(|(_, said)| answer(&said));
            *last = newest.or(last.take());
            let says = last.clone().unwrap_or_else(|| ready(0));
            all.extend(hear_from(node, member, &says));
        }
        all.extend(outputs);
    }
    all
}

/// Acknowledges, and never gets ready.
fn never_ready(_: &Said) -> Option<Said> {
    None
}

/// Says of every master, itself included, that it is out of reach.
fn never_proved(said: &Said) -> Option<Said> {
    match said {
        Said::Prepare(prepare) => Some(broken(prepare.round, prepare.master, prepare.master_at)),
        _ => None,
    }
}

#[test]
fn without_a_standby_a_member_that_reaches_no_master_not_even_itself_is_named() {
    let (mut node, begun) = leading(3);
    let all = lead_with((&mut node, begun), 2, &[4], never_proved);
    // Chosen as master itself, it is not ready either.
    assert_eq!(unready(&all), ["host-4"]);
}

#[test]
fn two_nodes_that_hold_up_rounds_do_not_take_turns_on_one_seat() {
    for wrong in [never_proved, never_ready] {
        let (mut node, mut begun) = leading(3);
        begun.extend(join(&mut node, 5));
        let all = lead_with((&mut node, begun), 3, &[4, 5], wrong);
        assert_eq!(unready(&all), ["host-5"]);
    }
}
