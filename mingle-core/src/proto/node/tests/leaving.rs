//! A node that leaves its part: it steps down, stands aside, yields, or reports why there is no world.

use std::time::Duration;

use super::{
    LEADER, ME, announce, broken, candidate, config, deadline, failure, hand, hear, hear_from, here, join,
    joined, leading, patient, rounds, running, said, says, sent, to_all,
};
use crate::model::{BrokenPath, Fault, HostName, NodeId, Peer, Rank};
use crate::proto::report::{Cause, Failure, Report};
use crate::proto::tests::{Hand, codec, endpoint, id};
use crate::proto::timer::Time;
use crate::proto::{Config, Ending, Event, Node, Output};
use crate::wire::{Header, Message, Refusal, Said, Solicit, Trouble, Welcome};

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

#[test]
fn time_never_goes_back() {
    let mut node = Hand::new(Node::new(patient(4), 1, Time::from_secs(5)), 2);
    node.run(Time::from_secs(9));
    node.handle_timeout(Time::from_secs(1));
    assert_eq!(node.shared.now, Time::from_secs(9));
}

/// The report of a node that has heard this much, when its time is up after a second.
fn report(world: u32, rank: Option<u32>, hear: impl FnOnce(&mut Hand)) -> Report {
    let mut config = Config { timeout: Some(Duration::from_secs(1)), ..config(world) };
    config.node.rank = rank.map(Rank);
    let mut node = hand(config);
    node.run(ms(1));
    hear(&mut node);
    let all = node.run(ms(1000));
    deadline(&all).clone()
}

#[test]
fn a_leader_names_sixteen_of_its_members() {
    let said = report(40, None, |node| {
        for member in 3..30 {
            join(node, member);
        }
    });
    assert_eq!((said.joined, said.heard.len()), (28, Report::NAMES));
    assert!(said.heard.is_sorted());
}

#[test]
fn a_node_names_who_said_that_the_job_runs_and_who_is_not_authentic() {
    let said = report(4, None, |node| {
        let header = Header { sender: id(9), recipient: ME };
        node.handle_datagram(ms(1), endpoint(9), &codec().encode(header, &running()));
        let mut sealed = to_all(LEADER, &announce(candidate(LEADER, 1, false)));
        sealed[5] |= 0x80;
        node.handle_datagram(ms(1), endpoint(8), &sealed);
        node.handle_datagram(ms(1), endpoint(8), &sealed);
    });
    assert_eq!(said.running, Some(endpoint(9)));
    assert_eq!(said.unauthentic, [endpoint(8).ip()]);
}

#[test]
fn a_datagram_to_another_node_or_of_this_node_itself_is_dropped() {
    let (mut node, _) = leading(4);
    for (sender, recipient, answers) in
        [(id(3), ME, 1), (id(3), id(9), 0), (ME, ME, 0), (id(3), NodeId([0xfe; 16]), 0)]
    {
        let header = Header { sender, recipient };
        let solicit = Message::Solicit(Solicit { rank: None, host: HostName::new("c") });
        let now = node.shared.now;
        node.handle_datagram(now, endpoint(3), &codec().encode(header, &solicit));
        let answered = sent(&node.outputs()).len();
        assert_eq!(answered, answers, "{sender} to {recipient}");
    }
}

#[test]
fn a_deadline_within_a_round_waits_for_its_reason_and_no_other_begins() {
    let config = Config { timeout: Some(Duration::from_secs(1)), ..config(2) };
    let mut node = hand(config);
    let mut all = node.run(ms(1));
    all.extend(join(&mut node, 3));
    assert_eq!(rounds(&all), [1]);
    let told = node.run(ms(2000));
    assert!(
        !node.has_ended() && !told.iter().any(|output| matches!(output, Output::Event(Event::Failed(_))))
    );
    hear_from(&mut node, 3, &broken(1, ME, endpoint(2)));
    let told = node.run(ms(2300));
    assert!(rounds(&told).is_empty());
    assert!(says(&told, |said| matches!(said, Said::Refuse(Refusal::PathsBroken(..)))));
    assert!(matches!(failure(&told), Some(Failure::PathsBroken { .. })), "{told:?}");
}

