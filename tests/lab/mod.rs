//! Networks to test in: namespaces on a bridge that is itself in a namespace.
//!
//! One process, the holder, owns everything: a mount namespace with a `/run` of its own, the network
//! namespace with the bridge, and one named network namespace for every node. Its standard input is a pipe
//! from the test. When the pipe closes, however the test ended, the holder kills the processes that still run
//! in its nodes and exits, and the kernel removes the rest. The host's own network is never changed.

#![allow(unreachable_pub, reason = "written as if it were a library")]

pub mod fabric;
pub mod forge;
pub mod machine;
pub mod network;
pub mod preload;
pub mod proc;
pub mod random;
pub mod script;
pub mod terminal;
pub mod torch;
pub mod world;

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use proc::{Outcome, Proc, Stream, Transcript};

/// The program under test.
pub const MINGLE: &str = env!("CARGO_BIN_EXE_mingle");

/// Measurements of time run alone; all other tests run in parallel.
static QUIET: RwLock<()> = RwLock::new(());

enum Quiet {
    Shared(#[allow(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>),
    Alone(#[allow(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>),
    /// The first lab of this test holds it.
    Held,
}

/// The way of each node's default route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Bridge,
    DeadNic,
    None,
}

/// The properties of a lab's network.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a property of the network")]
pub struct Options {
    nodes: usize,
    route: Route,
    docker0: bool,
    dead_nic: bool,
    filters: bool,
    hosts: bool,
    alone: bool,
    second: bool,
}

impl Options {
    /// Nodes with one interface on a bridge without loss.
    pub fn nodes(nodes: usize) -> Self {
        Self {
            nodes,
            route: Route::Bridge,
            docker0: false,
            dead_nic: false,
            filters: false,
            hosts: false,
            alone: false,
            second: false,
        }
    }

    /// No default route on any node.
    pub fn without_default_route(mut self) -> Self {
        self.route = Route::None;
        self
    }

    /// A bridge `docker0` on every node, with carrier and with the same address on each.
    pub fn with_docker0(mut self) -> Self {
        self.docker0 = true;
        self
    }

    /// A second interface `eth1` that is up and leads nowhere.
    pub fn with_dead_nic(mut self) -> Self {
        self.dead_nic = true;
        self
    }

    /// The default route leads into the dead interface.
    pub fn with_route_into_dead_nic(mut self) -> Self {
        self.dead_nic = true;
        self.route = Route::DeadNic;
        self
    }

    /// The test uses loss, cuts or firewalls, which need nftables.
    pub fn with_filters(mut self) -> Self {
        self.filters = true;
        self
    }

    /// Every node resolves its own name without a name server.
    pub fn with_names(mut self) -> Self {
        self.hosts = true;
        self
    }

    /// No other lab of this program runs at the same time.
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// A second lab in one test. (Taking the lock twice may wait for ever.)
    pub fn beside(mut self, _first: &Lab) -> Self {
        self.second = true;
        self
    }

    /// Makes the lab. None, with a message, where this machine does not allow it.
    #[must_use]
    pub fn start(self) -> Option<Lab> {
        let quiet = match (self.second, self.alone) {
            (true, _) => Quiet::Held,
            (false, true) => Quiet::Alone(QUIET.write().unwrap_or_else(PoisonError::into_inner)),
            (false, false) => Quiet::Shared(QUIET.read().unwrap_or_else(PoisonError::into_inner)),
        };
        match Lab::make(&self, quiet) {
            Ok(lab) => Some(lab),
            Err(reason) => {
                skip(&reason);
                None
            }
        }
    }
}

/// The line by which this test program plays a part: it runs one test, which does not run otherwise.
pub fn helper(test: &str) -> [String; 6] {
    let program = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    [&program, "--exact", test, "--ignored", "--nocapture", "--quiet"].map(str::to_owned)
}

/// A setting that the test has given to its helper, as a variable.
pub fn setting<T: FromStr>(name: &str) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).expect("runs only inside a lab")
}

