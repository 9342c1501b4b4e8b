//! A follower: the candidates that it follows, its session, and the leader that it asks.

use std::collections::BTreeSet;

use super::{
    LEADER, announce, candidate, config, hear, hear_datagram, is_join, is_solicit, joined, patient, said,
    sent, to_all, welcome,
};
use crate::model::{Endpoints, HostName, WorldSize};
use crate::proto::follow::Follow;
use crate::proto::tests::{endpoint, id};
use crate::proto::timer::Time;
use crate::proto::{Ending, Event, Output, Warning};
use crate::wire::{Candidate, Introduction, Message, Refusal, Said, Solicit};

#[test]
fn a_node_follows_a_redirect_only_to_a_better_leader() {
    for (last, explicit, followed) in [(3, false, false), (1, false, false), (3, true, true)] {
        let (mut node, _) = joined(config(2));
        let to = Introduction { candidate: candidate(id(3), last, explicit), source: endpoint(3) };
        hear(&mut node, &Said::Refuse(Refusal::Redirect(to)));
        let leader = node.follow.as_ref().map(Follow::leader_id);
        // Its leader leads no more, so it looks for others.
        assert_eq!(leader, followed.then_some(id(3)), "{last} {explicit}");
    }
}

#[test]
fn a_leader_that_does_not_answer_is_asked_seven_times_and_dialled_at_one_address() {
    let mut node = super::hand(patient(3));
    node.outputs();
    node.handle_datagram(Time::ZERO, endpoint(1), &to_all(LEADER, &announce(candidate(LEADER, 1, false))));
    let all = node.run(Time::from_millis(990));
    let asked = sent(&all).into_iter().filter(|(to, message)| *to == endpoint(1) && is_solicit(message));
    assert_eq!(asked.count(), 7);
    assert!(said(&all).is_empty(), "nothing is said before the session is open");
}

#[test]
fn a_member_whose_addresses_change_says_so() {
    let (mut node, _) = joined(patient(3));
    let endpoints = Endpoints::new(vec![endpoint(2), endpoint(7)]).unwrap();
    node.handle_endpoints(Time::ZERO, endpoints.clone(), crate::wire::Reach::default());
    let told: Vec<Said> = said(&node.outputs()).into_iter().map(|(_, said)| said).collect();
    assert!(matches!(&told[..], [Said::Join(join)] if join.node.endpoints == endpoints), "{told:?}");
}

#[test]
fn a_member_says_again_what_it_is_to_a_leader_whose_session_has_begun_anew() {
    let (mut node, _) = joined(patient(3));
    let mut all = node.close(Time::ZERO, 1, Ending::Broken);
    all.extend(node.run(Time::from_millis(10)));
    node.open(Time::from_millis(10), 1, &all);
    // The other process names the same session as before: it has forgotten nothing.
    assert!(!said(&node.outputs()).iter().any(|(_, said)| is_join(said)));
    assert!(node.follow.as_ref().is_some_and(|follow| follow.joined));
}

#[test]
fn a_member_reports_each_change_that_its_leader_tells_once() {
    let (mut node, _) = joined(patient(3));
    let mut reported = Vec::new();
    for joined in [2, 3, 3, 2] {
        for output in hear(&mut node, &welcome(joined, 0)) {
            if let Output::Event(Event::Progress(progress)) = output {
                reported.push(progress.joined);
            }
        }
    }
    assert_eq!(reported, [3, 2]);
}

#[test]
fn a_hint_of_a_leader_has_as_many_members_as_its_welcome() {
    let (mut node, _) = joined(config(4));
    hear(&mut node, &welcome(3, 0));
    let solicit = Message::Solicit(Solicit { rank: None, host: HostName::new("host-3") });
    match &sent(&hear_datagram(&mut node, 3, &solicit))[..] {
        [(_, Message::Hint(to))] => assert_eq!((to.candidate.id, to.candidate.members), (LEADER, 3)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_member_introduces_its_leader_and_a_candidate_that_leads_on_to_each_other_and_tells_that_they_are_apart()
{
    // The better of two is told as well: it follows nobody, and would not learn why it is alone.
    for is_better in [false, true] {
        let (mut node, _) = joined(patient(3));
        let other = Candidate { world: WorldSize::of(3), ..candidate(id(7), 7, is_better) };
        let mut all = Vec::new();
        for tenths in 0..=105 {
            let now = Time::from_millis(100 * tenths);
            node.handle_datagram(now, endpoint(7), &to_all(id(7), &announce(other.clone())));
            all.extend(node.outputs());
            all.extend(node.run(now));
        }
        let hints = sent(&all).into_iter().filter_map(|(to, message)| match message {
            Message::Hint(hint) => Some((to, hint.candidate.id)),
            _ => None,
        });
        let hints: BTreeSet<_> = hints.collect();
        assert_eq!(hints, [(endpoint(1), id(7)), (endpoint(7), LEADER)].into(), "{is_better}");
        let is_apart = |output: &Output| matches!(output, Output::Event(Event::Warning(Warning::Misfit { node, .. })) if node.address == endpoint(7));
        assert!(all.iter().any(is_apart), "{is_better}");
    }
}

#[test]
fn a_member_introduces_nobody_whom_its_leader_would_not_seat() {
    let (mut node, _) = joined(patient(3));
    let mut all = Vec::new();
    for tenths in 0..=30 {
        let now = Time::from_millis(100 * tenths);
        // It expects a world of two.
        node.handle_datagram(now, endpoint(7), &to_all(id(7), &announce(candidate(id(7), 7, true))));
        all.extend(node.outputs());
        all.extend(node.run(now));
    }
    assert!(!sent(&all).iter().any(|(_, message)| matches!(message, Message::Hint(_))));
}
