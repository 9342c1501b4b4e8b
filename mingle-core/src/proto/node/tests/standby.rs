//! A node that waits for a seat of a world that runs.

use std::time::Duration;

use super::*;

/// Node 2, which waits for a seat in the formation after the first.
fn standby(timeout: Option<Duration>) -> Node {
    let lineage = Lineage { generation: 1, origin: 7 };
    let mut node = Node::new(Config { lineage, stands_by: true, timeout, ..config(2) }, 1, Time::ZERO);
    let _ = outputs(&mut node);
    node
}

#[test]
fn a_node_whose_time_is_up_waits_for_30_seconds_if_the_job_ran_within_30_and_else_asks_for_five() {
    // At 40 s it asks, or waits until 70 s.
    for (told, ends) in [(vec![], 10), (vec![1], 45), (vec![1, 20], 75), (vec![1, 42], 80)] {
        let mut node = standby(Some(Duration::from_secs(10)));
        for &second in &told {
            assert_eq!(failure(&run(&mut node, Time::from_secs(second))), None);
            hear_from(&mut node, 9, &Message::running());
        }
        let all = run(&mut node, Time::from_millis(ends * 1000 - 1));
        assert_eq!(failure(&all), None, "told at {told:?}");
        let _ = deadline(&run(&mut node, Time::from_secs(ends)));
    }
}

const LATER: Lineage = Lineage { generation: 1, origin: 7 };

/// A member of a world of this lineage writes to this node, whose own lineage is earlier.
fn hear_of(node: &mut Node, lineage: Lineage, message: &Message) -> Vec<Output> {
    let header = Header { sender: id(9), recipient: ME, lineage };
    node.handle_datagram(node.shared.now, endpoint(9), &codec().encode(header, message));
    outputs(node)
}

#[test]
fn a_node_ends_when_the_commands_of_the_later_lineage_have_ended_well_of_which_it_was_told() {
    let mut node = Node::new(Config { stands_by: true, ..patient(2) }, 1, Time::ZERO);
    hear_of(&mut node, LATER, &Message::running());
    let other = Lineage { origin: 8, ..LATER };
    assert_eq!(failure(&hear_of(&mut node, other, &Message::Released)), None);
    assert_eq!(failure(&hear_of(&mut node, LATER, &Message::Released)), Some(&Failure::JobFinished));
}

#[test]
fn a_member_in_a_round_does_not_end_with_the_commands_of_another_world() {
    let (mut node, prepare) = joined(Config { stands_by: true, ..patient(2) });
    assert!(says(&hear(&mut node, &Message::Prepare(prepare)), is_ready));
    hear_of(&mut node, LATER, &Message::running());
    assert_eq!(hear_of(&mut node, LATER, &Message::Released), []);
    hear(&mut node, &Message::Void(1));
    assert_eq!(failure(&hear_of(&mut node, LATER, &Message::Released)), Some(&Failure::JobFinished));
}

#[test]
fn a_newcomer_leads_when_it_has_heard_neither_pong_nor_running_for_a_minute() {
    let world = "2:4".parse().unwrap();
    for (hears_pong, leads_at) in [(false, 60_000), (true, 110_000)] {
        let mut node = Node::new(Config { world, lineage: LATER, ..patient(2) }, 1, Time::ZERO);
        let mut all = run(&mut node, Time::from_secs(50));
        if hears_pong {
            hear_from(&mut node, 9, &Message::Pong);
        }
        all.extend(run(&mut node, Time::from_millis(leads_at - 1)));
        assert!(!all.contains(&Output::Event(Event::Leading)), "{leads_at}");
        let all = run(&mut node, Time::from_millis(leads_at));
        assert!(all.contains(&Output::Event(Event::Leading)), "{leads_at}");
    }
}
