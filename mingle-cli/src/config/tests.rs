use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::Path;

use clap::{CommandFactory as _, Parser};
use mingle_core::env::{MINGLE_SET, Variables};
use mingle_core::{JobId, Rank, env};

use super::values::{rank_of_host, timeout};
use super::*;
use crate::args::LowArgs;
use crate::fabric::Use;

fn config(line: &[&str], environment: &[(&str, &str)]) -> Result<Settings, String> {
    let low = LowArgs::try_parse_from([&["mingle"], line].concat()).map_err(|e| e.to_string())?;
    let lookup =
        |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
    Settings::scheduled(low.join, &lookup).map_err(|stop| stop.to_string())
}

/// The job, the most nodes of the world, and this node's rank.
fn identity(config: &Settings) -> (&str, u32, Option<u32>) {
    let Rendezvous { job, world, rank, .. } = &config.rendezvous;
    (job.as_str(), world.max().get(), rank.map(Rank::get))
}

const GOOD: [&str; 4] = ["-j", "foo", "-w", "4"];

#[test]
fn the_shortest_line_leaves_everything_to_the_defaults() {
    let config = config(&GOOD, &[]).unwrap();
    assert_eq!((identity(&config), config.format), (("foo", 4, None), Format::SH));
    let Rendezvous { timeout, last_call, network, .. } = &config.rendezvous;
    assert_eq!((*timeout, *last_call), (Some(Rendezvous::TIMEOUT), Rendezvous::LAST_CALL));
    assert!(network.interfaces.is_empty() && !config.quiet && config.verbose == 0);
}

#[test]
fn the_help_names_the_defaults_of_the_library() {
    let command = LowArgs::command();
    let run = command.find_subcommand("run").unwrap();
    for (option, default) in [
        ("timeout", Rendezvous::TIMEOUT),
        ("last-call", Rendezvous::LAST_CALL),
        ("gone-after", Rendezvous::GONE_AFTER),
        ("stop-timeout", Rendezvous::STOP_TIMEOUT),
        ("restart-delay", RESTART_DELAY),
    ] {
        let argument = run.get_arguments().find(|argument| argument.get_long() == Some(option)).unwrap();
        let help = argument.get_help().unwrap().to_string();
        let named = help.split_once("[default: ").unwrap().1.strip_suffix(']').unwrap();
        assert_eq!(timeout(named).ok(), Some(Some(default)), "--{option}: {help}");
    }
}

#[test]
fn a_time_of_0_is_for_ever_but_for_the_pause_before_a_restart() {
    let mut args = RunArgs::default();
    for time in [&mut args.stop_timeout, &mut args.restart_delay, &mut args.gone_after] {
        *time = Some("0".to_owned());
    }
    let mut config = config(&["-j", "foo", "-w", "3:4", "--timeout", "0", "--last-call", "0"], &[]).unwrap();
    config.set_restarts(&args, true).unwrap();
    let Rendezvous { timeout, last_call, stop_timeout, gone_after, restarts, .. } = config.rendezvous;
    assert_eq!((timeout, last_call, stop_timeout, gone_after), (None, LONGEST, LONGEST, LONGEST));
    assert_eq!(restarts.delay, Duration::ZERO);
}

#[test]
fn restarts_count_for_as_long_as_the_help_says_unless_a_time_is_given() {
    let with = |mut args: RunArgs, most: Option<&str>| {
        args.max_restarts = most.map(str::to_owned);
        let mut config = config(&GOOD, &[]).unwrap();
        config.set_restarts(&args, false).map(|()| config.rendezvous.restarts.forget)
    };
    let forget = |most| with(RunArgs::default(), Some(most)).unwrap();
    let command = LowArgs::command();
    let run = command.find_subcommand("run").unwrap();
    let argument = run.get_arguments().find(|argument| argument.get_long() == Some("max-restarts")).unwrap();
    let help = argument.get_long_help().unwrap().to_string();
    let (before, _) = help.split_once(" by default").unwrap();
    let named = before.rsplit(' ').next().unwrap();
    assert_eq!(timeout(named), Ok(Some(forget("3"))), "{help}");
    let mut wrong: [RunArgs; 3] = Default::default();
    let [delay, stop, gone] = &mut wrong;
    for time in [&mut delay.restart_delay, &mut stop.stop_timeout, &mut gone.gone_after] {
        *time = Some("x".to_owned());
    }
    for (option, args) in ["restart-delay", "stop-timeout", "gone-after"].iter().zip(wrong) {
        let error = with(args, None).unwrap_err().to_string();
        assert!(error.starts_with(&format!("--{option} x: ")), "{error}");
    }
    assert_eq!((forget("3/30m"), forget("3/0")), (Duration::from_secs(1800), LONGEST));
}

