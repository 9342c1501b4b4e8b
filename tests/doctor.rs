//! The doctor: it finds planted problems, names them and sets its exit code; on a healthy network it finds
//! nothing.

mod bandwidth;
mod cures;
mod families;
mod paths;
mod wiring;

use std::time::{Duration, Instant};

use crate::lab::proc::{Outcome, Proc};
use crate::lab::{Lab, MINGLE, Options, Policy};
use serde_json::Value;

/// The longest examination of one host, on a busy machine.
const QUICK: Duration = Duration::from_secs(6);
/// The checks that depend on the machine under the lab, and not on the network of the lab.
const MACHINE: [&str; 5] = ["shared memory", "memlock", "rdma", "container", "kubernetes"];

/// A report, as a program reads it.
struct Report {
    code: i32,
    document: Value,
    rendered: String,
}

impl Report {
    fn of(outcome: &Outcome) -> Self {
        let rendered = outcome.render();
        let document: Value =
            serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}\n{rendered}"));
        let code = outcome.status.code().unwrap();
        assert_eq!(document["code"], code, "{rendered}");
        assert_eq!(document["can_form"], code == 0, "{rendered}");
        for finding in document["findings"].as_array().unwrap() {
            let is_ok = finding["status"] == "ok";
            assert_eq!(finding["cure"].is_null(), is_ok, "a cure for each, in {finding}");
            let lines = ["looked", "seen", "cure"].map(|key| finding[key].as_str().unwrap_or("x").to_owned());
            assert!(lines.iter().all(|text| !text.is_empty() && !text.contains('\n')), "{finding}");
        }
        Self { code, document, rendered }
    }

    /// The findings of this network that are worse than a note, as `status check`.
    fn bad(&self) -> Vec<String> {
        let findings = self.document["findings"].as_array().unwrap().iter();
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
        let bad = findings.filter(|f| f["status"] == "problem" || f["status"] == "warning");
        let ours = bad.filter(|f| !MACHINE.contains(&f["check"].as_str().unwrap()));
        ours.map(|f| format!("{} {}", text(f, "status"), text(f, "check"))).collect()
    }

    /// Checks that one finding of this status and check holds all these texts, its cure included.
    fn names(&self, what: &str, words: &[&str]) -> &Self {
        let (status, check) = what.split_once(' ').unwrap();
        let findings = self.document["findings"].as_array().unwrap();
        let mut those = findings.iter().filter(|f| f["status"] == status && f["check"] == check);
        let has = |finding: &Value| {
            let text = format!("{}: {} {}", finding["looked"], finding["seen"], finding["cure"]);
            words.iter().all(|word| text.contains(word))
        };
        assert!(those.any(has), "no {what} with {words:?} in\n{}", self.rendered);
        self
    }

    fn ends_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{}", self.rendered);
        self
    }
}

fn spawn(lab: &Lab, node: usize, more: &str) -> Proc {
    let mut args = vec!["doctor", "--format", "json"];
    args.extend(more.split_whitespace());
    lab.spawn(node, &args)
}

/// The report of one host.
fn alone(lab: &Lab, node: usize, more: &str) -> Report {
    let started = Instant::now();
    let report = Report::of(&spawn(lab, node, more).finish());
    assert!(started.elapsed() < QUICK, "{:?}", started.elapsed());
    report
}

/// The reports of all hosts at once, with `more` arguments.
fn together(lab: &Lab, more: &str) -> Vec<Report> {
    let args = format!("--job-id checkup --world {} --timeout 12s {more}", lab.len());
    let all: Vec<Proc> = (0..lab.len()).map(|node| spawn(lab, node, &args)).collect();
    all.into_iter().map(|proc| Report::of(&proc.finish())).collect()
}

fn shell(lab: &Lab, node: usize, script: &str) {
    let outcome = lab.shell(node, "sh", &format!("set -e\n{script}"));
    assert!(outcome.status.success(), "{}", outcome.render());
}

