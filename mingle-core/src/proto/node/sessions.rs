//! The sessions of a node: hands each frame to the part that it concerns, and looks at what became of the
//! process at the other end.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Node;
use crate::model::{Misfit, NodeId, Rank};
use crate::proto::DialId;
use crate::proto::output::ConnId;
use crate::proto::session::{Ending, Failed, Impossible, Way};
use crate::proto::timer::Time;
use crate::wire::{Frame, Join, Refusal, Said};

impl Node {
    /// Whether a process that dials this one, and means the process `meant`, is answered; and the number of
    /// this process's session for the answer.
    pub fn handle_asked(&mut self, now: Time, peer: NodeId, meant: NodeId) -> Option<u64> {
        self.at(now);
        let is_for_this = meant == self.shared.me() && peer != meant && !self.ended;
        let takes_part = self.leads() || self.follow.is_some();
        (is_for_this && takes_part).then(|| {
            if let Some(peer) = self.shared.links.get_mut(peer) {
                peer.link.asked(self.shared.now);
            }
            self.shared.links.number_for(peer)
        })
    }

    /// A connection is open, and both hellos have been read, with the numbers of this process and of the
    /// other.
    pub fn handle_opened(&mut self, now: Time, peer: NodeId, way: Way, conn: ConnId, numbers: (u64, u64)) {
        self.at(now);
        let (own_number, number) = numbers;
        let is_known = self.shared.links.has(peer);
        let is_late = own_number != self.shared.links.number_for(peer);
        if self.ended || is_late || (!is_known && matches!(way, Way::Dialled(_))) {
            // This node has ended, or begun anew with that process since the hello.
            self.shared.links.refuse(conn);
            return;
        }
        if !is_known {
            self.make_room();
            self.shared.links.add(self.shared.now, peer, Vec::new(), ());
        }
        if let Way::Accepted(_) = way {
            self.shared.unreached = false;
            self.memory.unconnectable = None;
        }
        self.shared.links.opened(self.shared.now, peer, way, conn, number);
        self.lead.reached(peer, &mut self.shared);
        self.look_at(peer);
    }

    /// A process that has not joined makes way for another, since IDs can be made up: the oldest one at the
    /// address at which most of them are, so that others have the time to join.
    fn make_room(&mut self) {
        let most = self.shared.scale().most_entries();
        if self.shared.links.len() < most {
            return;
        }
        let is_stranger = |id: &NodeId| !self.lead.knows(*id) && !self.follows(*id);
        let mut strangers: BTreeMap<Option<IpAddr>, Vec<(Time, NodeId)>> = BTreeMap::new();
        for (&id, peer) in self.shared.links.iter().filter(|(id, _)| is_stranger(id)) {
            let at = peer.link.ends.map(|ends| ends.remote);
            strangers.entry(at).or_default().push((peer.link.since, id));
        }
        if strangers.values().map(Vec::len).sum::<usize>() < most {
            return;
        }
        let crowd = strangers.into_values().max_by_key(Vec::len);
        if let Some((_, oldest)) = crowd.and_then(|crowd| crowd.into_iter().min()) {
            self.shared.links.forget(self.shared.now, oldest);
        }
    }

    /// A dial of a session has failed.
    pub fn handle_dial_failed(&mut self, now: Time, peer: NodeId, dial: DialId, failed: Failed) {
        self.at(now);
        if self.ended {
            return;
        }
        self.shared.links.dial_failed(self.shared.now, peer, dial, failed);
        self.look_at(peer);
    }

    /// A connection of a session has ended.
    pub fn handle_closed(&mut self, now: Time, conn: ConnId, ending: Ending) {
        self.at(now);
        if self.ended {
            return;
        }
        if let Some(id) = self.shared.links.closed(self.shared.now, conn, ending) {
            self.look_at(id);
        }
    }

