//! Tests of the networks that the other tests use: a cut that does not cut would prove nothing.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::lab::proc::{GUARD, Proc, variables};
use crate::lab::{Lab, Options, Policy, helper, limit, setting};

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
    let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    socket.join_multicast_v4(&GROUP, &setting("LAB_SELF")).unwrap();
    let accept = std::thread::spawn(move || {
        let mut stdout = std::io::stdout();
        while let Ok((mut stream, from)) = listener.accept() {
            let _ = stream.write_all(b"hello");
            writeln!(stdout, "tcp from {}", from.ip()).unwrap();
        }
    });
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening").unwrap();
    let mut buffer = [0; 64];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        writeln!(stdout, "udp from {}: {}", from.ip(), String::from_utf8_lossy(&buffer[..length])).unwrap();
        if &buffer[..length] == b"end" {
            drop(accept);
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

#[test]
#[ignore = "a program that the other tests run in a node"]
fn helper_connects() {
    let to = setting::<SocketAddr>("LAB_TO");
    let patience = limit(Duration::from_millis(400));
    let mut stream = TcpStream::connect_timeout(&to, patience).expect("not connected");
    let mut buffer = [0; 5];
    stream.set_read_timeout(Some(patience)).unwrap();
    stream.read_exact(&mut buffer).expect("no answer");
}

/// A node that listens; ready when this returns.
fn listener(lab: &Lab, node: usize) -> Proc {
    let proc = run_helper(lab, node, "helper_listens", GROUP, 0);
    let ready = |text: &str| text.contains("listening");
    assert!(proc.transcript.stdout.wait_until(Instant::now() + Duration::from_secs(5), ready));
    proc
}

fn connects(lab: &Lab, from: usize, to: usize) -> bool {
    run_helper(lab, from, "helper_connects", lab.address(to), 1).finish().status.success()
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
fn nodes_reach_each_other_by_tcp_and_multicast() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let (one, two) = (listener(&lab, 1), listener(&lab, 2));
    assert!(connects(&lab, 0, 1) && connects(&lab, 2, 1) && connects(&lab, 1, 2));
    sends(&lab, 0, GROUP, 3);
    let all = ["0", "1", "2"];
    assert_eq!(received(&lab, one, 1, 0), all);
    assert_eq!(received(&lab, two, 2, 0), all);
}

#[test]
fn cuts_and_dropped_multicast_take_effect_at_once() {
    let Some(lab) = Options::nodes(2).with_filters().start() else { return };
    let proc = listener(&lab, 1);
    lab.set(&Policy { no_multicast: true, ..Policy::default() });
    sends(&lab, 0, GROUP, 3);
    assert!(connects(&lab, 0, 1), "unicast passes");
    lab.set(&Policy { cuts: vec![(1, 0)], ..Policy::default() });
    sends(&lab, 0, GROUP, 4);
    assert!(!connects(&lab, 0, 1), "no answer comes back");
    lab.set(&Policy::default());
    assert!(connects(&lab, 0, 1));
    assert_eq!(
        received(&lab, proc, 1, 0),
        ["0", "1", "2", "3"],
        "only while multicast passed, and in the uncut direction"
    );
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

#[test]
fn a_firewall_drops_only_arriving_packets_that_match() {
    let Some(lab) = Options::nodes(2).with_filters().start() else { return };
    let (zero, one) = (listener(&lab, 0), listener(&lab, 1));
    lab.firewall(1, &["tcp dport 4999-5001"]);
    assert!(!connects(&lab, 0, 1), "dropped");
    assert!(connects(&lab, 1, 0), "the other way");
    assert!(connects(&lab, 1, 1), "within the host");
    sends(&lab, 0, lab.address(1), 2);
    assert_eq!(received(&lab, one, 1, 0), ["0", "1"], "no TCP");
    drop(zero);
}

#[test]
fn each_node_has_its_own_name_interfaces_and_routes() {
    let options = Options::nodes(2).with_docker0().with_names();
    let Some(lab) = options.clone().with_dead_nic().start() else { return };
    let show =
        "hostname; echo /sys/class/net/*; cat /sys/class/net/docker0/carrier /sys/class/net/eth1/carrier;
        ip -4 -o addr show | while read _ dev _ address _; do echo $dev $address; done;
        ip route show default; cat /etc/hosts";
    let seen = lab.shell(1, "sh", show).stdout;
    let net = "/sys/class/net/";
    let names = ["docker0", "eth0", "eth1", "lo", "vethd0", "vethd1"].map(|name| format!("{net}{name}"));
    for line in [
        "node1",
        &names.join(" "),
        "1\n1",
        "eth0 10.77.0.11/24",
        "eth1 10.88.0.11/24",
        "docker0 172.17.0.1/16",
        "default via 10.77.0.1 dev eth0 ",
        "10.77.0.11 node1",
    ] {
        assert!(seen.contains(&format!("{line}\n")), "no {line:?} in\n{seen}");
    }
    drop(lab);
    for (options, wanted) in [
        (Options::nodes(1).without_default_route(), ""),
        (Options::nodes(1).with_route_into_dead_nic(), "default via 10.88.0.1 dev eth1"),
    ] {
        let lab = options.start().unwrap();
        assert_eq!(lab.shell(0, "sh", "ip route show default").stdout.trim(), wanted);
    }
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

#[test]
fn only_well_formed_statements_count_as_variables() {
    let good = variables(&format!("{GUARD}export RANK='0';\nexport X='';\n")).unwrap();
    assert_eq!((good["RANK"].as_str(), good["X"].as_str()), ("0", ""));
    for bad in ["", "export RANK='0';\n"] {
        assert!(variables(bad).is_err(), "{bad:?}");
    }
    for bad in [
        "RANK='0';\n",
        "export RANK=0;\n",
        "export RANK='0'\n",
        "export RANK='0';\nexport RANK='1';\n",
        "export RANK='0'; rm -rf '';\n",
        "(exit 3);\n",
    ] {
        assert!(variables(&format!("{GUARD}{bad}")).is_err(), "{bad:?}");
    }
}
