//! `--ports N`: more ports on a host, which nobody else gets before the command has them.

use std::time::Instant;

use crate::lab::proc::{PATIENCE, Proc};
use crate::lab::{Lab, MINGLE, Options, plain, skip};

/// A program with a server at each of two ports, which it knows by their numbers.
const SERVES: &str = "import os, socket, sys
variables = os.environ
one, two = map(int, sys.argv[1:])
assert variables['MINGLE_PORT_LIST'] == f'{one},{two}', variables['MINGLE_PORT_LIST']
def serve(server, port):
    for address in '127.0.0.1', '::1':
        if server.family == socket.AF_INET6 or address == '127.0.0.1':
            client = socket.create_connection((address, port), 5)
            server.accept()
serve(socket.create_server(('', one)), one)
serve(socket.create_server(('::', two), family=socket.AF_INET6, dualstack_ipv6=True), two)
print('served')";

/// A lab of one node with a Python.
fn lab() -> Option<Lab> {
    if plain("python3").args(["-c", ""]).status().is_err() {
        skip("no python3");
        return None;
    }
    Options::nodes(1).start()
}

fn run(lab: &Lab, more: &[&str], command: &[&str]) -> Proc {
    let mut words = vec!["run", "-j", "serve", "-w", "1"];
    words.extend(more);
    words.push("--");
    words.extend(command);
    lab.spawn(0, &words)
}

#[test]
fn a_command_serves_at_its_ports() {
    let Some(lab) = lab() else { return };
    for (more, line) in
        [(&[][..], "served\n"), (&["--max-restarts", "1"], "served\n"), (&["--workers", "1"], "[0] served\n")]
    {
        let more = [more, &["--ports", "2"]].concat();
        let outcome = run(&lab, &more, &["python3", "-c", SERVES, "{port1}", "{port2}"]).finish();
        assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(0), line), "{}", outcome.render());
    }
}

#[test]
fn all_workers_of_a_node_know_the_numbers() {
    let Some(lab) = lab() else { return };
    let script = "echo \"$LOCAL_RANK: $MINGLE_PORT_LIST\" | sed s/$1/one/";
    let more = ["--workers", "2", "--ports", "1"];
    let outcome = run(&lab, &more, &["sh", "-c", script, "script", "{port1}"]).finish();
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 0: one", "[1] 1: one"], "{}", outcome.render());
}

#[test]
fn a_descriptor_that_is_open_already_stays() {
    let Some(lab) = lab() else { return };
    let line = "echo kept >/run/kept; exec 3</run/kept
        $mingle run -j serve -w 1 --ports 1 -- sh -c 'cat <&3; echo ${MINGLE_PORT_LIST:+known}'";
    let outcome = lab.shell(0, "sh", line);
    assert_eq!(outcome.stdout, "kept\nknown\n", "{}", outcome.render());
}

#[test]
fn a_node_has_the_same_ports_after_a_restart_whatever_the_command_did_with_them() {
    let Some(lab) = lab() else { return };
    let script = "import os, socket, sys
port = int(sys.argv[1])
print(port)
if os.environ['MINGLE_GENERATION'] == '0':
    given = socket.create_server(('', port))
    waiting = socket.create_connection(('127.0.0.1', port), 5)
    sys.stdout.flush()
    os._exit(1)
try:
    socket.socket().bind(('', port))
    print('a program that probes has taken it')
except OSError:
    pass
socket.create_server(('', port))";
    let outcome =
        run(&lab, &["--max-restarts", "1", "--ports", "1"], &["python3", "-c", script, "{port1}"]).finish();
    let ports: Vec<&str> = outcome.stdout.lines().collect();
    assert!(outcome.status.success() && ports.len() == 2 && ports[0] == ports[1], "{}", outcome.render());
}

