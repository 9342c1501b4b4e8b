//! The groups where every job that is not private says that it is there, for those who watch.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Builder;
use crate::model::{JobId, directory_v4, directory_v6};
use crate::proto::{Event, Notice};

/// How often whoever gathers says so at most. The first time only after as long, so that a world which forms at once
/// says nothing, nor does a node that gathers for a moment until it has heard of a better one.
const EVERY: Duration = Duration::from_secs(1);
/// So much later where nothing else wakes the process, which its own announce does a little less than once a second.
const AT_LEISURE: Duration = Duration::from_millis(250);

/// The groups of both families.
pub(super) fn groups(port: u16) -> [SocketAddr; 2] {
    [(directory_v4(), port).into(), (directory_v6(), port).into()]
}

/// Says for a node that gathers what is known of its job.
#[derive(Debug)]
pub(super) struct Advertiser {
    job: JobId,
    notice: Notice,
    /// From when on it is time, while this node gathers.
    due: Option<Instant>,
}

impl Advertiser {
    /// None for a job that has nobody to tell, or is not to.
    pub(super) fn new(builder: &Builder) -> Option<Self> {
        if builder.private || builder.world.get() == 1 {
            return None;
        }
        let notice = match &builder.secret {
            Some(_) => Notice::Sealed(builder.job.tag().beginning()),
            None => Notice::Open { job: builder.job.clone(), world: builder.world, joined: 1 },
        };
        Some(Self { job: builder.job.clone(), notice, due: None })
    }

    /// What happens to the node decides whether it speaks.
    pub(super) fn observe(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Leading => {
                self.count(1);
                self.due.get_or_insert(now + EVERY);
            }
            Event::Progress(progress) => self.count(progress.joined),
            Event::SteppedDown | Event::Following(_) | Event::LostLeader(_) | Event::Superseded(_) => {
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

    /// When to ask [`Advertiser::speak`] at the latest. Whoever is awake anyway asks before.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.map(|due| due + AT_LEISURE)
    }

    /// The datagram, where it is time for one.
    pub(super) fn speak(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.due = Some(self.due.filter(|due| *due <= now).map(|_| now + EVERY)?);
        Some(self.notice.encode(&self.job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Lineage, NodeId, World};
    use crate::net::Rendezvous;
    use crate::proto::{Config, Node, Output, Time};
    use crate::wire::{Codec, Header, Join, Message, NodeInfo};
    use crate::{HostName, Peer, Secret};

    fn builder() -> Builder {
        Rendezvous::builder("foo".parse().unwrap(), World::new(4).unwrap())
    }

    #[expect(clippy::disallowed_methods, reason = "an origin for times")]
    fn origin() -> Instant {
        Instant::now()
    }

    #[test]
    fn who_waits_says_so_once_a_second_to_each_family_and_who_follows_says_nothing() {
        let (origin, mut advertiser) = (origin(), Advertiser::new(&builder()).unwrap());
        let mut spoken = 0;
        // Asked far more often than it is due, and told again and again that this node gathers.
        for millisecond in 0..10_000 {
            let now = origin + Duration::from_millis(millisecond);
            advertiser.observe(&Event::Leading, now);
            spoken += advertiser.speak(now).iter().count() * groups(1).len();
        }
        assert_eq!(spoken, 18, "two a second, and none in the first one");
        let leader = Peer { host: HostName::new("a"), address: "10.0.0.1:1".parse().unwrap() };
        advertiser.observe(&Event::Following(leader), origin);
        assert_eq!(advertiser.due(), None);
        assert_eq!(advertiser.speak(origin + Duration::from_secs(60)), None);
    }

    /// Says this to the node, and has the advertiser observe what comes of it.
    fn say(node: &mut Node, advertiser: &mut Advertiser, now: Time, message: &Message) {
        let header =
            Header { sender: NodeId([9; 16]), recipient: NodeId([1; 16]), lineage: Lineage::default() };
        let datagram = Codec::new(advertiser.job.tag(), None).encode(header, message);
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

    /// Node 1, which gathers.
    fn gathering() -> (Node, Advertiser) {
        let builder = builder();
        let config = Config::new(NodeId([1; 16]), builder.job.tag(), builder.world, node_info("a", 1));
        let (mut node, mut advertiser) =
            (Node::new(config, 1, Time::ZERO), Advertiser::new(&builder).unwrap());
        say(&mut node, &mut advertiser, Time::ZERO, &Message::Ping);
        assert!(advertiser.due().is_some());
        (node, advertiser)
    }

    #[test]
    fn who_stands_aside_for_a_world_that_has_formed_says_nothing() {
        let (mut node, mut advertiser) = gathering();
        say(&mut node, &mut advertiser, Time::ZERO, &Message::Running);
        assert_eq!(advertiser.due(), None);
    }

    #[test]
    fn who_lets_others_gather_because_nobody_reaches_it_says_nothing() {
        let (mut node, mut advertiser) = gathering();
        let join = Message::Join(Join { world: 4, node: node_info("i", 9) });
        let mut now = Time::ZERO;
        while advertiser.due().is_some() && now < Time::from_secs(60) {
            say(&mut node, &mut advertiser, now, &join);
            now = node.poll_timeout().unwrap();
        }
        assert_eq!(advertiser.due(), None);
    }

    #[test]
    fn nothing_is_said_of_a_private_job_and_no_name_of_one_with_a_secret() {
        assert!(Advertiser::new(&builder().private(true)).is_none());
        let secret = Secret::new(b"a secret of many bytes").unwrap();
        let mut advertiser = Advertiser::new(&builder().secret(Some(secret))).unwrap();
        advertiser.observe(&Event::Leading, origin());
        let said = advertiser.speak(origin() + Duration::from_secs(5)).unwrap();
        assert_eq!(
            Notice::decode(&said),
            Some(Notice::Sealed("foo".parse::<JobId>().unwrap().tag().beginning()))
        );
        assert!(!said.windows(3).any(|bytes| bytes == b"foo"));
    }
}
