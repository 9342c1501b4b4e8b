//! What the doctor asks this host for: names, and the addresses of its interfaces.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::host::HERE;

/// A resolver without an answer asks again for many seconds (resolv.conf(5): timeout, attempts).
const ANSWER: Duration = Duration::from_secs(3);

/// The addresses of this name, as the resolver knows it.
pub(crate) fn lookup(host: &str) -> Result<Vec<IpAddr>, String> {
    let (sender, receiver) = channel();
    let name = host.to_owned();
    thread::spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs();
        let found = found.map(|all| all.map(|at| at.ip()).collect()).map_err(|error| error.to_string());
        // Nobody may be there to hear a late answer.
        let _ = sender.send(found);
    });
    receiver.recv_timeout(ANSWER).unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER.as_secs())))
}

/// The hardware address of an interface, where it has one of Ethernet's length.
pub(super) fn hardware_address(interface: &str) -> Option<[u8; 6]> {
    let text = HERE.text(&format!("/sys/class/net/{interface}/address"))?;
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    <[u8; 6]>::try_from(bytes?).ok().filter(|address| *address != [0; 6])
}
