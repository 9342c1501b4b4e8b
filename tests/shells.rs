//! `eval $(mingle ...)` in every shell: the job starts if mingle succeeds, and only then.

use std::fs;
use std::path::PathBuf;

use crate::lab::proc::{GUARD, Outcome, Proc, send_signal};
use crate::lab::{self, Lab, Options, plain, skip};
use mingle_core::env::Format;

const SHELLS: [&[&str]; 6] = [&["bash"], &["dash"], &["busybox", "sh"], &["zsh"], &["ksh"], &["fish"]];

/// File names that change the result if a shell reads a word of the output as a pattern, an option, a command
/// or an expansion.
const HOSTILE: [&str; 17] = [
    "export",
    "exportx",
    "=eth0",
    "RANK='0';",
    "!",
    "true;",
    "(exit",
    "3);",
    "1",
    "-e",
    "~",
    "*",
    "?",
    "[a-z]*",
    "PET_RDZV_ENDPOINT='f:29503';",
    "RAY_ADDRESS=\"$(printf",
    "'133fd00::1]:29503')\";",
];

/// A directory with files of the hostile names only. It is removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        for file in HOSTILE {
            fs::write(path.join(file), "").unwrap();
        }
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The shells that are installed on this machine.
fn shells() -> Vec<&'static [&'static str]> {
    let there = |shell: &&&[&str]| {
        let there = plain(shell[0]).args(&shell[1..]).args(["-c", "exit 0"]).status().is_ok();
        if !there {
            skip(&format!("no {}", shell[0]));
        }
        there
    };
    SHELLS.iter().filter(there).copied().collect()
}

fn start(shell: &[&str], directory: &Directory, script: &str) -> Proc {
    let mut command = plain(shell[0]);
    command.args(&shell[1..]).args(["-c", script]).current_dir(&directory.0);
    command.env("MINGLE_FORMAT", format_of(shell));
    Proc::start(command, format!("{}: {script}", shell.join(" ")))
}

fn run(shell: &[&str], directory: &Directory, script: &str) -> Outcome {
    start(shell, directory, script).finish()
}

fn is_fish(shell: &[&str]) -> bool {
    shell[0] == "fish"
}

fn format_of(shell: &[&str]) -> &'static str {
    if is_fish(shell) { "fish" } else { "sh" }
}

/// The guard for this shell, and a statement with the end of a result.
fn guard_and_statement(shell: &[&str]) -> (&'static str, &'static str) {
    if is_fish(shell) { ("false;\n", "set -gx A \"b\";\ntrue;\n") } else { (GUARD, "export A=\"b\";\n") }
}

/// The forms in which users write the line, some with settings that make the shell stricter about words. In
/// each form `MINGLE` stands for the command.
fn forms(shell: &[&str]) -> Vec<String> {
    if is_fish(shell) {
        let forms = ["eval (MINGLE); and ", "MINGLE | source; and ", "eval (MINGLE); or exit; "];
        return forms.map(str::to_owned).to_vec();
    }
    let mut forms = vec![
        r#"eval "$(MINGLE)" && "#.to_owned(),
        "eval $(MINGLE) && ".to_owned(),
        r#"set -e; eval "$(MINGLE)"; "#.to_owned(),
        "set -e; eval $(MINGLE); ".to_owned(),
        r#"set -eu; eval "$(MINGLE)" && "#.to_owned(),
    ];
    match shell[0] {
        "bash" => forms.push("shopt -s extglob nullglob; set -e; eval $(MINGLE); ".to_owned()),
        "zsh" => forms.extend(
            ["emulate sh; eval $(MINGLE) && ", "setopt sh_word_split extended_glob; eval $(MINGLE) && "]
                .map(str::to_owned),
        ),
        _ => {}
    }
    forms
}

/// The forms that stop at a guard without statements after it. zsh's `set -e` does not stop: it ignores the
/// status of `!`, and so the status of the `eval`. In zsh use `&&`, as all examples do.
fn forms_that_stop(shell: &[&str]) -> Vec<String> {
    let lets_pass = |form: &String| shell[0] == "zsh" && form.starts_with("set -e; ");
    forms(shell).into_iter().filter(|form| !lets_pass(form)).collect()
}

