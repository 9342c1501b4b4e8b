//! A node that waits for a seat of a world that runs.

use super::*;
use crate::wire::Running;

#[test]
fn a_node_that_another_member_tells_of_the_world_asks_rank_0_once_a_second_at_most() {
    let lineage = Lineage { generation: 1, origin: 7 };
    let mut node = Node::new(Config { lineage, stands_by: true, ..patient(2) }, 1, Time::ZERO);
    let _ = outputs(&mut node);
    let running = Message::Running(Running { first: endpoint(9), door: None });
    let asks = |node: &mut Node, at: u64| {
        let outputs = hear_at(node, Time::from_millis(at), 3, &running);
        sent(&outputs).into_iter().filter(|(to, _)| *to == endpoint(9)).count()
    };
    assert_eq!([10, 500, 1009, 1010, 1011].map(|at| asks(&mut node, at)), [1, 0, 0, 1, 0]);
}
