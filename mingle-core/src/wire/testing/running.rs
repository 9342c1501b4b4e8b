//! The bodies of the messages of running worlds.

use super::super::message::{Ended, Look, Sight, Suspicion};
use super::{Draw, Source};
use crate::model::End;

impl Draw for Look {
    fn draw(from: &mut Source<'_>) -> Self {
        Self { rank: from.rank(), port: u16::from(from.byte()) << 8 | u16::from(from.byte()) }
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

impl Draw for Ended {
    fn draw(from: &mut Source<'_>) -> Self {
        let rank = from.rank();
        let end = match from.byte() % 5 {
            0 => End::Exited(from.byte()),
            1 => End::Killed(from.byte()),
            2 => End::Gone,
            3 => End::Unknown,
            _ => End::Left,
        };
        Self { rank, end }
    }
}
