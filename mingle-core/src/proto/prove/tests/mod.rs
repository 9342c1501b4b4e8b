//! The proofs of one round.

mod paths;

use std::net::SocketAddr;

use crate::model::{JobId, NodeId};
use crate::proto::shared::Shared;
use crate::proto::timer::Time;
use crate::proto::{Config, DialId, Output, PathDial};

/// Node 2 of a world of this size.
fn shared(world: u32) -> Shared {
    let tag = "proofs".parse::<JobId>().unwrap().tag();
    Shared::new(Config::plain(tag, world, 2, endpoint(2)), 1, Time::ZERO)
}

fn endpoint(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 29500))
}

fn id(node: u8) -> NodeId {
    NodeId([node; 16])
}

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

/// The connections of a node.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    /// The dials of paths, with the length of the packets that they may have at most.
    paths: Vec<(DialId, SocketAddr, Option<u32>)>,
    hung_up: Vec<DialId>,
}

impl Done {
    fn by(shared: &mut Shared) -> Self {
        let mut done = Self::default();
        while let Some(output) = shared.next_output() {
            match output {
                Output::DialPath(PathDial { dial, to, packet, .. }) => done.paths.push((dial, to, packet)),
                Output::HangUp(dial) => done.hung_up.push(dial),
                other => panic!("{other:?}"),
            }
        }
        done
    }
}
