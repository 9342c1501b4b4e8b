//! A node whose time is up, of a world that may have one of several sizes.

use std::time::Duration;

use super::*;

/// Node 2 of a world of this size, which has five seconds.
fn limited(world: &str) -> Config {
    Config { world: world.parse().unwrap(), timeout: Some(Duration::from_secs(5)), ..config(2) }
}

fn wants_world(said: &Said) -> bool {
    matches!(said, Said::Part(Part { wants_world: true, .. }))
}

#[test]
fn a_member_whose_time_is_up_asks_for_a_round_for_three_seconds_if_enough_nodes_are_here() {
    for (here, asked, ends) in [(1, 0, 5000), (2, 1, 8000)] {
        let (mut node, _) = joined(limited("2:4"));
        hear(&mut node, &welcome(here, 0));
        let mut all = node.run(Time::from_millis(ends - 1));
        assert_eq!(failure(&all), None, "{here} are here");
        all.extend(node.run(Time::from_millis(ends)));
        assert_eq!(deadline(&all).joined, here);
        assert_eq!(count(&all, wants_world), asked, "{here} are here");
    }
}

#[test]
fn a_member_whose_round_is_void_after_its_time_was_up_stays_for_three_seconds_more() {
    let (mut node, prepare) = joined(limited("2:4"));
    assert!(says(&hear(&mut node, &Said::Prepare(prepare)), is_ready));
    assert_eq!(failure(&node.run(Time::from_millis(7100))), None);
    hear(&mut node, &void(1));
    // It looks every 250 ms, and was in the round at 7 s.
    let all = node.run(Time::from_millis(9999));
    assert_eq!(failure(&all), None);
    let _ = deadline(&node.run(Time::from_secs(10)));
}

#[test]
fn a_node_that_may_not_lead_forms_no_world_of_its_own_when_its_time_is_up() {
    let mut config = limited("1:4");
    config.node.rank = Some(Rank(1));
    let mut node = hand(config);
    let all = node.run(Time::from_secs(5));
    assert_eq!(deadline(&all).rank, Some(Rank(1)));
}

#[test]
fn a_member_that_is_ready_stays_for_its_round_even_20_seconds_after_its_time_was_up() {
    let (mut node, prepare) = joined(limited("2:4"));
    node.run(Time::from_secs(5));
    hear(&mut node, &Said::Prepare(prepare.clone()));
    assert_eq!(failure(&node.run(Time::from_secs(14))), None);
    hear(&mut node, &void(1));
    assert_eq!(failure(&node.run(Time::from_secs(16))), None);
    assert!(says(&hear(&mut node, &Said::Prepare(Prepare { round: 2, ..prepare })), is_ready));
    assert_eq!(failure(&node.run(Time::from_millis(25_900))), None);
    assert!(has_formed(&hear(&mut node, &commit(2))));
}
