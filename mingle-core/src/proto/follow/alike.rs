//! What a member tells its leader of its traits.

use super::Follow;
use crate::proto::parts;
use crate::proto::shared::Shared;
use crate::wire::{self, Message, Want};

impl Follow {
    /// The leader asks for traits.
    pub(crate) fn on_want(&mut self, want: Want, shared: &mut Shared) {
        self.asked_traits = Some(want);
        self.tell_traits(shared);
    }

    /// Answers the leader, once this node has joined it: its address is proved then.
    pub(super) fn tell_traits(&mut self, shared: &mut Shared) {
        let stamp = shared.config.node.attributes.same.bare();
        let Some(want) = self.asked_traits.take_if(|_| self.joined).filter(|want| want.round == stamp.0)
        else {
            return;
        };
        for part in parts::traits(&want, &wire::encode_traits(&shared.config.traits)) {
            self.leader.send(&Message::Part(part), shared);
        }
    }
}
