//! Strangers that open connections to nodes with few file descriptors.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mingle_core::{JobId, Network};

use crate::lab::forge::{Id, opening};
use crate::lab::proc::Proc;
use crate::lab::world::{complete, line};
use crate::lab::{Lab, MINGLE, Options, helper, limit, script, setting};

/// The stranger's node; the world is on the nodes before it.
const FIFTH: usize = 4;
/// How many hellos a stranger sends to each node.
const HELLOS: u32 = 1500;
/// How many connections a stranger keeps open to each node.
const HELD: u32 = 4500;

/// The content of a stranger's connections.
const SILENCE: &str = "silence";
const HELLO: &str = "hellos";
const ENDLESS: &str = "hellos without end";

/// How many connections the stranger has opened.
static OPENED: AtomicU32 = AtomicU32::new(0);

#[test]
#[ignore = "a program that the other tests run in a node"]
fn helper_connects() {
    let job: JobId = setting("LAB_JOB");
    let how: String = setting("LAB_HOW");
    if how == SILENCE {
        let port = job.ports().next().unwrap();
        for node in 0..3 {
            let to = (script::address(node), port).into();
            thread::spawn(move || connect(to, u32::MAX, |_| Vec::new()));
        }
    } else {
        let most = if how == HELLO { HELLOS } else { u32::MAX };
        thread::spawn(move || hear(&job, most));
    }
    let mut reported = 0;
    loop {
        thread::sleep(Duration::from_millis(10));
        let now = OPENED.load(Ordering::Relaxed);
        if now != reported {
            reported = now;
            let _ = writeln!(io::stdout(), "opened {now}");
        }
    }
}

/// Opens so many sessions of nodes that do not exist with each node that is heard.
fn hear(job: &JobId, most: u32) {
    let address: Ipv4Addr = setting("LAB_SELF");
    let ear = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, Network::DISCOVERY_PORT)).unwrap();
    ear.join_multicast_v4(&job.group_v4(), &address).unwrap();
    let (tag, mut known, mut buffer) = (job.tag().0, BTreeSet::new(), [0; 2048]);
    while let Ok((length, from)) = ear.recv_from(&mut buffer) {
        if length >= 68 && known.insert(from) {
            let node: Id = buffer[24..40].try_into().unwrap();
            let hello = move |number: u32| {
                let mut id = [0x66; 16];
                id[..4].copy_from_slice(&number.to_le_bytes());
                opening(tag, id, node, 1)
            };
            thread::spawn(move || connect(from, most, hello));
        }
    }
}

/// Opens so many connections as fast as it can, says this on each, and keeps those that the node keeps.
fn connect(to: SocketAddr, most: u32, says: impl Fn(u32) -> Vec<u8>) {
    let open = || TcpStream::connect_timeout(&to, Duration::from_millis(20)).ok();
    let mut held = VecDeque::new();
    let mut number = 0;
    while number < most {
        let Some(mut stream) = open() else { continue };
        let _ = stream.write_all(&says(number));
        number += 1;
        stream.set_nonblocking(true).unwrap();
        held.push_back(stream);
        OPENED.fetch_add(1, Ordering::Relaxed);
        // More than a node's descriptors and its queue of connections that wait to be accepted. From then on
        // only those that the node has answered or closed are replaced.
        while held.len() > usize::try_from(HELD).unwrap() {
            let oldest = held.pop_front().unwrap();
            if oldest.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                held.push_back(oldest);
                thread::sleep(Duration::from_micros(10));
            }
        }
    }
    loop {
        thread::park();
    }
}

fn stranger(lab: &Lab, job: &str, how: &str) -> Proc {
    let mut command = lab.command(FIFTH, "sh");
    command.args(["-c", "ulimit -n $(ulimit -Hn); exec \"$@\"", "sh"]);
    command.args(helper("networks::strangers::helper_connects"));
    command.env("LAB_SELF", lab.address(FIFTH).to_string()).env("LAB_JOB", job).env("LAB_HOW", how);
    lab.start(FIFTH, command)
}

/// Waits until the stranger has opened this many connections.
fn wait_for(stranger: &Proc, connections: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let stdout = &stranger.transcript.stdout;
    let enough = stdout.wait_until(deadline, |text| {
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let latest = complete.lines().rev().find_map(|line| line.strip_prefix("opened "));
        latest.is_some_and(|count| count.parse::<u32>().unwrap() >= connections)
    });
    assert!(enough, "not {connections} connections by {}", stranger.transcript.render());
}

/// A world of four with 1,024 descriptors a node. The last one starts on this host after the stranger has
/// opened all its connections. Returns how long it took from then on.
fn forms(lab: &Lab, job: &str, how: &str, secret: &str, last: usize) -> Duration {
    let stranger = stranger(lab, job, how);
    let start = |node: usize| {
        let mut command = lab.command(node, "sh");
        command.args(["-c", "ulimit -n 1024 && exec \"$@\"", "sh", MINGLE]).args(line(job, 4));
        command.env("MINGLE_SECRET", secret);
        lab.start(node, command)
    };
    let procs: Vec<Proc> = (0..3).map(start).collect();
    wait_for(&stranger, if how == HELLO { HELLOS } else { 3 * HELD });
    let (outcomes, took) = complete(lab, procs, start(last));
    for outcome in &outcomes {
        // Otherwise the descriptors were used up for a while.
        assert!(!outcome.stderr.contains("Too many open files"), "{}", outcome.render());
    }
    let _ = writeln!(io::stderr(), "{how}: formed {took:?} after the last start");
    lab.forget();
    took
}

#[test]
fn silent_connections_do_not_delay_a_world_with_few_descriptors() {
    let Some(lab) = Options::nodes(5).alone().start() else { return };
    for (job, secret, last) in [
        ("silent", "", 3),
        ("silent, with a secret", "5eaf00d1-the-horse-knows-5eaf00d1", 3),
        ("silent, from a node's own address", "", FIFTH),
    ] {
        let took = forms(&lab, job, SILENCE, secret, last);
        assert!(took < Duration::from_secs(5), "{job}: {took:?}");
    }
}

#[test]
fn sessions_of_nodes_that_do_not_exist_do_not_stop_a_world_with_few_descriptors() {
    let Some(lab) = Options::nodes(5).alone().start() else { return };
    let took = forms(&lab, "hellos", HELLO, "", 3);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn nodes_that_do_not_exist_and_open_sessions_without_end_do_not_delay_a_world() {
    let Some(lab) = Options::nodes(5).alone().start() else { return };
    let took = forms(&lab, "without end", ENDLESS, "", 3);
    assert!(took < limit(Duration::from_secs(5)), "{took:?}");
}
