//! The program in networks of its own, one process for each node: a file for each part of what it does.
//!
//! All are one test binary, so that they are linked once, and tests that wait do so beside all others.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests panic, and run against the real clock"
)]

mod lab;

mod attack;
mod doctor;
mod documents;
mod elastic;
mod fabric;
mod failures;
mod faults;
mod harness;
mod help;
mod house;
mod launchers;
mod networks;
mod outputs;
mod paths;
mod ports;
mod rdma;
mod run;
mod sameness;
mod secrets;
mod shells;
mod speed;
mod storms;
mod terminal;
mod torchrun;
mod watch;
mod workers;
mod worlds;
