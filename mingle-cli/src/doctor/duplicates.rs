//! Hosts that have the same address, or the same hardware address, on one network.
//!
//! Equal values alone are no fault: many hosts have docker0's address, or that of a link inside the host,
//! and interfaces of ipvlan share a hardware address. An address is reported if datagrams of both hosts have
//! come from it, or if nothing passes between the two. A hardware address is reported if the two cannot
//! connect.

use super::finding::{Finding, Severity};
use super::matrix::Board;
use super::notice::{HostPlace, Way};

/// Each two hosts with the same address, and what is said of them.
pub(super) fn find(board: &Board) -> Vec<([u32; 2], Finding)> {
    let ids = board.ids();
    let pairs = ids.iter().enumerate().flat_map(|(at, a)| ids[at + 1..].iter().map(move |b| (*a, *b)));
    pairs.filter_map(|(a, b)| pair(board, a, b)).collect()
}

fn pair(board: &Board, a: u32, b: u32) -> Option<([u32; 2], Finding)> {
    let (first, second) = (board.host(a), board.host(b));
    let works = |way| board.works(way, a, b) || board.works(way, b, a);
    // With one hardware address on two ports, a switch passes a datagram now and then, and no connection.
    let connects = works(Way::Tcp);
    let passes = connects || works(Way::Udp);
    let is_preferred = |one: &HostPlace, other: &HostPlace| {
        let is_first = |places: &[HostPlace], place| places.first() == Some(place);
        is_first(&first.places, one) && is_first(&second.places, other)
    };
    let heard = |of: u32, about: u32, place: &HostPlace| {
        let ways = [Way::Multicast, Way::Udp, Way::Broadcast].map(|way| (way, place.at.ip()));
        board.entry(of, about).is_some_and(|contact| ways.iter().any(|way| contact.works.contains(way)))
    };
    let arrived =
        |place: &HostPlace| board.ids().into_iter().any(|of| heard(of, a, place) && heard(of, b, place));
    let has_address = |one: &HostPlace, other: &HostPlace| {
        // Two processes of one host have different ports.
        let are_two = one.at.port() == other.at.port() || one.mac != other.mac;
        one.at.ip() == other.at.ip() && are_two && (arrived(one) || !passes && is_preferred(one, other))
    };
    let has_mac = |one: &HostPlace, other: &HostPlace| {
        let is_network = one.link.has(other.link.address);
        one.at.ip() != other.at.ip() && one.mac.is_some() && one.mac == other.mac && is_network && !connects
    };
    let find = |is: &dyn Fn(&HostPlace, &HostPlace) -> bool| {
        first.places.iter().find(|one| second.places.iter().any(|other| is(one, other)))
    };
    let (check, seen, cure) = if let Some(place) = find(&has_address) {
        (
            "duplicate address",
            format!("both have the address {}", place.at.ip()),
            "give one of them another address",
        )
    } else {
        let mac = find(&has_mac)?.mac?.map(|byte| format!("{byte:02x}")).join(":");
        (
            "duplicate hardware address",
            format!("both have the hardware address (MAC) {mac}"),
            "give one of them another (`ip link set ... address ...`); a copy of a virtual machine needs its own",
        )
    };
    let looked = format!("{} and {}", board.name(a), board.name(b));
    Some(([a, b], Finding::new(Severity::Problem, check, looked, seen, cure)))
}

#[cfg(test)]
mod tests {
    use super::super::matrix::board_at;
    use super::super::notice::{Record, about, record, record_at};
    use super::*;

    /// The findings of host 9 about hosts 1 and 2, which know each other by these ways, and of which it has
    /// heard multicasts from these addresses.
    fn found(first: Record, second: Record, ways: &[Way], sources: [&str; 2]) -> Vec<&'static str> {
        let mut board = board_at(record(9), 3, false);
        board.learn(Record { about: [(2, about(2, ways))].into(), ..first });
        board.learn(Record { about: [(1, about(1, ways))].into(), ..second });
        for (id, source) in [(1, sources[0]), (2, sources[1])] {
            board.own.about.get_mut(&id).unwrap().add(Way::Multicast, source.parse().unwrap());
        }
        find(&board).iter().map(|(_, finding)| finding.check).collect()
    }

    const ALL: &[Way] = &[Way::Multicast, Way::Udp, Way::Tcp];
    const APART: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

    #[test]
    fn the_same_address_is_named_where_both_have_sent_from_it_or_nothing_passes() {
        let same = |id| record_at(id, "10.0.0.1:29500");
        let one = ["duplicate address"];
        assert_eq!(found(same(1), same(2), &[], APART), one);
        assert_eq!(found(same(1), same(2), ALL, [APART[0]; 2]), one);
        assert_eq!(found(record(1), record(2), ALL, APART), [""; 0]);
        // As with the NAT of virtual machines: the hosts reach each other at other addresses.
        assert_eq!(found(same(1), same(2), ALL, APART), [""; 0]);
        // Behind one NAT.
        assert_eq!(found(record(1), record(2), ALL, ["192.0.2.1"; 2]), [""; 0]);
        // docker0, where a firewall lets nothing pass.
        let docker = |id: u32| {
            let places = [record(id).places, record_at(7, "172.17.0.1:29500").places].concat();
            Record { places, ..record(id) }
        };
        assert_eq!(found(docker(1), docker(2), &[], APART), [""; 0]);
        // Two processes of one host.
        let mut second = record_at(1, "10.0.0.1:29501");
        second.id = 2;
        assert_eq!(found(same(1), second, ALL, [APART[0]; 2]), [""; 0]);
    }

    #[test]
    fn the_same_hardware_address_is_named_where_it_does_harm() {
        let same = |id| {
            let mut record = record(id);
            record.places[0].mac = Some([2, 0, 0, 0, 0, 77]);
            record
        };
        assert_eq!(found(same(1), same(2), &[], APART), ["duplicate hardware address"]);
        assert_eq!(found(same(1), same(2), ALL, APART), [""; 0], "as with ipvlan");
        let mut far = same(2);
        far.places = record_at(2, "10.0.9.2:29500").places;
        far.places[0].mac = same(1).places[0].mac;
        assert_eq!(found(same(1), far, &[], APART), [""; 0], "another network");
    }
}