#[test]
fn one_host_and_four_hosts_find_nothing_on_a_healthy_network() {
    let Some(lab) = Options::nodes(4).with_names().start() else { return };
    let report = alone(&lab, 0, "");
    assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    report.names("ok interface", &["eth0", "10.77.0.10/24, the default route; used, number 1 of 1"]);
    report.names("ok own multicast", &["eth0", "came back"]);
    report.names("ok master port", &["free"]);
    // Their results depend on the machine, so only their presence is tested.
    let checks: Vec<&str> = report.document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["check"].as_str().unwrap())
        .collect();
    for check in ["shared memory", "rdma", "host name", "firewall"] {
        assert!(checks.contains(&check), "{check} in\n{}", report.rendered);
    }

    let started = Instant::now();
    for report in together(&lab, "") {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
        let ways = report.document["matrix"].as_array().unwrap();
        assert_eq!(ways.len(), 12);
        for way in ways {
            for kind in ["multicast", "path"] {
                assert!(way[kind]["works"] == true, "{kind} of {way}");
            }
        }
    }
    assert!(started.elapsed() < QUICK, "{:?}", started.elapsed());
}

#[test]
fn the_report_for_people_has_a_line_for_each_finding_and_a_matrix() {
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    let args = ["doctor", "-j", "x", "-w", "2"];
    let both = [lab.spawn(0, &args), lab.spawn(1, &args)];
    for outcome in both.map(Proc::finish) {
        assert!(outcome.status.success(), "{}", outcome.render());
        for text in
            ["ok       interface eth0: 10.77", "from \\ to", "node0 (10.77.0.10)  ", "a world can form"]
        {
            assert!(outcome.stdout.contains(text), "{text} in\n{}", outcome.render());
        }
    }
}

#[test]
fn a_wrong_argument_is_a_usage_error() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    for (line, message) in [
        ("--world 2", "--job-id"),
        ("--bandwidth", "--world"),
        ("--job-id x --world 33", "2 to 32"),
        ("--job-id x --world 1", "2 to 32"),
        ("--seed node:x", "--seed node:x"),
        ("--format yaml", "yaml"),
        ("--master-port 0", "65535"),
    ] {
        let args: Vec<&str> = std::iter::once("doctor").chain(line.split_whitespace()).collect();
        let outcome = lab.spawn(0, &args).finish();
        assert_eq!(outcome.status.code(), Some(2), "{}", outcome.render());
        assert!(outcome.stderr.contains(message) && outcome.stdout.is_empty(), "{}", outcome.render());
    }
}

#[test]
fn a_host_with_only_loopback_is_a_problem() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    shell(&lab, 0, "ip link set eth0 down");
    let report = alone(&lab, 0, "");
    report.ends_with(5).names("problem interface", &["only loopback"]);
    report.names("note interface", &["eth0", "down, or without a link", "ip link set eth0 up"]);
}

#[test]
fn a_dead_nic_and_docker0_are_notes() {
    let Some(lab) = Options::nodes(1).with_names().with_dead_nic().with_docker0().start() else { return };
    shell(&lab, 0, "ip link add dead0 type veth peer name dead1 && ip addr add 10.99.0.1/24 dev dead0");
    let report = alone(&lab, 0, "");
    assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    report.names("note interface", &["docker0", "number 3 of 3, after all real ones", "'^docker0'"]);
    report.names("note interface", &["dead0", "not used: down"]);
}

#[test]
fn a_firewall_on_the_host_itself_that_drops_multicast_is_a_problem_and_its_rules_are_a_note() {
    let Some(lab) = Options::nodes(1).with_names().with_filters().start() else { return };
    lab.firewall(0, &["udp dport 29499", "tcp dport 29500-29999"]);
    let report = alone(&lab, 0, "");
    report.ends_with(5).names("problem own multicast", &["eth0", "did not come back", "--seed"]);
    assert_eq!(report.bad(), ["problem own multicast"], "{}", report.rendered);
    report.names(
        "note firewall",
        &["some drop or reject", "insert rule inet lab", "udp dport 29499-29999 accept"],
    );
    // Rules for other packets do not change the result.
    lab.firewall(0, &["tcp dport 22", "ip daddr 10.77.0.99"]);
    let report = alone(&lab, 0, "");
    assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    report.names("note firewall", &["some drop or reject"]);
}

