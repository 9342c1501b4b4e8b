//! The bodies of the messages of running worlds.

use super::super::message::{Doing, Reply, Running};
use super::{Draw, Source};
use crate::model::{End, Lineage};

impl Draw for Running {
    fn draw(from: &mut Source<'_>) -> Self {
        let addresses = (0..from.byte() % 10).map(|_| from.endpoint()).collect();
        Self { leader: from.id(), generation: from.short(), addresses, host: from.host(), user: from.user() }
    }
}

impl Draw for Reply {
    fn draw(from: &mut Source<'_>) -> Self {
        Self {
            epoch: Lineage { generation: from.short(), origin: from.number() },
            rank: from.rank(),
            world: from.rank(),
            host: from.host(),
            doing: [Doing::Runs, Doing::Finished, Doing::Over][usize::from(from.byte() % 3)],
            restarts_left: from.flag().then(|| u32::from(from.byte())),
            suspected: (0..from.byte() % 20).map(|_| from.rank()).collect(),
            waiting: from.rank(),
            ended: from.flag().then(|| (from.rank(), End::Exited(from.byte()))),
        }
    }
}
