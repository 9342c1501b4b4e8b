//! Tests of the networks that the other tests use: a loss that hits no packet would prove nothing.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use crate::lab::proc::Proc;
use crate::lab::{Lab, Options, Policy, helper, setting};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 1, 1);
const PORT: u16 = 5000;

/// Runs one of the helpers below in a node, as a program of its own.
fn run_helper(lab: &Lab, node: usize, name: &str, to: Ipv4Addr, count: usize) -> Proc {
    let mut command = lab.helper(node, &format!("harness::{name}"));
    command.env("LAB_SELF", lab.address(node).to_string());
    command.env("LAB_TO", SocketAddrV4::new(to, PORT).to_string()).env("LAB_COUNT", count.to_string());
    lab.start(node, command)
}

#[test]
#[ignore = "a program that the other tests run in a node"]
fn helper_listens() {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    socket.join_multicast_v4(&GROUP, &setting("LAB_SELF")).unwrap();
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening").unwrap();
    let mut buffer = [0; 64];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        writeln!(stdout, "udp from {}: {}", from.ip(), String::from_utf8_lossy(&buffer[..length])).unwrap();
        if &buffer[..length] == b"end" {
            return;
        }
    }
}

#[test]
#[ignore = "a program that the other tests run in a node"]
fn helper_sends_datagrams() {
    let socket = UdpSocket::bind((setting::<Ipv4Addr>("LAB_SELF"), 0)).unwrap();
    for i in 0..setting::<usize>("LAB_COUNT") {
        socket.send_to(format!("word {i}").as_bytes(), setting::<SocketAddr>("LAB_TO")).unwrap();
    }
}

/// A node that listens; ready when this returns.
fn listener(lab: &Lab, node: usize) -> Proc {
    let proc = run_helper(lab, node, "helper_listens", GROUP, 0);
    let ready = |text: &str| text.contains("listening");
    assert!(proc.transcript.stdout.wait_until(Instant::now() + Duration::from_secs(5), ready));
    proc
}

fn sends(lab: &Lab, from: usize, to: Ipv4Addr, count: usize) {
    let outcome = run_helper(lab, from, "helper_sends_datagrams", to, count).finish();
    assert!(outcome.status.success(), "{}", outcome.render());
}

/// The datagrams of a node that have arrived, once all had time to: the bridge queues nothing, so the
/// listener's own `end` on loopback comes after them.
fn received(lab: &Lab, proc: Proc, node: usize, from: usize) -> Vec<String> {
    let script = format!("printf end >/dev/udp/{}/{PORT}", lab.address(node));
    assert!(lab.shell(node, "bash", &script).status.success());
    let wanted = format!("udp from {}: word ", lab.address(from));
    proc.finish().stdout.lines().filter_map(|line| line.strip_prefix(&wanted).map(str::to_owned)).collect()
}

#[test]
fn loss_hits_each_receiver_by_itself() {
    let Some(lab) = Options::nodes(3).with_filters().start() else { return };
    let (one, two) = (listener(&lab, 1), listener(&lab, 2));
    lab.set(&Policy { loss: 30, ..Policy::default() });
    sends(&lab, 0, GROUP, 1000);
    lab.set(&Policy::default());
    let (one, two) = (received(&lab, one, 1, 0), received(&lab, two, 2, 0));
    // 700 on average; a standard deviation is 14.5. Socket buffers hold fewer than 1000 datagrams, so
    // a slow reader may lose some of the rest.
    for received in [&one, &two] {
        assert!((1..=790).contains(&received.len()), "{} of 1000", received.len());
    }
    assert_ne!(one, two, "a thousand equal throws");
}

/// Two processes, parent and child, that keep their output open as long as they run.
const ENDLESS: [&str; 2] = ["-c", "echo started; (sleep 987; echo over); echo over"];

#[test]
#[ignore = "a program that another test runs and kills"]
fn helper_makes_a_lab() {
    let lab = Options::nodes(2).start().expect("a lab");
    lab.command(1, "sh").args(ENDLESS).status().unwrap();
}

#[test]
fn nothing_is_left_when_a_lab_ends() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let mut command = lab.command(1, "sh");
    command.args(ENDLESS);
    let dropped = lab.start(1, command);
    let [program, args @ ..] = helper("harness::helper_makes_a_lab");
    let mut command = std::process::Command::new(program);
    command.args(args);
    let killed = Proc::start(command, "a test with a lab".to_owned());
    let deadline = || Instant::now() + Duration::from_secs(5);
    for proc in [&dropped, &killed] {
        let started = proc.transcript.stdout.wait_until(deadline(), |text| text.contains("started"));
        assert!(started, "{}", proc.transcript.render());
    }
    drop(lab);
    killed.signal("KILL");
    for proc in [&dropped, &killed] {
        let Some(_) = proc.transcript.stdout.wait_closed(deadline()) else {
            panic!("a process of a node outlives it")
        };
        assert!(!proc.transcript.stdout.text().contains("over"), "{}", proc.transcript.render());
    }
}

#[test]
fn labs_do_not_see_each_other() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let other = Options::nodes(2).beside(&lab).start().unwrap();
    let (here, there) = (listener(&lab, 1), listener(&other, 1));
    sends(&lab, 0, GROUP, 2);
    assert_eq!(received(&lab, here, 1, 0), ["0", "1"]);
    assert_eq!(received(&other, there, 1, 0), [""; 0]);
}
