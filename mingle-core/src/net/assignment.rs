//! The result of a rendezvous.

use std::net::TcpListener;

use super::driver::RunningWorld;
use crate::model::{JobId, Peer, Rank};
use crate::proto::Formed;

/// What a node has once its world has formed: the world's facts, and the sockets that this process now owns.
#[derive(Debug)]
#[non_exhaustive]
pub struct Assignment {
    /// The job.
    pub job: JobId,
    /// Rank, world, master and roster, from which [`env`](mod@crate::env) makes variables.
    pub formed: Formed,
    /// The name of the interface that holds [`Formed::local`], or the label of that address (`eth0:1`) if all
    /// IPv4 addresses of the interface have labels. None in a world of one node on a host without an
    /// interface.
    pub interface: Option<String>,
    /// The listening socket on the master's port, if this node is rank 0 and the caller has set
    /// [`Rendezvous::keep_listener`](crate::Rendezvous::keep_listener). The socket does not
    /// block.
    pub listener: Option<TcpListener>,
    /// The nodes of this node's last world that have no seat in this world, with their ranks in that world:
    /// they are dead, have left, or were not back in time. Empty in the first world of a node.
    pub without: Vec<(Rank, Peer)>,
    /// This node's part in the running world, if it stays.
    pub(super) running: Option<RunningWorld>,
}

impl Assignment {
    /// ` without rank 2, node-c (10.0.0.3:29503), and 3 more`, which follows `world of 4 formed` in messages.
    /// Empty if the nodes of the last world are all here.
    pub fn losses(&self) -> String {
        let Some(((rank, peer), others)) = self.without.split_first() else { return String::new() };
        let more = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
        format!(" without rank {rank}, {peer}{more}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Digest, HostName, World};

    #[test]
    fn of_the_nodes_without_a_seat_the_first_is_named_and_the_others_are_counted() {
        let master = "10.0.0.1:29500".parse().unwrap();
        let formed = Formed::new(Rank(0), World::new(2).unwrap(), master, master.ip(), Digest([0; 16]));
        let (job, without) = ("foo".parse().unwrap(), Vec::new());
        let mut all = Assignment { job, formed, interface: None, listener: None, without, running: None };
        assert_eq!(all.losses(), "");
        let peer = |host| Peer { host: HostName::new(host), address: master };
        all.without.push((Rank(1), peer("node-b")));
        assert_eq!(all.losses(), " without rank 1, node-b (10.0.0.1:29500)");
        all.without.push((Rank(3), peer("node-d")));
        assert_eq!(all.losses(), " without rank 1, node-b (10.0.0.1:29500), and 1 more");
    }
}
