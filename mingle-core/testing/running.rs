//! The bodies of the messages of running worlds.

use std::num::NonZeroU16;

use super::super::message::{Ended, Look, Running, Sight, Status, Suspicion};
use super::{Draw, Source};
use crate::model::End;

impl Draw for Look {
    fn draw(from: &mut Source<'_>) -> Self {
        Self { rank: from.rank(), port: u16::from(from.byte()) << 8 | u16::from(from.byte()) }
    }
}

impl Draw for Running {
    fn draw(from: &mut Source<'_>) -> Self {
        Self { first: from.endpoint(), door: NonZeroU16::new(from.endpoint().port()).filter(|_| from.flag()) }
    }
}

impl Draw for Sight {
    fn draw(from: &mut Source<'_>) -> Self {
        Self { rank: from.rank(), reached: from.flag() }
    }
}

impl Draw for Suspicion {
    fn draw(from: &mut Source<'_>) -> Self {
        Self { rank: from.rank(), is_over: from.flag() }
    }
}

impl Draw for Status {
    fn draw(from: &mut Source<'_>) -> Self {
        Self {
            rank: from.rank(),
            world: from.rank(),
            host: from.host(),
            has_finished: from.flag(),
            restarts_left: from.flag().then(|| u32::from(from.byte())),
            suspected: (0..from.byte() % 20).map(|_| from.rank()).collect(),
            waiting: from.rank(),
        }
    }
}

impl Draw for Ended {
    fn draw(from: &mut Source<'_>) -> Self {
        let rank = from.rank();
        let end = match from.byte() % 6 {
            0 => End::Exited(from.byte()),
            1 => End::Killed(from.byte()),
            2 => End::Gone,
            3 => End::Unknown,
            4 => End::Left,
            _ => End::Grows,
        };
        Self { rank, end }
    }
}
