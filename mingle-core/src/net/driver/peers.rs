//! Addresses at which other nodes may be, beside what multicast shows.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::Driver;
use crate::net::discovery::seed_dir::{OwnFile, SeedDir};
use crate::net::discovery::sources::Sources;
use crate::net::error::Error;

/// After a restart the members of the former world are seeds for this long.
const FORMER: Duration = Duration::from_secs(60);
/// Then they are seeds for [`FORMER_ON`] after every [`FORMER_OFF`]: a member that was cut off sends nothing
/// by itself.
const FORMER_ON: Duration = Duration::from_secs(1);
const FORMER_OFF: Duration = Duration::from_secs(15);

/// The addresses, and the task that keeps them up to date.
pub(super) struct Peers {
    /// The latest addresses from seeds and folder.
    seeds: Vec<SocketAddr>,
    /// The endpoints of the former world's members.
    former: Vec<SocketAddr>,
    /// Whether these are seeds at the moment, and when that changes.
    asks_former: bool,
    change: Instant,
    following: Option<AbortHandle>,
    /// This node's file in the shared folder, which is removed on drop.
    pub(super) own_file: Option<OwnFile>,
}

impl Peers {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            seeds: Vec::new(),
            former: Vec::new(),
            asks_former: true,
            change: now + FORMER,
            following: None,
            own_file: None,
        }
    }

    /// All addresses to ask now.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let former = self.former.iter().filter(|_| self.asks_former);
        self.seeds.iter().chain(former).copied().collect()
    }

    pub(super) fn set_seeds(&mut self, seeds: Vec<SocketAddr>) {
        self.seeds = seeds;
    }

    /// Asks the members of the former world, from `now` on.
    pub(super) fn set_former(&mut self, former: Vec<SocketAddr>, now: Instant) {
        (self.former, self.asks_former, self.change) = (former, true, now + FORMER);
    }

    /// When [`Peers::advance`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.change).filter(|_| !self.former.is_empty())
    }

    /// Starts or stops asking the former members if it is time to. Returns whether the addresses have
    /// changed.
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        let is_due = self.due().is_some_and(|due| now >= due);
        if is_due {
            self.asks_former = !self.asks_former;
            self.change = now + if self.asks_former { FORMER_ON } else { FORMER_OFF };
        }
        is_due
    }

    /// Whether there are seeds or a folder to follow.
    pub(super) fn are_followed(&self) -> bool {
        self.following.is_some()
    }

    /// Whether seeds or folder have given no address so far.
    pub(super) fn lack_seeds(&self) -> bool {
        self.seeds.is_empty()
    }
}

impl Driver {
    /// Writes this node's file in the shared folder and follows the seeds. Only here is a folder that cannot
    /// be written to an error; later it is a warning.
    pub(super) async fn open_seed_dir(&mut self) -> Result<(), Error> {
        let opened = match self.seed_dir() {
            Some(folder) => Some(folder.open().await?),
            None => None,
        };
        let (folder, own_file) = opened.unzip();
        self.peers.own_file = own_file;
        self.follow_seeds(folder);
        Ok(())
    }

    /// The shared folder, with the ID and endpoints of the node that is running.
    pub(super) fn seed_dir(&self) -> Option<SeedDir> {
        let folder = self.settings.network.seed_dir.as_ref().filter(|_| !self.settings.is_alone())?;
        Some(SeedDir::new(folder, self.settings.job.tag(), self.id, &self.endpoints))
    }

    /// Follows no seeds while a world runs, and keeps this node's file in the shared folder fresh, where
    /// newcomers find it.
    pub(super) fn keep_seed_file(&mut self) {
        self.stop_following();
        if let Some(folder) = self.seed_dir() {
            self.peers.following = Some(self.connections.spawn(|sender| folder.keep(sender)));
        }
    }

    fn stop_following(&mut self) {
        if let Some(following) = self.peers.following.take() {
            following.abort();
        }
    }

    /// Follows the seeds and this folder from now on, in place of what was followed before.
    pub(super) fn follow_seeds(&mut self, folder: Option<SeedDir>) {
        self.stop_following();
        let sources = Sources::new(&self.settings.network, &self.settings.job, folder);
        if !self.settings.is_alone() && !sources.is_empty() {
            self.peers.following = Some(self.connections.spawn(|sender| sources.follow(sender)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::clock::clock;

    #[test]
    fn former_members_are_asked_for_a_minute_and_then_for_a_second_in_sixteen() {
        let start = clock();
        let mut peers = Peers::new(start);
        assert_eq!(peers.due(), None, "there was no former world");
        let former: SocketAddr = "10.0.0.1:29500".parse().unwrap();
        peers.set_former(vec![former], start);
        let mut seconds = 0;
        for second in 0..=76 {
            peers.advance(start + Duration::from_secs(second));
            seconds += peers.addresses().len();
        }
        assert_eq!(seconds, 60 + 1, "a minute at first, then one second");
    }
}