#[test]
fn every_option_reads_its_variable() {
    let asked = RefCell::new(BTreeSet::new());
    let lookup = |name: &str| {
        asked.borrow_mut().insert(name.to_owned());
        let value = [("MINGLE_JOB_ID", "foo"), ("MINGLE_WORLD", "4")].into_iter().find(|(n, _)| *n == name);
        value.map(|(_, value)| OsString::from(value))
    };
    Settings::scheduled(JoinArgs::default(), &lookup).unwrap();
    let command = LowArgs::command();
    let options = command.get_arguments().filter_map(|argument| argument.get_long());
    for option in options.filter(|option| !["help", "version"].contains(option)) {
        let variable = format!("MINGLE_{}", option.to_ascii_uppercase().replace('-', "_"));
        assert!(asked.borrow().contains(&variable), "--{option}: {variable} is not read");
    }
}

#[test]
fn an_argument_wins_over_its_variable() {
    let environment = [
        ("MINGLE_JOB_ID", "my%20job"),
        ("MINGLE_WORLD", "8"),
        ("MINGLE_RANK", "7"),
        ("MINGLE_INTERFACE", "eth*,^docker0, fd00::/8"),
        ("MINGLE_MASTER_PORT", "29400"),
        ("MINGLE_RANK_KEY", "rack-7/a"),
        ("MINGLE_MULTICAST", "239.192.7.7:29498/4"),
        ("MINGLE_SEED", "gpu[1-2],login:29500"),
        ("MINGLE_SEED_DIR", "/shared/seeds"),
        ("MINGLE_BROADCAST", "1"),
        ("MINGLE_PRIVATE", "1"),
        ("MINGLE_IPV6", "on"),
        ("MINGLE_TIMEOUT", "0"),
        ("MINGLE_FORMAT", "json"),
        ("MINGLE_OUTPUT", "hosts=/tmp/hosts,hostfile=/tmp/file"),
        ("MINGLE_SLOTS", "3"),
        ("MINGLE_EVENTS", "/tmp/events"),
        ("MINGLE_QUIET", "1"),
        ("MINGLE_RDMA", "require"),
        ("MINGLE_VERBOSE", "2"),
    ];
    let all = config(&[], &environment).unwrap();
    let node = &all.rendezvous;
    assert_eq!(identity(&all), ("my job", 8, Some(7)));
    let network = &node.network;
    assert_eq!((network.master_port, network.discovery_port, network.ttl), (Some(29400), 29498, 4));
    let key = node.attributes.rank_key.to_string();
    assert_eq!((key.as_str(), network.group), ("rack-7/a", Some(Ipv4Addr::new(239, 192, 7, 7))));
    assert_eq!((node.timeout, all.format, all.verbose), (None, Format::JSON, 2));
    let outputs: Vec<_> = all.outputs.iter().map(|output| (output.format, output.path.as_path())).collect();
    assert_eq!(
        outputs,
        [(Format::HOSTS, Path::new("/tmp/hosts")), (Format::HOSTFILE, Path::new("/tmp/file"))]
    );
    assert_eq!((node.attributes.slots, all.slots_given, all.provenance), (3, true, None));
    assert_eq!(all.events, Some("/tmp/events".into()));
    let shown: Vec<String> = node.network.interfaces.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["eth*", "^docker0", "fd00::/8"]);

    assert_eq!((network.seeds.len(), network.seed_dir.clone()), (3, Some("/shared/seeds".into())));
    assert!(network.broadcast && node.private && network.prefers_ipv6 && all.quiet);
    assert_eq!(all.fabric.rdma, Use::Require);

    let line = ["-j", "a%20b", "-w", "2", "-r0", "-i", "lo", "-p1", "--rank-key=b", "--multicast=/1", "-v"];
    let some = config(&line, &environment).unwrap();
    assert_eq!(identity(&some), ("a%20b", 2, Some(0)));
    let other = &some.rendezvous;
    assert_eq!((other.network.interfaces.len(), other.network.master_port, some.verbose), (1, Some(1), 1));
    assert_eq!(other.attributes.rank_key.to_string(), "b");
    assert_eq!((other.network.ttl, other.network.group), (1, None));
}

