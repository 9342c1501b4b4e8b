//! Broken paths: which of them the nodes end with.

use std::time::Duration;

use super::rounds::{broken, failure, path_dials, rounds, with_paths};
use super::*;
use crate::proto::lead::at_fault;
use crate::proto::{Failure, PathNews};

#[test]
fn a_world_ends_with_the_broken_paths_of_the_round_that_had_fewest() {
    // The rounds are on two networks in turn.
    for (reports, address) in
        [([&[1, 3][..], &[3], &[1, 3]], endpoints(3)[1]), ([&[3], &[1, 3], &[1, 3]], endpoint(3))]
    {
        let mut leader = Leader::of(3, |config| with_paths(1)(&mut config.node));
        let mut all: Vec<Output> =
            [2, 3].into_iter().flat_map(|member| leader.join(member, with_paths(member))).collect();
        while leader.now < ms(20_000) && !leader.node.has_ended() {
            let round = *rounds(&all).last().unwrap();
            // The first two end early, and the third after 12 s.
            if round < 3 || leader.now >= ms(12_000) {
                all.extend(leader.hear(2, &broken(round, reports[rounds(&all).len() - 1], 0)));
            }
            for member in [2, 3] {
                all.extend(leader.hear(member, &idle()));
            }
            let outputs = leader.run(leader.now + Duration::from_millis(100));
            for dial in path_dials(&outputs) {
                leader.node.handle_path(leader.now, dial, &PathNews::Arrived);
            }
            all.extend(outputs);
        }
        // The user reads why before the next attempt begins.
        let is_why =
            |output: &Output| matches!(output, Output::Event(Event::Warning(Warning::TryAgain { .. })));
        let begins = |output: &Output| matches!(output, Output::Event(Event::Preparing { round: 2 }));
        let (why, again) = (all.iter().position(is_why), all.iter().position(begins));
        assert!(why.is_some() && why < again, "{why:?}, {again:?}");
        let Some(Failure::PathsBroken { paths, more: 0 }) = failure(&all) else {
            panic!("{:?}", failure(&all))
        };
        let [path] = &paths[..] else { panic!("{paths:?}") };
        assert_eq!(path.to.address.ip(), address.ip());
    }
}

#[test]
fn few_nodes_are_at_fault_without_which_no_path_is_broken() {
    for (paths, expected) in [
        // Two nodes that reach nobody, of which the leader is the other end once.
        (&[(2, 1), (2, 4), (5, 2), (3, 4), (3, 5)][..], &[2, 3][..]),
        // The prover, since others may have reached its target; but not the leader.
        (&[(3, 2)], &[3]),
        (&[(1, 2)], &[2]),
        // It cannot say whom it did not reach.
        (&[(4, 4)], &[4]),
        (&[], &[]),
    ] {
        let paths = paths.iter().map(|&(prover, target)| (id(prover), id(target)));
        let expected: Vec<NodeId> = expected.iter().copied().map(id).collect();
        assert_eq!(at_fault(paths, |node| *node == id(1)), expected);
    }
}