#[test]
fn a_world_that_formed_starts_the_job_in_every_shell() {
    let directory = Directory::new("formed");
    let names = directory.names();
    for (i, shell) in shells().into_iter().enumerate() {
        for (j, form) in forms(shell).iter().enumerate() {
            let job = format!("shells-{}-{i}-{j}", std::process::id());
            let mingle = |rank: u32| {
                format!("$mingle --job-id {job} --world 2 --rank {rank} --interface lo --timeout 20s -q")
            };
            let mut other = plain("sh");
            other.args(["-c", &format!("exec {}", mingle(0))]);
            let other = Proc::start(other, "the other".to_owned());
            let print = r#"echo "started $RANK/$WORLD_SIZE $MASTER_ADDR $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME
$(env | grep -c '^PET_') $PET_NODE_RANK $PET_NNODES $MINGLE_JOB_ID""#;
            let outcome = run(shell, &directory, &(form.replace("MINGLE", &mingle(1)) + print));
            assert_eq!(
                outcome.stdout,
                format!("started 1/2 127.0.0.1 =lo lo\n5 1 2 {job}\n"),
                "{}\n{}",
                outcome.render(),
                other.transcript.render()
            );
            assert!(outcome.status.success(), "{}", outcome.render());
            other.finish().formed();
        }
    }
    assert_eq!(directory.names(), names);
}

#[test]
fn the_job_does_not_start_in_any_shell_after_a_failure() {
    let directory = Directory::new("failed");
    let names = directory.names();
    // Other tests may run on this loopback interface.
    let alone = format!("--job-id x-{} --world 2 --interface lo --timeout 50ms -q", std::process::id());
    for shell in shells() {
        for (args, code) in [
            ("--job-id x --world 0", 2),
            (&alone, 3),
            ("--job-id x --world 2 --interface none7 --timeout 50ms", 5),
        ] {
            for form in forms(shell) {
                let script = form.replace("MINGLE", &format!("$mingle {args}")) + "echo started";
                let outcome = run(shell, &directory, &script);
                assert_eq!(outcome.stdout, "", "{}", outcome.render());
                assert_eq!(outcome.status.code(), Some(code), "{}", outcome.render());
            }
        }
    }
    assert_eq!(directory.names(), names);
}

#[test]
fn the_job_does_not_start_in_any_shell_if_mingle_is_killed() {
    let directory = Directory::new("killed");
    for shell in shells() {
        for form in forms_that_stop(shell) {
            // The inner shell prints its process ID to stderr. `exec` gives the same ID to mingle.
            let line =
                format!("--job-id killed-{} --world 2 --interface lo --timeout 20s", std::process::id());
            let inner = format!("sh -c 'echo \"pid $$\" >&2; exec \"$mingle\" {line}'");
            let proc = start(shell, &directory, &(form.replace("MINGLE", &inner) + "echo started"));
            proc.expect_stderr("looking for");
            let stderr = proc.transcript.stderr.text();
            let pid = stderr.lines().find_map(|line| line.strip_prefix("pid ")).unwrap().parse().unwrap();
            send_signal("KILL", pid);
            let outcome = proc.finish();
            assert_eq!(outcome.stdout, "", "{}", outcome.render());
            assert!(!outcome.status.success(), "{}", outcome.render());
        }
    }
}

#[test]
fn the_guard_fails_alone_and_changes_nothing_before_a_statement() {
    let directory = Directory::new("guard");
    for shell in shells() {
        let (guard, statement) = guard_and_statement(shell);
        for form in forms(shell) {
            if forms_that_stop(shell).contains(&form) {
                let alone = form.replace("MINGLE", &format!("printf '{}'", guard.escape_default()));
                let outcome = run(shell, &directory, &(alone + "echo started"));
                assert_eq!(outcome.stdout, "", "{}", outcome.render());
                assert_eq!(outcome.status.code(), Some(1), "{}", outcome.render());
            }
            let text = format!("{guard}{statement}").escape_default().to_string().replace("\\\"", "\"");
            let followed = form.replace("MINGLE", &format!("printf '{text}'"));
            let outcome = run(shell, &directory, &(followed + "echo started $A"));
            assert_eq!(outcome.stdout, "started b\n", "{}", outcome.render());
        }
    }
}

