//! What is checked before a node waits for others, and the files that it writes once the world has formed.

use std::time::{Duration, Instant};

use crate::lab::proc::{Outcome, Proc};
use crate::lab::world::finish_all;
use crate::lab::{self, Lab, MINGLE, Options};

/// Longer than anything here takes that waits for no other node.
const SOON: Duration = Duration::from_secs(20);

/// A world of two of which this node is the only one: it would wait for its timeout.
const ALONE: &str = "-j out -w 2 --timeout 60s";

/// Runs a script on node 0, in which `$mingle` is the program.
fn script(lab: &Lab, script: &str) -> Outcome {
    lab.shell(0, "sh", script)
}

fn start(lab: &Lab, node: usize, shell: &str) -> Proc {
    let mut command = lab.command(node, "sh");
    command.args(["-c", shell]).env("mingle", MINGLE);
    lab.start(node, command)
}

#[test]
fn a_node_that_is_ended_while_it_reads_its_secret_makes_eval_fail() {
    let Some(lab) = Options::nodes(1).start() else { return };
    // Nobody writes the secret.
    let line = "mkfifo /run/secret
        printed=$(timeout 1 \"$mingle\" -j foo -w 2 --secret-file /run/secret); echo \"code $?\"
        eval \"$printed\" && echo started";
    let outcome = script(&lab, line);
    assert_eq!(outcome.stdout, "code 124\n", "{}", outcome.render());
}

#[test]
fn a_command_that_this_user_cannot_execute_ends_the_node_before_it_waits() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for (make, command, code, told) in [
        ("true", "no-such-program", 127, "cannot start no-such-program: it is in no folder of PATH"),
        ("true", "/run/none", 127, "cannot start /run/none: there is no such file"),
        ("true", "/run", 126, "/run is no file that this user can execute"),
        (
            "echo >/run/plain",
            "/run/plain",
            126,
            "/run/plain is no file that this user can execute; see chmod +x",
        ),
        (
            "printf '#!/no/python\\n' >/run/script; chmod +x /run/script",
            "/run/script",
            127,
            "/run/script begins with #!/no/python, which is no program here",
        ),
        (
            "printf '#!/bin/sh\\r\\n' >/run/crlf; chmod +x /run/crlf",
            "/run/crlf",
            127,
            "/run/crlf begins with #!/bin/sh\\r, which is no program here",
        ),
        (
            "echo exit >/run/bare; chmod +x /run/bare",
            "/run/bare",
            126,
            "/run/bare is a script that names no interpreter; begin it with #!/bin/sh",
        ),
        (
            "mkdir /run/noexec; mount -t tmpfs -o noexec none /run/noexec; cp /bin/true /run/noexec/",
            "/run/noexec/true",
            126,
            "whether its file system is mounted noexec",
        ),
    ] {
        for more in ["", "--max-restarts 1"] {
            let started = Instant::now();
            let line = format!(
                "[ -e {command} ] || {{ {make}\n}}; exec \"$mingle\" run {ALONE} {more} -- {command}"
            );
            let outcome = script(&lab, &line);
            assert_eq!(outcome.status.code(), Some(code), "{command}: {}", outcome.render());
            assert!(outcome.stderr.contains(told), "{command}: {}", outcome.render());
            assert!(started.elapsed() < SOON, "{command}: waited for others");
        }
    }
}

#[test]
fn a_file_that_another_user_owns_is_no_command_of_this_one() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let line = format!(
        "cp /bin/true /run/mine && chmod 700 /run/mine && cp \"$mingle\" /run/mingle && chmod 755 /run/mingle
        exec setpriv --reuid 65534 --clear-groups /run/mingle run {ALONE} -- /run/mine"
    );
    let outcome = script(&lab, &line);
    if outcome.stderr.contains("setpriv") {
        return lab::skip(outcome.stderr.trim());
    }
    assert_eq!(outcome.status.code(), Some(126), "{}", outcome.render());
    assert!(
        outcome.stderr.contains("/run/mine is no file that this user can execute"),
        "{}",
        outcome.render()
    );
}

#[test]
fn a_file_that_cannot_be_written_ends_the_node_before_it_waits() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for (make, line, told) in [
        ("", "-o json=/no/such/x", "/no/such/x of --output cannot be written: the folder /no/such: "),
        ("", "-o json=/run", "/run of --output cannot be written: is a directory"),
        (
            "mkdir -p /run/ro && mount -t tmpfs -o ro none /run/ro",
            "-o json=/run/ro/x",
            "the folder /run/ro: Read-only file system",
        ),
        (
            "",
            "-o hostfile=/dev/stdout",
            "/dev/stdout of --output cannot be written: it is stdout, where the result",
        ),
        (
            "exec >/run/result",
            "-o json=/run/result",
            "/run/result of --output cannot be written: it is stdout",
        ),
    ] {
        for program in
            [format!("\"$mingle\" {ALONE} {line}"), format!("\"$mingle\" run {ALONE} {line} -- true")]
        {
            let started = Instant::now();
            let outcome = script(&lab, &format!("{make}\nexec {program}"));
            assert_eq!(outcome.status.code(), Some(1), "{}", outcome.render());
            assert!(outcome.stderr.contains(told), "{}", outcome.render());
            assert!(started.elapsed() < SOON, "{line}: waited for others");
        }
    }
}