#[test]
fn the_line_for_the_firewall_opens_mingles_ports() {
    let Some(lab) = Options::nodes(2).with_names().with_filters().start() else { return };
    lab.at(
        1,
        "nft -f - <<'END'\ntable inet filter {\n chain input {\n type filter hook input priority 0; policy drop\n \
         iif lo accept\n meta l4proto icmpv6 accept\n }\n}\nEND",
    );
    assert!(together(&lab, "--timeout 4s").iter().all(|report| report.code != 0));
    let report = alone(&lab, 1, "");
    let findings = report.document["findings"].as_array().unwrap().iter();
    let mut cures = findings.filter(|f| f["check"] == "firewall").map(|f| f["cure"].as_str().unwrap());
    let (_, line) = cures.next().unwrap().split_once("other hosts: ").unwrap();
    lab.at(1, line);
    for report in together(&lab, "") {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    }
}

#[test]
fn a_port_that_another_program_has_is_named_with_the_command_that_shows_the_program() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    let holder = lab.spawn(0, &["-j", "holder", "-w", "2", "-p", "21000"]);
    holder.expect_stderr("looking for");
    let cures = ["port 21000 is taken on this host", "ss -lptun 'sport = :21000'", "--master-port"];
    alone(&lab, 0, "-p 21000").ends_with(5).names("problem master port", &cures);
}

#[test]
fn both_hosts_name_packets_that_a_strict_reverse_path_filter_drops_on_asymmetric_routes() {
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    // A second network: node 1 answers by it to packets from the first.
    lab.switch("ip link add br1 type bridge mcast_snooping 0 && ip link set br1 up");
    for node in 0..2 {
        lab.switch(&format!(
            "ip link add r{node} type veth peer name eth2 netns n{node} && ip link set r{node} master br1 up"
        ));
        shell(&lab, node, &format!("ip link set eth2 up && ip addr add 10.79.0.1{node}/24 dev eth2"));
    }
    shell(&lab, 1, "ip route add 10.77.0.10/32 via 10.79.0.10 dev eth2");
    shell(&lab, 1, "echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter");
    let args = "--interface eth0";
    let reports = together(&lab, args);
    reports[1].names("warning reverse path", &["eth0", "has dropped", "rp_filter=2"]);
    reports[0].ends_with(5).names("problem hosts", &["node1 (10.77.0.11", "does not join node0"]);
    // With a loose filter nothing is found.
    shell(&lab, 1, "echo 2 >/proc/sys/net/ipv4/conf/eth0/rp_filter");
    for report in together(&lab, args) {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    }
}

#[test]
fn a_host_name_at_127_0_1_1_is_named() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    let script = r#"
        echo "127.0.1.1 node0.example.org node0" >/run/hosts.planted
        exec unshare --mount sh -c 'mount --bind /run/hosts.planted /etc/hosts; exec "$mingle" doctor --format json'"#;
    let report = Report::of(&lab.shell(0, "sh", script));
    report.ends_with(0).names("warning host name", &["node0", "127.0.1.1", "GLOO_SOCKET_IFNAME"]);
}

#[test]
fn a_host_that_cannot_resolve_its_own_name_is_named() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    let report = Report::of(&lab.shell(0, "sh", r#"exec "$mingle" doctor --format json"#));
    report.ends_with(0);
    assert_eq!(report.bad(), Vec::<String>::new(), "{}", report.rendered);
    let script = r#"
        echo "127.0.0.1 localhost" >/run/hosts.planted
        exec unshare --mount sh -c 'mount --bind /run/hosts.planted /etc/hosts; exec "$mingle" doctor --format json'"#;
    let report = Report::of(&lab.shell(0, "sh", script));
    report.ends_with(0);
    report.names(
        "warning host name",
        &["node0", "does not resolve", "device.cc", "/etc/hosts", "GLOO_SOCKET_IFNAME"],
    );
}

#[test]
fn a_name_server_that_does_not_answer_holds_the_doctor_up_for_3_s() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    let script = r#"
        echo "127.0.0.1 localhost" >/run/hosts.planted
        printf "nameserver 10.77.0.%s\n" 97 98 99 >/run/resolv.planted
        exec unshare --mount sh -c 'mount --bind /run/hosts.planted /etc/hosts
            mount --bind /run/resolv.planted /etc/resolv.conf
            exec "$mingle" doctor --format json'"#;
    let started = Instant::now();
    let report = Report::of(&lab.shell(0, "sh", script));
    report.ends_with(0).names("warning host name", &["node0", "no answer within 3 s"]);
    assert!(started.elapsed() < QUICK, "{:?}", started.elapsed());
}

