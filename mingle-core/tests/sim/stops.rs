//! Single worlds in which a process is stopped for longer than others wait for it, or a host loses power.

use std::time::Duration;

use mingle_core::proto::Time;

use crate::network::{Fact, Network, Restarts, Weather};
use crate::{finish, formed, ms, tail};

/// A world in which all but the first node start at 100 ms, so that the first one leads.
fn led_by_the_first(seed: u64, world: u32) -> Network {
    let mut net = Network::new(seed, Weather { delay: (ms(2), ms(2)), ..Weather::fine() });
    for number in 1..=world {
        let host = net.add(number, world, None, if number == 1 { Time::ZERO } else { ms(100) });
        net.hosts[host].config.timeout = Some(Duration::from_secs(120));
    }
    net
}

#[test]
fn a_leader_that_was_stopped_in_a_round_commits_no_world_that_others_have_left() {
    let mut in_doubt = 0;
    for seed in 0..4 {
        for at in 105..125 {
            let mut net = led_by_the_first(seed, 3);
            net.restarts = Restarts::InDoubt;
            net.pause_at(0, ms(at), Duration::from_secs(14));
            finish(&mut net);
            assert_eq!(net.broken, [""; 0], "seed {seed}, stopped at {at} ms\n{}", tail(&net.trace));
            for host in 0..3 {
                assert_eq!(formed(&net, host).digest, formed(&net, 0).digest, "seed {seed}, {at} ms");
            }
            in_doubt += u32::from(net.history.facts.contains_key(&Fact::LeaderPausedLong));
        }
    }
    assert!(in_doubt > 20, "the leader was stopped in a round {in_doubt} times alone");
}

#[test]
fn a_member_that_was_stopped_while_its_leader_gave_it_up_joins_again() {
    // 2 is ready when it is stopped. 3 is stopped before it reads the prepare, and dies; 4, a standby, takes
    // its seat. In the next round 2 is silent: the leader gives it up, and closes its connection.
    for seed in 0..20 {
        let mut net = Network::new(seed, Weather { delay: (ms(2), ms(2)), ..Weather::fine() });
        for (number, start) in [(1, 0), (2, 0), (3, 300), (4, 500)] {
            net.add(number, 3, None, ms(start));
        }
        net.pause_at(2, ms(315), ms(2000));
        net.kill_at(2, ms(1000));
        net.pause_at(1, ms(900), ms(20_000));
        let last = finish(&mut net);
        assert!(
            net.history.facts.contains_key(&Fact::PausedLongInRound),
            "seed {seed}\n{}",
            tail(&net.trace)
        );
        assert!(last < ms(22_000), "seed {seed}: {last:?}\n{}", tail(&net.trace));
        assert_eq!([0, 1, 3].map(|host| formed(&net, host).rank.get()), [0, 1, 2]);
    }
}

#[test]
fn a_node_that_starts_again_at_the_address_of_one_that_has_lost_power_replaces_it() {
    // The third node starts when the leader could know for 1 s that the second one is gone: by its silence
    // alone, since a firewall drops its kernel's answers.
    for (seed, rank) in (0..20).flat_map(|seed| [(seed, None), (seed, Some(1))]) {
        let mut net = Network::new(seed, Weather::fine());
        net.add(1, 3, None, Time::ZERO);
        let second = net.add(2, 3, rank, Time::ZERO);
        net.add(3, 3, None, ms(9100));
        net.hosts[second].silent = true;
        net.lose_power_at(second, ms(5000), ms(50));
        net.restart_at(second, ms(5100));
        let last = finish(&mut net);
        assert!(net.history.facts.contains_key(&Fact::GhostMet), "{}", tail(&net.trace));
        assert!(last < ms(9600), "seed {seed}, rank {rank:?}: {last:?}\n{}", tail(&net.trace));
    }
}
