//! A node that leaves its part: it steps down, stands aside, yields, or reports why there is no world.

use std::time::Duration;

use super::{
    LEADER, ME, announce, candidate, config, deadline, hear, hear_at, hear_from, join, join_message, joined,
    leading, patient, prove, rounds, says, to_all,
};
use crate::model::{Endpoints, HostName, Lineage, NodeId, Rank};
use crate::proto::report::{Heard, RankRange, Report};
use crate::proto::tests::{codec, dialled, endpoint, id, outputs, run};
use crate::proto::timer::{Time, Timer};
use crate::proto::{Config, DialId, Event, Node, Output};
use crate::wire::{Candidate, Header, Message, Refusal, Welcome};

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

/// A leader of a world of four that node 3 asks for a seat without ever reaching it, until `until`.
fn unreached(until: Time) -> (Node, Vec<Output>) {
    let mut node = Node::new(patient(4), 1, Time::ZERO);
    let mut all = run(&mut node, ms(1));
    while node.shared.now < until {
        let next = node.shared.now + ms(100);
        all.extend(run(&mut node, next));
        all.extend(hear_from(&mut node, 3, &join_message(3, endpoint(3), 4)));
    }
    (node, all)
}

#[test]
fn a_leader_whose_process_was_stopped_has_a_second_more_before_it_steps_down() {
    for (late, steps_down) in [(50, true), (150, false)] {
        let (mut node, _) = unreached(ms(2900));
        let due = node.shared.timers.get(Timer::StepDown).expect("nobody has reached it");
        let now = due + ms(late);
        // The datagrams that wait in its socket.
        hear_at(&mut node, now, 3, &join_message(3, endpoint(3), 4));
        node.handle_timeout(now);
        let _ = outputs(&mut node);
        assert_eq!(!node.leads(), steps_down, "{late} ms late");
        if !steps_down {
            let at = node.shared.timers.get(Timer::StepDown);
            assert_eq!(at, Some(now + ms(1000)));
        }
    }
}

/// Node 2 of the formation that follows a world, after 50 ms.
fn of_a_later_formation(world: u32) -> Node {
    let lineage = Lineage { generation: 1, origin: 7 };
    let mut node = Node::new(Config { lineage, ..patient(world) }, 1, Time::ZERO);
    let _ = run(&mut node, ms(50));
    node
}

#[test]
fn a_world_of_one_has_formed_when_it_starts() {
    let mut node = Node::new(config(1), 1, Time::ZERO);
    assert!(node.has_ended());
    let told = outputs(&mut node);
    let [
        Output::Event(Event::Preparing { round: 1 }),
        Output::StopAccepting,
        Output::Event(Event::Formed(formed)),
    ] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((formed.rank, formed.master, formed.world.get()), (Rank(0), endpoint(2), 1));
}

#[test]
fn time_never_goes_back() {
    let mut node = Node::new(patient(4), 1, Time::from_secs(5));
    let _ = run(&mut node, Time::from_secs(9));
    node.handle_timeout(Time::from_secs(1));
    assert_eq!(node.shared.now, Time::from_secs(9));
}

/// The report of a node that has heard this much, when its time is up after a second.
fn report(world: u32, rank: Option<u32>, hear: impl FnOnce(&mut Node)) -> Report {
    let mut config = Config { timeout: Some(Duration::from_secs(1)), ..config(world) };
    config.node.rank = rank.map(Rank);
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = run(&mut node, ms(1));
    hear(&mut node);
    let all = run(&mut node, ms(1000));
    deadline(&all).clone()
}

#[test]
fn a_leader_reports_its_members_by_their_addresses_and_the_ranks_that_are_missing() {
    let said = report(4, Some(0), |node| {
        let with_rank = |node: &mut Node, member: u8, rank: Option<u32>| {
            let Message::Join(mut join) = join_message(member, endpoint(member), 4) else { unreachable!() };
            join.node.rank = rank.map(Rank);
            hear_from(node, member, &Message::Join(join));
            prove(node, member);
        };
        with_rank(node, 3, Some(2));
        // It has asked, and nothing more.
        hear_from(node, 9, &join_message(9, endpoint(9), 4));
    });
    let heard = Heard { host: HostName::new("host-3"), address: Some(endpoint(3)), rank: Some(2) };
    assert_eq!((said.joined, said.heard), (2, vec![heard]));
    let run = |rank| RankRange { first: rank, last: rank };
    assert_eq!((said.rank, said.missing), (Some(Rank(0)), vec![run(1), run(3)]));
    assert!(!said.nobody_leads && said.unreached.is_none() && said.unanswered.is_none());
}

#[test]
fn a_leader_names_sixteen_of_its_members() {
    let said = report(40, None, |node| {
        for member in 3..30 {
            join(node, member, endpoint(member));
        }
    });
    assert_eq!((said.joined, said.heard.len()), (28, Report::NAMES));
    assert!(said.heard.is_sorted());
}