#[test]
fn a_template_that_cannot_be_filled_in_is_refused_with_its_place() {
    let folder = std::env::temp_dir();
    let file = folder.join(format!("mingle-template-{}", std::process::id())).display().to_string();
    let format = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let option = format!("--format=template={file}");
        config(&[&GOOD[..], &[&option], more].concat(), &[]).map(|config| config.template.is_some())
    };
    assert_eq!(format("{rank} {port2}", &["--ports", "2"]), Ok(true));
    let unheld = format("{rank} {port2}", &["--ports", "1"]).unwrap_err();
    let unknown = format("{rank}\n{ranks}", &[]).unwrap_err();
    assert_eq!(format(&"x".repeat(1 << 16), &[]), Ok(true));
    let large = format(&"x".repeat((1 << 16) + 1), &[]).unwrap_err();
    std::fs::remove_file(&file).unwrap();
    let missing = config(&[&GOOD[..], &["--format=template=/no/such"]].concat(), &[]).unwrap_err();
    let unnamed = config(&[&GOOD[..], &["--format=template"]].concat(), &[]).unwrap_err();
    let other = config(&[&GOOD[..], &["--format=json=x"]].concat(), &[]).unwrap_err();
    for (error, told) in [
        (unheld, "{port2} in the template: this node holds 1 ports for the job; give --ports 2".to_owned()),
        (
            unknown,
            format!(
                "--format template={file}: {file}:2:1: {{ranks}} means nothing here; there are {{rank}}, "
            ),
        ),
        (large, format!("--format template={file}: {file} has more than 64 KiB")),
        (missing, "--format template=/no/such: /no/such: No such file".to_owned()),
        (unnamed, "--format template: give the file as well, such as template=".to_owned()),
        (other, "--format json=x: the formats are sh, ".to_owned()),
    ] {
        assert!(error.starts_with(&told), "{error}");
    }
}

#[test]
fn without_multicast_there_must_be_another_way() {
    let quiet = |more: &[&str]| config(&[&GOOD[..], &["--multicast", "off"], more].concat(), &[]);
    let error = quiet(&[]).unwrap_err();
    assert_eq!(
        error,
        "--multicast off (or MINGLE_MULTICAST): there is no other way to find the nodes; give --seed or --seed-dir"
    );
    for way in [["--seed", "a"], ["--seed-dir", "/tmp"]] {
        assert!(!quiet(&way).unwrap().rendezvous.network.multicast, "{way:?}");
    }
    assert!(quiet(&["--seed", "a", "--broadcast"]).unwrap_err().contains("--broadcast"));
    assert!(config(&["-j", "foo", "-w", "1", "--multicast", "off"], &[]).is_ok(), "nobody is looked for");
}

