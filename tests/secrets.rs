//! The secret of a job: given in each way, wrong, missing and too short; and never shown.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use crate::lab::proc::{Outcome, Proc};
use crate::lab::world::{World, finish_all, line, line_with};
use crate::lab::{Lab, MINGLE, Options, plain, setting};

/// Two secrets that nothing else contains.
const ONE: &str = "5eaf00d1-the-horse-knows-5eaf00d1";
const TWO: &str = "be77e12a-the-other-horse-be77e12a";

/// A file with a secret, removed with its test.
struct SecretFile(PathBuf);

impl SecretFile {
    fn new(content: &str, mode: u32) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("secret-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Starts mingle in a node with a variable, or with none where its name is empty.
fn spawn_with(lab: &Lab, node: usize, args: &[String], (name, value): (&str, &str)) -> Proc {
    let mut command = lab.command(node, MINGLE);
    command.args(args);
    if !name.is_empty() {
        command.env(name, value);
    }
    lab.start(node, command)
}

/// Runs mingle outside any lab; only for runs that end before they open a socket.
fn mingle(args: &[&str], (name, value): (&str, &str)) -> Outcome {
    let mut command = plain(MINGLE);
    command.args(args).env(name, value);
    Proc::start(command, args.join(" ")).finish_within(Duration::from_secs(9))
}

fn hides(outcome: &Outcome, secrets: &[&str]) {
    for secret in secrets {
        let shown = outcome.stdout.contains(secret) || outcome.stderr.contains(secret);
        assert!(!shown, "{secret} is shown by {}", outcome.render());
    }
}

#[test]
fn a_world_forms_when_the_same_secret_is_given_in_different_ways() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let file = SecretFile::new(ONE, 0o600);
    // Editors end a file with a line break.
    let edited = SecretFile::new(&format!("{ONE}\n"), 0o600);
    let more = format!("-vv --secret-file {}", file.path());
    let procs = vec![
        spawn_with(&lab, 0, &line_with("same secret", 4, &more), ("", "")),
        spawn_with(&lab, 1, &line_with("same secret", 4, "-vv"), ("MINGLE_SECRET", ONE)),
        spawn_with(&lab, 2, &line_with("same secret", 4, "-v"), ("MINGLE_SECRET_FILE", edited.path())),
        spawn_with(&lab, 3, &line("same secret", 4), ("MINGLE_SECRET", &format!(" {ONE}\n"))),
    ];
    let outcomes = finish_all(procs);
    World::of(&outcomes).expect(&lab, &[0, 1, 2, 3]);
    for outcome in &outcomes {
        hides(outcome, &[ONE]);
        assert!(!outcome.stderr.contains("warning"), "{}", outcome.render());
    }
}

#[test]
fn an_argument_wins_over_the_variable() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let file = SecretFile::new(ONE, 0o600);
    let more = format!("--secret-file {}", file.path());
    let procs = vec![
        spawn_with(&lab, 0, &line_with("wins", 2, &more), ("MINGLE_SECRET", TWO)),
        spawn_with(&lab, 1, &line("wins", 2), ("MINGLE_SECRET", ONE)),
    ];
    World::of(&finish_all(procs)).expect(&lab, &[0, 1]);
}

#[test]
fn a_wrong_secret_and_a_missing_one_are_told_within_seconds_and_end_both_nodes_with_code_6_at_the_deadline() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let none = ("", "");
    let (one, two) = (("MINGLE_SECRET", ONE), ("MINGLE_SECRET", TWO));
    for (number, (left, right)) in [(one, two), (one, none), (none, one)].into_iter().enumerate() {
        let args = line_with(&format!("differ {number}"), 2, "-vv --timeout 4s");
        let procs = [spawn_with(&lab, 0, &args, left), spawn_with(&lab, 1, &args, right)];
        for ((other, own), proc) in [(1, left), (0, right)].into_iter().zip(procs) {
            let started = proc.started;
            let outcome = proc.finish_within(Duration::from_secs(5));
            let from = format!("in time: {} has another secret, or none: ", lab.address(other));
            let differs = if own == none {
                "has a secret for this job, and this node has none"
            } else {
                "has another secret for this job than this node, or none"
            };
            let warning = format!("mingle: warning: {} {differs}; give every node", lab.address(other));
            outcome.failed(6, &["secret", &from, &warning]);
            hides(&outcome, &[ONE, TWO]);
            let took = outcome.ended - started;
            assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(8), "{took:?}");
        }
    }
}

