//! The connections that a node has accepted, and which of them must make room for another.
//!
//! A stranger has sent no hello yet. If there are too many strangers, the address that has most of them loses
//! its oldest. So an address that opens many loses only its own, and a stranger that has just come has time
//! to send its hello. Of connections with a hello the address that has most loses its newest, since the older
//! ones may hold seats.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tokio::task::AbortHandle;

use super::open_files::Room;
use crate::proto::ConnId;

/// The accepted connections.
#[derive(Debug)]
pub(crate) struct Guests {
    room: Room,
    tasks: BTreeMap<ConnId, (IpAddr, AbortHandle)>,
    strangers: BySource,
    provers: BySource,
}

impl Guests {
    pub(crate) fn new(room: Room) -> Self {
        let (strangers, provers) = (BySource::default(), BySource::default());
        Self { room, tasks: BTreeMap::new(), strangers, provers }
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.tasks.contains_key(&conn)
    }

    /// Takes the task of a connection from `source`, which is a stranger. Closes another stranger if there
    /// are too many.
    pub(crate) fn add(&mut self, conn: ConnId, source: IpAddr, task: AbortHandle) {
        self.tasks.insert(conn, (source, task));
        self.strangers.insert(source, conn);
        if self.strangers.count > self.room.strangers {
            self.evict_stranger();
        }
    }

    /// Closes a stranger, if there is one.
    pub(crate) fn evict_stranger(&mut self) {
        if let Some(conn) = self.strangers.oldest_of_the_most() {
            self.close(conn);
        }
    }

    /// Notes that a connection has sent its hello. Returns false if none was awaited.
    pub(crate) fn identify(&mut self, conn: ConnId) -> bool {
        let source = self.tasks.get(&conn).map(|(source, _)| *source);
        let is_stranger = source.filter(|source| self.strangers.remove(*source, conn));
        is_stranger.inspect(|source| self.provers.insert(*source, conn)).is_some()
    }

    /// Ends the task of a connection with a hello, if there are too many of these, and returns the
    /// connection.
    pub(crate) fn evict_prover(&mut self) -> Option<ConnId> {
        let is_full = self.provers.count > self.room.provers;
        let conn = self.provers.newest_of_the_most().filter(|_| is_full)?;
        self.close(conn);
        Some(conn)
    }

    /// Forgets a connection. Returns its task, if it was known.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<AbortHandle> {
        let (source, task) = self.tasks.remove(&conn)?;
        self.strangers.remove(source, conn);
        self.provers.remove(source, conn);
        Some(task)
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        if let Some(task) = self.remove(conn) {
            task.abort();
        }
    }

    /// Closes all. A connection that has sent its hello ends by itself, once what was said on it is written.
    pub(crate) fn close_all(&mut self) {
        for (conn, (source, task)) in std::mem::take(&mut self.tasks) {
            if self.strangers.remove(source, conn) {
                task.abort();
            }
        }
        *self = Self::new(self.room);
    }
}

/// Connections by the address that they came from.
#[derive(Debug, Default)]
struct BySource {
    sources: BTreeMap<IpAddr, BTreeSet<ConnId>>,
    count: usize,
}

impl BySource {
    fn insert(&mut self, source: IpAddr, conn: ConnId) {
        self.count += usize::from(self.sources.entry(source).or_default().insert(conn));
    }

    fn remove(&mut self, source: IpAddr, conn: ConnId) -> bool {
        let Some(conns) = self.sources.get_mut(&source) else { return false };
        let is_removed = conns.remove(&conn);
        self.count -= usize::from(is_removed);
        if conns.is_empty() {
            self.sources.remove(&source);
        }
        is_removed
    }

    /// The oldest connection of the address that has most. Of several such addresses, the one with the
    /// oldest.
    fn oldest_of_the_most(&self) -> Option<ConnId> {
        let sources = self.sources.values().filter_map(|conns| Some((conns.len(), Reverse(*conns.first()?))));
        sources.max().map(|(_, Reverse(oldest))| oldest)
    }

    /// The newest connection of the address that has most. Of several such addresses, the one with the
    /// newest.
    fn newest_of_the_most(&self) -> Option<ConnId> {
        let sources = self.sources.values().filter_map(|conns| Some((conns.len(), *conns.last()?)));
        sources.max().map(|(_, newest)| newest)
    }
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
        assert_eq!(guests.len(), guests.strangers.count + guests.provers.count);
        guests.tasks.keys().map(|conn| conn.0).collect()
    }

    #[tokio::test]
    async fn an_address_that_opens_many_connections_loses_its_own_oldest_and_no_others() {
        let mut guests = guests(&[B, A, A]);
        for conn in 3..100 {
            add(&mut guests, conn, A);
            assert_eq!(left(&guests), [0, conn - 1, conn]);
        }
        assert!(guests.identify(ConnId(0)));
    }

    #[tokio::test]
    async fn of_nodes_behind_one_address_the_latest_stay_and_of_many_addresses_too() {
        assert_eq!(left(&guests(&[A; 10])), [7, 8, 9]);
        assert_eq!(left(&guests(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])), [7, 8, 9]);
    }

    #[tokio::test]
    async fn a_connection_with_a_hello_is_no_stranger_and_its_hello_comes_once() {
        let mut guests = guests(&[A, A, A]);
        assert!(guests.identify(ConnId(1)) && !guests.identify(ConnId(1)) && !guests.identify(ConnId(9)));
        add(&mut guests, 3, A);
        assert_eq!(left(&guests), [0, 1, 2, 3]);
        guests.evict_stranger();
        assert_eq!(left(&guests), [1, 2, 3]);
        assert!(guests.remove(ConnId(1)).is_some() && guests.remove(ConnId(1)).is_none());
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
                assert!(guests.identify(ConnId(conn)));
                evicted.extend(guests.evict_prover());
            }
            assert_eq!(evicted.len(), 2, "{from:?}");
            assert!(evicted.contains(&ConnId(lost)), "{from:?}: {evicted:?}");
            assert_eq!(guests.evict_prover(), None);
        }
    }
}
