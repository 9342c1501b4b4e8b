//! A leader: its seats, its rounds, and the nodes that are gone.

use std::time::Duration;

use super::{
    LEADER, announce, candidate, close, commits, hand, hear, hear_datagram, hear_from, is_join, join,
    joining, leading, node, patient, ready, rounds, said, says, sent, to_all, welcome,
};
use crate::model::{HostName, Misfit, Unfit, WorldSize};
use crate::proto::follow::GaveUp;
use crate::proto::tests::{Hand, endpoint, id};
use crate::proto::timer::Time;
use crate::proto::{Config, ConnId, DialId, Ending, Event, Failed, Fault, Output, PathNews, Warning};
use crate::wire::{Candidate, Introduction, Message, Refusal, Said, Solicit, Trouble, Welcome};

#[test]
fn a_leader_yields_in_a_round_whose_members_learn_that_it_is_void() {
    let mut node = node();
    node.outputs();
    let told = hear_from(&mut node, 9, &joining(9, WorldSize::of(2)));
    assert!(says(&told, |said| matches!(said, Said::Prepare(_))));
    let better = announce(candidate(id(3), 1, true));
    node.handle_datagram(Time::ZERO, endpoint(1), &to_all(id(3), &better));
    assert!(node.follow.is_some() && !node.lead.is_proving());
    assert!(says(&node.outputs(), |said| matches!(said, Said::Welcome(Welcome { void: 1, .. }))));
    // Whatever its member says now is of no round.
    assert!(!commits(&hear_from(&mut node, 9, &ready(1))));
}

#[test]
fn a_leader_in_a_round_does_not_yield_to_whom_it_cannot_join_nor_when_its_time_is_up() {
    let heard = |node: &mut Hand, candidate: Candidate| {
        let better = to_all(candidate.id, &announce(candidate));
        let now = node.shared.now;
        node.handle_datagram(now, endpoint(1), &better);
        node.follow.is_some()
    };
    let of_size = |world| Candidate { world: WorldSize::of(world), ..candidate(id(9), 1, true) };
    let (mut node, _) = leading(3);
    assert!(!heard(&mut node, of_size(4)), "it is of another size");
    node.seek.blocklist.add(id(9), GaveUp::Unreached, Time::ZERO);
    node.run(Time::from_secs(2));
    assert!(node.lead.is_proving() && !heard(&mut node, of_size(3)), "it could not be joined before");
    node.seek.blocklist.forgive(id(9));
    node.lead.overdue = true;
    assert!(!heard(&mut node, of_size(3)));
    hear_datagram(&mut node, 8, &super::running());
    assert!(node.lead.is_proving(), "the time is up, and the round goes on to its end");
}

