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
