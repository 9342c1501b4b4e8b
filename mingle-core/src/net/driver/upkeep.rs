//! What a driver does every few seconds beside the protocol.

use std::time::{Duration, Instant};

use super::{Driver, LOOK};
use crate::net::clock::clock;
use crate::net::discovery::advertiser::Advertiser;
use crate::net::error::Error;
use crate::net::rendezvous::Rendezvous;
use crate::proto::{Event, Node, Tried, Warning};

/// How often the groups are joined again: switches that snoop on IGMP without a querier forget a member after
/// 260 s.
pub(crate) const REJOIN: Duration = Duration::from_secs(60);
/// The look at the interfaces may be so much later than [`LOOK`], since a datagram mostly wakes the process
/// before.
const LOOK_SLACK: Duration = Duration::from_secs(2);
/// After this long without any message, warn that multicast may not pass.
const QUIET: Duration = Duration::from_secs(15);

/// When each of these is due, and the advertiser.
pub(super) struct Upkeep {
    rejoin: Instant,
    look: Instant,
    /// None once it is known that the node has heard another, or the warning is given.
    quiet: Option<Instant>,
    advertiser: Option<Advertiser>,
}

impl Upkeep {
    pub(super) fn new(settings: &Rendezvous, origin: Instant) -> Self {
        Self {
            rejoin: origin + REJOIN,
            look: origin + LOOK,
            quiet: Some(origin + QUIET).filter(|_| !settings.is_alone()),
            advertiser: Advertiser::new(settings),
        }
    }

    /// The latest time at which [`Driver::keep_up`] must run.
    pub(super) fn due(&self) -> Instant {
        let advertiser = self.advertiser.as_ref().and_then(Advertiser::due);
        let due = [Some(self.rejoin), self.quiet, advertiser];
        due.into_iter().flatten().fold(self.look + LOOK_SLACK, Instant::min)
    }

    /// Lets the advertiser know of an event of the node.
    pub(super) fn observe(&mut self, event: &Event) {
        if let Some(advertiser) = &mut self.advertiser {
            advertiser.observe(event, clock());
        }
    }
}

impl Driver {
    /// Does what is due.
    pub(super) fn keep_up(&mut self, node: &mut Node, upkeep: &mut Upkeep) -> Result<(), Error> {
        if let Some(notice) = upkeep.advertiser.as_mut().and_then(|advertiser| advertiser.advertise(clock()))
        {
            self.links.advertise(self.settings.network.discovery_port, &notice);
        }
        if clock() >= upkeep.rejoin {
            upkeep.rejoin = clock() + REJOIN;
            self.links.rejoin();
        }
        if clock() >= upkeep.look {
            upkeep.look = clock() + LOOK;
            self.look_at_interfaces(node)?;
        }
        if self.peers.advance(clock()) {
            node.handle_seeds(self.now(), self.peers.addresses());
        }
        if upkeep.quiet.is_some_and(|at| clock() >= at) {
            upkeep.quiet = None;
            if !node.has_heard() {
                self.warn(Warning::NobodyHeard { after: QUIET, tried: self.tried() });
            }
        }
        Ok(())
    }

    /// How this node has looked for others so far.
    fn tried(&self) -> Tried {
        if !self.settings.network.multicast {
            return Tried::SeedsAlone;
        }
        match (self.peers.are_followed(), self.settings.network.broadcast) {
            (false, true) => Tried::Broadcast,
            (false, false) => Tried::Multicast,
            (true, _) if self.peers.lack_seeds() => Tried::NoSeedKnown,
            (true, _) => Tried::Seeds,
        }
    }
}
