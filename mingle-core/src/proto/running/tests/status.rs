//! The answers to observers.

use super::*;
use crate::wire::Status;

/// The answers that are sent until this time, and to whom.
fn answers(running: &mut RunningNode, until: Time) -> Vec<(SocketAddr, Status)> {
    running.handle_timeout(until);
    let mut codec = Codec::new(tag(), None);
    let sent = std::iter::from_fn(|| running.poll_output()).filter_map(|output| match output {
        Output::Send { to, datagram } => Some((to, codec.decode(&datagram).unwrap().1)),
        _ => None,
    });
    sent.filter_map(|(to, message)| match message {
        Message::Status(status) => Some((to, status)),
        _ => None,
    })
    .collect()
}

fn ask(running: &mut RunningNode, now: Time, observer: u8) {
    hear(running, now, observer, Lineage::default(), &Message::Query);
}

#[test]
fn a_member_answers_an_observer_of_any_lineage_in_the_turn_of_its_rank() {
    let mut running = running(2, None);
    running.set_restarts_left(3);
    ask(&mut running, Time::ZERO, 77);
    assert_eq!(answers(&mut running, Time::from_micros(99)), []);
    let status = Status {
        rank: 2,
        world: 4,
        host: running.context.members.own().host.clone(),
        has_finished: false,
        restarts_left: Some(3),
        suspected: std::iter::empty().collect(),
        waiting: 0,
    };
    assert_eq!(answers(&mut running, Time::from_micros(100)), [(address(77), status.clone())]);
    let later = Time::from_secs(1);
    running.handle_success(later);
    hear(&mut running, later, 2, Lineage::default(), &Message::Query);
    let all = answers(&mut running, later + Duration::from_millis(1));
    assert_eq!(all, [(address(2), Status { has_finished: true, ..status })], "a member may ask as well");
}

#[test]
fn an_observer_gets_one_answer_in_250_ms_and_at_most_four_hosts_get_one_at_once() {
    let mut running = running(1, None);
    let mut sent = Vec::new();
    for millisecond in 0..1000 {
        let now = Time::from_millis(millisecond);
        for observer in 100..110 {
            ask(&mut running, now, observer);
        }
        sent.extend(answers(&mut running, now + Duration::from_micros(500)));
    }
    assert_eq!(sent.len(), 16);
}

#[test]
fn a_status_is_no_sign_of_life_and_ends_no_world() {
    let mut running = running(0, None);
    let status = Message::Status(running.status());
    let own = running.lineage();
    hear(&mut running, Time::ZERO, 3, own.next().unwrap(), &status);
    assert_eq!((running.poll_change(), running.lineage()), (None, own));
    a_newcomer_asks(&mut running, Time::ZERO);
    answer(&mut running, Time::ZERO, [2, 4]);
    hear(&mut running, Time::ZERO, 3, own, &status);
    let changes = run(&mut running, Time::from_secs(10));
    assert!(
        matches!(&changes[..], [Change::Over(over), Change::Notified] if over.rank == Some(Rank(2))),
        "{changes:?}"
    );
}

#[test]
fn a_member_whose_world_is_over_answers_no_observer_and_a_query_ends_no_world() {
    let mut running = running(1, None);
    let far = Lineage { generation: 9, origin: running.lineage().origin };
    hear(&mut running, Time::ZERO, 77, far, &Message::Query);
    assert_eq!((running.poll_change(), running.lineage().generation), (None, 0));
    assert_eq!(answers(&mut running, Time::from_millis(1)).len(), 1);
    ask(&mut running, Time::from_millis(2), 77);
    running.handle_failure(Time::from_millis(3), End::Exited(1));
    ask(&mut running, Time::from_millis(4), 78);
    assert_eq!(answers(&mut running, Time::from_secs(2)), []);
}