#[test]
fn a_leader_alone_names_those_that_it_has_heard() {
    let said = report(4, None, |node| {
        hear_from(node, 9, &join_message(9, endpoint(9), 4));
    });
    let heard = Heard { host: HostName::new("host-9"), address: Some(endpoint(9)), rank: None };
    assert_eq!((said.joined, said.heard), (1, vec![heard]));
    assert_eq!(said.missing, []);
}

#[test]
fn a_node_that_may_not_lead_and_has_heard_no_candidate_says_that_nobody_leads() {
    let solicit = |node: &mut Node| {
        let solicit = node.shared.solicit();
        hear_from(node, 5, &solicit);
    };
    let announced = |node: &mut Node| {
        hear(node, &announce(candidate(LEADER, 1, false)));
    };
    assert!(report(4, Some(1), solicit).nobody_leads);
    assert!(!report(4, Some(1), announced).nobody_leads);
    assert!(!report(4, Some(0), solicit).nobody_leads && !report(4, None, solicit).nobody_leads);
    assert_eq!(report(4, Some(1), solicit).joined, 1);
    assert_eq!(report(4, Some(1), solicit).missing, [], "it does not lead");
}

#[test]
fn a_member_reports_what_its_leader_said_last() {
    let config = Config { timeout: Some(Duration::from_secs(1)), ..config(9) };
    let (mut node, _) = joined(config);
    let Message::Announce(said) = announce(candidate(LEADER, 1, false)) else { unreachable!() };
    let (newest, missing) = ([HostName::new("named")].into_iter().collect(), [(4, 5)].into_iter().collect());
    hear(&mut node, &Message::Announce(crate::wire::Announce { joined: 5, newest, missing, ..said }));
    let all = run(&mut node, ms(1000));
    let report = deadline(&all);
    assert_eq!((report.joined, &report.missing[..]), (5, &[RankRange { first: 4, last: 5 }][..]));
    let hosts: Vec<_> = report.heard.iter().map(|heard| (heard.host.as_str(), heard.address)).collect();
    assert_eq!(hosts, [("host", Some(endpoint(1))), ("named", None)]);
}

#[test]
fn a_node_names_who_said_that_the_job_runs_and_who_is_not_authentic() {
    let lineage = Lineage { generation: 1, origin: 7 };
    let said = report(4, None, |node| {
        let header = Header { sender: id(9), recipient: ME, lineage };
        node.handle_datagram(ms(1), endpoint(9), &codec().encode(header, &Message::running()));
        let mut sealed = to_all(LEADER, &announce(candidate(LEADER, 1, false)));
        sealed[5] |= 0x80;
        node.handle_datagram(ms(1), endpoint(8), &sealed);
        node.handle_datagram(ms(1), endpoint(8), &sealed);
    });
    assert_eq!(said.running, Some(endpoint(9)));
    assert_eq!((said.unauthentic, said.unauthentic_others), (vec![(endpoint(8).ip(), 2)], 0));
}

#[test]
fn a_datagram_to_another_node_or_of_this_node_itself_is_dropped() {
    let (mut node, _) = leading(4);
    for (sender, recipient, answers) in
        [(id(3), ME, 1), (id(3), id(9), 0), (ME, ME, 0), (id(3), NodeId([0xfe; 16]), 0)]
    {
        let header = Header { sender, recipient, lineage: Lineage::default() };
        node.handle_datagram(node.shared.now, endpoint(3), &codec().encode(header, &Message::Ping));
        assert_eq!(outputs(&mut node).len(), answers, "{sender} to {recipient}");
    }
}

#[test]
fn a_deadline_within_a_round_ends_it_not_and_no_other_begins() {
    let config = Config { timeout: Some(Duration::from_secs(1)), ..config(2) };
    let mut node = Node::new(config, 1, Time::ZERO);
    let mut all = run(&mut node, ms(1));
    all.extend(join(&mut node, 3, endpoint(3)));
    assert_eq!(rounds(&all), [1]);
    let told = run(&mut node, ms(2000));
    assert!(
        !node.has_ended() && !told.iter().any(|output| matches!(output, Output::Event(Event::Failed(_))))
    );
    hear_from(&mut node, 3, &Message::Unproved(1));
    let told = run(&mut node, ms(2300));
    assert_eq!((rounds(&told), deadline(&told).joined), (vec![], 2));
    assert!(says(&told, |message| *message == Message::Void(1)));
    let refused = says(&told, |message| matches!(message, Message::Refuse(Refusal::MasterUnproved(_))));
    assert!(!refused);
}

#[test]
fn a_node_whose_lease_has_broken_does_not_report_what_its_leader_said() {
    let config = Config { timeout: Some(Duration::from_secs(1)), ..config(9) };
    let (mut node, prepare) = joined(config);
    let Message::Announce(said) = announce(candidate(LEADER, 1, false)) else { unreachable!() };
    hear(&mut node, &Message::Announce(crate::wire::Announce { joined: 5, ..said }));
    node.handle_hung_up(Time::ZERO, DialId(prepare.lease));
    let all = run(&mut node, ms(1000));
    assert_eq!(deadline(&all).joined, 1);
}

