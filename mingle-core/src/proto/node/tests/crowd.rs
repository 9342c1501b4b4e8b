//! Processes that do not exist, of which a stranger can make up as many as it likes.

use super::*;
use crate::proto::{ConnId, Ends, Order, Way};
use crate::wire::Frame;

/// A process with this number opens a session from this address, so many milliseconds after the start.
fn open(node: &mut Hand, number: u32, from: u8) -> (NodeId, ConnId) {
    let mut id = [9; 16];
    id[..4].copy_from_slice(&number.to_le_bytes());
    let (id, conn) = (NodeId(id), ConnId(1000 + u64::from(number)));
    let now = Time::from_millis(number.into());
    let own = node.handle_asked(now, id, ME).unwrap();
    let ends = Ends { local: endpoint(2).ip(), remote: endpoint(from).ip() };
    node.handle_opened(now, id, Way::Accepted(ends), conn, (own, 1));
    (id, conn)
}

fn closed(outputs: &[Output]) -> Vec<u64> {
    let closed = outputs.iter().filter_map(|output| match output {
        Output::Carry(Order::Close(conn)) => Some(conn.0),
        _ => None,
    });
    closed.collect()
}

#[test]
fn a_crowd_at_one_address_makes_way_for_itself_and_a_node_at_another_has_the_time_to_join() {
    let mut node = hand(patient(2));
    node.open(Time::ZERO, 3, &[]);
    let mut all = Vec::new();
    for number in 0..500 {
        open(&mut node, number, 66);
        all.extend(node.outputs());
    }
    // Of 68 sessions in a world of two, one is the node's.
    assert_eq!(closed(&all), (1000..1433).collect::<Vec<u64>>());
    let joins = Said::Join(Box::new(Join {
        world: WorldSize::of(2),
        node: Config::plain(tag(), 2, 3, endpoint(3)).node,
        traits: Vec::new(),
        misfit: None,
    }));
    let now = node.shared.now;
    assert!(says(&node.say(now, 3, &joins), |said| matches!(said, Said::Welcome(_))));
}

#[test]
fn as_many_have_joined_at_most_as_have_room_for_a_connection() {
    let mut node = hand(patient(2));
    let info = Config::plain(tag(), 2, 3, endpoint(3)).node;
    let world = WorldSize::of(2);
    let join = Said::Join(Box::new(Join { world, node: info, traits: Vec::new(), misfit: None }));
    let body = join.encode();
    let mut ids = Vec::new();
    for number in 0..500 {
        let (id, conn) = open(&mut node, number, 66);
        let frame = Frame { number: 1, read: 0, body: body.clone() };
        let now = node.shared.now;
        node.handle_frame(now, conn, frame).unwrap();
        while node.poll_output().is_some() {}
        ids.push(id);
    }
    assert_eq!(ids.iter().filter(|id| node.lead.knows(**id)).count(), 4 * 68);
}
