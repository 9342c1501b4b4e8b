//! Each section of docs/troubleshooting.md, on a network that fails in this way: the nodes print the message
//! of the section first, as soon as it says, and end with its exit code. After its cure they form a world.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{NODES, SOON, starts_nothing, unfinished_round};
use crate::lab::proc::Proc;
use crate::lab::{Lab, MINGLE, Options, Policy, limit};

const PAGE: &str = include_str!("../../docs/troubleshooting.md");

/// A section of the page.
struct Section {
    /// The beginning of the first message. A number stands for any number.
    message: String,
    /// The seconds until the message; none where it comes as the world forms.
    after: Option<u64>,
    /// The exit code; none where that depends on what follows.
    code: Option<i32>,
}

impl Section {
    fn of(title: &str) -> Self {
        let (_, text) =
            PAGE.split_once(&format!("### {title}\n\n    ")).unwrap_or_else(|| panic!("no {title}"));
        let (message, text) = text.split_once("\n\n").unwrap();
        let text = text.split(['.', '#']).next().unwrap().replace('\n', " ");
        let number = |word: &str| word.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().ok();
        let words: Vec<&str> = text.split(' ').collect();
        let unit = words.iter().position(|word| word.trim_end_matches([',', ';']) == "s");
        let after = match &*text {
            text if text.starts_with("At once") => Some(0),
            // A name server that does not answer is asked for 5 s.
            text if text.starts_with("As soon as") => Some(5),
            text if text.starts_with("As the world forms") => None,
            _ => Some(number(words[unit.unwrap() - 1]).unwrap()),
        };
        let code = words.windows(2).find(|pair| pair[0] == "code").and_then(|pair| number(pair[1]));
        let code = code.map(|code| i32::try_from(code).unwrap());
        Self { message: numberless(message), after, code }
    }

    /// Checks what these nodes print and how they end.
    fn is_said_by(&self, procs: Vec<Proc>) {
        for proc in &procs {
            self.is_said(proc);
        }
        for proc in procs {
            let outcome = proc.finish();
            let message = messages(&outcome.stderr).next().unwrap_or_default();
            let is_first = numberless(message).starts_with(&self.message);
            assert!(is_first, "not the first message: {}\n{}", self.message, outcome.render());
            if let Some(code) = self.code {
                assert_eq!(outcome.status.code(), Some(code), "{}", outcome.render());
                if !outcome.stdout.is_empty() {
                    starts_nothing(&outcome.stdout, code);
                }
            }
        }
    }

    /// Waits for the first message, and checks when it comes.
    fn is_said(&self, proc: &Proc) {
        let deadline = Instant::now() + Duration::from_secs(40);
        proc.transcript.stderr.wait_until(deadline, |text| messages(text).next().is_some());
        let took = proc.started.elapsed();
        if let Some(after) = self.after {
            let most = limit(Duration::from_secs(after + 3));
            assert!(took < most, "{took:?}: {}", proc.transcript.render());
        }
    }
}

/// The lines that say that something is wrong.
fn messages(stderr: &str) -> impl Iterator<Item = &str> {
    let begins = ["mingle: warning: ", "mingle: error: ", "mingle: still waiting "];
    stderr.lines().filter(move |line| begins.iter().any(|begin| line.starts_with(begin)))
}

/// The text with one sign for each number, and one name for each user.
fn numberless(text: &str) -> String {
    let mut text: String =
        text.replace("alice", "bob").chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    while text.contains("##") {
        text = text.replace("##", "#");
    }
    text
}

/// The arguments of a node. It waits longer than the 15 s after which nodes say what they know.
fn args(world: usize, more: &str) -> Vec<String> {
    let mut args: Vec<String> = more.split_whitespace().map(str::to_owned).collect();
    for (name, value) in [("--job-id", "foo"), ("--world", &world.to_string()), ("--timeout", "17s")] {
        if !args.iter().any(|arg| arg == name) {
            args.extend([name, value].map(str::to_owned));
        }
    }
    args
}

/// A node for each of these arguments.
fn nodes(lab: &Lab, world: usize, more: &[&str]) -> Vec<Proc> {
    more.iter().enumerate().map(|(node, more)| lab.spawn(node, &args(world, more))).collect()
}

