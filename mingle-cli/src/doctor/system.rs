//! The doctor's sources on this host: files, and the resolver.

use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

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

/// A file below `/`, which may hold any bytes.
pub(super) fn read(path: &str) -> Option<String> {
    fs::read(Path::new("/").join(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The names in a folder below `/`; none where it does not exist.
pub(super) fn names(path: &str) -> Vec<String> {
    let entries = fs::read_dir(Path::new("/").join(path)).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The hardware address of an interface, where it has one of Ethernet's length.
pub(super) fn hardware_address(interface: &str) -> Option<[u8; 6]> {
    let text = read(&format!("sys/class/net/{interface}/address"))?;
    let bytes: Option<Vec<u8>> =
        text.trim_end().split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    <[u8; 6]>::try_from(bytes?).ok().filter(|address| *address != [0; 6])
}
