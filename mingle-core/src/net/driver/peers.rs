//! Addresses at which other nodes may be, beside what multicast shows.

use std::net::SocketAddr;

use tokio::task::AbortHandle;

use super::Driver;
use crate::net::discovery::seed_dir::{OwnFile, SeedDir};
use crate::net::discovery::{Seed, sources};
use crate::net::error::Error;

/// The addresses, and the task that keeps them up to date.
#[derive(Default)]
pub(super) struct Peers {
    /// The latest addresses from the seeds, and from the folder.
    pub(super) seeds: [Vec<SocketAddr>; 2],
    /// None where there are neither seeds nor a folder to follow.
    pub(super) following: Option<AbortHandle>,
    /// This node's file in the shared folder, which is removed on drop.
    pub(super) own_file: Option<OwnFile>,
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
        Some(SeedDir::new(folder, self.settings.tag(), self.id, &self.endpoints))
    }

    /// Follows no seeds while a world runs, and keeps this node's file in the shared folder fresh, where
    /// newcomers find it.
    pub(super) fn keep_seed_file(&mut self) {
        self.follow(Vec::new(), self.seed_dir(), false);
    }

    /// Follows the seeds and this folder from now on, in place of what was followed before.
    pub(super) fn follow_seeds(&mut self, folder: Option<SeedDir>) {
        self.follow(self.settings.network.seeds.clone(), folder, true);
    }

    fn follow(&mut self, seeds: Vec<Seed>, folder: Option<SeedDir>, reads: bool) {
        if let Some(following) = self.peers.following.take() {
            following.abort();
        }
        if !self.settings.is_alone() && (folder.is_some() || !seeds.is_empty()) {
            let network = &self.settings.network;
            let guesses = sources::guesses(network.master_port, network.ports(&self.settings.job));
            let follow = |sender| sources::follow(seeds, folder, reads, guesses, sender);
            self.peers.following = Some(self.connections.spawn(follow));
        }
    }
}