#[test]
fn a_short_secret_is_a_usage_error_that_does_not_show_it() {
    let short = "0123-hunter2-89";
    let file = SecretFile::new(&format!("  {short}\n"), 0o600);
    let args = ["--job-id", "short", "--world", "2"];
    let with_file = [&args[..], &["--secret-file", file.path()]].concat();
    for (args, variable) in [
        (&args[..], ("MINGLE_SECRET", short)),
        (&args[..], ("MINGLE_SECRET_FILE", file.path())),
        (&with_file[..], ("MINGLE_SECRET", ONE)),
    ] {
        let outcome = mingle(args, variable);
        outcome.failed(2, &["16 bytes", "this one has 15", "mingle secret"]);
        hides(&outcome, &["hunter2", ONE]);
    }
}

#[test]
fn a_secret_file_that_cannot_be_read_is_a_usage_error_that_names_it() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let missing = format!("{directory}/no-such-file");
    let large = SecretFile::new(&ONE.repeat(1000), 0o600);
    let closed = SecretFile::new(ONE, 0o000);
    // Root can read every file.
    let readable = fs::read(closed.path()).is_ok();
    let closed = Some(closed.path()).filter(|_| !readable);
    for path in [directory, &missing, large.path(), "/dev/null"].into_iter().chain(closed) {
        // A good secret in the environment must not replace the named file.
        let args = ["--job-id", "file", "--world", "2", "--secret-file", path];
        let outcome = mingle(&args, ("MINGLE_SECRET", TWO));
        outcome.failed(2, &["--secret-file", path]);
        hides(&outcome, &[ONE, TWO]);
    }
}

#[test]
fn a_file_that_every_user_can_read_works_with_a_warning() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let (open, closed) = (SecretFile::new(ONE, 0o644), SecretFile::new(ONE, 0o640));
    let args = |file: &SecretFile| line_with("open", 2, &format!("--secret-file {}", file.path()));
    let procs = vec![lab.spawn(0, &args(&open)), lab.spawn(1, &args(&closed))];
    let outcomes = finish_all(procs);
    World::of(&outcomes);
    for part in ["every user of this host can read", open.path()] {
        assert!(outcomes[0].stderr.contains(part), "{}", outcomes[0].render());
    }
    assert!(!outcomes[1].stderr.contains("can read"), "{}", outcomes[1].render());
    for outcome in &outcomes {
        hides(outcome, &[ONE]);
    }
}

#[test]
fn mingle_makes_secrets_that_it_accepts_and_that_differ() {
    let Some(lab) = Options::nodes(2).start() else { return };
    let [one, two] = [(); 2].map(|()| {
        let outcome = mingle(&["secret"], ("MINGLE_SECRET", ONE));
        assert!(outcome.status.success() && outcome.stderr.is_empty(), "{}", outcome.render());
        let secret = outcome.stdout.strip_suffix('\n').unwrap().to_owned();
        assert!(secret.len() == 64 && secret.bytes().all(|b| b.is_ascii_hexdigit()), "{secret}");
        secret
    });
    assert_ne!(one, two);
    let file = SecretFile::new(&format!("{one}\n"), 0o600);
    let procs = vec![
        lab.spawn(0, &line_with("made", 2, &format!("--secret-file {}", file.path()))),
        spawn_with(&lab, 1, &line("made", 2), ("MINGLE_SECRET", &one)),
    ];
    World::of(&finish_all(procs)).expect(&lab, &[0, 1]);
}

#[test]
fn no_help_and_no_error_shows_a_secret() {
    for args in [
        &["--help"][..],
        &["-h"],
        &["--job-id", "x"],
        &["--job-id", "x", "--world", "2", "--secret", ONE],
        &["--job-id", "x", "--world", "2", &format!("--secret={ONE}")],
    ] {
        let outcome = mingle(args, ("MINGLE_SECRET", TWO));
        hides(&outcome, &[ONE, TWO]);
        let help = args.len() == 1;
        assert_eq!(outcome.status.code(), Some(if help { 0 } else { 2 }), "{}", outcome.render());
        assert!(!help || outcome.stdout.contains("--secret-file"), "{}", outcome.render());
    }
}

