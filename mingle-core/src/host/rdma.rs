//! What an RDMA machine is known by besides its devices: the addresses and routes of this network namespace.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use mingle_rdma::{Address, Machine, Standing};

/// Reads everything about this machine that a job's variables depend on. If the machine has no RDMA device,
/// nothing else is read.
///
/// # Errors
/// The error of getifaddrs(3), if the addresses of this network namespace cannot be listed.
pub fn probe() -> io::Result<Machine> {
    if Machine::has_devices() { survey() } else { Ok(Machine::default()) }
}

/// Reads this machine, even if it has no RDMA device.
///
/// # Errors
/// The same as [`probe`].
pub fn survey() -> io::Result<Machine> {
    surroundings().map(Machine::read)
}

/// Saves this machine in `folder`, for [`Machine::from_snapshot`]. Creates the folder. The snapshot has the
/// addresses of this host, but no names of people, processes or files.
///
/// # Errors
/// If the addresses cannot be listed, the folder is not empty, or a file cannot be written.
pub fn save(folder: &Path) -> io::Result<()> {
    Machine::save(surroundings()?, folder)
}

/// The addresses and routes of this network namespace. They come from netlink and from /proc/net, since sysfs
/// may be that of another namespace.
fn surroundings() -> io::Result<Machine> {
    let held = super::addresses()?;
    let flags = super::flags_of_ipv6();
    let mut addresses: Vec<Address> = Vec::new();
    for (interface, net) in held {
        let standing = match net.addr() {
            // The kernel lists the primary address of a network before the secondary ones, and getifaddrs
            // keeps that order.
            IpAddr::V4(_) => {
                let is_same =
                    |other: &Address| other.interface == interface && other.net.trunc() == net.trunc();
                addresses.iter().any(is_same).then_some(Standing::Secondary)
            }
            IpAddr::V6(ip) => flags.get(&(ip, interface.clone())).and_then(|flags| of_flags(*flags)),
        };
        addresses.push(Address { interface, net, standing, preference: None });
    }
    let interfaces = super::list()?.into_iter().filter(|interface| interface.default_route);
    let default_routes = interfaces.map(|interface| interface.name).collect();
    let mut machine = Machine::default();
    (machine.addresses, machine.default_routes) = (addresses, default_routes);
    Ok(machine)
}

/// include/uapi/linux/if_addr.h: `IFA_F_TEMPORARY`, `IFA_F_DEPRECATED`, `IFA_F_PERMANENT`.
fn of_flags(flags: u8) -> Option<Standing> {
    let is = |flag: u8| flags & flag != 0;
    let standings =
        [(is(0x20), Standing::Deprecated), (is(0x01), Standing::Temporary), (!is(0x80), Standing::Dynamic)];
    standings.into_iter().find(|(holds, _)| *holds).map(|(_, standing)| standing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_flag_of_an_address_counts() {
        assert_eq!(of_flags(0x80), None);
        assert_eq!(of_flags(0x00), Some(Standing::Dynamic));
        assert_eq!(of_flags(0x01), Some(Standing::Temporary));
        assert_eq!(of_flags(0x21), Some(Standing::Deprecated));
        assert_eq!(of_flags(0xa0), Some(Standing::Deprecated));
    }
}
