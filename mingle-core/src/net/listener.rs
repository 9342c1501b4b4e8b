//! The datagram sockets of an observer, for `mingle watch`: those of a rendezvous, at a port that the kernel
//! chooses. An observer takes no port of a job.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::discovery::advertiser;
use super::network::Network;
use super::sockets::endpoint::bind_observer;
use super::sockets::links::Links;
use super::sockets::watched::readable;
use crate::model::JobId;
use crate::net::error::Error;
use crate::proto::{MAX_DATAGRAM, Warning};

/// Receives all datagrams to a pair of groups, and those to its own port. It notices new interfaces and
/// addresses within two seconds.
#[derive(Debug)]
pub struct Listener {
    network: Network,
    links: Links,
}

impl Listener {
    /// Listens to a job's groups, and to broadcasts if the network wants them.
    ///
    /// # Errors
    /// [`Error::NoInterface`] and [`Error::Socket`], as for a rendezvous.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub fn of_job(job: &JobId, network: &Network) -> Result<Self, Error> {
        Self::open(network.groups(job), network.clone())
    }

    /// Listens to the directory groups, in which the leaders of all jobs that are not private advertise.
    ///
    /// # Errors
    /// As for [`Listener::of_job`].
    ///
    /// # Panics
    /// As for [`Listener::of_job`].
    pub fn of_all_jobs(network: &Network) -> Result<Self, Error> {
        let groups = advertiser::groups(network.discovery_port);
        // Advertisers send no broadcast.
        Self::open(groups, Network { broadcast: false, ..network.clone() })
    }

    fn open(groups: [SocketAddr; 2], network: Network) -> Result<Self, Error> {
        let interfaces = network.select_interfaces()?;
        let own = bind_observer(network.ttl).map_err(Error::socket("cannot open a UDP port"))?;
        let links = Links::open(groups.to_vec(), &network, false, interfaces, own)?;
        Ok(Self { network, links })
    }

    /// Which interfaces could not join a group, and why.
    pub fn warnings(&self) -> Vec<Warning> {
        self.links.warnings()
    }

    /// Sends a datagram to the groups. The answers come to the own port. One that cannot be sent is lost.
    pub fn send_to_all(&mut self, datagram: &[u8]) {
        self.links.multicast(datagram);
    }

    /// The next datagram from anyone, and its source address. Cancel-safe.
    pub async fn receive(&mut self) -> (SocketAddr, Vec<u8>) {
        loop {
            if let Some(received) = self.received() {
                return received;
            }
            tokio::select! {
                () = readable(self.links.receivers()) => {}
                () = tokio::time::sleep_until(self.links.due(Duration::ZERO).into()) => {}
            }
            if self.links.keep_up() {
                self.links.follow(&self.network);
            }
        }
    }

    /// A datagram that has arrived, and its source address.
    pub(crate) fn received(&self) -> Option<(SocketAddr, Vec<u8>)> {
        let mut buffer = [0; MAX_DATAGRAM + 1];
        for socket in self.links.receivers() {
            match socket.try_recv_from(&mut buffer) {
                // Too long for the protocol: a node drops it, too.
                Ok((length, _)) if length > MAX_DATAGRAM => {}
                Ok((length, from)) => return Some((from, buffer[..length].to_vec())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => tracing::debug!(%error, "receiving"),
            }
        }
        None
    }
}