    /// A frame was read.
    ///
    /// # Errors
    /// The node closes the connection: what was read is of no process of mingle.
    pub fn handle_frame(&mut self, now: Time, conn: ConnId, frame: Frame) -> Result<(), Impossible> {
        self.at(now);
        if self.ended {
            return Ok(());
        }
        let read = self.shared.links.read(self.shared.now, conn, frame, Said::decode);
        let Some((from, read)) = read else { return Ok(()) };
        let heard = read.map(|said| {
            self.memory.hear(from, self.shared.now);
            if let Some(said) = said {
                tracing::trace!(%from, ?said, "read");
                self.on_said(from, said);
            }
        });
        self.look_at(from);
        heard
    }

    fn on_said(&mut self, from: NodeId, said: Said) {
        match said {
            Said::Join(join) => self.on_join(from, *join),
            Said::Part(part) => self.lead.on_part(from, &part, &mut self.shared),
            said if self.follows(from) => self.on_leader(said),
            _ => tracing::debug!(%from, "a frame that is not the sender's to say"),
        }
        self.check_end();
    }

    /// What only this node's leader may say.
    fn on_leader(&mut self, said: Said) {
        match said {
            Said::Welcome(welcome) => {
                // What was said of another leader is over for a node that joins, before this leader's word.
                self.joining(|follow, shared| follow.on_welcome(&welcome, shared));
                welcome.trouble.iter().for_each(|trouble| self.hear_trouble(trouble));
                self.memory.named(&welcome.count.newest);
                self.note_most(false);
            }
            Said::Prepare(prepare) if self.lead.overdue => {
                // The last round was void, and no other begins for this node.
                self.with_follow(|follow, shared| follow.outgrow(prepare.round, shared));
            }
            Said::Prepare(prepare) => self.joining(|follow, shared| follow.on_prepare(&prepare, shared)),
            Said::Roster(round, roster) => {
                self.with_follow(|follow, _| follow.roster = Some((round, roster)));
            }
            Said::Commit(commit) => self.on_commit(&commit),
            Said::Refuse(Refusal::Redirect(to)) => self.on_redirect(to),
            Said::Refuse(refusal) => self.on_refusal(refusal),
            Said::Join(_) | Said::Part(_) => {}
        }
    }

    fn on_join(&mut self, from: NodeId, join: Join) {
        let address = join.node.endpoints.preferred();
        self.memory.node(from, &join.node.host, address, join.node.rank.map(Rank::get));
        self.hear_at(&join.node.host, from, address, &join.node.endpoints);
        let fits = self.hear_wish(&join.node.host, address, join.world, &join.node.attributes.user);
        if fits {
            self.memory.together(from);
            self.memory.is_here(&join.node.host);
            // What is said of a member is past, and what the network does this node sees itself.
            let book = &self.lead.book;
            let is_news =
                |misfit: &&Misfit| !misfit.is_of_network() && book.other_at(misfit.address, from).is_none();
            if let Some(misfit) = join.misfit.as_ref().filter(is_news) {
                self.learn_misfit(misfit);
            }
        }
        match self.follow.as_ref().filter(|follow| follow.joined) {
            _ if self.seek.stands_aside(self.shared.now) => self.shared.refuse(from, Refusal::Closing),
            Some(follow) => {
                let introduction = follow.leader.clone();
                self.shared.refuse(from, Refusal::Redirect(introduction));
            }
            None => self.lead.on_join(from, join, &mut self.shared),
        }
        self.close_expelled();
    }

    /// Something has happened on the session with this process.
    pub(super) fn look_at(&mut self, id: NodeId) {
        if self.ended {
            return;
        }
        if self.follows(id) {
            if self.follow.as_mut().is_some_and(|follow| follow.look(&mut self.shared)) {
                self.give_up_leader();
            }
        } else if self.lead.knows(id) {
            self.lead.look(id, &mut self.shared);
            self.close_expelled();
        } else if !self.shared.links.is_there(id) {
            self.shared.links.forget(self.shared.now, id);
        }
        self.check_end();
    }

    /// Whether this process is the leader that this node follows.
    pub(crate) fn follows(&self, id: NodeId) -> bool {
        self.follow.as_ref().is_some_and(|follow| follow.leader_id() == id)
    }
}
