//! What a driver does every few seconds beside the protocol.

use std::time::{Duration, Instant};

use super::Driver;
use crate::net::clock::clock;
use crate::net::discovery::advertiser::Advertiser;
use crate::net::error::Error;
use crate::net::rendezvous::Rendezvous;
use crate::net::sockets::links::Links;
use crate::proto::{Event, Node, Tried, Warning};

/// The look at the interfaces may be so much later than it is due, since a datagram mostly wakes the process
/// before.
const LOOK_SLACK: Duration = Duration::from_secs(2);
/// After this long without any message, warn that multicast may not pass.
const QUIET: Duration = Duration::from_secs(15);

/// When each of these is due, and the advertiser.
pub(super) struct Upkeep {
    /// None once it is known that the node has heard another, or the warning is given.
    quiet: Option<Instant>,
    advertiser: Option<Advertiser>,
}

impl Upkeep {
    pub(super) fn new(settings: &Rendezvous, origin: Instant) -> Self {
        Self {
            quiet: Some(origin + QUIET).filter(|_| !settings.is_alone()),
            advertiser: Advertiser::new(settings),
        }
    }

    /// The latest time at which [`Driver::keep_up`] must run.
    pub(super) fn due(&self, links: &Links) -> Instant {
        let advertiser = self.advertiser.as_ref().and_then(Advertiser::due);
        [self.quiet, advertiser].into_iter().flatten().fold(links.due(LOOK_SLACK), Instant::min)
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
        if self.links.keep_up() {
            self.look_at_interfaces(node)?;
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