#[test]
fn unreadable_firewall_rules_are_a_note() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    let script =
        r#"exec setpriv --inh-caps=-all --bounding-set=-all --no-new-privs "$mingle" doctor --format json"#;
    let report = Report::of(&lab.shell(0, "sh", script));
    report.ends_with(0).names("note firewall", &["not readable without root"]);
}

#[test]
fn with_dropped_multicast_a_seed_shows_that_the_rest_works() {
    let Some(lab) = Options::nodes(3).with_names().with_filters().start() else { return };
    lab.set(&Policy { no_multicast: true, ..Policy::default() });
    for report in together(&lab, "--seed 10.77.0.10") {
        report.ends_with(0);
        assert_eq!(report.bad(), ["warning multicast"], "{}", report.rendered);
        report.names("warning multicast", &["passes between no two hosts", "--seed", "--broadcast"]);
    }
    // Without a seed no other host is found, within the timeout.
    let args = "-j alone -w 2 --timeout 1s";
    let started = Instant::now();
    for proc in [spawn(&lab, 0, args), spawn(&lab, 1, args)] {
        Report::of(&proc.finish()).ends_with(3).names("problem hosts", &["nobody else was heard", "--seed"]);
    }
    assert!(started.elapsed() < QUICK, "{:?}", started.elapsed());
}

#[test]
fn the_hosts_that_have_come_are_compared_where_others_are_missing() {
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    let args = "-j some -w 4 --timeout 1s";
    let all: Vec<Proc> = (0..3).map(|node| spawn(&lab, node, args)).collect();
    for report in all.into_iter().map(|proc| Report::of(&proc.finish())) {
        report
            .ends_with(3)
            .names("problem hosts", &["3 of 4: node0 (10.77.0.10), node1 (10.77.0.11), node2"]);
        let ways = report.document["matrix"].as_array().unwrap();
        assert!(
            ways.len() == 6 && ways.iter().all(|way| way["path"]["works"] == true),
            "{}",
            report.rendered
        );
    }
}

#[test]
fn where_every_fifth_packet_is_lost_all_hosts_know_what_all_have_found() {
    let Some(lab) = Options::nodes(4).with_names().with_filters().start() else { return };
    lab.set(&Policy { loss: 20, ..Policy::default() });
    for report in together(&lab, "--timeout 60s") {
        let ways = report.ends_with(0).document["matrix"].as_array().unwrap();
        assert!(ways.iter().all(|way| way["path"]["works"] == true), "{}", report.rendered);
    }
}

#[test]
fn docker0_with_the_same_address_on_all_hosts_is_no_finding() {
    let Some(lab) = Options::nodes(2).with_names().with_docker0().start() else { return };
    for report in together(&lab, "") {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    }
}

#[test]
fn a_range_leaves_out_a_host_with_a_broken_path_as_a_job_does() {
    let Some(lab) = Options::nodes(4).with_names().with_filters().start() else { return };
    lab.firewall(1, &["ip saddr 10.77.0.10 tcp dport 32768-60999 tcp flags & (syn|ack) == syn"]);
    let all: Vec<Proc> = (0..4).map(|node| spawn(&lab, node, "-j some -w 3:4 --timeout 30s")).collect();
    let reports: Vec<Report> = all.into_iter().map(|proc| Report::of(&proc.finish())).collect();
    // Of the two, a leader leaves the other out; on a busy machine the lowest address need not lead.
    let codes: Vec<i32> = reports.iter().map(|report| report.code).collect();
    let out = codes[..2].iter().position(|code| *code == 5).expect("one of the two is left out");
    assert!((0..4).all(|host| codes[host] == if host == out { 5 } else { 0 }), "{codes:?}");
    let words = ["node0 (10.77.0.10) cannot open TCP connections to node1 (10.77.0.11)"];
    reports[out].names("problem rendezvous", &words);
    let leader = reports.iter().find(|report| report.bad() == ["warning rendezvous"]).unwrap();
    leader.names("warning rendezvous", &[&format!("go on without node{out}"), words[0]]);
}