#[test]
#[ignore = "a program that another test runs in a node"]
fn helper_overhears() {
    let job: mingle_core::JobId = setting("LAB_JOB");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 29499)).unwrap();
    socket.join_multicast_v4(&job.group_v4(), &setting("LAB_SELF")).unwrap();
    let mut stdout = std::io::stdout();
    let mut buffer = [0; 2048];
    let mut say = |text: &str| stdout.write_all(text.as_bytes()).unwrap();
    say("overhearing\n");
    for _ in 0..4 {
        let length = socket.recv(&mut buffer).unwrap();
        assert!(buffer[..length].starts_with(b"MNGL"));
        let named = buffer[..length].windows(4).any(|part| part == b"node");
        say(if named { "named\n" } else { "sealed\n" });
    }
}

#[test]
fn host_names_travel_in_the_clear_only_where_there_is_no_secret() {
    let Some(lab) = Options::nodes(3).start() else { return };
    for (secret, word) in [(ONE, "sealed"), ("", "named")] {
        let mut command = lab.helper(2, "secrets::helper_overhears");
        command.env("LAB_SELF", lab.address(2).to_string()).env("LAB_JOB", word);
        let ear = lab.start(2, command);
        let ready = |text: &str| text.contains("overhearing");
        assert!(ear.transcript.stdout.wait_until(Instant::now() + Duration::from_secs(5), ready));
        let args = line_with(word, 3, "--timeout 20s");
        let procs = [0, 1].map(|node| spawn_with(&lab, node, &args, ("MINGLE_SECRET", secret)));
        let outcome = ear.finish();
        let words: Vec<_> =
            outcome.stdout.lines().filter(|line| ["sealed", "named"].contains(line)).collect();
        assert_eq!(words, [word; 4], "{}", outcome.render());
        for proc in procs {
            proc.signal("TERM");
            proc.finish().failed(143, &[]);
        }
    }
}

/// The last packet that is captured has this in it.
const END: &[u8] = b"the end of the capture";

#[test]
#[ignore = "a program that another test runs in a node"]
fn helper_captures() {
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), SockProtocol::EthAll).unwrap();
    let mut stdout = std::io::stdout();
    let mut buffer = vec![0; 1 << 16];
    let mut say = |text: &str| stdout.write_all(text.as_bytes()).unwrap();
    say("capturing\n");
    loop {
        let length = nix::unistd::read(&socket, &mut buffer).unwrap();
        let has = |text: &[u8]| buffer[..length].windows(text.len()).any(|part| part == text);
        if has(END) {
            return;
        }
        // IPv4 behind Ethernet; and TCP with more than a header, options included.
        if length > 14 + 20 + 60 && buffer[14 + 9] == 6 {
            say(if has(b"node") { "named\n" } else { "sealed\n" });
        }
    }
}

#[test]
fn what_a_node_says_on_a_session_is_in_the_clear_only_where_there_is_no_secret() {
    let Some(lab) = Options::nodes(2).start() else { return };
    for secret in [ONE, ""] {
        let capture = lab.start(1, lab.helper(1, "secrets::helper_captures"));
        let ready = |text: &str| text.contains("capturing");
        assert!(capture.transcript.stdout.wait_until(Instant::now() + Duration::from_secs(5), ready));
        let args = line("captured", 2);
        let procs = [0, 1].map(|node| spawn_with(&lab, node, &args, ("MINGLE_SECRET", secret)));
        World::of(&finish_all(procs.into()));
        let end = format!("printf '{}' >/dev/udp/{}/9", String::from_utf8_lossy(END), lab.address(0));
        assert!(lab.shell(1, "bash", &end).status.success());
        let outcome = capture.finish();
        let (named, sealed) = (outcome.stdout.contains("named"), outcome.stdout.contains("sealed"));
        assert!(sealed && named == secret.is_empty(), "{}", outcome.render());
    }
}
