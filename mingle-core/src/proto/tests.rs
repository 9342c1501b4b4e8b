//! Nodes that have numbers, for the tests of several parts.

use std::net::SocketAddr;

use super::{DialId, Node, Output, Time};
use crate::model::{JobId, JobTag, NodeId};
use crate::wire::Codec;

pub(super) fn tag() -> JobTag {
    "numbered".parse::<JobId>().unwrap().tag()
}

pub(super) fn codec() -> Codec {
    Codec::new(tag(), None)
}

pub(super) fn id(node: u8) -> NodeId {
    NodeId([node; 16])
}

pub(super) fn endpoint(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 29500))
}

pub(super) fn outputs(node: &mut Node) -> Vec<Output> {
    std::iter::from_fn(|| node.poll_output()).collect()
}

/// The first dial.
pub(super) fn dialled(outputs: &[Output]) -> DialId {
    let dial = outputs.iter().find_map(|output| match output {
        Output::Dial { dial, .. } => Some(*dial),
        _ => None,
    });
    dial.expect("it dials")
}

/// Lets the time pass until `until`. Returns what the node does meanwhile.
pub(super) fn run(node: &mut Node, until: Time) -> Vec<Output> {
    let mut all = outputs(node);
    while let Some(at) = node.poll_timeout().filter(|&at| at <= until) {
        node.handle_timeout(at);
        all.extend(outputs(node));
    }
    // No input, but its time counts.
    node.handle_timeout(until);
    all.extend(outputs(node));
    all
}
