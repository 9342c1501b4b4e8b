//! The receiving sockets of a rendezvous alone: for `mingle watch`, which reads and sends nothing.
//!
//! A listener takes no port of a job. Only the kernel sends, to report the memberships in groups.

use std::io;
use std::net::SocketAddr;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::clock::clock;
use super::discovery::advertiser;
use super::driver::{LOOK, REJOIN};
use super::network::Network;
use super::sockets::links::{change_groups, watch};
use super::sockets::multicast::{Groups, broadcast_receiver};
use super::sockets::watched::{Watched, readable};
use crate::host::Interface;
use crate::model::JobId;
use crate::net::error::Error;
use crate::proto::{MAX_DATAGRAM, Warning};

/// Receives all datagrams to a pair of groups. It notices new interfaces and addresses within two seconds.
#[derive(Debug)]
pub struct Listener {
    network: Network,
    interfaces: Vec<Interface>,
    groups: Vec<Groups>,
    receivers: Vec<Watched>,
    rejoin: Interval,
    look: Interval,
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
        let mut listener = Self::open(network.groups(job), network)?;
        if network.broadcast {
            listener.receivers.push(Watched::new(broadcast_receiver(network.discovery_port)?)?);
        }
        Ok(listener)
    }

    /// Listens to the directory groups, in which the leaders of all jobs that are not private advertise.
    ///
    /// # Errors
    /// As for [`Listener::of_job`].
    ///
    /// # Panics
    /// As for [`Listener::of_job`].
    pub fn of_all_jobs(network: &Network) -> Result<Self, Error> {
        Self::open(advertiser::groups(network.discovery_port), network)
    }

    fn open(groups: [SocketAddr; 2], network: &Network) -> Result<Self, Error> {
        let interfaces = network.select_interfaces()?;
        let mut groups = Groups::join_all(groups, &interfaces)?;
        let mut receivers = Vec::new();
        watch(&mut groups, &mut receivers)?;
        let every = |period| {
            let mut interval = interval_at(Instant::from_std(clock() + period), period);
            // After a pause of this process, one tick is enough.
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        let (rejoin, look) = (every(REJOIN), every(LOOK));
        Ok(Self { network: network.clone(), interfaces, groups, receivers, rejoin, look })
    }

    /// Joins the groups on new interfaces and leaves those that have gone.
    fn look_at_interfaces(&mut self) -> Result<(), Error> {
        // Interfaces that are all gone may come back.
        let Ok(interfaces) = self.network.select_interfaces() else { return Ok(()) };
        if interfaces != self.interfaces {
            change_groups(&mut self.groups, &interfaces, &mut self.receivers)?;
            // Only after success, so that a failure is tried again.
            self.interfaces = interfaces;
        }
        Ok(())
    }

    /// Which interfaces could not join a group, and why.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.groups.iter().flat_map(Groups::warnings)
    }

    /// The next datagram from anyone, and its source address. Cancel-safe.
    pub async fn receive(&mut self) -> (SocketAddr, Vec<u8>) {
        let mut buffer = [0; MAX_DATAGRAM + 1];
        loop {
            for socket in &self.receivers {
                match socket.try_recv_from(&mut buffer) {
                    // Too long for the protocol: a node drops it, too.
                    Ok((length, _)) if length > MAX_DATAGRAM => {}
                    Ok((length, from)) => return (from, buffer[..length].to_vec()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => tracing::debug!(%error, "receiving"),
                }
            }
            tokio::select! {
                () = readable(&self.receivers) => {}
                _ = self.rejoin.tick() => Groups::rejoin_all(&self.groups),
                _ = self.look.tick() => {
                    if let Err(error) = self.look_at_interfaces() {
                        tracing::debug!(error = error.chain(), "looking at the interfaces");
                    }
                }
            }
        }
    }
}
