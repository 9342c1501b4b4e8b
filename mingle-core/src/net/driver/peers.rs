//! Addresses at which other nodes may be, beside what multicast shows.

use std::net::SocketAddr;

use tokio::task::AbortHandle;

use super::Driver;
use crate::net::discovery::seed_dir::{OwnFile, SeedDir};
use crate::net::discovery::sources;
use crate::net::error::Error;
use crate::net::rendezvous::Rendezvous;

/// The addresses, and the task that keeps them up to date.
#[derive(Default)]
pub(super) struct Peers {
    /// The latest addresses from seeds and folder.
    pub(super) seeds: Vec<SocketAddr>,
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
        let Rendezvous { network, job, .. } = &self.settings;
        let (seeds, guesses) =
            (network.seeds.clone(), sources::guesses(network.master_port, network.ports(job)));
        if !self.settings.is_alone() && (folder.is_some() || !seeds.is_empty()) {
            let follow = |sender| sources::follow(seeds, folder, guesses, sender);
            self.peers.following = Some(self.connections.spawn(follow));
        }
    }
}