#[test]
fn a_template_with_a_mistake_ends_the_node_before_it_waits() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for (text, told) in [
        ("{rank}\\n  {hots}", "/run/t:2:3: {hots} means nothing here; there are {rank}, {world}, "),
        ("{each node}", "/run/t:1:1: this block has no {end}"),
        ("\\377", "/run/t:1:1: this is not UTF-8"),
    ] {
        for line in [
            format!("\"$mingle\" {ALONE} --format template=/run/t"),
            format!("\"$mingle\" run {ALONE} -o template=/run/t=/run/out -- true"),
        ] {
            let started = Instant::now();
            let outcome = script(&lab, &format!("printf '{text}' >/run/t; exec {line}"));
            assert_eq!(outcome.status.code(), Some(2), "{}", outcome.render());
            assert!(outcome.stderr.contains(told), "{}", outcome.render());
            assert!(started.elapsed() < SOON, "{line}: waited for others");
        }
    }
}

/// The template on stdout, in a file, and for a command, and its placeholders in the command's words.
#[test]
fn a_template_and_the_words_of_a_command_have_the_values_of_the_world() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let line = r#"export MINGLE_JOB_ID=t MINGLE_WORLD=2 MINGLE_RANK=$0; cd /run
        echo '[{each node}"{node.addr}"{between}, {end}] {rank}/{world} {host}' >t$0
        $mingle --format template=t$0 -o template=t$0=out$0 && cat out$0
        $mingle run --max-restarts 1 --workers 2 -o template=t$0=run$0 -- \
            sh -c 'cat "$0"; echo "$@"' run$0 {rank}/{world} {addrs} '{each other}{node.rank}{end}' '{{x}}'"#;
    let procs: Vec<Proc> = (0..2)
        .map(|node| {
            let mut command = lab.command(node, "sh");
            command.args(["-c", line, &node.to_string()]).env("mingle", MINGLE);
            lab.start(node, command)
        })
        .collect();
    for (rank, outcome) in finish_all(procs).into_iter().enumerate() {
        let filled = format!("[\"10.77.0.10\", \"10.77.0.11\"] {rank}/2 {}", lab.host(rank));
        let lines: Vec<&str> = outcome.stdout.lines().collect();
        assert_eq!(lines.iter().filter(|line| **line == filled).count(), 2, "{}", outcome.render());
        for worker in [2 * rank, 2 * rank + 1] {
            let words = format!("[{worker}] {worker}/4 10.77.0.10,10.77.0.11 {} {{{{x}}}}", 1 - rank);
            assert!(lines.contains(&words.as_str()), "{words}: {}", outcome.render());
            assert!(lines.contains(&format!("[{worker}] {filled}").as_str()), "{}", outcome.render());
        }
    }
}

/// Other users may read a file, and no other user the output and the environment of a process.
#[test]
fn the_token_of_ray_is_printed_and_is_in_the_environment_and_in_no_file() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let line = "export MINGLE_SECRET=0123456789abcdef MINGLE_JOB_ID=ray MINGLE_WORLD=1 MINGLE_FORMAT=ray
        export MINGLE_OUTPUT=ray=/run/file
        $mingle >/run/printed && $mingle run -- env >/run/environment && cd /run || exit
        grep -l RAY_AUTH_TOKEN printed environment file; grep -l RAY_ADDRESS file
        grep 0123456789abcdef printed environment file";
    assert_eq!(script(&lab, line).stdout, "printed\nenvironment\nfile\n");
    let without = script(&lab, "$mingle -j ray -w 1 --format ray").stdout;
    assert!(without.contains("RAY_ADDRESS") && !without.contains("RAY_AUTH"), "{without}");
}

/// Jobs of one node each write the same file at once. The shell that has started all of them holds their
/// blocks.
fn jobs_at_once(lab: &Lab, file: &str) {
    const JOBS: usize = 24;
    for round in 0..3 {
        let line = format!(
            "printf '127.0.0.1 localhost\\n' >{file}
            for job in $(seq {JOBS}); do \"$mingle\" -q -j job$job -w 1 -o hosts={file} >/dev/null & done; wait
            cat {file}"
        );
        let whole = script(lab, &line).stdout;
        assert!(whole.starts_with("127.0.0.1 localhost\n"), "{whole}");
        for number in 1..=JOBS {
            assert!(whole.contains(&format!("# mingle job{number} begin")), "round {round}:\n{whole}");
        }
    }
}

