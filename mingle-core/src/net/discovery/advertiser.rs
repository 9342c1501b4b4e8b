//! A leader's datagram once a second to the directory groups, from which `mingle watch` lists the jobs of a
//! link.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::model::{directory_v4, directory_v6};
use crate::net::Rendezvous;
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

    /// When to call [`Advertiser::advertise`] at the latest. Calling it earlier and more often costs nothing.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.map(|due| due + SLACK)
    }

    /// The datagram to send, if one is due. The node leads if nodes `have_joined` it, itself included.
    pub(crate) fn advertise(&mut self, now: Instant, have_joined: Option<u32>) -> Option<Vec<u8>> {
        let due = have_joined.map(|_| self.due.unwrap_or(now + PERIOD));
        let is_due = due.is_some_and(|due| due <= now);
        self.due = if is_due { Some(now + PERIOD) } else { due };
        if let (Notice::Open { joined, .. }, Some(count)) = (&mut self.notice, have_joined) {
            *joined = count;
        }
        is_due.then(|| self.notice.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HostName, JobId, List, NodeId, Secret, User, WorldSize};
    use crate::proto::{Config, Node, Time};
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
        // Called far more often than due.
        for millisecond in 0..10_000 {
            let now = origin + Duration::from_millis(millisecond);
            sent += advertiser.advertise(now, Some(1)).iter().count() * groups(1).len();
        }
        assert_eq!(sent, 18, "two a second, and none in the first one");
        assert_eq!(advertiser.advertise(origin + Duration::from_secs(60), None), None);
        assert_eq!(advertiser.due(), None);
    }

    #[test]
    fn a_datagram_says_how_many_have_joined_by_then() {
        let (origin, mut advertiser) = (origin(), Advertiser::new(&rendezvous()).unwrap());
        assert_eq!(advertiser.advertise(origin, Some(1)), None);
        let sent = advertiser.advertise(origin + PERIOD, Some(3)).unwrap();
        let notice = Notice::decode(&sent);
        assert!(matches!(notice, Some(Notice::Open { joined: 3, .. })), "{notice:?}");
    }

    /// Delivers a message to the node.
    fn deliver(node: &mut Node, now: Time, message: &Message) {
        let header = Header { sender: NodeId([9; 16]), recipient: NodeId([1; 16]) };
        let datagram = Codec::new("foo".parse::<JobId>().unwrap().tag(), None).encode(header, message);
        node.handle_datagram(now, "10.0.0.9:29503".parse().unwrap(), &datagram);
        node.handle_timeout(now);
    }

    fn node_info(host: &str, last: u8) -> NodeInfo {
        NodeInfo::new(HostName::new(host), SocketAddr::from(([10, 0, 0, last], 29503)).into())
    }

    #[test]
    fn a_node_advertises_while_it_leads_and_stops_for_a_running_world() {
        let rendezvous = rendezvous();
        let config = Config::new(NodeId([1; 16]), rendezvous.job.tag(), rendezvous.world, node_info("a", 1));
        let mut node = Node::new(config, 1, Time::ZERO);
        assert_eq!(node.advertised(), None);
        let solicit = Message::Solicit(Solicit { rank: None, host: HostName::new("b") });
        deliver(&mut node, Time::ZERO, &solicit);
        assert_eq!(node.advertised(), Some(1));
        let running = Running {
            leader: NodeId([9; 16]),
            generation: 0,
            addresses: List::default(),
            host: HostName::new("b"),
            user: User::default(),
        };
        deliver(&mut node, Time::ZERO, &Message::Running(running));
        assert_eq!(node.advertised(), None);
    }

    #[test]
    fn a_private_job_is_not_advertised_and_a_job_with_a_secret_not_by_name() {
        assert!(Advertiser::new(&Rendezvous { private: true, ..rendezvous() }).is_none());
        let secret = Some(Secret::new(b"a secret of many bytes").unwrap());
        let mut advertiser = Advertiser::new(&Rendezvous { secret, ..rendezvous() }).unwrap();
        assert_eq!(advertiser.advertise(origin(), Some(1)), None);
        let sent = advertiser.advertise(origin() + Duration::from_secs(5), Some(1)).unwrap();
        assert_eq!(
            Notice::decode(&sent),
            Some(Notice::Sealed("foo".parse::<JobId>().unwrap().tag().beginning()))
        );
        assert!(!sent.windows(3).any(|bytes| bytes == b"foo"));
    }
}