#[test]
fn a_leader_whose_time_is_up_stays_for_a_second_in_which_its_members_read_that_the_round_is_void() {
    let mut node = hand(Config { timeout: Some(Duration::from_secs(1)), ..config(3) });
    let mut all = node.run(ms(1));
    for member in [3, 4] {
        all.extend(join(&mut node, member));
    }
    assert_eq!(rounds(&all), [1]);
    assert!(failure(&node.run(ms(1500))).is_none());
    let all = node.close(ms(1500), 4, Ending::Closed);
    let is_void = |said: &Said| matches!(said, Said::Welcome(welcome) if welcome.void == 1);
    assert!(says(&all, is_void) && failure(&all).is_none(), "{all:?}");
    assert!(failure(&node.run(ms(2499))).is_none());
    assert_eq!(deadline(&node.run(ms(2500))).joined, 2);
}

fn broken_path() -> BrokenPath {
    let [from, to] = [3, 4].map(|last| Peer { host: HostName::new("host"), address: endpoint(last) });
    BrokenPath { from, to, fault: Fault::Silent, answers: None, to_master: false, mtus: (1500, 1500) }
}

/// The report of a member whose leader has said this of a broken path, and that so many of two are here, when
/// its time is up.
fn report_of_member(here_at_last: u32, last: Option<Trouble>) -> Report {
    let (mut node, _) = joined(Config { timeout: Some(Duration::from_secs(2)), ..config(2) });
    for (number, trouble) in [(2, Some(Trouble::Broken(broken_path()))), (here_at_last, last)] {
        hear(&mut node, &Said::Welcome(Welcome { count: here(number), trouble, void: 0 }));
    }
    let all = node.run(ms(2000));
    deadline(&all).clone()
}

#[test]
fn a_path_that_the_leader_still_names_is_the_reason_after_others_have_left_and_no_other_path_is() {
    let named = report_of_member(1, Some(Trouble::Broken(broken_path())));
    assert_eq!((named.cause(), named.broken), (Cause::Unproved, Some(Box::new(broken_path()))));
    let forgotten = report_of_member(1, None);
    assert_eq!((forgotten.cause(), forgotten.broken), (Cause::Incomplete, None));
    assert_eq!(report_of_member(2, None).cause(), Cause::Unproved);
}

#[test]
fn a_member_that_leads_once_its_leader_has_left_still_gives_the_path_that_the_leader_has_named() {
    let (mut node, _) = joined(Config { timeout: Some(Duration::from_secs(9)), ..config(2) });
    let trouble = Some(Trouble::Broken(broken_path()));
    hear(&mut node, &Said::Welcome(Welcome { count: here(2), trouble, void: 0 }));
    let mut all = hear(&mut node, &Said::Refuse(Refusal::Closing));
    all.extend(node.run(Time::from_secs(9)));
    assert!(all.iter().any(|output| matches!(output, Output::Event(Event::Leading))), "{all:?}");
    assert_eq!(deadline(&all).cause(), Cause::Unproved);
}

#[test]
fn a_leader_names_a_broken_path_until_another_node_gets_a_seat() {
    let is_named = |all: &[Output]| {
        let welcomes = said(all).into_iter().filter_map(|(_, said)| match said {
            Said::Welcome(welcome) => Some(welcome.trouble.is_some()),
            _ => None,
        });
        welcomes.collect::<Vec<_>>().pop()
    };
    let (mut node, all) = leading(3);
    assert_eq!(rounds(&all), [1]);
    hear_from(&mut node, 3, &broken(1, ME, endpoint(2)));
    let mut now = node.shared.now + Duration::from_secs(5);
    assert_eq!(is_named(&node.run(now)), Some(true));
    let mut all = node.close(now, 3, Ending::Closed);
    now += Duration::from_secs(2);
    all.extend(node.run(now));
    assert_eq!(is_named(&all), Some(true), "it has left, and the path was broken");
    assert_eq!(is_named(&join(&mut node, 5)), Some(false));
}

/// Node 2 of a world of this size, which has five seconds.
fn limited(world: &str) -> Config {
    Config { world: world.parse().unwrap(), timeout: Some(Duration::from_secs(5)), ..config(2) }
}

#[test]
fn a_node_that_may_not_lead_forms_no_world_of_its_own_when_its_time_is_up() {
    let mut config = limited("1:4");
    config.node.rank = Some(Rank(1));
    let mut node = hand(config);
    let all = node.run(Time::from_secs(5));
    assert_eq!(deadline(&all).rank, Some(Rank(1)));
}
