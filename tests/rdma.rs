//! `mingle rdma`: saved machines, this machine, logs, and errors.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;

use crate::lab::machine::{Machine, expected, fixture, fixtures, scratch};
use crate::lab::proc::{Outcome, Proc};
use crate::lab::{MINGLE, plain};
use serde_json::Value;

/// Runs `mingle rdma` to its end.
fn rdma<S: AsRef<OsStr>>(args: &[S]) -> Outcome {
    let mut command = plain(MINGLE);
    command.arg("rdma").args(args);
    let label = format!("{:?}", args.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    Proc::start(command, label).finish()
}

/// The output for a saved machine in one of the formats.
fn shown(machine: &Path, format: &str) -> String {
    let outcome = rdma(&[OsStr::new("--from"), machine.as_os_str(), "--format".as_ref(), format.as_ref()]);
    assert!(outcome.status.success(), "{}", outcome.render());
    outcome.stdout
}

fn document(machine: &Path) -> Value {
    serde_json::from_str(&shown(machine, "json")).unwrap()
}

#[test]
fn every_saved_machine_gets_its_expected_variables() {
    for name in fixtures() {
        let machine = fixture(&name);
        let lines = expected(&name);
        let env = shown(&machine, "env");
        assert_eq!(env.lines().collect::<Vec<_>>(), lines, "{name}");
        let json = document(&machine);
        let mut pairs: Vec<String> = json["env"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap()))
            .collect();
        pairs.sort();
        assert_eq!(pairs, lines, "{name}");
        // The table ends with the variables, in another order.
        let table = shown(&machine, "table");
        let mut last: Vec<_> = table.lines().rev().take(lines.len()).collect();
        last.sort_unstable();
        assert_eq!(last, lines, "{name}:\n{table}");
    }
}

#[test]
fn this_machine_and_its_snapshot_give_the_same_output() {
    let folder = scratch("this machine");
    let saved = rdma(&["--save".as_ref(), folder.as_os_str()]);
    assert!(saved.status.success(), "{}", saved.render());
    assert_eq!(saved.stdout, "", "{}", saved.render());
    assert!(saved.stderr.contains("--from"), "{}", saved.render());
    let live: Value = serde_json::from_str(&rdma(&["--format", "json"]).stdout).unwrap();
    let from = document(&folder);
    // Not the addresses: they change on a machine that does other things too.
    for part in ["env", "kind", "transport", "warnings", "ports", "gpus", "peer_memory"] {
        assert_eq!(live[part], from[part], "{part}");
    }
}

#[test]
fn a_variable_that_the_user_has_set_is_not_printed() {
    let mut command = plain(MINGLE);
    command.args(["rdma", "--format", "env", "--from"]).arg(fixture("one-roce")).env("NCCL_IB_HCA", "mine");
    let outcome = Proc::start(command, "NCCL_IB_HCA".to_owned()).finish();
    // Nor is what its GIDs are, since the user has chosen the devices.
    let left: Vec<_> = expected("one-roce").into_iter().filter(|line| !line.starts_with("NCCL_")).collect();
    assert_eq!(outcome.stdout.lines().collect::<Vec<_>>(), left, "{}", outcome.render());
    assert!(outcome.stderr.contains("NCCL_IB_HCA is already set"), "{}", outcome.render());
}

#[test]
fn the_groups_are_shown_with_their_bandwidth_and_why_each_lost() {
    let machine = fixture("roce8-ib-storage");
    let groups = &document(&machine)["groups"];
    assert_eq!((&groups[0]["bandwidth"], &groups[0]["used"]), (&3200.0.into(), &true.into()), "{groups}");
    assert_eq!((&groups[0]["card"], &groups[0]["gpus"]), (&"15b3:1021".into(), &8.into()), "{groups}");
    let lost = "its group carries 100 Gb/s, the one that is used 3200 Gb/s";
    assert_eq!((&groups[1]["kind"], &groups[1]["reason"]), (&"InfiniBand".into(), &lost.into()), "{groups}");
    assert_eq!(groups[1]["ports"], serde_json::json!(["mlx5_8:1"]));
    let table = shown(&machine, "table");
    let row = table.lines().find(|line| line.starts_with("InfiniBand  15b3:1017")).unwrap();
    assert!(row.ends_with(&format!("no: {lost}")), "{table}");
}