#[test]
fn a_switch_that_drops_unregistered_groups_is_named() {
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    // The bridge snoops, there is no querier, and it does not flood unknown groups.
    lab.switch(
        "ip link set br0 type bridge mcast_snooping 1
         for p in p0 p1; do bridge link set dev $p mcast_flood off; done",
    );
    for report in together(&lab, "--seed 10.77.0.10") {
        report.ends_with(0).names("warning multicast", &["no two hosts", "snoops on IGMP", "querier"]);
    }
}

#[test]
fn all_three_hosts_report_a_cut_between_two() {
    let Some(lab) = Options::nodes(3).with_names().with_filters().start() else { return };
    // Both reach node 0, which leads; but a rendezvous proves the path between them, too.
    lab.set(&Policy { cuts: vec![(1, 2)], ..Policy::default() });
    for report in together(&lab, "") {
        let words = ["from node1 (10.77.0.11) to node2 (10.77.0.12)", "the other direction works"];
        report.ends_with(5).names("problem direction", &words);
        assert_eq!(report.bad(), ["problem direction"], "{}", report.rendered);
    }
    // Which of them leads is chance here: node 2 comes, or hears nothing of the leader. Each side says what
    // it has seen.
    lab.set(&Policy { cuts: vec![(0, 2)], ..Policy::default() });
    for (report, end) in together(&lab, "").iter().zip(["node2", "node2", "node0"]) {
        assert_ne!(report.code, 0, "{}", report.rendered);
        let findings = report.document["findings"].as_array().unwrap().iter();
        let mut bad = findings.filter(|finding| finding["status"] == "problem").map(Value::to_string);
        assert!(bad.any(|finding| finding.contains(end)), "{}", report.rendered);
    }
}

#[test]
fn lost_multicast_is_named_with_its_direction() {
    let Some(lab) = Options::nodes(2).with_names().with_filters().start() else { return };
    lab.firewall(1, &["ip daddr 224.0.0.0/4"]);
    let reports = together(&lab, "");
    for report in &reports {
        let words = ["from node0 (10.77.0.10) to node1 (10.77.0.11)", "multicast is lost", "--seed"];
        report.ends_with(0).names("warning multicast", &words);
    }
    assert_eq!(reports[0].bad(), ["warning multicast"]);
}

#[test]
fn a_firewall_is_named_only_where_it_keeps_a_world_from_forming() {
    let Some(lab) = Options::nodes(2).with_names().with_filters().start() else { return };
    lab.firewall(1, &["udp dport 29499", "udp dport 29500-29999"]);
    let reports = together(&lab, "");
    let words = ["node1 (10.77.0.11", "does not join node0", "in the firewalls of node1 and node0"];
    reports[0].ends_with(5).names("problem hosts", &words);
    reports[1].names("problem own multicast", &["did not come back"]);
    // Over TCP to node 0 a world forms.
    lab.firewall(1, &["tcp dport 29500-29999"]);
    for report in together(&lab, "") {
        assert_eq!(report.ends_with(0).bad(), Vec::<String>::new(), "{}", report.rendered);
    }
}