#[test]
fn the_ports_are_held_before_any_other_node_is_there() {
    let Some(lab) = lab() else { return };
    let waiting = lab.spawn(0, &["run", "-j", "serve", "-w", "2", "--ports", "64", "--", "true"]);
    waiting.expect_stderr("looking for");
    let probe = "import socket
def is_taken(port):
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(('', port))
        except OSError:
            return True
print(len([port for port in range(20000, 29400) if is_taken(port)]))";
    let mut python = lab.command(0, "python3");
    python.args(["-c", probe]);
    let outcome = lab.start(0, python).finish();
    assert_eq!(outcome.stdout, "64\n", "{}", outcome.render());
}

#[test]
fn two_jobs_of_a_host_hold_different_ports() {
    let Some(lab) = lab() else { return };
    // Of one name, so that both try the same ports.
    let jobs = [(); 2]
        .map(|()| run(&lab, &["--ports", "64"], &["sh", "-c", "echo $MINGLE_PORT_LIST; exec sleep 1000"]));
    let mut ports: Vec<u16> = Vec::new();
    for job in &jobs {
        let stdout = &job.transcript.stdout;
        let told = stdout.wait_until(Instant::now() + PATIENCE, |text| text.ends_with('\n'));
        assert!(told, "{}", job.transcript.render());
        ports.extend(stdout.text().trim().split(',').map(|port| port.parse::<u16>().unwrap()));
    }
    assert!(ports.iter().all(|port| (20_000..29_400).contains(port)), "{ports:?}");
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 128);
}

#[test]
fn without_a_command_mingle_prints_the_ports_and_the_next_world_in_the_shell_forgets_them() {
    let Some(lab) = lab() else { return };
    let line = "eval \"$($mingle -j serve -w 1 --ports 2)\"; echo $MINGLE_PORT_LIST
        eval \"$($mingle -j serve -w 1)\"; echo ${MINGLE_PORT_LIST-none}";
    let outcome = lab.shell(0, "sh", line);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].split(',').count() == 2 && lines[1] == "none",
        "{}",
        outcome.render()
    );
}

#[test]
fn where_the_kernel_gives_all_ports_to_connections_the_start_says_how_to_reserve_some() {
    let Some(lab) = lab() else { return };
    let set = |name: &str, value: &str| {
        let outcome = lab.shell(0, "sh", &format!("echo '{value}' >/proc/sys/net/ipv4/{name}"));
        assert!(outcome.status.success(), "{}", outcome.render());
    };
    set("ip_local_port_range", "1024 65000");
    let more = ["--ports", "2", "--events", "/run/events"];
    let start = || run(&lab, &more, &["sh", "-c", "echo $MINGLE_PORT_LIST"]).finish();
    let outcome = start();
    assert_eq!((outcome.status.code(), &*outcome.stdout), (Some(5), ""), "{}", outcome.render());
    for part in ["only 0 of 2 ports", "from 1024-65000", "ip_local_reserved_ports=20000-29399"] {
        assert!(outcome.stderr.contains(part), "{}", outcome.render());
    }
    let events = lab.shell(0, "sh", "cat /run/events").stdout;
    assert!(events.contains("\"failed\"") && events.contains("port_taken"), "{events}");
    set("ip_local_reserved_ports", "20000-20001");
    assert!(["20000,20001\n", "20001,20000\n"].contains(&&*start().stdout));
}

#[test]
fn no_start_collides_beside_a_program_that_takes_free_ports_where_ports_that_are_released_do() {
    let Some(lab) = lab() else { return };
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/ports/collisions.py");
    // Few ports, so that the program soon takes one that was released.
    let line = format!(
        "echo 40000 40199 >/proc/sys/net/ipv4/ip_local_port_range; exec python3 {program} {MINGLE} 8"
    );
    let outcome = lab.shell(0, "sh", &line);
    assert!(outcome.stdout.contains("; --ports: 0 of 8"), "{}", outcome.render());
    assert!(!outcome.stdout.starts_with("probed and released: 0 of 8"), "{}", outcome.render());
}