#[test]
fn a_leader_whose_world_stays_says_from_its_commit_on_that_the_job_runs() {
    for session_port in [0, 41_877] {
        let mut config = Config { stands_by: true, ..patient(2) };
        config.node.attributes.session_port = session_port;
        let mut node = hand(config);
        node.run(Time::from_millis(1));
        join(&mut node, 3);
        node.mute.insert(3);
        hear_from(&mut node, 3, &ready(1));
        assert!(commits(&node.run(Time::from_millis(2))) && node.lead.has_committed());
        let told = sent(&hear_datagram(&mut node, 4, &announce(candidate(id(4), 4, true))));
        match &told[..] {
            [] => assert_eq!(session_port, 0),
            [(to, Message::Running(running))] => {
                let addresses = running.addresses.to_vec();
                assert_eq!(
                    (*to, running.leader, addresses),
                    (endpoint(4), super::ME, vec![([10, 0, 0, 2], 41_877).into()])
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_leader_whose_world_has_formed_yields_to_nobody() {
    let (mut node, _) = leading(2);
    hear_from(&mut node, 3, &ready(1));
    assert!(commits(&node.run(Time::from_millis(2))));
    let better = announce(candidate(id(4), 1, true));
    node.handle_datagram(Time::ZERO, endpoint(1), &to_all(id(4), &better));
    hear_datagram(&mut node, 9, &super::running());
    assert!(node.follow.is_none() && node.lead.is_decided());
}

#[test]
fn a_leader_that_was_stopped_in_a_round_starts_another_and_counts_only_what_is_said_in_that() {
    let (mut node, _) = leading(3);
    let before = hear_from(&mut node, 3, &ready(1));
    assert!(!commits(&before));
    // The process is stopped. What node 4 said at once waits in the socket; node 3 has given up.
    let now = Time::from_secs(12);
    let mut all = node.say(now, 4, &ready(1));
    node.handle_timeout(now);
    all.extend(node.outputs());
    assert!(!commits(&all) && rounds(&all) == [2], "{all:?}");
    all.extend(hear_from(&mut node, 3, &ready(2)));
    all.extend(hear_from(&mut node, 4, &ready(2)));
    assert!(!commits(&all));
    all.extend(node.run(now));
    assert!(commits(&all));
}

#[test]
fn a_leader_that_hears_of_another_in_hints_alone_for_ten_seconds_knows_that_they_are_apart() {
    for hints in [90, 105] {
        let mut node = hand(patient(4));
        node.run(Time::from_millis(1));
        let other = Candidate { world: WorldSize::of(4), ..candidate(id(7), 7, false) };
        let hint = Message::Hint(Introduction { candidate: other, source: endpoint(7) });
        let mut all = Vec::new();
        for tenths in 0..=hints {
            all.extend(node.run(Time::from_millis(1 + 100 * tenths)));
            all.extend(hear_datagram(&mut node, 3, &hint));
        }
        let apart = all.iter().filter_map(|output| match output {
            Output::Event(Event::Warning(Warning::Misfit { node, .. })) => Some(node.address),
            _ => None,
        });
        let apart: Vec<_> = apart.collect();
        assert_eq!(apart, if hints > 100 { vec![endpoint(7)] } else { vec![] }, "{hints}");
    }
}

#[test]
fn members_learn_of_a_misfit_that_their_leader_had_heard_before_it_led() {
    let mut node = hand(patient(4));
    let shared = node.shared.clone();
    node.seek.step_down(&shared);
    let other = announce(Candidate { world: WorldSize::of(3), ..candidate(id(7), 7, false) });
    let heard = hear_datagram(&mut node, 7, &other);
    assert!(!node.leads() && heard.iter().any(|output| matches!(output, Output::Event(Event::Warning(_)))));
    node.run(Time::from_secs(60));
    join(&mut node, 3);
    node.run(Time::from_secs(61));
    assert!(node.leads() && node.lead.book.member(id(3)).is_some());
    hear_datagram(&mut node, 7, &other);
    let told = node.run(Time::from_secs(62));
    assert!(says(&told, is_of_misfit), "{told:?}");
}

fn is_of_misfit(said: &Said) -> bool {
    matches!(said, Said::Welcome(Welcome { trouble: Some(Trouble::Misfit(_)), .. }))
}

#[test]
fn a_leader_that_gives_way_names_a_misfit_to_the_new_leader_which_tells_its_members() {
    let mut old = hand(patient(2));
    old.run(Time::from_millis(1));
    let refused = hear_from(&mut old, 7, &joining(7, WorldSize::of(3)));
    assert!(says(&refused, |said| matches!(said, Said::Refuse(Refusal::WorldDiffers(_)))), "{refused:?}");
    let dials = hear_datagram(&mut old, 1, &announce(candidate(LEADER, 1, true)));
    old.open(Time::from_millis(1), 1, &dials);
    let told = said(&old.outputs());
    let misfit = told.iter().find_map(|(_, said)| match said {
        Said::Join(join) => join.misfit.clone(),
        _ => None,
    });
    let misfit = misfit.unwrap_or_else(|| panic!("{told:?}"));
    assert_eq!((misfit.address, &misfit.reason), (endpoint(7), &Unfit::World(WorldSize::of(3))));
    let twins = Misfit::of_twins(&HostName::new("host-7"), &HostName::new("host-8"), endpoint(7));
    for (has_come, misfit) in [(false, misfit.clone()), (true, misfit), (false, twins)] {
        let counts = !has_come && !misfit.is_of_network();
        let mut new = hand(patient(4));
        new.run(Time::from_millis(1));
        join(&mut new, if has_come { 7 } else { 3 });
        let Said::Join(mut joins) = joining(6, WorldSize::of(4)) else { unreachable!() };
        joins.misfit = Some(misfit);
        let mut heard = hear_from(&mut new, 6, &Said::Join(joins));
        heard.extend(new.run(Time::from_secs(1)));
        let is_news =
            |output: &Output| matches!(output, Output::Event(Event::Warning(Warning::Misfit { .. })));
        assert_eq!(heard.iter().any(is_news), counts, "{heard:?}");
        assert_eq!(says(&heard, is_of_misfit), counts, "{heard:?}");
    }
}

/// Node 3 asks this node to lead it.
fn knock(node: &mut Hand) -> Vec<Output> {
    let solicit = Solicit { rank: None, host: HostName::new("host-3") };
    hear_datagram(node, 3, &Message::Solicit(solicit))
}

#[test]
fn a_leader_steps_down_only_if_no_node_at_all_has_reached_it() {
    for reached in [false, true] {
        let mut node = hand(patient(4));
        let mut all = node.run(Time::from_millis(1));
        for millisecond in (100..4000).step_by(100) {
            all.extend(knock(&mut node));
            if reached && millisecond == 100 {
                let now = node.shared.now;
                node.open(now, 5, &[]);
            }
            all.extend(node.run(Time::from_millis(millisecond)));
        }
        assert_eq!(all.contains(&Output::Event(Event::SteppedDown)), !reached);
        assert_eq!(node.leads(), reached);
        let mut told = hear_datagram(&mut node, 1, &announce(candidate(LEADER, 1, true)));
        let now = node.shared.now;
        node.open(now, 1, &told);
        told.extend(node.outputs());
        let may_be_master = said(&told).into_iter().find_map(|(_, said)| match said {
            Said::Join(join) => Some(join.node.attributes.may_be_master),
            _ => None,
        });
        assert_eq!(may_be_master, Some(reached), "nobody reaches it");
    }
}

#[test]
fn a_node_that_has_stepped_down_leads_again_after_ten_seconds() {
    let mut node = hand(patient(4));
    while node.leads() {
        assert!(node.shared.now < Time::from_secs(9), "nobody reaches it");
        knock(&mut node);
        let next = node.shared.now + Duration::from_millis(100);
        node.run(next);
    }
    let now = node.shared.now;
    node.run(now + Duration::from_millis(9_800));
    assert!(!node.leads());
    let told = node.run(now + Duration::from_secs(10));
    assert!(node.leads() && told.contains(&Output::Event(Event::Leading)), "{told:?}");
}

#[test]
fn a_member_whose_seat_another_wants_loses_it_after_3_seconds_of_silence_and_keeps_it_if_it_answers() {
    for answers in [true, false] {
        let mut node = hand(patient(3));
        node.run(Time::from_millis(1));
        let with_rank = |member: u8| {
            let Said::Join(mut join) = joining(member, WorldSize::of(3)) else { unreachable!() };
            join.node.rank = Some(crate::model::Rank(1));
            Said::Join(join)
        };
        hear_from(&mut node, 3, &with_rank(3));
        node.mute.extend((!answers).then_some(3));
        let mut all = hear_from(&mut node, 4, &with_rank(4));
        all.extend(node.run(Time::from_millis(3100)));
        let refused = said(&all).iter().any(|(to, said)| *to == 4 && matches!(said, Said::Refuse(_)));
        assert_eq!((refused, node.lead.book.member(id(3)).is_some()), (answers, answers));
        assert_eq!(node.lead.book.member(id(4)).is_some(), !answers);
    }
}

#[test]
fn a_leader_that_follows_another_sends_there_who_joins_it() {
    let (mut node, _) = super::joined(patient(3));
    let told = hear_from(&mut node, 5, &joining(5, WorldSize::of(3)));
    assert!(says(&told, |said| matches!(said, Said::Refuse(Refusal::Redirect(_)))));
    assert!(!says(&told, is_join) && close(&mut node, 5).is_empty());
}

#[test]
fn a_leader_that_has_joined_another_reports_no_count_of_its_own() {
    let mut node = hand(patient(4));
    node.run(Time::from_millis(1));
    for member in [3, 4] {
        join(&mut node, member);
    }
    let better = Candidate { world: WorldSize::of(4), ..candidate(LEADER, 1, true) };
    let all = hear_datagram(&mut node, 1, &announce(better));
    let now = node.shared.now;
    node.open(now, 1, &all);
    assert!(
        says(&hear(&mut node, &welcome(2, 0)), |said| matches!(said, Said::Refuse(_))),
        "it sends them there"
    );
    let closed = close(&mut node, 3);
    assert!(!closed.iter().any(|output| matches!(output, Output::Event(Event::Progress(_)))), "{closed:?}");
    assert!(node.lead.book.member(id(3)).is_none() && node.lead.book.member(id(4)).is_some());
}

#[test]
fn a_node_that_leads_or_looks_for_a_leader_writes_to_a_new_seed_at_once() {
    for rank in [None, Some(crate::model::Rank(1))] {
        let mut config = patient(4);
        config.node.rank = rank;
        let mut node = hand(config);
        let now = Time::from_millis(1);
        node.run(now);
        assert_eq!(node.leads(), rank.is_none());
        node.handle_seeds(now, vec![endpoint(9)]);
        let written = sent(&node.run(now));
        assert!(written.iter().any(|(to, _)| *to == endpoint(9)), "{written:?}");
    }
}

#[test]
fn whatever_is_handed_in_first_after_a_stop_voids_the_round() {
    let handed_in: [fn(&mut Hand, Time); 8] = [
        |node, now| node.handle_path(now, DialId(9), &PathNews::Failed(Fault::Silent)),
        |node, now| node.handle_closed(now, ConnId(99), Ending::Broken),
        |node, now| node.handle_dial_failed(now, id(3), DialId(9), Failed::Silent),
        |node, now| _ = node.handle_asked(now, id(9), id(2)),
        |node, now| node.handle_endpoints(now, endpoint(2).into(), crate::wire::Reach::default()),
        |node, now| node.handle_seeds(now, vec![]),
        |node, now| node.handle_departure(now),
        |node, now| node.handle_timeout(now),
    ];
    for (number, hand_in) in handed_in.into_iter().enumerate() {
        let (mut node, _) = leading(3);
        hand_in(&mut node, Time::from_secs(12));
        let mut again = node.outputs();
        again.extend(node.run(Time::from_secs(12)));
        assert!(number == 6 || rounds(&again) == [2], "{number}: {again:?}");
    }
}
