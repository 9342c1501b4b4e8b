//! The end of a node: its deadline and the report of it, and a world that runs without the node.

use std::time::Duration;

use super::{
    LEADER, announce, candidate, commit, commits, config, deadline, has_formed, hear, hear_from, is_ready,
    join, join_message, joined, patient, prove, ready, rounds, running, says, sent,
};
use crate::proto::tests::{endpoint, outputs, run};
use crate::proto::timer::Time;
use crate::proto::{Cause, Config, ConnId, Event, Node, Output, Warning};
use crate::wire::{Message, Refusal, Welcome};

#[test]
fn a_node_that_has_ended_does_nothing() {
    let (mut node, prepare) = joined(config(2));
    hear(&mut node, &Message::Prepare(prepare));
    assert!(has_formed(&hear(&mut node, &commit(1))));
    node.handle_departure(Time::ZERO);
    node.handle_endpoints(Time::ZERO, endpoint(2).into(), crate::wire::Reach::default());
    node.handle_seeds(Time::ZERO, vec![endpoint(3)]);
    node.handle_timeout(Time::from_secs(99));
    assert_eq!(outputs(&mut node), []);
    assert_eq!(prove(&mut node, 9), [Output::Close(ConnId(9))]);
}

#[test]
fn a_member_that_runs_out_of_time_does_not_say_that_its_leader_is_out_of_reach() {
    for joins in [true, false] {
        let config = Config { timeout: Some(Duration::from_millis(500)), ..config(3) };
        let mut node = if joins { joined(config).0 } else { Node::new(config, 1, Time::ZERO) };
        if !joins {
            hear(&mut node, &announce(candidate(LEADER, 1, false)));
            hear(&mut node, &Message::Welcome(Welcome { lease: None, seated: false, trouble: None }));
        }
        let all = run(&mut node, Time::from_secs(1));
        let report = deadline(&all);
        assert_eq!(report.unreached.is_none(), joins, "{report:?}");
    }
}

#[test]
fn a_node_whose_leader_never_answered_names_it_at_the_deadline_with_its_rank() {
    let config = Config { timeout: Some(Duration::from_secs(3)), ..config(2) };
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = outputs(&mut node);
    hear(&mut node, &announce(candidate(LEADER, 1, true)));
    let all = run(&mut node, Time::from_secs(3));
    let report = deadline(&all);
    assert!(report.unanswered.is_some(), "{report:?}");
    let ranks: Vec<_> = report.heard.iter().map(|heard| (heard.address, heard.rank)).collect();
    assert_eq!(ranks, [(Some(endpoint(1)), Some(0))]);
}

/// Node 2 of a world of one of these sizes, after 50 ms in which it has announced itself.
fn of_a_range(world: &str) -> Node {
    let world = world.parse().unwrap();
    let mut node = Node::new(Config { world, ..patient(4) }, 1, Time::ZERO);
    let _ = run(&mut node, Time::from_millis(50));
    node
}

#[test]
fn what_a_node_says_while_it_waits_is_of_those_who_are_here_and_changes_no_later_report() {
    let told = |outputs: &[Output]| {
        let warnings = outputs.iter().filter_map(|output| match output {
            Output::Event(Event::Warning(Warning::Waiting { report, .. })) => Some(report.joined),
            _ => None,
        });
        warnings.collect::<Vec<u32>>()
    };
    // The fewest are here when it speaks, or not; then one leaves.
    for (world, waits) in [("2:4", vec![]), ("3:4", vec![2])] {
        let world = world.parse().unwrap();
        let last_call = Duration::from_secs(60);
        let timeout = Some(Duration::from_secs(30));
        let mut node = Node::new(Config { world, timeout, last_call, ..config(4) }, 1, Time::ZERO);
        let _ = run(&mut node, Time::from_millis(50));
        for member in [3, 4] {
            join(&mut node, member, endpoint(member));
        }
        node.handle_closed(Time::from_secs(1), ConnId(4));
        assert_eq!(node.lead.seated(), 2);
        let _ = run(&mut node, Time::from_secs(15));
        node.handle_wait(Time::from_secs(15), Duration::from_secs(15), Vec::new());
        assert_eq!(told(&outputs(&mut node)), waits, "{world}");
        node.handle_closed(Time::from_secs(16), ConnId(3));
        let all = run(&mut node, Time::from_secs(31));
        assert_eq!(deadline(&all).cause(), Cause::Incomplete, "{world}");
    }
}

#[test]
fn a_node_stands_aside_until_nobody_has_said_for_30_seconds_that_the_world_runs() {
    let mut node = of_a_range("3:4");
    // It has had a member by then.
    let join = join_message(3, endpoint(3), node.shared.config.world);
    let told = hear_from(&mut node, 3, &join);
    assert!(says(&told, |message| matches!(message, Message::Welcome(_))));
    prove(&mut node, 3);
    assert_eq!(node.lead.seated(), 2);
    for second in [1, 20, 40] {
        let _ = run(&mut node, Time::from_secs(second));
        let outputs = hear_from(&mut node, 9, &running());
        let warns =
            matches!(outputs[..], [Output::Event(Event::Warning(Warning::AlreadyRunning { .. })), ..]);
        assert_eq!(warns, second == 1, "{outputs:?}");
        let dismissed = (endpoint(3), Message::Refuse(Refusal::Closing));
        let leaves = sent(&outputs).contains(&dismissed) && outputs.contains(&Output::Close(ConnId(3)));
        assert_eq!(leaves, second == 1, "{outputs:?}");
        assert!(!node.leads() && node.lead.seated() == 1);
    }
    let _ = run(&mut node, Time::from_millis(69_900));
    assert!(!node.leads(), "30 s after the last");
    let outputs = run(&mut node, Time::from_millis(70_100));
    assert!(node.leads() && outputs.contains(&Output::Event(Event::Leading)), "{outputs:?}");
}

#[test]
fn nobody_can_say_to_a_leader_in_a_round_that_the_world_runs() {
    let mut node = of_a_range("2:2");
    assert_eq!(rounds(&join(&mut node, 3, endpoint(3))), [1]);
    let told = hear_from(&mut node, 9, &running());
    assert!(node.lead.is_proving() && sent(&told).is_empty(), "{told:?}");
    hear_from(&mut node, 3, &ready(1));
    let now = node.shared.now;
    assert!(commits(&run(&mut node, now)));
}

#[test]
fn a_follower_that_stands_aside_has_not_led_and_so_does_not_step_down() {
    for follows in [true, false] {
        let mut node = of_a_range("3:4");
        if follows {
            hear_from(&mut node, 1, &announce(candidate(LEADER, 1, false)));
            assert!(!node.leads());
        }
        let told = hear_from(&mut node, 9, &running());
        assert_eq!(told.contains(&Output::Event(Event::SteppedDown)), !follows, "{told:?}");
        assert!(node.follow.is_none() && !node.leads());
    }
}

#[test]
fn a_node_that_stays_goes_where_the_job_runs_unless_it_is_in_a_round() {
    let mut node = Node::new(Config { stands_by: true, ..patient(2) }, 1, Time::ZERO);
    assert_eq!(node.runs(), None);
    hear_from(&mut node, 9, &running());
    assert_eq!(node.runs().map(|(leader, _)| *leader), Some(LEADER));
    let (mut node, prepare) = joined(Config { stands_by: true, ..patient(2) });
    assert!(says(&hear(&mut node, &Message::Prepare(prepare)), is_ready));
    hear_from(&mut node, 9, &running());
    assert_eq!(node.runs(), None);
}
