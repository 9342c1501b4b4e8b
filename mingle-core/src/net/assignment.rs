//! The result of a rendezvous.

use std::net::TcpListener;

use super::driver::RunningWorld;
use crate::model::JobId;
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
    /// This node's part in the running world, if it stays.
    pub(super) running: Option<RunningWorld>,
}