#[test]
fn a_hostile_job_id_executes_nothing_in_any_shell() {
    let directory = Directory::new("job");
    let names = directory.names();
    let job = r#"it's; touch pwned $(touch pwned) `touch pwned` * ~ & "x" > pwned \"#;
    for shell in shells() {
        for form in forms(shell) {
            let script = form.replace("MINGLE", r#"$mingle --job-id "$job" --world 1 -q"#);
            // The next mingle reads the job ID from the variable, and must decode the same one.
            let script = script + r#"env -u job "$mingle" --world 1 -q --format json"#;
            let mut command = plain(shell[0]);
            command.args(&shell[1..]).args(["-c", &script]).current_dir(&directory.0);
            command.env("job", job).env("MINGLE_FORMAT", format_of(shell));
            let outcome = Proc::start(command, script).finish();
            assert!(outcome.status.success(), "{}", outcome.render());
            let document: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
            assert_eq!(document["job"], job, "{}", outcome.render());
        }
    }
    assert_eq!(directory.names(), names);
}

/// The golden file of the library's tests for an IPv6 world in this format.
fn golden(format: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../mingle-core/src/env/launcher/golden");
    PathBuf::from(folder).join(format!("{format}.ipv6"))
}

#[test]
fn brackets_and_lines_reach_every_shell_despite_hostile_file_names() {
    let directory = Directory::new("brackets");
    let names = directory.names();
    for shell in shells() {
        let formats: &[&str] = if is_fish(shell) { &["fish"] } else { &["c10d", "ray", "jax", "skypilot"] };
        for form in forms(shell) {
            let files: Vec<_> = formats.iter().map(|format| golden(format).display().to_string()).collect();
            let print = "env | grep -c 29503; printf '%s\\n' \"$RAY_ADDRESS\" \"$JAX_COORDINATOR_ADDRESS\" \
                         \"$PET_RDZV_ENDPOINT\" \"$SKYPILOT_NODE_IPS\" \"$MASTER_ADDR\"";
            // All formats in one script, since `set -u` fails for variables that are not set.
            let script = form.replace("MINGLE", &format!("cat {}", files.join(" ")));
            let print = if is_fish(shell) { "echo \"$MASTER_ADDR\"" } else { print };
            let outcome = run(shell, &directory, &(script + print));
            let expected = if is_fish(shell) {
                "fd00::1\n".to_owned()
            } else {
                let endpoint = "[fd00::1]:29503\n".repeat(3);
                format!("5\n{endpoint}fd00::1\nfd00::2\nfd00::3\nfd00::3\nfd00::1\n")
            };
            assert_eq!(outcome.stdout, expected, "{}", outcome.render());
        }
    }
    assert_eq!(directory.names(), names);
}

#[test]
fn a_format_that_is_not_for_eval_prints_nothing_if_no_world_forms() {
    let directory = Directory::new("quiet");
    let is_text = |format: &Format| format.shell().is_none() && *format != Format::JSON;
    for format in Format::all().filter(is_text) {
        let file = directory.0.join("output");
        let format = if format == Format::TEMPLATE { "template=/dev/null" } else { format.name() };
        let line =
            format!("$mingle -j quiet -w 2 -i lo --timeout 50ms -q --format {format} -o hostfile=output");
        let outcome = run(&["bash"], &directory, &format!("{line} -o json={}.json", file.display()));
        assert_eq!((outcome.stdout.as_str(), outcome.status.code()), ("", Some(3)), "{}", outcome.render());
        assert!(!file.exists(), "{format}");
    }
}

#[test]
fn in_slurm_mingle_needs_no_options_and_writes_its_outputs() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let directory = Directory::new("slurm");
    let procs: Vec<Proc> = (0..2)
        .map(|node| {
            // The node with the lab's second address gets rank 0.
            let variables = [
                ("SLURM_NODEID", (1 - node).to_string()),
                ("SLURM_NNODES", "2".to_owned()),
                ("SLURM_JOB_ID", "12".to_owned()),
                ("SLURM_STEP_ID", "0".to_owned()),
                ("MINGLE_SLOTS", (node + 1).to_string()),
                ("MINGLE_OUTPUT", format!("hostfile={}/file{node}", directory.0.display())),
            ];
            let mut command = lab.command(node, "sh");
            command.args(["-c", r#"eval "$("$mingle")" && echo "$RANK $MINGLE_JOB_ID $PET_NPROC_PER_NODE""#]);
            command.envs(variables).env("mingle", lab::MINGLE);
            lab.start(node, command)
        })
        .collect();
    for (node, proc) in procs.into_iter().enumerate() {
        let outcome = proc.finish();
        let (rank, slots) = (1 - node, node + 1);
        assert_eq!(outcome.stdout, format!("{rank} slurm-12.0 {slots}\n"), "{}", outcome.render());
        let said = format!(
            "mingle: rank {rank} from SLURM_NODEID, world 2 from SLURM_NNODES, job slurm-12.0 from SLURM_JOB_ID\n"
        );
        assert!(outcome.stderr.contains(&said), "{}", outcome.render());
        let file = fs::read_to_string(directory.0.join(format!("file{node}"))).unwrap();
        assert_eq!(file, "10.77.0.11 slots=2\n10.77.0.10 slots=1\n");
    }
}

#[test]
fn a_hosts_file_that_is_a_mount_point_is_written_in_place() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let directory = Directory::new("mount");
    let script = format!(
        "cd {} && printf '127.0.0.1 localhost' > inner && : > hosts && mount --bind inner hosts && \
         $mingle -j x -w 1 -i eth0 -q -o hosts=hosts --format horovod && cat inner; umount hosts",
        directory.0.display()
    );
    let mut command = lab.command(0, "unshare");
    command.args(["-m", "sh", "-c", &script]).env("mingle", lab::MINGLE);
    let outcome = lab.start(0, command).finish();
    let stdout = outcome.stdout.as_str();
    assert!(
        stdout.starts_with("10.77.0.10:1\n127.0.0.1 localhost\n# mingle x begin\n10.77.0.10 node0\n"),
        "{}",
        outcome.render()
    );
    assert!(stdout.ends_with("\n10.77.0.10 node0\n# mingle x end\n"), "{}", outcome.render());
}

/// Forms two worlds of two nodes in one shell, first over eth0 and then over loopback.
fn two_evals(lab: &Lab, shell: &[&str], before: &str) -> String {
    let script = r#"
        m() {
            "$mingle" -j "$1" -w 2 -i "$2" --timeout 20s -q >/dev/null &
            eval "$("$mingle" -j "$1" -w 2 -i "$2" --timeout 20s -q)" || echo failed
            wait
            echo "$MINGLE_JOB_ID $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $MASTER_ADDR"
        }
        m one eth0; m two lo"#;
    let fish = r#"
        function m
            $mingle -j $argv[1] -w 2 -i $argv[2] --timeout 20s -q >/dev/null &
            eval ($mingle -j $argv[1] -w 2 -i $argv[2] --timeout 20s -q --format fish); or echo failed
            wait
            echo "$MINGLE_JOB_ID $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $MASTER_ADDR"
        end
        m one eth0; m two lo"#;
    let script = if is_fish(shell) { fish } else { script };
    let mut command = lab.command(0, shell[0]);
    command.args(&shell[1..]).args(["-c", &format!("{before}{script}")]).env("mingle", lab::MINGLE);
    lab.start(0, command).finish().stdout
}

#[test]
fn a_second_eval_replaces_variables_of_mingle_and_keeps_those_of_the_user() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for shell in shells() {
        let own = two_evals(&lab, shell, "");
        assert_eq!(own, "one =eth0 eth0 10.77.0.10\ntwo =lo lo 127.0.0.1\n", "{shell:?}");
        let users = two_evals(&lab, shell, "export NCCL_SOCKET_IFNAME=mine RANK=7");
        assert_eq!(users, "one mine eth0 10.77.0.10\ntwo mine lo 127.0.0.1\n", "{shell:?}");
    }
}
