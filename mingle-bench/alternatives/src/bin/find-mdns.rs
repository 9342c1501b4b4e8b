//! `find-mdns JOB INDEX WORLD`: registers one service, prints a line once all of the world's are resolved,
//! and stays until its input ends, since others may not have resolved it yet.

use std::collections::BTreeSet;
use std::io::Read;

use mdns_sd::{ServiceDaemon, ServiceEvent, ServiceInfo};

const KIND: &str = "_mingle-bench._tcp.local.";

fn main() {
    let mut args = std::env::args().skip(1);
    let job = args.next().expect("a job");
    let index: usize = args.next().expect("an index").parse().expect("a number");
    let world: usize = args.next().expect("a world").parse().expect("a number");

    let daemon = ServiceDaemon::new().expect("a daemon");
    let found = daemon.browse(KIND).expect("a browser");
    let name = format!("{job}-{index}");
    let host = format!("{name}.local.");
    let service = ServiceInfo::new(KIND, &name, &host, "", 29500, None).expect("a service").enable_addr_auto();
    daemon.register(service).expect("registered");

    let mut names = BTreeSet::new();
    while names.len() < world {
        if let ServiceEvent::ServiceResolved(service) = found.recv().expect("an event")
            && service.get_fullname().starts_with(&job)
        {
            names.insert(service.get_fullname().to_owned());
        }
    }
    println!("{names:?}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