#[test]
fn what_nccls_configuration_files_set_counts_as_set_by_the_user() {
    let conf = scratch("nccl.conf");
    fs::write(&conf, "# of the site\nNCCL_IB_HCA==mlx5_3\nUCX_NET_DEVICES=none:1\nNCCL_IB_TC=7\n").unwrap();
    let mut command = plain(MINGLE);
    command.args(["rdma", "--format", "env", "--from"]).arg(fixture("rail8-diff"));
    command.env("NCCL_CONF_FILE", &conf);
    let outcome = Proc::start(command, "NCCL_CONF_FILE".to_owned()).finish();
    assert!(outcome.stderr.contains("NCCL_IB_HCA is already set"), "{}", outcome.render());
    assert!(!outcome.stdout.contains("NCCL_IB_"), "{}", outcome.render());
    assert!(outcome.stdout.contains("UCX_NET_DEVICES=mlx5_0:1,"), "{}", outcome.render());
}

#[test]
fn a_wrong_argument_prints_only_an_error_that_says_what_to_do() {
    let full = scratch("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("something"), "of the user's").unwrap();
    let no_snapshot = scratch("no snapshot");
    fs::create_dir(&no_snapshot).unwrap();
    let wrong_addresses = Machine::like("one-roce", "wrong addresses");
    wrong_addresses.add_address("ens1np0 10.0.0.1");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (full_text, empty, wrong) = (text(&full), text(&no_snapshot), text(&wrong_addresses.0));
    for (args, message) in [
        (vec!["--from", "/nonexistent"], "--from /nonexistent: not a snapshot: it has neither addrs.txt nor"),
        (vec!["--from", &empty], "not a snapshot: it has neither addrs.txt nor class/infiniband"),
        (vec!["--from", &wrong], "is not a line such as \"eth0 inet 10.1.2.3/24\""),
        (vec!["--save", &full_text], "the folder is not empty; give a new folder"),
        (vec!["--save", "/proc/nothing"], "give a new folder"),
        (vec!["--format", "xml"], "possible values: table, env, json"),
        (vec!["--watch", "0"], "--watch 0: give seconds, 0.1 to 3600"),
        (vec!["--watch", "soon"], "--watch soon: give seconds"),
        (vec!["--watch", "NaN"], "give seconds"),
        (vec!["--watch=-1"], "give seconds"),
        (vec!["--watch", "1", "--from", &empty], "cannot be used with"),
        (vec!["--save", &empty, "--from", &empty], "cannot be used with"),
        (vec!["--check-log", "/nonexistent"], "--check-log /nonexistent: "),
        (vec!["--check-log", "/dev/null"], "NCCL_DEBUG=INFO"),
        (vec!["--check-log", "/dev/null", "--format", "xml"], "possible values: table, env, json"),
        (vec!["--frmo", "x"], "--from"),
        (vec!["extra"], "extra"),
    ] {
        let outcome = rdma(&args);
        assert_eq!(outcome.status.code(), Some(2), "{}", outcome.render());
        assert_eq!(outcome.stdout, "", "{}", outcome.render());
        assert!(outcome.stderr.contains(message), "no {message:?} on stderr of {}", outcome.render());
    }
    assert_eq!(fs::read_dir(&full).unwrap().count(), 1, "nothing was written there");
}

#[test]
fn an_error_is_json_if_the_user_asked_for_json() {
    let outcome = rdma(&["--format", "json", "--from", "/nonexistent"]);
    assert_eq!(outcome.status.code(), Some(2), "{}", outcome.render());
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(json["error"]["kind"], "usage", "{}", outcome.render());
    // MINGLE_FORMAT is for the rendezvous only: without --format the output is a table, so the error is not
    // JSON.
    for (machine, beginning) in [(fixture("none"), "This host"), ("/nonexistent".into(), "")] {
        let mut command = plain(MINGLE);
        command.args(["rdma", "--from"]).arg(&machine).env("MINGLE_FORMAT", "json");
        let outcome = Proc::start(command, "MINGLE_FORMAT=json".to_owned()).finish();
        assert!(outcome.stdout.starts_with(beginning), "{}", outcome.render());
        assert_eq!(outcome.stdout.is_empty(), beginning.is_empty(), "{}", outcome.render());
    }
}

/// NVIDIA/nccl#1189, shortened.
const LOG: &str = "\
gpu05:1789225:1789736 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB bond0:10.10.10.5<0>
gpu05:1789225:1789736 [1] NCCL INFO Using network IB
gpu05:1789225:1789736 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [send] via NET/IB/0/GDRDMA
gpu05:1789225:1789736 [1] NCCL INFO Channel 02/0 : 1[1] -> 3[1] [send] via NET/IB/0/GDRDMA
";

#[test]
fn the_first_line_about_a_log_is_the_verdict() {
    let (direct, sockets) = (scratch("direct.log"), scratch("sockets.log"));
    fs::write(&direct, LOG).unwrap();
    fs::write(&sockets, LOG.replace("NET/IB/0/GDRDMA", "NET/Socket/0")).unwrap();
    for (file, line, verdict) in [
        (&direct, "RDMA with GPUDirect: all 2 ", "rdma_with_gpudirect"),
        (&sockets, "sockets: all 2 ", "sockets"),
    ] {
        let outcome = rdma(&["--check-log".as_ref(), file.as_os_str()]);
        assert!(outcome.status.success() && outcome.stdout.starts_with(line), "{}", outcome.render());
        let outcome = rdma(&["--check-log".as_ref(), file.as_os_str(), "--format=json".as_ref()]);
        let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(json["verdict"], verdict, "{}", outcome.render());
        // A log from a pipe gets the same verdict.
        let mut command = plain("sh");
        command.args(["-c", r#""$mingle" rdma --check-log - <"$file""#]).env("file", file);
        let piped = Proc::start(command, "a pipe".to_owned()).finish();
        assert!(piped.status.success() && piped.stdout.starts_with(line), "{}", piped.render());
    }
}

#[test]
fn a_stdout_that_cannot_be_written_is_an_error_and_not_a_panic() {
    let log = scratch("unread.log");
    fs::write(&log, LOG).unwrap();
    let machine = fixture("rail8-same");
    let from = |format: &'static str| vec!["--from".as_ref(), machine.as_os_str(), format.as_ref()];
    for args in [
        from("--format=table"),
        from("--format=env"),
        from("--format=json"),
        vec!["--check-log".as_ref(), log.as_os_str()],
        vec!["--help".as_ref()],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        // A pipe without a reader.
        let (_, unread) = io::pipe().unwrap();
        for stdout in [Stdio::from(full), Stdio::from(unread)] {
            let output = plain(MINGLE).arg("rdma").args(&args).stdout(stdout).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
            assert!(stderr.contains("cannot write the result to stdout"), "{args:?}: {stderr}");
            assert!(!stderr.contains("panic"), "{args:?}: {stderr}");
        }
        // With a closed stdout the program must end without a panic.
        let script = r#"exec "$mingle" rdma "$@" >&-"#;
        let output = plain("sh").args(["-c", script, "sh"]).args(&args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panic") && output.status.code().is_some(), "{args:?}: {stderr}");
    }
}

#[test]
fn watch_ends_when_its_output_has_no_reader() {
    let (_, unread) = io::pipe().unwrap();
    let output = plain(MINGLE).args(["rdma", "--watch", "0.1"]).stdout(unread).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
}

#[test]
fn a_device_with_a_hostile_name_is_not_used_and_its_name_is_escaped() {
    let escape = "mlx\u{1b}]0;owned\u{7}5";
    let long = "m".repeat(64);
    let names = [
        "$(touch owned)",
        "`id`",
        "a;b",
        "a'b",
        "a,b",
        "=mlx5_0",
        "^mlx5_0",
        "a:1",
        escape,
        "\u{202e}5xlm",
        "é",
        &long,
    ];
    for (i, name) in names.into_iter().enumerate() {
        let machine = Machine::like("one-roce", &format!("hostile {i}"));
        machine.rename_device("mlx5_0", name);
        // NCCL must not find a device by itself if its variables cannot carry the name.
        assert_eq!(shown(&machine.0, "env"), "NCCL_NET=Socket\n", "{name:?}");
        let outcome = rdma(&["--from".as_ref(), machine.0.as_os_str()]);
        assert!(
            outcome.stderr.contains("NCCL's list of devices cannot carry its name"),
            "{}",
            outcome.render()
        );
        let json = shown(&machine.0, "json");
        for text in [&outcome.stdout, &outcome.stderr, &json] {
            let is_raw = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!text.contains(is_raw), "{name:?}: {text:?}");
        }
        assert!(json.is_ascii(), "{json}");
        // The JSON document has the name as it is.
        assert_eq!(document(&machine.0)["ports"][0]["device"], name);
    }
    // The longest name that the kernel allows, in plain characters, is used.
    let machine = Machine::like("one-roce", "long");
    let longest = "m".repeat(63);
    machine.rename_device("mlx5_0", &longest);
    assert!(shown(&machine.0, "env").contains(&format!("NCCL_IB_HCA=={longest}:1\n")));
}

#[test]
fn control_characters_in_a_snapshot_are_escaped() {
    let machine = Machine::like("one-roce", "hostile values");
    machine.set_gid("mlx5_0", 3, ["0000:0000:0000:0000:0000:ffff:0a0a:000b", "RoCE v2", "x\u{1b}[2J$(id)"]);
    machine.add_address("x\u{1b}[2J$(id) inet 10.10.0.11/24");
    for format in ["table", "json", "env"] {
        let text = shown(&machine.0, format);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{format}: {text:?}");
    }
    assert!(!shown(&machine.0, "env").contains("id"));
}
