//! What comes too late: a deadline in a round, a timer or a word of an earlier round, a redirect that was
//! true once. Each of these was written because nothing else saw a bug of `tests/planted`.

use std::time::Duration;

use mingle_core::proto::Time;

use crate::network::{Network, Weather};
use crate::{finish, formed, ms, tail};

#[test]
fn a_deadline_about_the_time_of_the_commit_leaves_nobody_in_a_world_that_is_not_whole() {
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
fn a_proof_that_was_begun_in_an_earlier_round_cannot_fail_in_a_later_one() {
    // 2 leads. 1 comes third and is to be the master, but nobody reaches it, and it dies. 9 takes its place
    // when the time for that proof runs out, while 3 waits for the roster.
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
fn a_member_that_was_ready_in_an_earlier_round_is_not_taken_for_ready_in_a_later_one() {
    // 2 is ready, 3 is stopped before it hears the prepare, and dies; 4 has waited for a place. Of all that,
    // 2 hears nothing for a while, and says again that it is ready for the first round.
    let mut net = Network::new(38, Weather { delay: (ms(2), ms(2)), ..Weather::fine() });
    for (number, start) in [(1, 0), (2, 0), (3, 300), (4, 500)] {
        net.add(number, 3, None, ms(start));
    }
    net.pause_at(2, ms(311), ms(2000));
    net.kill_at(2, ms(1000));
    net.cut_at(0, 1, ms(999), ms(1500));
    finish(&mut net);
    assert_eq!(net.broken, [""; 0], "{}", tail(&net.trace));
    assert_eq!([0, 1, 3].map(|host| formed(&net, host).rank.get()), [0, 1, 2]);
    assert!(net.trace.contains("Preparing { round: 2 }"));
}

/// The last redirect that a host has sent to another.
fn redirect(net: &mut Network, from: usize, to: usize) -> Vec<u8> {
    let id = |host: usize| net.hosts[host].config.id.0;
    let (from, to) = (id(from), id(to));
    let mut said = net.record.take().unwrap().into_iter();
    said.rfind(|bytes| bytes[5] == 4 && bytes[24..40] == from && bytes[40..56] == to).unwrap()
}

#[test]
fn a_late_redirect_to_a_better_leader_does_not_make_a_ready_member_break_its_word() {
    // 2 leads, until 9, which was given rank 0, comes; 2 sends 3 to it. It dies. When 2 has gathered a whole
    // world and 3 is ready, a copy of that word arrives; the last one is stopped meanwhile.
    let mut net = Network::new(40, Weather { delay: (ms(2), ms(2)), ..Weather::fine() });
    for (number, start) in [(9, 500), (2, 0), (3, 0), (4, 6000), (5, 9000)] {
        net.add(number, 4, (number == 9).then_some(0), ms(start));
    }
    net.kill_at(0, ms(3000));
    net.pause_at(4, ms(9011), ms(1000));
    net.record = Some(Vec::new());
    net.run_until(ms(2999), |_| false);
    let late = redirect(&mut net, 1, 2);
    net.replay_at(2, late, ms(9500));
    let last = finish(&mut net);
    assert_eq!(net.broken, [""; 0], "{}", tail(&net.trace));
    assert_eq!([1, 2, 3, 4].map(|host| formed(&net, host).rank.get()), [0, 1, 2, 3]);
    assert!(last < ms(10_500), "{last:?}\n{}", tail(&net.trace));
}