/// A node with a variable.
fn with(lab: &Lab, node: usize, (name, value): (&str, &str), args: &[String]) -> Proc {
    let mut command = lab.command(node, MINGLE);
    command.args(args).env(name, value);
    lab.start(node, command)
}

/// Does what the section's message says, word by word, and starts the nodes again: all must succeed.
#[allow(clippy::too_many_lines, reason = "a cure for each section")]
fn cure(title: &str, lab: &Lab, others: Vec<Proc>) -> Vec<Proc> {
    let alone = |more: &str| nodes(lab, 1, &[more]);
    let run = |command: &str| {
        let words = ["run", "-j", "bar", "-w", "1", "--", command];
        vec![lab.spawn(0, &words)]
    };
    let open = |node: usize| {
        let closed = "tcp dport != 29500-29999 tcp dport != 32768-60999 ct state new";
        lab.firewall(node, &[closed, "udp dport != 29499 udp dport != 29500-29999 ct state new"]);
    };
    // Where the others must not end first.
    match title {
        "The port is taken" => return finished(alone(""), others),
        "The job runs already" => return finished(alone("--job-id bar"), others),
        _ => drop(others),
    }
    match title {
        "Nothing would read the result" => {
            let mut command = lab.command(0, "sh");
            command.args(["-c", "exec \"$@\" >/dev/null", "sh", MINGLE]).args(args(1, ""));
            vec![lab.start(0, command)]
        }
        "--last-call without a range" => {
            (0..2).map(|node| lab.spawn(node, &args(2, "--world 2:3 --last-call 1s"))).collect()
        }
        "A word that is no option" | "The command does not exist" => run("true"),
        "The interface does not exist" => alone("--interface eth0"),
        "The only interface has no multicast" | "Multicast does not pass" => {
            nodes(lab, 2, &["--seed 10.77.0.10,10.77.0.11"; 2])
        }
        "A name does not resolve" => alone("--seed 10.77.0.10"),
        "The folder of seeds cannot be written" => {
            lab.at(0, "mkdir /run/seeds");
            alone("--seed-dir /run/seeds")
        }
        "This host's own firewall" | "A node that does not join" => {
            open(1);
            nodes(lab, 2, &[""; 2])
        }
        "Hosts without a common address family" => {
            lab.restore_ipv4(1);
            nodes(lab, 2, &[""; 2])
        }
        "The seeds do not answer" => nodes(lab, 2, &["--multicast off --seed 10.77.0.10"; 2]),
        "A rank is missing" | "A rank is given twice" => nodes(lab, 3, &["--rank 0", "--rank 1", "--rank 2"]),
        "No node may be rank 0" => nodes(lab, 2, &["--rank 0", "--rank 1"]),
        "Another user has this job ID" => {
            (0..3).map(|node| with(lab, node, ("MINGLE_USER", "alice"), &args(3, ""))).collect()
        }
        "Another secret" => {
            let secret = ("MINGLE_SECRET", "the first of two secrets");
            (0..2).map(|node| with(lab, node, secret, &args(2, ""))).collect()
        }
        "A leader that no connection reaches" | "A node to which nobody connects" => {
            open(0);
            nodes(lab, 2, &["--rank 0", "--rank 1"])
        }
        "One node has IPv6 alone, another IPv4 alone" => {
            lab.restore_ipv4(2);
            nodes(lab, 3, &[""; 3])
        }
        "The kernel's ports are blocked" | "Packets pass in a single direction" => {
            open(2);
            nodes(lab, 3, &[""; 3])
        }
        "Long packets vanish" => {
            (0..2).for_each(|node| drop(lab.at(node, "ip link set eth0 mtu 1400")));
            nodes(lab, 2, &[""; 2])
        }
        "Hosts in two networks" => {
            lab.at(0, "ip route add 10.99.0.0/24 dev eth0");
            lab.at(1, "ip route add 10.77.0.0/24 dev eth0");
            nodes(lab, 2, &[""; 2])
        }
        "A platform differs" => nodes(lab, 2, &["--same image=v1 --require-same"; 2]),
        "The result cannot be written" => alone("--output json=/run/result"),
        "The job has no ID or no size" | "A signal" => alone(""),
        // The same line on all nodes of the lab.
        _ => nodes(lab, lab.len(), &vec![""; lab.len()]),
    }
}

