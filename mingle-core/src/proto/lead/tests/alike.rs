//! A leader asks its members for their traits, and waits for the answers for a time.

use super::{Leader, is_prepare, sent, to};
use crate::model::{Stamp, WorldSize};
use crate::proto::timer::Time;
use crate::proto::{ConnId, Output};
use crate::wire::Message;

fn join(leader: &mut Leader, member: u8, stamp: u64) -> Vec<Output> {
    leader.join(member, |node| node.attributes.same = Stamp(stamp))
}

/// The members that are asked for their traits, each once.
fn asked(outputs: &[Output]) -> Vec<u8> {
    let compares = sent(outputs).into_iter().filter(|(_, message)| matches!(message, Message::Want(_)));
    let mut asked: Vec<u8> = compares.map(|(to, _)| to).collect();
    asked.sort_unstable();
    asked.dedup();
    asked
}

#[test]
fn a_node_that_says_nothing_of_its_traits_is_not_asked_for_them_and_delays_no_round() {
    let mut leader = Leader::of(2, |config| config.node.attributes.same = Stamp(6));
    let outputs = join(&mut leader, 2, 0);
    assert!(asked(&outputs).is_empty() && to(&outputs, 2, is_prepare) > 0);
}

#[test]
fn of_many_stamps_the_sixteen_of_most_members_are_asked_about() {
    let mut leader = Leader::new(20);
    for member in 2..=18 {
        join(&mut leader, member, 2 * u64::from(member));
    }
    // The greatest stamp of all is the only one of two members.
    join(&mut leader, 19, 1000);
    let asked = asked(&join(&mut leader, 20, 1000));
    assert_eq!((asked.len(), asked.last()), (16, Some(&19)), "{asked:?}");
}

#[test]
fn a_stamp_that_nobody_has_had_for_a_round_is_asked_about_again() {
    let size: WorldSize = "2:5".parse().unwrap();
    let mut leader = Leader::of(5, |config| config.world = size);
    for (member, stamp) in [(2, 6), (3, 8), (5, 0)] {
        join(&mut leader, member, stamp);
    }
    assert_eq!(asked(&leader.run(Time::from_secs(16))), [2, 3], "the last call is over");
    let leave = |leader: &mut Leader, member: u8| {
        leader.node.handle_closed(leader.now, ConnId(member.into()));
        leader.outputs()
    };
    let outputs = leader.run(Time::from_secs(17));
    assert_eq!([2, 3, 5].map(|member| to(&outputs, member, is_prepare) > 0), [true; 3]);
    let outputs = leave(&mut leader, 2);
    assert!(asked(&outputs).is_empty() && to(&outputs, 3, is_prepare) > 0, "node 3 stays silent");
    join(&mut leader, 4, 6);
    assert_eq!(asked(&leave(&mut leader, 5)), [4]);
}