/// Reports that a test cannot run here, which is a failure where MINGLE_REQUIRE_NETNS=1. The test harness
/// counts the test as passed, so each line has the number of tests that were skipped.
pub fn skip(reason: &str) {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    let test = thread::current().name().unwrap_or("a test").to_owned();
    assert!(
        std::env::var_os("MINGLE_REQUIRE_NETNS").is_none_or(|value| value != "1"),
        "{test} must not be skipped here (MINGLE_REQUIRE_NETNS=1), but: {reason}"
    );
    // Not `eprintln`, which the test harness hides while the test passes.
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    let _ = writeln!(std::io::stderr(), "skipped ({count} so far): {test}: {reason}");
}

/// A network of nodes, removed on drop.
pub struct Lab {
    holder: Child,
    stdin: Option<ChildStdin>,
    /// For each node, the process that has the node's namespaces.
    nodes: Vec<u32>,
    user: bool,
    transcripts: Mutex<Vec<Transcript>>,
    _quiet: Quiet,
}

/// The packets that the bridge drops. ARP always passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// The percentage of packets that are lost, for each receiver by itself.
    pub loss: u32,
    /// No multicast passes.
    pub no_multicast: bool,
    /// Pairs of sender and receiver between which nothing passes, in this direction only.
    pub cuts: Vec<(usize, usize)>,
}

impl Lab {
    /// Makes the lab as the current user, or else as the root of a user namespace.
    fn make(options: &Options, quiet: Quiet) -> Result<Self, String> {
        let mut reasons = Vec::new();
        for user in [false, true] {
            match Self::hold(options, user) {
                Ok((holder, stdin, nodes)) => {
                    let transcripts = Mutex::default();
                    return Ok(Self { holder, stdin, nodes, user, transcripts, _quiet: quiet });
                }
                Err(reason) => {
                    // The holder's last line is only "failed".
                    let reason = reason.trim().trim_end_matches("failed").trim_end();
                    reasons.push(reason.replace('\n', "; "));
                }
            }
        }
        reasons.dedup();
        Err(format!("no network namespaces here: {}", reasons.join("; in a user namespace: ")))
    }

