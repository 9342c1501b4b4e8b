//! The bodies of the messages of running worlds.

use super::super::message::Running;
use super::{Draw, Source};

impl Draw for Running {
    fn draw(from: &mut Source<'_>) -> Self {
        let addresses = (0..from.byte() % 10).map(|_| from.endpoint()).collect();
        Self { leader: from.id(), generation: from.short(), addresses, host: from.host(), user: from.user() }
    }
}
