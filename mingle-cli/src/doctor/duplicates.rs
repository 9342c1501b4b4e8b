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
    let (first, second) = (board.card(a)?, board.card(b)?);
    let works = |way| board.works(way, a, b) || board.works(way, b, a);
    // With one hardware address on two ports, a switch passes a datagram now and then, and no connection.
    let connects = works(Way::Tcp);
    let passes = connects || works(Way::Udp);
    let is_preferred = |one: &HostPlace, other: &HostPlace| {
        let is_first = |places: &[HostPlace], place| places.first() == Some(place);
        is_first(&first.places, one) && is_first(&second.places, other)
    };
    let said = |of: u32, about: u32| board.entry(of, about).and_then(|contact| contact.shared);
    let arrived = |place: &HostPlace| {
        let ip = Some(place.at.ip());
        board.ids().iter().any(|of| said(*of, a) == ip && said(*of, b) == ip)
    };
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
    use mingle_core::tools::Cast;

    use super::super::matrix::board_at;
    use super::super::notice::{Card, Contact, MULTICAST, Row, TCP, UNICAST, card, card_at};
    use super::*;

    /// The findings of host 9 about hosts 1 and 2, which have these cards and know each other by these flags.
    fn found(first: Card, second: Card, flags: u16, sources: [&str; 2]) -> Vec<&'static str> {
        let mut board = board_at(card(9), 3, false);
        let row = |card, id| Row { about: [(id, Contact::new(flags))].into(), ..Row::new(card) };
        board.learn(row(first, 2));
        board.learn(row(second, 1));
        for (id, source) in [(1, sources[0]), (2, sources[1])] {
            board.heard(id, Cast::Multicast, source.parse().unwrap());
        }
        find(&board).iter().map(|(_, finding)| finding.check).collect()
    }

    const ALL: u16 = MULTICAST | UNICAST | TCP;
    const APART: [&str; 2] = ["10.0.0.1:29500", "10.0.0.2:29500"];

    #[test]
    fn the_same_address_is_named_where_both_have_sent_from_it_or_nothing_passes() {
        let same = |id| card_at(id, "10.0.0.1:29500");
        let one = ["duplicate address"];
        assert_eq!(found(same(1), same(2), 0, APART), one);
        assert_eq!(found(same(1), same(2), ALL, [APART[0]; 2]), one);
        assert_eq!(found(card(1), card(2), ALL, APART), [""; 0]);
        // As with the NAT of virtual machines: the hosts reach each other at other addresses.
        assert_eq!(found(same(1), same(2), ALL, APART), [""; 0]);
        // Behind one NAT.
        assert_eq!(found(card(1), card(2), ALL, ["192.0.2.1:7"; 2]), [""; 0]);
        // docker0, where a firewall lets nothing pass.
        let docker = |id: u32| {
            let places = [card(id).places, card_at(7, "172.17.0.1:29500").places].concat();
            Card { places, ..card(id) }
        };
        assert_eq!(found(docker(1), docker(2), 0, APART), [""; 0]);
        // Two processes of one host.
        let mut second = card_at(1, "10.0.0.1:29501");
        second.id = 2;
        assert_eq!(found(same(1), second, ALL, [APART[0]; 2]), [""; 0]);
    }

    #[test]
    fn the_same_hardware_address_is_named_where_it_does_harm() {
        let same = |id| {
            let mut card = card(id);
            card.places[0].mac = Some([2, 0, 0, 0, 0, 77]);
            card
        };
        assert_eq!(found(same(1), same(2), 0, APART), ["duplicate hardware address"]);
        assert_eq!(found(same(1), same(2), ALL, APART), [""; 0], "as with ipvlan");
        let mut far = same(2);
        far.places = card_at(2, "10.0.9.2:29500").places;
        far.places[0].mac = same(1).places[0].mac;
        assert_eq!(found(same(1), far, 0, APART), [""; 0], "another network");
    }
}