    /// Starts a holder and waits until its nodes are ready.
    fn hold(options: &Options, user: bool) -> Result<(Child, Option<ChildStdin>, Vec<u32>), String> {
        let mut command = Command::new("unshare");
        if user {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--net", "--uts", "sh", "-c", &script::holder(options)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = command.spawn().map_err(|e| format!("unshare: {e}"))?;
        let stdin = holder.stdin.take();
        let stdout = Stream::collect(holder.stdout.take().unwrap());
        let stderr = Stream::collect(holder.stderr.take().unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        stdout.wait_until(deadline, |text| {
            text.contains("failed") || script::node_pids(text, options.nodes).is_some()
        });
        let text = stdout.text();
        if let Some(nodes) = script::node_pids(&text, options.nodes) {
            return Ok((holder, stdin, nodes));
        }
        drop(stdin);
        let _ = holder.wait();
        stderr.wait_closed(deadline);
        Err(stderr.text() + &text)
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The address of a node on the bridge; a higher node has a higher one.
    #[allow(clippy::unused_self, reason = "of this lab")]
    pub fn address(&self, node: usize) -> Ipv4Addr {
        script::address(node)
    }

    /// The host name of a node.
    #[allow(clippy::unused_self, reason = "of this lab")]
    pub fn host(&self, node: usize) -> String {
        script::host(node)
    }

    /// A command that will run in a node, with a clean environment and `/` as its directory.
    pub fn command(&self, node: usize, program: &str) -> Command {
        let mut command = self.enter(self.nodes[node]);
        command.arg(program).current_dir("/");
        clean(&mut command);
        command
    }

    /// This test program, to play a part in a node: see [`helper`].
    pub fn helper(&self, node: usize, test: &str) -> Command {
        let [program, args @ ..] = helper(test);
        let mut command = self.command(node, &program);
        command.args(args);
        command
    }

    /// Starts a command made with [`Lab::command`].
    pub fn start(&self, node: usize, command: Command) -> Proc {
        let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        let skip = args.iter().position(|a| a == MINGLE).unwrap_or(0);
        let proc = Proc::start(command, format!("{}: {}", self.host(node), args[skip..].join(" ")));
        self.transcripts.lock().unwrap().push(proc.transcript.clone());
        proc
    }

    /// Starts mingle in a node.
    pub fn spawn<S: AsRef<str>>(&self, node: usize, args: &[S]) -> Proc {
        let mut command = self.command(node, MINGLE);
        command.args(args.iter().map(AsRef::as_ref));
        self.start(node, command)
    }

    /// Runs a shell script in a node to its end. `$mingle` is the program under test.
    pub fn shell(&self, node: usize, shell: &str, script: &str) -> Outcome {
        let mut command = self.command(node, shell);
        command.args(["-c", script]).env("mingle", MINGLE);
        self.start(node, command).finish()
    }

    /// Runs a shell script in the namespace of the bridge `br0` and its ports `p0`, `p1`..., and returns its
    /// output. The network namespaces of the nodes are called `n0`, `n1`... there.
    pub fn switch(&self, script: &str) -> String {
        let output = self.enter(self.holder.id()).args(["sh", "-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Changes at once which packets the bridge drops.
    pub fn set(&self, policy: &Policy) {
        self.nft(self.holder.id(), &script::policy(policy));
    }

    /// Makes a node drop arriving packets that match any of `rules`, for example `tcp dport 29500-29999`.
    /// Packets of the node to itself pass.
    pub fn firewall(&self, node: usize, rules: &[&str]) {
        self.nft(self.nodes[node], &script::firewall(rules));
    }

    fn nft(&self, pid: u32, rules: &str) {
        let mut command = self.enter(pid);
        let mut child = command
            .args(["nft", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "nft refuses\n{rules}\n{errors}");
    }

    fn enter(&self, pid: u32) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid.to_string()]);
        if self.user {
            command.args(["-U", "--preserve-credentials"]);
        }
        // A shell starts what it runs in the background with these signals ignored.
        command.args(["-m", "-n", "-u", "--", "env", "--default-signal=HUP,INT,QUIT"]);
        command
    }

    /// Forgets the output of earlier processes, so that a failure shows only what belongs to it.
    pub fn forget(&self) {
        self.transcripts.lock().unwrap().clear();
    }
}

impl Drop for Lab {
    #[allow(clippy::print_stderr, reason = "the test harness shows it with the failure")]
    fn drop(&mut self) {
        if thread::panicking() {
            let transcripts = self.transcripts.lock().unwrap_or_else(PoisonError::into_inner);
            for transcript in transcripts.iter() {
                eprintln!("{}", transcript.render());
            }
        }
        drop(self.stdin.take());
        let _ = self.holder.wait();
    }
}

/// A limit for a machine that has nothing else to do. On a busier one it is as many times longer as there are
/// processes that run or wait for each processor (loadavg in proc(5)).
pub fn limit(quiet: Duration) -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    let load: f64 = load.split_once(' ').unwrap().0.parse().unwrap();
    let cores = thread::available_parallelism().unwrap().get();
    quiet.mul_f64((load / f64::from(u32::try_from(cores).unwrap())).max(1.0))
}

/// A command outside any lab, with a clean environment. `$mingle` is the program under test.
pub fn plain(program: &str) -> Command {
    let mut command = Command::new(program);
    clean(&mut command);
    command.env("mingle", MINGLE);
    command
}

/// Removes the environment, in which RANK or NCCL_SOCKET_IFNAME may be set.
fn clean(command: &mut Command) {
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
}

/// Waits until a moment, for tests in which the time of a start matters.
pub fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}
