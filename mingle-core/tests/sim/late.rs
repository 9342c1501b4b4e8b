//! Late events: a deadline in a round, a timer or a frame of an earlier round, an announce that was right
//! once. Each test was written because no other test saw one of the bugs in `tests/planted`.

use std::time::Duration;

use mingle_core::proto::Time;
use mingle_core::proto::testing::kind;

use crate::network::{Network, Weather};
use crate::{finish, formed, ms, tail};

#[test]
fn a_deadline_near_the_commit_forms_no_incomplete_world() {
    for impatient in 0..3 {
        for micros in (0..15_000).step_by(250) {
            let mut net = Network::new(36, Weather { delay: (ms(1), ms(1)), ..Weather::fine() });
            for number in 1..=3 {
                net.add(number, 3, None, Time::ZERO);
            }
            net.hosts[impatient].config.timeout = Some(Duration::from_micros(micros));
            finish(&mut net);
            let formed = net.hosts.iter().filter(|host| matches!(host.outcome, Some(Ok(_)))).count();
            assert!(
                [0, 3].contains(&formed),
                "{impatient} after {micros} us: {formed}\n{}",
                tail(&net.trace)
            );
        }
    }
}

#[test]
fn a_proof_of_an_earlier_round_cannot_fail_in_a_later_one() {
    // 2 leads. 1 comes third and would be the master, but no node can connect to it, and it dies. 9 takes its
    // seat when the time for that proof runs out, while 3 waits for the roster.
    for start in 5990..6006 {
        let mut net = Network::new(37, Weather { delay: (ms(2), ms(2)), ..Weather::fine() });
        let master = net.add(1, 3, None, ms(1000));
        let leader = net.add(2, 3, None, Time::ZERO);
        let third = net.add(3, 3, None, Time::ZERO);
        net.add(9, 3, None, ms(start));
        net.hosts[third].config.node.attributes.wants_roster = true;
        for host in [leader, third] {
            net.no_syn.insert((host, master), Duration::from_secs(80));
        }
        net.kill_at(master, ms(3000));
        finish(&mut net);
        assert_eq!(formed(&net, leader).rank.get(), 0, "9 started at {start} ms\n{}", tail(&net.trace));
    }
}

#[test]
fn a_ready_of_an_earlier_round_does_not_count_in_a_later_one() {
    // 3 is stopped before it reads the prepare, and dies; 4 is a standby. What 2 writes is held up until the
    // second round: that it is ready for the first one.
    let mut net = Network::new(38, Weather { delay: (ms(2), ms(2)), ..Weather::fine() });
    for (number, start) in [(1, 0), (2, 0), (3, 300), (4, 500)] {
        net.add(number, 3, None, ms(start));
    }
    net.pause_at(2, ms(315), ms(2000));
    net.kill_at(2, ms(1000));
    net.cut_at(1, 0, ms(317), ms(1500));
    finish(&mut net);
    assert_eq!(net.broken, [""; 0], "{}", tail(&net.trace));
    assert_eq!([0, 1, 3].map(|host| formed(&net, host).rank.get()), [0, 1, 2]);
    let (_, second) = net.trace.split_once(" 0: Preparing { round: 2 }").unwrap();
    let is_late = |line: &str| line.contains(" 0: ") && line.contains("Part { round: 1, answer: Ready");
    assert!(second.lines().any(is_late), "{}", tail(&net.trace));
}

/// The last announce of one host to another alone.
fn announce(net: &mut Network, from: usize, to: usize) -> Vec<u8> {
    let id = |host: usize| net.hosts[host].config.id.0;
    let (from, to) = (id(from), id(to));
    let mut sent = net.record.take().unwrap().into_iter();
    sent.rfind(|bytes| bytes[5] == kind("Announce") && bytes[24..40] == from && bytes[40..56] == to).unwrap()
}

#[test]
fn a_ready_member_does_not_follow_a_late_announce() {
    // 2 leads until 9 comes, which was given rank 0; 3 follows 2 there. 9 dies. When 2 leads a full world and
    // 3 is ready, a copy of what 9 announced to 3 arrives. The last node is stopped meanwhile.
    let mut net = Network::new(40, Weather { delay: (ms(2), ms(2)), ..Weather::fine() });
    for (number, start) in [(9, 500), (2, 0), (3, 0), (4, 6000), (5, 9000)] {
        net.add(number, 4, (number == 9).then_some(0), ms(start));
    }
    net.kill_at(0, ms(3000));
    net.pause_at(4, ms(9015), ms(1000));
    net.record = Some(Vec::new());
    net.run_until(ms(2999), |_| false);
    let late = announce(&mut net, 0, 2);
    net.replay_at(2, late, ms(9500));
    net.run_until(ms(9499), |_| false);
    assert!(net.in_round(2), "{}", tail(&net.trace));
    let last = finish(&mut net);
    assert_eq!(net.broken, [""; 0], "{}", tail(&net.trace));
    assert_eq!([1, 2, 3, 4].map(|host| formed(&net, host).rank.get()), [0, 1, 2, 3]);
    assert!(last < ms(10_500), "{last:?}\n{}", tail(&net.trace));
}
