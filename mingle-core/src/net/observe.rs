//! The ears of a rendezvous by themselves: for a program that listens to jobs and says nothing.
//!
//! No port of a job's is taken, and nothing is sent but what the kernel says of memberships in groups.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::{Instant, Interval, interval_at};

use super::diagnose::Place;
use super::driver::{REJOIN, clock};
use super::endpoint::is_without_ipv6;
use super::interface::{Interface, list, select};
use super::lobby;
use super::multicast::{Groups, broadcast_receiver};
use super::watched::{Watched, readable};
use super::{DISCOVERY_PORT, Filter};
use crate::error::Error;
use crate::proto::MAX_DATAGRAM;

/// What hears all that is said to everybody.
#[derive(Debug)]
pub struct Ears {
    groups: Vec<Groups>,
    receivers: Vec<Watched>,
    rejoin: Interval,
}

impl Ears {
    /// Hears a job's groups, and broadcasts where the place wants them, on all interfaces that `filters` admit.
    ///
    /// # Errors
    /// [`Error::NoInterface`] and [`Error::Socket`], as of a rendezvous.
    pub fn of_job(place: &Place, filters: &[Filter]) -> Result<Self, Error> {
        let v6 = SocketAddr::from((place.job.group_v6(), place.group.port()));
        let mut ears = Self::open([place.group.into(), v6], filters)?;
        if place.broadcast {
            ears.receivers.push(Watched::new(broadcast_receiver(place.group.port())?)?);
        }
        Ok(ears)
    }

    /// Hears the notices of all jobs that are not private; `port` is [`DISCOVERY_PORT`] unless told otherwise.
    ///
    /// # Errors
    /// As of [`Ears::of_job`].
    pub fn of_all_jobs(port: Option<u16>, filters: &[Filter]) -> Result<Self, Error> {
        Self::open(lobby::groups(port.unwrap_or(DISCOVERY_PORT)), filters)
    }

    fn open(groups: [SocketAddr; 2], filters: &[Filter]) -> Result<Self, Error> {
        let failed = |source| Error::Socket { what: "cannot list the network interfaces".to_owned(), source };
        let interfaces = select(&list().map_err(failed)?, filters)?;
        let start = Instant::from_std(clock() + REJOIN);
        let mut ears = Self { groups: Vec::new(), receivers: Vec::new(), rejoin: interval_at(start, REJOIN) };
        for group in groups {
            let hears = |interface: &&Interface| interface.voice(group.is_ipv6()).is_some();
            match Groups::join(group, interfaces.iter().filter(hears)) {
                Ok(groups) => ears.groups.push(groups),
                Err(Error::Socket { source, .. }) if group.is_ipv6() && is_without_ipv6(&source) => {}
                Err(error) => return Err(error),
            }
        }
        for socket in ears.groups.iter().flat_map(Groups::sockets) {
            ears.receivers.push(Watched::new(Arc::clone(socket))?);
        }
        Ok(ears)
    }

    /// Which interfaces could not join a group, and why.
    pub fn warnings(&self) -> impl Iterator<Item = &String> {
        self.groups.iter().flat_map(Groups::warnings)
    }

    /// The next datagram, whoever's it is, and where it came from. Cancel-safe.
    pub async fn hear(&mut self) -> (SocketAddr, Vec<u8>) {
        let mut buffer = [0; MAX_DATAGRAM + 1];
        loop {
            for socket in &self.receivers {
                match socket.try_recv_from(&mut buffer) {
                    // As a node drops it.
                    Ok((length, _)) if length > MAX_DATAGRAM => {}
                    Ok((length, from)) => return (from, buffer[..length].to_vec()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => tracing::debug!(%error, "receiving"),
                }
            }
            tokio::select! {
                () = readable(&self.receivers) => {}
                _ = self.rejoin.tick() => {
                    for warning in self.groups.iter().flat_map(Groups::rejoin) {
                        tracing::debug!(warning);
                    }
                }
            }
        }
    }
}
