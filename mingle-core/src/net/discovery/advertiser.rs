//! A leader's datagram once a second to the directory groups, from which `mingle watch` lists the jobs of a
//! link.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::model::{directory_v4, directory_v6};
use crate::net::Rendezvous;
use crate::proto::Event;
use crate::wire::Notice;

/// The period of advertising. The first datagram also waits this long: a world that forms at once sends none,
/// nor does a node that leads for a moment before it yields to a better candidate.
const PERIOD: Duration = Duration::from_secs(1);
/// How much later the process may wake for it. Its own announce, a little less than once a second, mostly
/// wakes it before.
const SLACK: Duration = Duration::from_millis(250);

/// The directory groups of both families.
pub(crate) fn groups(port: u16) -> [SocketAddr; 2] {
    [(directory_v4(), port).into(), (directory_v6(), port).into()]
}

/// Advertises the job of a node while the node leads.
#[derive(Debug)]
pub(crate) struct Advertiser {
    notice: Notice,
    /// When to advertise next, while the node leads.
    due: Option<Instant>,
}

impl Advertiser {
    /// None for a private job, for a world of one, and without multicast.
    pub(crate) fn new(rendezvous: &Rendezvous) -> Option<Self> {
        if rendezvous.private || rendezvous.is_alone() || !rendezvous.network.multicast {
            return None;
        }
        let notice = match &rendezvous.secret {
            Some(_) => Notice::Sealed(rendezvous.job.tag().beginning()),
            None => Notice::Open { job: rendezvous.job.clone(), world: rendezvous.world, joined: 1 },
        };
        Some(Self { notice, due: None })
    }

    /// Starts, updates or stops advertising after an event of the node.
    pub(crate) fn observe(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Leading => {
                self.count(1);
                self.due.get_or_insert(now + PERIOD);
            }
            Event::Progress(progress) => self.count(progress.joined),
            Event::SteppedDown | Event::Following(_) | Event::LostLeader(_) => {
                self.due = None;
            }
            _ => {}
        }
    }

    fn count(&mut self, now: u32) {
        if let Notice::Open { joined, .. } = &mut self.notice {
            *joined = now;
        }
    }

    /// When to call [`Advertiser::advertise`] at the latest. Calling it earlier and more often costs nothing.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.map(|due| due + SLACK)
    }

    /// The datagram to send, if one is due.
    pub(crate) fn advertise(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.due = Some(self.due.filter(|due| *due <= now).map(|_| now + PERIOD)?);
        Some(self.notice.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HostName, JobId, List, NodeId, Peer, Secret, User, WorldSize};
    use crate::proto::{Config, Node, Output, Time};
    use crate::wire::{Codec, Header, Message, NodeInfo, Running, Solicit};

    fn rendezvous() -> Rendezvous {
        Rendezvous::new("foo".parse().unwrap(), "2:4".parse::<WorldSize>().unwrap())
    }

    #[expect(clippy::disallowed_methods, reason = "an origin for times")]
    fn origin() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_leader_advertises_once_a_second_per_family_and_a_follower_does_not() {
        let (origin, mut advertiser) = (origin(), Advertiser::new(&rendezvous()).unwrap());
        let mut sent = 0;
        // Called far more often than due, and with repeated events that the node leads.
        for millisecond in 0..10_000 {
            let now = origin + Duration::from_millis(millisecond);
            advertiser.observe(&Event::Leading, now);
            sent += advertiser.advertise(now).iter().count() * groups(1).len();
        }
        assert_eq!(sent, 18, "two a second, and none in the first one");
        let leader = Peer { host: HostName::new("a"), address: "10.0.0.1:1".parse().unwrap() };
        advertiser.observe(&Event::Following(leader), origin);
        assert_eq!(advertiser.due(), None);
        assert_eq!(advertiser.advertise(origin + Duration::from_secs(60)), None);
    }

    /// Delivers a message to the node, and passes its events to the advertiser.
    fn deliver(node: &mut Node, advertiser: &mut Advertiser, now: Time, message: &Message) {
        let header = Header { sender: NodeId([9; 16]), recipient: NodeId([1; 16]) };
        let datagram = Codec::new("foo".parse::<JobId>().unwrap().tag(), None).encode(header, message);
        node.handle_datagram(now, "10.0.0.9:29503".parse().unwrap(), &datagram);
        node.handle_timeout(now);
        while let Some(output) = node.poll_output() {
            if let Output::Event(event) = output {
                advertiser.observe(&event, origin());
            }
        }
    }

    fn node_info(host: &str, last: u8) -> NodeInfo {
        NodeInfo::new(HostName::new(host), SocketAddr::from(([10, 0, 0, last], 29503)).into())
    }

    /// Node 1, which leads.
    fn leading() -> (Node, Advertiser) {
        let rendezvous = rendezvous();
        let config = Config::new(NodeId([1; 16]), rendezvous.job.tag(), rendezvous.world, node_info("a", 1));
        let (mut node, mut advertiser) =
            (Node::new(config, 1, Time::ZERO), Advertiser::new(&rendezvous).unwrap());
        let solicit = Message::Solicit(Solicit { rank: None, host: HostName::new("b") });
        deliver(&mut node, &mut advertiser, Time::ZERO, &solicit);
        assert!(advertiser.due().is_some());
        (node, advertiser)
    }

    #[test]
    fn a_leader_that_steps_down_for_a_running_world_stops_advertising() {
        let (mut node, mut advertiser) = leading();
        let running = Running {
            leader: NodeId([9; 16]),
            generation: 0,
            addresses: List::default(),
            host: HostName::new("b"),
            user: User::default(),
        };
        deliver(&mut node, &mut advertiser, Time::ZERO, &Message::Running(running));
        assert_eq!(advertiser.due(), None);
    }

    #[test]
    fn a_private_job_is_not_advertised_and_a_job_with_a_secret_not_by_name() {
        assert!(Advertiser::new(&Rendezvous { private: true, ..rendezvous() }).is_none());
        let secret = Some(Secret::new(b"a secret of many bytes").unwrap());
        let mut advertiser = Advertiser::new(&Rendezvous { secret, ..rendezvous() }).unwrap();
        advertiser.observe(&Event::Leading, origin());
        let sent = advertiser.advertise(origin() + Duration::from_secs(5)).unwrap();
        assert_eq!(
            Notice::decode(&sent),
            Some(Notice::Sealed("foo".parse::<JobId>().unwrap().tag().beginning()))
        );
        assert!(!sent.windows(3).any(|bytes| bytes == b"foo"));
    }
}