#[test]
fn a_follower_that_has_members_of_its_own_reports_whom_it_has_heard() {
    let said = report(9, None, |node| {
        join(node, 3, endpoint(3));
        let Message::Announce(said) = announce(candidate(LEADER, 1, true)) else { unreachable!() };
        let newest = [HostName::new("named")].into_iter().collect();
        let said = Message::Announce(crate::wire::Announce { newest, ..said });
        hear(node, &said);
        hear(node, &said);
    });
    let hosts: Vec<_> = said.heard.iter().map(|heard| heard.host.as_str()).collect();
    assert_eq!(hosts, ["host", "host-3"], "and not whom a leader has named that it has not joined");
    assert_eq!(said.missing, []);
}

#[test]
fn a_leader_that_was_given_up_because_it_was_not_reached_is_named_with_the_endpoints_that_were_tried() {
    let config = Config { timeout: Some(Duration::from_secs(4)), ..config(4) };
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = outputs(&mut node);
    let both = [endpoint(1), endpoint(7)];
    let endpoints = Endpoints::new(both.to_vec()).unwrap();
    hear(&mut node, &announce(Candidate { endpoints, ..candidate(LEADER, 1, true) }));
    for at in [0, 2500] {
        let _ = run(&mut node, ms(at));
        hear(&mut node, &Message::Welcome(Welcome { lease: None, seated: false }));
    }
    let all = run(&mut node, ms(4000));
    assert!(all.iter().any(|output| matches!(output, Output::Event(Event::LostLeader(_)))), "{all:?}");
    let (peer, tried) = deadline(&all).unreached.clone().expect("it was not reached");
    assert_eq!((peer.address, tried), (endpoint(1), both.to_vec()));
}

/// The messages to all.
fn to_everybody(outputs: &[Output]) -> Vec<Message> {
    let messages = outputs.iter().filter_map(|output| match output {
        Output::Multicast { datagram } => Some(codec().decode(datagram).unwrap().1),
        _ => None,
    });
    messages.collect()
}

#[test]
fn a_node_announces_itself_only_while_it_leads_and_asks_only_while_it_does_not() {
    let is_announce = |message: &Message| matches!(message, Message::Announce(_));
    let mut node = of_a_later_formation(3);
    hear_from(&mut node, 9, &Message::running());
    let aside = to_everybody(&run(&mut node, ms(20_000)));
    assert!(aside.len() > 10 && !aside.iter().any(is_announce), "{aside:?}");
    let _ = run(&mut node, ms(30_100));
    let leads = to_everybody(&run(&mut node, ms(50_000)));
    assert!(leads.len() > 10 && leads.iter().all(is_announce), "{leads:?}");
    // One that has stepped down, for ten seconds.
    let (mut node, _) = unreached(ms(3301));
    let now = node.shared.now;
    let down = to_everybody(&run(&mut node, now + ms(9000)));
    assert!(down.len() > 5 && !down.iter().any(is_announce), "{down:?}");
    let _ = run(&mut node, now + ms(10_100));
    let leads = to_everybody(&run(&mut node, now + ms(20_000)));
    assert!(leads.len() > 5 && leads.iter().all(is_announce), "{leads:?}");
}

#[test]
fn a_leader_that_has_not_answered_is_not_said_to_be_out_of_reach() {
    let said = report(4, None, |node| {
        hear(node, &announce(candidate(LEADER, 1, true)));
    });
    assert_eq!((said.unreached, said.unanswered), (None, None), "it has a second");
}

#[test]
fn a_leader_that_yields_before_anybody_has_reached_it_does_not_step_down_later() {
    let (mut node, _) = unreached(ms(1000));
    assert!(node.shared.timers.is_set(Timer::StepDown));
    hear(&mut node, &announce(candidate(LEADER, 1, true)));
    assert!(!node.shared.timers.is_set(Timer::StepDown));
}

#[test]
fn a_node_that_may_not_lead_does_not_step_down_when_it_stands_aside() {
    let lineage = Lineage { generation: 1, origin: 7 };
    let mut config = Config { lineage, ..patient(3) };
    config.node.rank = Some(Rank(1));
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = run(&mut node, ms(50));
    let told = hear_from(&mut node, 9, &Message::running());
    assert!(!told.contains(&Output::Event(Event::SteppedDown)), "{told:?}");
}

#[test]
fn a_member_does_not_report_a_leader_that_it_did_not_reach_before() {
    let config = Config { timeout: Some(Duration::from_secs(6)), ..config(4) };
    let mut node = Node::new(config, 1, Time::ZERO);
    let _ = outputs(&mut node);
    hear_from(&mut node, 3, &announce(candidate(id(3), 3, true)));
    let _ = run(&mut node, ms(2500));
    hear_from(&mut node, 3, &Message::Welcome(Welcome { lease: None, seated: false }));
    let _ = run(&mut node, ms(4000));
    let dial = dialled(&hear(&mut node, &announce(candidate(LEADER, 1, true))));
    node.handle_dialed(node.shared.now, dial);
    hear(&mut node, &Message::Welcome(Welcome { lease: Some(dial.0), seated: true }));
    let all = run(&mut node, ms(6000));
    assert_eq!((&deadline(&all).unreached, &deadline(&all).unanswered), (&None, &None));
}
