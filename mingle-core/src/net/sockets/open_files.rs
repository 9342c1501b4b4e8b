//! The limit of open files, and how many connections of others fit under it.

use std::os::fd::RawFd;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

use crate::model::World;

/// The most connections without a hello, however many files may be open.
const STRANGERS: usize = 1024;
/// The least of either kind. If the files run out before, accepting fails and closes a stranger.
const LEAST: usize = 16;
/// Descriptors that are left to others: a node's own dials to one node are 16 at most, names are looked up 64
/// at once, and interfaces that come later need sockets for their groups. The proofs of paths take up to 256
/// for a moment; where there are too few, accepting fails and closes a stranger.
const RESERVED: usize = 128;

/// Raises the soft limit of open files to the hard limit while this value lives: rank 0 of a large world
/// holds a connection to every node, and the usual soft limit is 1,024.
///
/// The drop restores the limit, before any command starts: programs that use select(2), or that close every
/// possible file, rely on a low limit.
#[derive(Debug)]
#[must_use = "dropping this restores the limit"]
pub(crate) struct OpenFiles {
    previous: Option<(rlim_t, rlim_t)>,
}

impl OpenFiles {
    /// Raises the soft limit to the hard one. If that fails, the limit stays as it is.
    pub(crate) fn raise() -> Self {
        let raised = getrlimit(Resource::RLIMIT_NOFILE)
            .ok()
            .filter(|&(soft, hard)| soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok());
        Self { previous: raised }
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        if let Some((soft, hard)) = self.previous {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
        }
    }
}

/// How many accepted connections a node keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Connections without a hello.
    pub(crate) strangers: usize,
    /// Connections with a hello.
    pub(crate) provers: usize,
}

impl Room {
    /// The room for the connections of a world in a process whose newest descriptor is this one. All lower
    /// ones are in use, or nearly all.
    pub(crate) fn above(newest: RawFd, world: World) -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self::of(usize::try_from(limit).unwrap_or(usize::MAX), usize::try_from(newest).unwrap_or(0), world)
    }

    /// Strangers get at most half of what the nodes of the world leave. Of the rest, forged hellos get no
    /// more than a leader can use: four connections for each of the nodes that it remembers.
    fn of(limit: usize, open: usize, world: World) -> Self {
        let free = limit.saturating_sub(open).saturating_sub(RESERVED);
        let nodes = usize::try_from(world.get()).unwrap_or(usize::MAX);
        let strangers = (free.saturating_sub(nodes) / 2).clamp(LEAST, STRANGERS);
        let most = nodes.saturating_add(32).saturating_mul(8);
        let provers = free.saturating_sub(strangers).min(most);
        // A world that does not fit fails to accept, which is reported.
        Self { strangers, provers: provers.max(nodes).max(LEAST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_raised_and_restored() {
        let before = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let raised = OpenFiles::raise();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(soft, hard);
        drop(raised);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), before);
    }

    #[test]
    fn strangers_get_at_most_half_of_the_descriptors_that_the_nodes_of_the_world_leave() {
        let of = |limit, world| {
            let Room { strangers, provers } = Room::of(limit, 20, World::new(world).unwrap());
            (strangers, provers)
        };
        assert_eq!(of(1024, 4), (436, 288));
        assert_eq!(of(1024, 400), (238, 638));
        assert_eq!(of(1024, 900), (LEAST, 900));
        assert_eq!(of(1 << 20, 4), (STRANGERS, 288));
        assert_eq!(of(1 << 20, 10_000), (STRANGERS, 80_256));
        assert_eq!(of(usize::MAX, World::MAX), (STRANGERS, 8_000_256));
        assert_eq!(of(24, 4), (LEAST, LEAST));
        for (limit, world) in (200..3000).flat_map(|limit| [(limit, 4), (limit, 30)]) {
            let (strangers, provers) = of(limit, world);
            assert!(strangers + provers + 20 + RESERVED <= limit, "{limit}");
        }
    }

    #[test]
    fn descriptors_that_are_open_already_are_not_given_away() {
        let world = World::new(200).unwrap();
        assert_eq!(Room::of(1024, 520, world), Room { strangers: 88, provers: 288 });
    }
}