/// Waits for these nodes, and lets the others go.
fn finished(procs: Vec<Proc>, others: Vec<Proc>) -> Vec<Proc> {
    for proc in &procs {
        proc.expect_stderr("formed in");
    }
    drop(others);
    procs
}

/// A test of one section. `start` makes the network fail in this way, and starts the nodes: first those that
/// print the message, then the others.
macro_rules! ways {
    ($($name:ident: $title:literal, $nodes:literal, $start:expr;)*) => {
        $(#[test]
        fn $name() {
            let section = Section::of($title);
            let Some(lab) = Options::nodes($nodes).with_filters().with_names().start() else { return };
            let start: fn(&Lab) -> (Vec<Proc>, Vec<Proc>) = $start;
            let (told, others) = start(&lab);
            assert!(!told.is_empty());
            section.is_said_by(told);
            for proc in cure($title, &lab, others) {
                let outcome = proc.finish();
                assert!(outcome.status.success(), "not cured: {}", outcome.render());
            }
        })*

        #[test]
        fn each_section_has_a_way_to_fail() {
            // Who hears which of two hosts at one address is chance; tests/doctor/cures.rs has a world of
            // four.
            let tested = [$($title,)* "Two hosts have the same IP address"];
            let titles = PAGE.lines().filter_map(|line| line.strip_prefix("### "));
            let untested: Vec<&str> = titles.filter(|title| !tested.contains(title)).collect();
            assert!(untested.is_empty(), "{untested:?}");
        }
    };
}

