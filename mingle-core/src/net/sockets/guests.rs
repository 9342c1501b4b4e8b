//! The connections that a node has accepted, and which of them must make room for another.
//!
//! A stranger has not sent the hello of a session and a first frame yet. If there are too many strangers, the
//! address that has most of them loses its oldest. So an address that opens many loses only its own, and a
//! stranger that has just come has time to send its hello. Of connections with a hello the address that has
//! most loses its newest, since the older ones may hold seats.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use tokio::task::AbortHandle;

use super::open_files::Room;
use crate::proto::ConnId;

/// Connections, each with the address that it came from and its task. The oldest is the first.
type Tasks = BTreeMap<ConnId, (IpAddr, AbortHandle)>;

/// The accepted connections.
#[derive(Debug)]
pub(crate) struct Guests {
    pub(super) room: Room,
    strangers: Tasks,
    /// Those that have sent a hello.
    provers: Tasks,
}

impl Guests {
    pub(crate) fn new(room: Room) -> Self {
        Self { room, strangers: Tasks::new(), provers: Tasks::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.strangers.len() + self.provers.len()
    }

    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.strangers.contains_key(&conn) || self.provers.contains_key(&conn)
    }

    /// Takes the task of a connection from `source`, which is a stranger. Closes another stranger if there
    /// are too many.
    pub(crate) fn add(&mut self, conn: ConnId, source: IpAddr, task: AbortHandle) {
        self.strangers.insert(conn, (source, task));
        if self.strangers.len() > self.room.strangers {
            self.evict_stranger();
        }
    }

    /// Closes a stranger, if there is one: of the address that has most, the oldest.
    pub(crate) fn evict_stranger(&mut self) {
        let crowd = crowds(&self.strangers).max_by_key(|crowd| (crowd.len(), Reverse(crowd[0])));
        if let Some((_, task)) = crowd.and_then(|crowd| self.strangers.remove(&crowd[0])) {
            task.abort();
        }
    }

    /// Notes that a connection has sent its hello. Returns whether the connection was a stranger.
    pub(crate) fn identify(&mut self, conn: ConnId) -> bool {
        let Some(task) = self.strangers.remove(&conn) else { return false };
        self.provers.insert(conn, task);
        true
    }

    /// Ends the task of a connection with a hello, if there are too many of these, and returns the
    /// connection: of the address that has most, the newest.
    pub(crate) fn evict_prover(&mut self) -> Option<ConnId> {
        if self.provers.len() <= self.room.provers {
            return None;
        }
        let newest = |crowd: Vec<ConnId>| Some((crowd.len(), *crowd.last()?));
        let (_, conn) = crowds(&self.provers).filter_map(newest).max()?;
        self.provers.remove(&conn)?.1.abort();
        Some(conn)
    }

    /// Forgets a connection, which has ended. Returns whether it was a stranger.
    pub(crate) fn remove(&mut self, conn: ConnId) -> bool {
        self.provers.remove(&conn);
        self.strangers.remove(&conn).is_some()
    }

    /// Closes all. A connection that has sent its hello ends by itself, once what was said on it is written.
    pub(crate) fn close_all(&mut self) {
        for (_, task) in std::mem::take(&mut self.strangers).into_values() {
            task.abort();
        }
        self.provers.clear();
    }
}

/// The connections of each address, the oldest first.
fn crowds(tasks: &Tasks) -> impl Iterator<Item = Vec<ConnId>> {
    let mut crowds: BTreeMap<IpAddr, Vec<ConnId>> = BTreeMap::new();
    for (&conn, (source, _)) in tasks {
        crowds.entry(*source).or_default().push(conn);
    }
    crowds.into_values()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { strangers: 3, provers: 3 };
    const A: u8 = 1;
    const B: u8 = 2;

    /// Guests from these addresses, with the numbers 0, 1 and so on.
    fn guests(from: &[u8]) -> Guests {
        let mut guests = Guests::new(ROOM);
        for (conn, source) in (0..).zip(from) {
            add(&mut guests, conn, *source);
        }
        guests
    }

    fn add(guests: &mut Guests, conn: u64, source: u8) {
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        guests.add(ConnId(conn), [10, 0, 0, source].into(), task);
    }

    fn left(guests: &Guests) -> Vec<u64> {
        let mut all: Vec<u64> =
            guests.strangers.keys().chain(guests.provers.keys()).map(|conn| conn.0).collect();
        all.sort_unstable();
        assert_eq!(guests.len(), all.len());
        all
    }

    #[tokio::test]
    async fn an_address_that_opens_many_connections_loses_its_own_oldest_and_no_others() {
        let mut guests = guests(&[B, A, A]);
        for conn in 3..100 {
            add(&mut guests, conn, A);
            assert_eq!(left(&guests), [0, conn - 1, conn]);
        }
    }

    #[tokio::test]
    async fn of_nodes_behind_one_address_the_latest_stay_and_of_many_addresses_too() {
        assert_eq!(left(&guests(&[A; 10])), [7, 8, 9]);
        assert_eq!(left(&guests(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])), [7, 8, 9]);
    }

    #[tokio::test]
    async fn a_connection_with_a_hello_is_no_stranger() {
        let mut guests = guests(&[A, A, A]);
        assert!(guests.identify(ConnId(1)) && !guests.identify(ConnId(9)));
        add(&mut guests, 3, A);
        assert_eq!(left(&guests), [0, 1, 2, 3]);
        guests.evict_stranger();
        assert_eq!(left(&guests), [1, 2, 3]);
        assert!(guests.has(ConnId(1)) && !guests.remove(ConnId(1)) && !guests.has(ConnId(1)));
        assert!(guests.remove(ConnId(2)) && !guests.remove(ConnId(2)));
        guests.close_all();
        assert_eq!(left(&guests), [0; 0]);
    }

    #[tokio::test]
    async fn too_many_hellos_cost_the_address_with_most_its_newest_connection_and_else_the_newcomer() {
        for (from, lost) in [([A, B, A, B, A], 4), ([A, A, A, A, B], 3), ([1, 2, 3, 4, 5], 4)] {
            let mut guests = guests(&[]);
            let mut evicted = Vec::new();
            for (conn, source) in (0..).zip(from).take(5) {
                add(&mut guests, conn, source);
                guests.identify(ConnId(conn));
                evicted.extend(guests.evict_prover());
            }
            assert_eq!(evicted.len(), 2, "{from:?}");
            assert!(evicted.contains(&ConnId(lost)), "{from:?}: {evicted:?}");
            assert_eq!(guests.evict_prover(), None);
        }
    }
}