#[test]
fn jobs_at_once_lose_no_block_of_a_hosts_file() {
    let Some(lab) = Options::nodes(1).start() else { return };
    jobs_at_once(&lab, "/run/hosts");
    // As in a container, where /etc/hosts cannot be replaced.
    script(&lab, "touch /run/mounted && mount --bind /run/mounted /run/mounted");
    jobs_at_once(&lab, "/run/mounted");
    let line =
        "seq 999 >/run/mounted; $mingle -q -j a -w 1 -o hostfile=/run/mounted >/dev/null; cat /run/mounted";
    assert_eq!(script(&lab, line).stdout.lines().count(), 1, "nothing of a longer text stays");
}

#[test]
fn a_full_disk_leaves_the_old_text() {
    let Some(lab) = Options::nodes(1).start() else { return };
    // One file that can be replaced, and one that cannot, in a folder with room, as in a container.
    let line = "mkdir -p /run/small && mount -t tmpfs -o size=12k none /run/small
        echo 127.0.0.1 localhost >/run/small/hosts
        cat /dev/zero >/run/small/rest 2>/dev/null
        yes 10.0.0.1 name 2>/dev/null | head -c 4070 >/run/before
        cat /run/before >/run/small/hosts
        touch /run/hosts && mount --bind /run/small/hosts /run/hosts
        \"$mingle\" -j out -w 1 -o hosts=$FILE; echo $?
        cmp /run/small/hosts /run/before && ls -A /run/small
        umount /run/hosts && umount /run/small";
    for file in ["/run/small/hosts", "/run/hosts"] {
        let outcome = script(&lab, &format!("FILE={file}\n{line}"));
        assert!(outcome.stderr.contains("No space left on device"), "{}", outcome.render());
        assert!(outcome.stdout.ends_with("1\nhosts\nrest\n"), "{}", outcome.render());
    }
}

#[test]
fn a_file_without_permission_to_write_is_replaced_in_its_folder() {
    let Some(lab) = Options::nodes(2).start() else { return };
    script(&lab, "mkdir -p /run/d && echo old >/run/d/f && chmod 444 /run/d/f");
    let line = |node: usize| {
        let file = if node == 0 { "-o hostfile=/run/d/f" } else { "" };
        start(&lab, node, &format!("\"$mingle\" -j out -w 2 --timeout 60s {file}"))
    };
    for outcome in finish_all(vec![line(0), line(1)]) {
        assert!(outcome.status.success(), "{}", outcome.render());
    }
    assert_eq!(script(&lab, "stat -c %a /run/d/f; wc -l </run/d/f").stdout, "444\n2\n");
}

#[test]
fn the_program_installs_itself_for_every_user_and_replaces_one_that_runs() {
    let Some(lab) = Options::nodes(1).start() else { return };
    let outcome = script(
        &lab,
        "set -e; umask 077; mkdir /run/volume; cd /run; \"$mingle\" install volume
        cmp \"$mingle\" volume/mingle; stat -c %a volume/mingle
        volume/mingle watch & sleeper=$!
        until [ \"$(readlink /proc/$sleeper/exe)\" = /run/volume/mingle ]; do :; done
        volume/mingle install ./volume/; kill $sleeper; wait $sleeper || :
        volume/mingle --version; ls -A volume",
    );
    assert!(outcome.status.success(), "{}", outcome.render());
    assert!(outcome.stdout.starts_with("755\n"), "{}", outcome.render());
    assert!(outcome.stdout.ends_with("\nmingle\n"), "{}", outcome.render());
    assert!(outcome.stderr.contains("mingle: installed volume/mingle\n"), "{}", outcome.render());
}

#[test]
fn a_folder_that_cannot_hold_the_program_is_named_with_the_cure() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for (make, told) in [
        ("true", "No such file or directory"),
        (": >/run/v", "Not a directory"),
        (": >/run/f; ln -s /run/f/x /run/v", "Not a directory"),
        ("mkdir -p /run/v/mingle", "Is a directory"),
        ("mkdir /run/v; mount -t tmpfs -o size=64k none /run/v", "No space left on device"),
        ("mkdir /run/v; mount -t tmpfs -o ro none /run/v", "Read-only file system"),
        ("mkdir /run/v; mount -t tmpfs -o noexec none /run/v", "its file system is mounted noexec"),
        ("mkdir -m 755 /run/v; user='setpriv --reuid 65534 --clear-groups'", "Permission denied"),
    ] {
        let line = format!(
            "cp \"$mingle\" /run/mingle; chmod 755 /run/mingle; {{ {make}\n}}
            $user /run/mingle install /run/v; code=$?; find /run/v/ -name '*mingle*' -type f
            umount /run/v 2>/dev/null; rm -rf /run/v; exit $code"
        );
        let outcome = script(&lab, &line);
        assert_eq!((outcome.status.code(), outcome.stdout.as_str()), (Some(1), ""), "{}", outcome.render());
        let told = format!("error: cannot install mingle in /run/v: {told}");
        let is_told = outcome.stderr.contains(&told) || told.contains("noexec");
        assert!(
            is_told && outcome.stderr.contains(told.rsplit(": ").next().unwrap()),
            "{}",
            outcome.render()
        );
    }
}
