//! The body of a join.

use super::super::encode_traits;
use super::super::forming::Join;
use super::super::node_info::GIVEN;
use super::super::{Attributes, NodeInfo, Reach};
use super::{Draw, Source};
use crate::model::{Endpoints, Link, Rank, RankKey};

impl Draw for Join {
    fn draw(from: &mut Source<'_>) -> Self {
        let world = from.size();
        let rank = from.given().map(Rank);
        let (host, endpoints) = (from.host(), from.endpoints());
        let attributes = Attributes {
            slots: from.count(),
            metadata: from.metadata(),
            may_be_master: from.flag(),
            wants_roster: from.flag(),
            session_port: u16::from(from.byte()),
            fabric: from.summary(),
            requires_same: !from.flag(),
            paths: from.paths(),
            // None from bytes that are 0, as of a node whose user gave none.
            rank_key: if from.flag() {
                RankKey::default()
            } else {
                from.host().as_str().parse().unwrap_or_default()
            },
            user: from.user(),
        };
        let port = if from.flag() { from.endpoint().port() } else { 0 };
        let links: Vec<Link> = (0..from.up_to(Endpoints::ADVERTISED)).map(|_| from.link()).collect();
        let given: Vec<Link> = (0..from.up_to(GIVEN)).map(|_| from.link()).collect();
        let reach = Reach::new(port, links).with(given);
        let node = NodeInfo { rank, host, endpoints, reach, attributes };
        let misfit = from.flag().then(|| from.misfit());
        Self { world, node, traits: encode_traits(&from.traits()), misfit }
    }
}
