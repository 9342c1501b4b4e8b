//! The listener of a rendezvous by themselves: for a program that listens to jobs and says nothing.
//!
//! No port of a job's is taken, and nothing is sent but what the kernel says of memberships in groups.

use std::io;
use std::net::SocketAddr;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::diagnose::Place;
use super::directory;
use super::driver::{LOOK, REJOIN, clock};
use super::links::{hear, hear_on};
use super::multicast::{Groups, broadcast_receiver};
use super::watched::{Watched, readable};
use super::{DISCOVERY_PORT, Filter};
use crate::error::Error;
use crate::host::{Interface, find};
use crate::proto::{MAX_DATAGRAM, Warning};

/// What hears all that is said to everybody. Interfaces and addresses that come later are noticed within two seconds.
#[derive(Debug)]
pub struct Listener {
    filters: Vec<Filter>,
    interfaces: Vec<Interface>,
    groups: Vec<Groups>,
    receivers: Vec<Watched>,
    rejoin: Interval,
    look: Interval,
}

impl Listener {
    /// Hears a job's groups, and broadcasts where the place wants them, on all interfaces that `filters` admit.
    ///
    /// # Errors
    /// [`Error::NoInterface`] and [`Error::Socket`], as of a rendezvous.
    pub fn of_job(place: &Place, filters: &[Filter]) -> Result<Self, Error> {
        let v6 = SocketAddr::from((place.job.group_v6(), place.group.port()));
        let mut listener = Self::open([place.group.into(), v6], filters)?;
        if place.broadcast {
            listener.receivers.push(Watched::new(broadcast_receiver(place.group.port())?)?);
        }
        Ok(listener)
    }

    /// Hears the notices of all jobs that are not private; `port` is [`DISCOVERY_PORT`] unless told otherwise.
    ///
    /// # Errors
    /// As of [`Listener::of_job`].
    pub fn of_all_jobs(port: Option<u16>, filters: &[Filter]) -> Result<Self, Error> {
        Self::open(directory::groups(port.unwrap_or(DISCOVERY_PORT)), filters)
    }

    fn open(groups: [SocketAddr; 2], filters: &[Filter]) -> Result<Self, Error> {
        let interfaces = find(filters)?;
        let mut groups = Groups::join_all(groups, &interfaces)?;
        let mut receivers = Vec::new();
        hear(&mut groups, &mut receivers)?;
        let every = |period| {
            let mut interval = interval_at(Instant::from_std(clock() + period), period);
            // A process that was stopped has nothing to make up for.
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        let (rejoin, look) = (every(REJOIN), every(LOOK));
        Ok(Self { filters: filters.to_vec(), interfaces, groups, receivers, rejoin, look })
    }

    /// Hears on other interfaces from now on, where there are others.
    fn look_at_interfaces(&mut self) -> Result<(), Error> {
        // What has all gone may come again.
        let Ok(interfaces) = find(&self.filters) else { return Ok(()) };
        if interfaces != self.interfaces {
            hear_on(&mut self.groups, &interfaces, &mut self.receivers)?;
            // Only now: what has failed is tried again.
            self.interfaces = interfaces;
        }
        Ok(())
    }

    /// Which interfaces could not join a group, and why.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
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
                _ = self.rejoin.tick() => Groups::rejoin_all(&self.groups),
                _ = self.look.tick() => {
                    if let Err(error) = self.look_at_interfaces() {
                        tracing::debug!(%error, "looking at the interfaces");
                    }
                }
            }
        }
    }
}