#[test]
fn the_variables_of_a_scheduler_come_last_and_are_named() {
    let slurm =
        [("SLURM_NODEID", "2"), ("SLURM_NNODES", "4"), ("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "0")];
    let all = config(&[], &slurm).unwrap();
    assert_eq!(identity(&all), ("slurm-12.0", 4, Some(2)));
    assert_eq!(
        all.provenance.as_deref(),
        Some("rank 2 from SLURM_NODEID, world 4 from SLURM_NNODES, job slurm-12.0 from SLURM_JOB_ID")
    );
    assert!(all.warnings.is_empty(), "{:?}", all.warnings);

    let variables = [&slurm[..], &[("MINGLE_RANK", "1"), ("MINGLE_JOB_ID", "bar")]].concat();
    let some = config(&["-j", "foo"], &variables).unwrap();
    assert_eq!(identity(&some), ("foo", 4, Some(1)));
    assert_eq!(some.provenance.as_deref(), Some("world 4 from SLURM_NNODES"));

    assert!(
        config(&[], &slurm[..3]).unwrap_err().contains("start mingle and the commands after it with srun")
    );
    let batch = config(&["-w", "4"], &slurm[..3]).unwrap();
    assert!(batch.warnings[0].contains("srun"), "{:?}", batch.warnings);
    assert!(config(&[&GOOD[..], &["-r", "0"]].concat(), &slurm[..3]).unwrap().warnings.is_empty());

    let several = [&slurm[..], &[("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_STEP_NUM_NODES", "4")]].concat();
    let error = config(&[], &several).unwrap_err();
    assert!(error.starts_with("this step has 8 tasks on 4 nodes"), "{error}");
    assert!(error.contains("srun --ntasks-per-node=1"), "{error}");
    assert!(config(&["-r", "1"], &several).is_ok(), "Slurm's rank does not count");

    let two = [&slurm[..], &[("PMI_SIZE", "32")]].concat();
    assert!(config(&[], &two).unwrap_err().contains("SLURM_NNODES=4 and PMI_SIZE=32 disagree"));
    assert!(config(&["-w", "4"], &two).is_ok(), "the schedulers are not asked for a given value");

    let leader = [("LWS_LEADER_ADDRESS", "a-0.a"), ("LWS_GROUP_SIZE", "2"), ("LWS_WORKER_INDEX", "1")];
    let group = config(&["-j", "foo"], &leader).unwrap();
    assert_eq!(group.rendezvous.network.seeds.len(), 1);
    assert!(group.provenance.unwrap().contains("seed a-0.a from LWS_LEADER_ADDRESS"));
    assert_eq!(config(&["-j", "foo", "-s", "b,c"], &leader).unwrap().rendezvous.network.seeds.len(), 2);
}

#[test]
fn the_users_number_of_workers_counts_unless_mingle_has_set_it() {
    let slots = |line: &[&str], environment: &[(&str, &str)]| {
        let environment = [environment, &[("MINGLE_SYSFS_ROOT", "/nonexistent")]].concat();
        let config = config(&[&GOOD[..], line].concat(), &environment).unwrap();
        (config.rendezvous.attributes.slots, config.slots_given)
    };
    assert_eq!(slots(&[], &[]), (1, false));
    assert_eq!(slots(&[], &[("PET_NPROC_PER_NODE", "4")]), (4, false));
    assert_eq!(slots(&[], &[("PET_NPROC_PER_NODE", "gpu")]), (1, false));
    let printed = Variables::of_fabric(&[(PET_NPROC_PER_NODE, "4".to_owned())], |_| None);
    let (_, list) = printed.set().iter().find(|(name, _)| *name == MINGLE_SET).unwrap();
    assert_eq!(slots(&[], &[(PET_NPROC_PER_NODE, "4"), (MINGLE_SET, list)]), (1, false));
    assert_eq!(slots(&[], &[(PET_NPROC_PER_NODE, "2"), (MINGLE_SET, list)]), (2, false), "exported since");
    assert_eq!(slots(&["--slots", "2"], &[("PET_NPROC_PER_NODE", "4")]), (2, true));
}

#[test]
fn the_rank_of_a_pod_is_its_ordinal_below_the_size_of_the_world() {
    let world = mingle_core::World::new(4).unwrap();
    assert_eq!(rank_of_host("trainer-3", world).map(Rank::get), Ok(3));
    let error = rank_of_host("trainer-4", world).unwrap_err();
    assert!(error.contains("0 to 3") && error.contains("\"trainer-4\""), "{error}");
    assert!(rank_of_host("trainer", world).unwrap_err().contains("\"trainer\""));
}

#[test]
fn one_file_takes_one_format() {
    let line = [&GOOD[..], &["-o", "hosts=/tmp/x", "-o", "hostfile=/tmp/x"]].concat();
    let error = config(&line, &[]).unwrap_err();
    assert!(error.starts_with("--output hostfile=/tmp/x: /tmp/x is written twice"), "{error}");
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let names = ["RANK", "INTERFACE", "MASTER_PORT", "RANK_KEY", "MULTICAST", "TIMEOUT", "FORMAT", "QUIET"];
    let names: Vec<String> = names.iter().map(|name| format!("MINGLE_{name}")).collect();
    let environment: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    assert!(config(&GOOD, &environment).is_ok());
}

#[test]
fn a_printed_job_id_means_the_same_job() {
    let job: JobId = "50% of it's $HOME".parse().unwrap();
    let printed = env::job_to_env(&job);
    assert_eq!(config(&["-w", "4"], &[("MINGLE_JOB_ID", &printed)]).unwrap().rendezvous.job, job);
}

#[test]
fn a_wrong_argument_is_an_error_with_a_cure() {
    let year = "8761h";
    for (wrong, named, cure) in [
        (["--job-id", ""], "--job-id ''", "such as --job-id foo"),
        (["--job-id", "a\nb"], "--job-id", "printable"),
        (["--world", "0"], "--world 0", "1 to 1000000"),
        (["--world", "-1"], "--world -1", "such as --world 4"),
        (["--world", "four"], "--world four", "such as --world 4"),
        (["--world", "4:2"], "--world 4:2", "4 is above 2"),
        (["--world", "0:2"], "--world 0:2", "1 to 1000000"),
        (["--world", "2:"], "--world 2:", "such as --world 3:4"),
        (["--last-call", "soon"], "--last-call soon", "10m"),
        (["--rank", "4"], "--rank 4", "0 to 3"),
        (["--rank", "-1"], "--rank -1", "leave --rank away"),
        (["--master-port", "0"], "--master-port 0", "1 to 65535"),
        (["--master-port", "65536"], "--master-port 65536", "1 to 65535"),
        (["--master-port", "29499"], "--master-port", "change one"),
        (["--multicast", "on"], "--multicast on", "GROUP:PORT/TTL"),
        (["--rank-key", ""], "--rank-key ''", "1 to 128 printable"),
        (["--rank-key", "é"], "--rank-key é", "1 to 128 printable"),
        (["--paths", "mesh"], "--paths mesh", "'auto', 'all', 'ring' or 'master'"),
        (["--timeout", "soon"], "--timeout soon", "10m"),
        (["--timeout", "-5"], "--timeout -5", "10m"),
        (["--timeout", "5d"], "--timeout 5d", "1h"),
        (["--timeout", ""], "--timeout", "10m"),
        (["--timeout", year], "--timeout", "0 for none"),
        (["--timeout", "99999999999999999999s"], "--timeout", "0 for none"),
        (["--format", "yaml"], "--format yaml", "sh, fish, json"),
        (["--output", "hosts"], "--output hosts", "FORMAT=FILE"),
        (["--output", "yaml=/tmp/x"], "--output yaml=/tmp/x", "sh, fish, json"),
        (["--slots", "0"], "--slots 0", "such as 8"),
        (["--slots", "65536"], "--slots 65536", "1 to 65535"),
        (["--ports", "65"], "--ports 65", "up to 64 ports"),
        (["--interface", "10.0.0.0/33"], "--interface 10.0.0.0/33", "10.1.0.0/16"),
        (["--interface", "eth0,"], "--interface eth0,", "1 to 15 characters"),
        (["--interface", "eth[01]"], "--interface eth[01]", "write eth*"),
        (["--interface", "!docker0"], "--interface !docker0", "write ^docker0"),
        (["--interface", "fe80::1"], "--interface fe80::1", "the interface's name"),
    ] {
        let message = config(&[&GOOD[..], &wrong].concat(), &[]).expect_err(wrong[1]);
        assert!(message.contains(named) && message.contains(cure), "{wrong:?}: {message}");
    }
}

#[test]
fn a_wrong_variable_is_an_error_with_a_cure() {
    for (name, value, cure) in [
        ("MINGLE_JOB_ID", "50%", "%25"),
        ("MINGLE_JOB_ID", "%0a", "printable"),
        ("MINGLE_WORLD", "0", "1 to 1000000"),
        ("MINGLE_RANK", "9", "0 to 3"),
        ("MINGLE_MULTICAST", "/x", "255"),
        ("MINGLE_QUIET", "maybe", "1 for yes"),
        ("MINGLE_VERBOSE", "true", "1 for debug"),
        ("MINGLE_INTERFACE", "1.2.3.4/x", "10.1.0.0/16"),
        ("MINGLE_FORMAT", "xml", "sh, fish, json"),
        ("MINGLE_OUTPUT", "xml=/tmp/x", "sh, fish, json"),
        ("MINGLE_SLOTS", "0", "such as 8"),
    ] {
        let mut environment = vec![(name, value)];
        environment.extend([("MINGLE_JOB_ID", "foo"), ("MINGLE_WORLD", "4")]);
        let message = config(&[], &environment).expect_err(value);
        assert!(message.starts_with(&format!("{name}={value}: ")), "{message}");
        assert!(message.contains(cure), "{message}");
    }
}

#[test]
fn a_missing_job_or_world_is_an_error_with_examples() {
    let both = config(&[], &[]).unwrap_err();
    for wanted in ["--job-id foo", "--world 4", "MINGLE_JOB_ID", "MINGLE_WORLD", "mingle --help"] {
        assert!(both.contains(wanted), "{both}");
    }
    let world = config(&["-j", "foo"], &[]).unwrap_err();
    assert!(world.contains("--world is missing") && !world.contains("job-id"), "{world}");
    let job = config(&["-w", "4"], &[("MINGLE_JOB_ID", "")]).unwrap_err();
    assert!(job.contains("--job-id is missing") && !job.contains("--world"), "{job}");
}

#[test]
fn a_variable_for_an_option_without_a_value_takes_four_words_for_yes_and_four_for_no() {
    for (words, is_quiet) in [(["1", "true", "yes", "on"], true), (["0", "false", "no", "off"], false)] {
        for word in words {
            assert_eq!(config(&GOOD, &[("MINGLE_QUIET", word)]).unwrap().quiet, is_quiet, "{word}");
        }
    }
}

#[test]
fn a_time_is_a_number_with_a_unit() {
    for (text, seconds) in [
        ("90", 90.0),
        ("500ms", 0.5),
        ("0.5s", 0.5),
        ("1.25m", 75.0),
        ("0.001", 0.001),
        ("2s", 2.0),
        ("10m", 600.0),
        ("8760h", 31_536_000.0),
    ] {
        let limit = timeout(text).unwrap().unwrap();
        assert!((limit.as_secs_f64() - seconds).abs() < f64::EPSILON, "{text}");
    }
    for text in ["0", "0ms", "00h"] {
        assert_eq!(timeout(text), Ok(None), "{text}");
    }
    for text in [
        "",
        "s",
        ".",
        "1.5.1s",
        "0.0001s",
        "0.0000000001",
        "1.123456789.5.s",
        "1.0000000000.",
        "1 h",
        "+1s",
        "1H",
        "1h30m",
        "١s",
    ] {
        assert!(timeout(text).is_err(), "{text}");
    }
}

#[test]
fn what_a_range_of_sizes_excludes_is_an_error_with_a_cure() {
    let error = config(&["-j", "foo", "--world", "3:4", "--rank", "1"], &[]).unwrap_err();
    assert!(error.contains("leave --rank away"), "{error}");
    let slurm = [("SLURM_NODEID", "3"), ("SLURM_NNODES", "4"), ("SLURM_JOB_ID", "1")];
    let assigned = config(&["-j", "foo", "-w", "3:4"], &slurm).unwrap().rendezvous;
    assert_eq!((assigned.rank, assigned.world.to_string()), (None, "3:4".to_owned()));
}

#[test]
fn a_range_that_may_split_needs_nodes_that_stay_and_the_users_consent() {
    let check = |most: u32, allows_split: bool, world: &str| {
        let mut args = RunArgs::default();
        (args.max_restarts, args.allow_split) = (Some(most.to_string()), allows_split);
        let mut config = config(&["-j", "foo", "-w", world], &[]).unwrap();
        config.set_restarts(&args, false).map_err(|stop| stop.to_string())
    };
    for (most, allows_split) in [(0, false), (0, true), (3, false), (3, true)] {
        assert_eq!(check(most, allows_split, "3:4"), Ok(()));
        assert_eq!(check(most, allows_split, "4"), Ok(()));
    }
    assert_eq!(check(3, true, "2:4"), Ok(()));
    let unattended = check(0, true, "2:4").unwrap_err();
    assert_eq!(check(0, false, "2:4"), Err(unattended.clone()));
    assert!(unattended.contains("latecomers") && unattended.ends_with("--world 3:4"), "{unattended}");
    let attended = check(3, false, "2:4").unwrap_err();
    assert!(attended.ends_with("--world 3:4, or --allow-split"), "{attended}");
}

#[test]
fn each_word_for_paths_means_those_paths() {
    for (word, paths) in
        [("auto", Paths::Auto), ("all", Paths::All), ("ring", Paths::Ring), ("master", Paths::Master)]
    {
        let config = config(&[&GOOD[..], &["--paths", word]].concat(), &[]).unwrap();
        assert_eq!(config.rendezvous.attributes.paths, paths, "{word}");
    }
}

#[test]
fn workers_take_each_format_that_is_for_no_launcher() {
    for format in ["sh", "fish", "json", "dotenv", "jax"] {
        let mut config = config(&[&GOOD[..], &["--format", format]].concat(), &[]).unwrap();
        assert!(config.set_workers(Some("2".to_owned())).unwrap(), "{format}");
    }
}

#[test]
fn paths_to_the_ports_of_the_kernel_are_proved_if_one_format_of_several_needs_them() {
    let own_ports = |more: &[&str]| config(&[&GOOD, more].concat(), &[]).unwrap().with_formats().own_ports;
    assert!(own_ports(&["--format", "tf-config"]));
    assert!(!own_ports(&["--format", "tf-config", "-o", "hostfile=/tmp/hosts"]));
    assert!(!own_ports(&["-o", "tf-config=/tmp/config"]));
}