ways! {
    nothing_would_read_the_result: "Nothing would read the result", 1, |lab| {
        let mut command = lab.command(0, "sh");
        command.args(["-c", "exec \"$@\" >&-", "sh", MINGLE]).args(args(2, ""));
        (vec![lab.start(0, command)], vec![])
    };

    the_job_has_no_id: "The job has no ID or no size", 1, |lab| (vec![lab.spawn(0, &["--world", "4"])], vec![]);

    a_last_call_has_no_range: "--last-call without a range", 2, |lab| {
        (nodes(lab, 2, &["--last-call 3s"]), vec![])
    };

    a_word_is_no_option: "A word that is no option", 1, |lab| {
        (vec![lab.spawn(0, &[&args(2, "")[..], &["foo".to_owned()]].concat())], vec![])
    };

    the_port_is_taken: "The port is taken", 1, |lab| {
        let other = lab.spawn(0, &args(2, "--job-id bar --master-port 29600"));
        other.expect_stderr("looking for");
        (nodes(lab, 2, &["--master-port 29600"]), vec![other])
    };

    the_interface_does_not_exist: "The interface does not exist", 1, |lab| {
        (nodes(lab, 2, &["--interface eth7"]), vec![])
    };

    the_only_interface_has_no_multicast: "The only interface has no multicast", 2, |lab| {
        (0..2).for_each(|node| drop(lab.at(node, "ip link set eth0 multicast off")));
        (nodes(lab, 2, &["", ""]), vec![])
    };

    a_name_does_not_resolve: "A name does not resolve", 1, |lab| {
        (nodes(lab, 2, &["--seed gpu7.invalid"]), vec![])
    };

    the_folder_of_seeds_cannot_be_written: "The folder of seeds cannot be written", 1, |lab| {
        (nodes(lab, 2, &["--seed-dir /mnt/seeds0"]), vec![])
    };

    multicast_does_not_pass: "Multicast does not pass", 2, |lab| {
        lab.set(&Policy { no_multicast: true, ..Policy::default() });
        (nodes(lab, 2, &["", ""]), vec![])
    };

    a_node_has_another_job_id: "Another job ID on one node", 3, |lab| {
        let others = nodes(lab, 3, &["", ""]);
        (vec![lab.spawn(2, &args(3, "--job-id fo"))], others)
    };

    a_node_has_another_group: "Another group or port", 2, |lab| {
        (nodes(lab, 2, &["", "--multicast 239.255.7.7"]), vec![])
    };

    a_host_drops_even_its_own_multicast: "This host's own firewall", 2, |lab| {
        lab.firewall(1, &["ct state new"]);
        let other = lab.spawn(0, &args(2, ""));
        (vec![lab.spawn(1, &args(2, ""))], vec![other])
    };

    hosts_have_no_common_family: "Hosts without a common address family", 2, |lab| {
        lab.add_ipv6();
        lab.remove_ipv4(1);
        lab.at(0, "ip -6 address flush dev eth0");
        let other = lab.spawn(0, &args(2, ""));
        (vec![lab.spawn(1, &args(2, ""))], vec![other])
    };

    the_seeds_do_not_answer: "The seeds do not answer", 2, |lab| {
        (nodes(lab, 2, &["--multicast off --seed 10.77.0.99"]), vec![])
    };

    a_node_never_starts: "A node never starts", 4, |lab| (nodes(lab, 4, &["", "", ""]), vec![]);

    a_rank_is_missing: "A rank is missing", 3, |lab| {
        let one = lab.spawn(1, &args(3, "--rank 1"));
        let zero = nodes(lab, 3, &["--rank 0"]);
        (zero, vec![one])
    };

    no_node_may_be_rank_0: "No node may be rank 0", 2, |lab| {
        (nodes(lab, 2, &["--rank 1", "--rank 1"]), vec![])
    };

    a_node_has_another_size: "Another --world", 2, |lab| {
        let other = lab.spawn(0, &args(3, ""));
        other.expect_stderr("looking for");
        (vec![lab.spawn(1, &args(4, ""))], vec![other])
    };

    a_rank_is_given_twice: "A rank is given twice", 3, |lab| {
        let others = nodes(lab, 3, &["--rank 0", "--rank 1"]);
        others[1].expect_latest(SOON, NODES, "2 of 3");
        (vec![lab.spawn(2, &args(3, "--rank 1"))], others)
    };

    another_user_has_the_job_id: "Another user has this job ID", 3, |lab| {
        let alice = [0, 1].map(|node| with(lab, node, ("MINGLE_USER", "alice"), &args(3, "")));
        alice[1].expect_latest(SOON, NODES, "2 of 3");
        (vec![with(lab, 2, ("MINGLE_USER", "bob"), &args(3, ""))], alice.into())
    };

    more_nodes_come_than_the_world_has: "More nodes than --world", 5, |lab| {
        let four = unfinished_round(lab, "foo");
        let fifth = lab.spawn(4, &args(4, ""));
        fifth.expect_stderr("4 of 4");
        four[2].signal("CONT");
        // The stopped node's clock is not the world's.
        let [zero, one, two, three] = four;
        (vec![zero, one, three], vec![two, fifth])
    };

    the_job_runs_already: "The job runs already", 3, |lab| {
        let run = |node: usize| {
            let command = ["--max-restarts", "1", "--", "sleep", "60"].map(str::to_owned);
            lab.spawn(node, &[&["run".to_owned()], &args(2, "")[..], &command].concat())
        };
        let others = [0, 1].map(run);
        for proc in &others {
            proc.expect_stderr("world of 2 formed");
        }
        (vec![lab.spawn(2, &args(2, ""))], others.into())
    };

    a_node_has_another_secret: "Another secret", 2, |lab| {
        let secrets = ["the first of two secrets", "the second of two secrets"];
        let start = |node: usize| with(lab, node, ("MINGLE_SECRET", secrets[node]), &args(2, ""));
        ((0..2).map(start).collect(), vec![])
    };

    a_node_has_another_version: "Another version of mingle", 2, |lab| {
        let node = lab.spawn(0, &args(2, "--multicast 239.255.7.7"));
        node.expect_stderr("looking for");
        let job: mingle_core::JobId = "foo".parse().unwrap();
        // The part that all versions share: magic, version, kind and length, tag, two IDs.
        let datagram = [&b"MNGL\x09\x01\0\0"[..], &job.tag().0, &[7; 32]].concat();
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("version-{}", std::process::id()));
        std::fs::write(&file, datagram).unwrap();
        let send = format!("cat {} >/dev/udp/239.255.7.7/29499", file.display());
        assert!(lab.shell(1, "bash", &send).status.success());
        std::fs::remove_file(&file).unwrap();
        (vec![node], vec![])
    };

    another_host_has_a_firewall: "A node that does not join", 2, |lab| {
        lab.firewall(1, &["ct state new"]);
        let walled = lab.spawn(1, &args(2, ""));
        (nodes(lab, 2, &[""]), vec![walled])
    };

    no_connection_reaches_the_leader: "A leader that no connection reaches", 2, |lab| {
        lab.firewall(0, &["tcp dport 29500-29999"]);
        let leader = lab.spawn(0, &args(2, "--rank 0"));
        leader.expect_stderr("looking for");
        (vec![lab.spawn(1, &args(2, "--rank 1"))], vec![leader])
    };

    nobody_connects_to_a_node: "A node to which nobody connects", 2, |lab| {
        lab.firewall(0, &["tcp dport 29500-29999"]);
        let leader = lab.spawn(0, &args(2, "--rank 0"));
        leader.expect_stderr("looking for");
        let other = lab.spawn(1, &args(2, "--rank 1"));
        (vec![leader], vec![other])
    };

    no_address_family_in_common: "One node has IPv6 alone, another IPv4 alone", 3, |lab| {
        lab.add_ipv6();
        lab.remove_ipv4(2);
        lab.at(1, "ip -6 address flush dev eth0");
        (nodes(lab, 3, &["", "", ""]), vec![])
    };

    the_kernels_ports_are_blocked: "The kernel's ports are blocked", 3, |lab| {
        lab.firewall(2, &["tcp dport 32768-60999 tcp flags & (syn|ack) == syn"]);
        (nodes(lab, 3, &["", "", ""]), vec![])
    };

    packets_pass_in_one_direction: "Packets pass in a single direction", 3, |lab| {
        lab.firewall(2, &["ip saddr 10.77.0.11 tcp flags & (syn|ack) == syn"]);
        (nodes(lab, 3, &["", "", ""]), vec![])
    };

    long_packets_vanish: "Long packets vanish", 2, |lab| {
        lab.drop_at_bridge(&["ip saddr 10.77.0.10 ip daddr 10.77.0.11 ip length > 1400"]);
        (nodes(lab, 2, &["", ""]), vec![])
    };

    hosts_are_in_two_networks: "Hosts in two networks", 2, |lab| {
        lab.at(1, "ip address flush dev eth0; ip address add 10.99.0.5/24 dev eth0");
        let other = lab.spawn(1, &args(2, ""));
        (nodes(lab, 2, &[""]), vec![other])
    };

    a_platform_differs: "A platform differs", 2, |lab| {
        (nodes(lab, 2, &["--same image=v0 --require-same", "--same image=v1 --require-same"]), vec![])
    };

    a_node_has_no_rdma: "A node has no RDMA", 2, |lab| {
        (nodes(lab, 2, &["--rdma require", "--rdma require"]), vec![])
    };

    the_leader_vanishes: "The leader vanishes", 4, |lab| {
        let [zero, one, two, three] = unfinished_round(lab, "foo");
        one.expect_stderr("proving that each node reaches the others");
        three.expect_stderr("proving that each node reaches the others");
        zero.signal("KILL");
        (vec![one, three], vec![two])
    };

    a_signal_ends_a_node: "A signal", 1, |lab| {
        let node = lab.spawn(0, &args(2, ""));
        node.expect_stderr("looking for");
        node.signal("TERM");
        (vec![node], vec![])
    };

    the_result_cannot_be_written: "The result cannot be written", 1, |lab| {
        (nodes(lab, 2, &["--output json=/proc/1/y"]), vec![])
    };

    the_command_does_not_exist: "The command does not exist", 1, |lab| {
        (vec![lab.spawn(0, &[&["run".to_owned()], &args(2, "")[..], &["--".to_owned(), "foo".to_owned()]].concat())], vec![])
    };
}
