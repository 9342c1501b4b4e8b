//! For mingle-cli only, without any promise of stability: the sockets that `mingle doctor` tries,
//! what `mingle watch` receives, and the ports that a command gets.

pub use crate::host::{Interface, Kind, host_name};
pub use crate::net::{
    Cast, HeldPorts, Judged, Observer, Run, Sighting, Station, duration, interfaces, random, reset,
};
pub use crate::wire::{Notice, from_bytes, to_bytes};
