//! Whether this node reaches a member that another one doubts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::context::Context;
use crate::model::{NodeId, Rank};
use crate::proto::output::{DialId, WatchNews};
use crate::proto::timer::Time;
use crate::wire::{Look, Message, Sight};

/// The most members that this node looks for at the same time.
const MOST: usize = 8;
/// How long such a member has to greet.
const LIMIT: Duration = Duration::from_secs(2);

/// The connections to members that others doubt.
#[derive(Debug, Clone, Default)]
pub(super) struct Looks(BTreeMap<DialId, Looking>);

#[derive(Debug, Clone)]
struct Looking {
    rank: Rank,
    asker: NodeId,
    source: SocketAddr,
    since: Time,
}

impl Looks {
    /// Another member asks whether this node reaches the member of a rank.
    pub(super) fn start(&mut self, asker: NodeId, source: SocketAddr, look: Look, context: &mut Context) {
        let rank = Rank(look.rank);
        let member = context.members.id_of(rank).filter(|&id| id != asker && id != context.own_id());
        let Some(mut to) = member.and_then(|id| context.members.address_of(id)) else { return };
        let now = context.now();
        self.0.retain(|&dial, looking| {
            let has_time = now < looking.since + LIMIT;
            if !has_time {
                context.hang_up(dial);
            }
            has_time
        });
        if self.0.len() < MOST && self.0.values().all(|looking| looking.asker != asker) {
            to.set_port(look.port);
            self.0.insert(context.watch(to), Looking { rank, asker, source, since: now });
        }
    }

    /// Something has happened on a connection, which may be one of these.
    pub(super) fn hear(&mut self, dial: DialId, news: WatchNews, context: &mut Context) {
        if news == WatchNews::Opened {
            // The kernel also accepts it for a process that is just ending.
            return;
        }
        let Some(Looking { rank, asker, source, .. }) = self.0.remove(&dial) else { return };
        let reached = news == WatchNews::Greeted;
        if reached {
            context.hang_up(dial);
        }
        context.send(source, asker, &Message::Sight(Sight { rank: rank.get(), reached }));
    }

    /// Closes all connections.
    pub(super) fn stop(&mut self, context: &mut Context) {
        for (dial, _) in std::mem::take(&mut self.0) {
            context.hang_up(dial);
        }
    }
}