#[test]
fn what_a_rendezvous_refuses_the_doctor_names_in_its_words() {
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    let with = |variable: &'static str, values: &[&'static str]| {
        let world = values.len().to_string();
        let start = |(node, value): (usize, &&'static str)| {
            let mut command = lab.command(node, MINGLE);
            command.args(["doctor", "-j", "x", "-w", &world, "--timeout", "8s", "--format", "json"]);
            command.env(variable, value);
            lab.start(node, command)
        };
        let all: Vec<Proc> = values.iter().enumerate().map(start).collect();
        all.into_iter().map(|proc| Report::of(&proc.finish())).collect::<Vec<_>>()
    };
    let (one, other) = ("0123456789abcdef", "0123456789abcdeg");
    for report in with("MINGLE_SECRET", &[one, other]) {
        report.ends_with(6).names("problem hosts", &["secret", "give every node the same secret"]);
    }
    // Those that could form a world are compared, and say what keeps the other out.
    let reports = with("MINGLE_SECRET", &[one, other, one]);
    for report in [&reports[0], &reports[2]] {
        report.ends_with(6).names("problem rendezvous", &["10.77.0.11 has another secret"]);
        assert_eq!(report.document["matrix"].as_array().unwrap().len(), 2, "{}", report.rendered);
    }
    for users in [&["alice", "bob"][..], &["alice", "alice", "bob"]] {
        for report in with("MINGLE_USER", users) {
            report.ends_with(4);
        }
    }
    for report in with("MINGLE_RDMA", &["auto", "auto", "require"]) {
        report.ends_with(4).names("problem rendezvous", &["needs RDMA", "--rdma require"]);
    }
    for report in with("MINGLE_SAME", &["image=1", "image=2"]) {
        report.ends_with(0).names("warning sameness", &["--same image differs", "rank 1", "--require-same"]);
    }
    let start = |(node, world)| spawn(&lab, node, &format!("-j sizes -w {world} --timeout 3s"));
    let sizes: Vec<Proc> = ["3", "2:3", "3"].into_iter().enumerate().map(start).collect();
    for report in sizes.into_iter().map(|proc| Report::of(&proc.finish())) {
        report.ends_with(4);
    }
}

#[test]
fn a_rendezvous_that_times_out_prints_the_findings_of_the_doctor() {
    let Some(lab) = Options::nodes(1).with_names().with_filters().start() else { return };
    lab.firewall(0, &["udp dport 29499"]);
    let line = ["-j", "late", "-w", "2", "--timeout", "500ms"];
    let started = Instant::now();
    let outcome = lab.spawn(0, &line).finish();
    // The half second of the rendezvous, at most a second of the doctor, and some time for a busy machine.
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    outcome.failed(3, &["doctor: own multicast", "did not come back", "mingle doctor --job-id"]);
    let quiet = lab.spawn(0, &[&line[..], &["--quiet"]].concat()).finish();
    assert!(!quiet.stderr.contains("doctor: "), "{}", quiet.render());
    let other = lab.spawn(0, &[&line[..], &["--multicast", ":29498"]].concat()).finish();
    other.failed(3, &["with the same options of the network and the secret: mingle doctor --job-id 'late'"]);
    // The doctor compares 32 hosts at most.
    let large = lab.spawn(0, &["-j", "large", "-w", "64", "--timeout", "500ms"]).finish();
    large.failed(3, &["run this on 32 of the nodes at once: mingle doctor --job-id 'large' --world 32\n"]);
}

#[test]
fn the_doctor_warns_of_a_secret_that_all_can_read_unless_mingle_quiet_is_set() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    for (quiet, warns) in [("", true), ("MINGLE_QUIET=1", false)] {
        let script = format!(
            "umask 022; folder=$(mktemp -d); echo a-secret-of-many-bytes >$folder/secret
            {quiet} $mingle doctor -j quiet -w 2 --timeout 500ms --secret-file $folder/secret >$folder/report
            rm -r $folder"
        );
        let outcome = lab.shell(0, "sh", &script);
        assert_eq!(
            outcome.stderr.contains("every user of this host can read"),
            warns,
            "{}",
            outcome.render()
        );
        let is_error_alone = outcome.stderr == "mingle: error: not all hosts came\n";
        assert_eq!(is_error_alone, !warns, "{}", outcome.render());
    }
}

#[test]
fn the_rank_that_a_job_of_kubernetes_gives_a_pod_does_not_keep_the_doctor_from_examining_it() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    let mut command = lab.command(0, MINGLE);
    command.args(["doctor", "--format", "json"]).env("JOB_COMPLETION_INDEX", "1");
    Report::of(&lab.start(0, command).finish()).ends_with(0);
}

#[test]
fn a_hostile_interface_name_never_reaches_the_terminal() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    shell(&lab, 0, "name=$(printf 'x\\033[2Jy'); ip link set eth0 down; ip link set eth0 name \"$name\"");
    let outcome = lab.spawn(0, &["doctor"]).finish();
    assert!(outcome.stdout.contains("interface x\\u{1b}[2Jy"), "{}", outcome.render());
    assert!(!outcome.stdout.contains('\u{1b}') && !outcome.stderr.contains('\u{1b}'));
}
