//! Launchers, started by the examples as users start them, on nodes that know only a job ID.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::lab::proc::{Outcome, Proc};
use crate::lab::torch::{PATIENCE, finish_all, folders, torch};
use crate::lab::{Lab, MINGLE, Options, plain, skip};

/// A file of this repository.
fn file(path: &str) -> String {
    format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))
}

/// Whether a program exits with success on this machine.
fn runs(program: &str, args: &[&str]) -> bool {
    plain(program).args(args).output().is_ok_and(|output| output.status.success())
}

/// A command in a node, with mingle in PATH. Settings for tests only are variables, so that the examples are
/// unchanged.
fn command(lab: &Lab, node: usize, program: &str) -> Command {
    let mut command = lab.command(node, program);
    let mingle = Path::new(MINGLE).parent().unwrap().display();
    command.env("PATH", format!("{mingle}:{}", folders()));
    command.env("MINGLE_TIMEOUT", "60s");
    // Logs go to the lab's own /run. One thread per worker is enough to reduce one number.
    command.env("TMPDIR", "/run").env("OMP_NUM_THREADS", "1");
    // torch 1.13 cannot parse its own default of these under Python 3.11.
    command.env("PET_REDIRECTS", "0:1").env("PET_TEE", "0:1");
    // Let root use mpirun, let ranks share a processor, and replace ssh, which is not installed.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_hwloc_base_binding_policy", "none");
    command.env("OMPI_MCA_plm_rsh_agent", file("tests/launchers/rsh-agent.sh"));
    command
}

/// The line for every node: an example with the job ID, the number of nodes, and `more`.
fn line(lab: &Lab, example: &str, more: &[&str]) -> Vec<String> {
    let mut words = vec![file(example), "train".to_owned(), lab.len().to_string()];
    words.extend(more.iter().map(|&word| word.to_owned()));
    words
}

/// Starts the same command on every node, with `slots` for each node.
fn start(lab: &Lab, words: &[String], slots: &[u32]) -> Vec<Proc> {
    assert_eq!(slots.len(), lab.len());
    let start = |(node, slots): (usize, &u32)| {
        let mut command = command(lab, node, &words[0]);
        command.args(&words[1..]).env("MINGLE_SLOTS", slots.to_string());
        lab.start(node, command)
    };
    slots.iter().enumerate().map(start).collect()
}

/// Checks that all processes succeeded, and that they printed exactly the lines in `ranks`.
fn expect(outcomes: &[Outcome], ranks: impl IntoIterator<Item = String>) {
    let mut said = BTreeSet::new();
    for outcome in outcomes {
        assert!(outcome.status.success(), "{}", outcome.render());
        // torchrun may print a prefix before the line: `[default0]:`.
        let lines = outcome.stdout.lines().filter_map(|line| line.find("rank ").map(|start| &line[start..]));
        said.extend(lines.map(str::to_owned));
    }
    let context = || outcomes.iter().map(Outcome::render).collect::<Vec<_>>().join("\n");
    assert_eq!(said, ranks.into_iter().collect(), "said by\n{}", context());
}

/// Makes every node unable to resolve any host name, even its own.
fn without_names(lab: &Lab) {
    // Mounts a file over /etc/hosts in this node only. Programs that write to /etc/hosts write to that file.
    let script = "set -e; mine=/run/no-names.$(hostname); echo 127.0.0.1 localhost >$mine
        mount --bind $mine /etc/hosts";
    for node in 0..lab.len() {
        let outcome = lab.shell(node, "sh", script);
        assert!(outcome.status.success(), "{}", outcome.render());
        let unknown = "for name in node0 node1; do getent hosts $name; [ $? = 2 ] || exit 1; done";
        let outcome = lab.shell(node, "sh", unknown);
        assert!(outcome.status.success(), "{}", outcome.render());
    }
}

#[test]
fn torchrun_starts_one_worker_for_each_slot_of_a_node() {
    let Some(_) = torch() else { return };
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    let line = line(&lab, "examples/torchrun/static.sh", &[&file("examples/allreduce.py")]);
    let outcomes = finish_all(start(&lab, &line, &[1, 2]));
    // 1 + 2 + 3.
    expect(&outcomes, (0..3).map(|rank| format!("rank {rank} of 3: sum 6")));
}

/// The reason for `--format c10d`: the first node publishes its host name, which no other node can resolve.
#[test]
fn torchrun_alone_with_c10d_waits_if_host_names_do_not_resolve() {
    let Some(_) = torch() else { return };
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    let endpoint = format!("--rdzv_endpoint={}:29500", lab.address(0));
    let words = ["torchrun", "--nnodes=2", "--rdzv_backend=c10d", &endpoint, &file("examples/allreduce.py")];
    let mut procs = start(&lab, &words.map(str::to_owned), &[1, 1]);
    procs[1].expect_stderr_within(PATIENCE, "network addresses of (node0,");
    for proc in &mut procs {
        assert!(proc.is_running(), "{}", proc.transcript.render());
        assert!(!proc.transcript.stdout.text().contains("sum"), "{}", proc.transcript.render());
    }
    // If a host cannot resolve its own name, torchrun fails at once.
    without_names(&lab);
    for outcome in finish_all(start(&lab, &words.map(str::to_owned), &[1, 1])) {
        assert!(!outcome.status.success(), "{}", outcome.render());
        assert!(outcome.stderr.contains("name resolution"), "{}", outcome.render());
    }
}

#[test]
fn torchrun_with_c10d_and_mingle_needs_no_host_names() {
    let Some(torch) = torch() else { return };
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    without_names(&lab);
    let mut words = line(&lab, "examples/torchrun/c10d.sh", &[&file("examples/allreduce.py")]);
    if torch.major < 2 {
        // torch 1 has no PET_LOCAL_ADDR, so host names must resolve: mingle writes them to /etc/hosts.
        words.splice(0..0, ["env", "MINGLE_OUTPUT=hosts=/etc/hosts"].map(str::to_owned));
    }
    let outcomes = finish_all(start(&lab, &words, &[1, 1]));
    expect(&outcomes, (0..2).map(|rank| format!("rank {rank} of 2: sum 3")));
}

/// Whether Open MPI is there; if not, after a note that the test is skipped.
fn has_open_mpi() -> bool {
    let needed = [("mpirun", &["--version"][..]), ("/usr/bin/python3", &["-c", "import mpi4py"][..])];
    let missing = needed.into_iter().find(|(program, args)| !runs(program, args));
    if let Some((program, args)) = missing {
        skip(&format!("{program} {} fails", args.join(" ")));
    }
    missing.is_none()
}

/// Runs the example of Open MPI with `slots` for each node.
fn mpirun(lab: &Lab, slots: &[u32]) -> Vec<Outcome> {
    let program = file("examples/openmpi/sum.py");
    let line = line(lab, "examples/openmpi/run.sh", &["/usr/bin/python3", &program]);
    finish_all(start(lab, &line, slots))
}

/// By default mpirun would use the second network, too, and wait for connections there.
#[test]
fn mpirun_uses_the_network_on_which_the_nodes_have_met() {
    if !has_open_mpi() {
        return;
    }
    let Some(lab) = Options::nodes(2).with_names().start() else { return };
    lab.add_second_network();
    lab.switch("ip link set q0 nomaster; ip link set q1 nomaster");
    expect(&mpirun(&lab, &[1, 1]), (0..2).map(|rank| format!("rank {rank} of 2 on node{rank}: sum 3")));
}

#[test]
fn mpirun_starts_the_ranks_that_the_hostfile_lists() {
    if !has_open_mpi() {
        return;
    }
    let Some(lab) = Options::nodes(3).with_names().start() else { return };
    let outcomes = mpirun(&lab, &[1, 2, 1]);
    // 1 + 2 + 3 + 4.
    let hosts = ["node0", "node1", "node1", "node2"].iter().enumerate();
    expect(&outcomes, hosts.map(|(rank, host)| format!("rank {rank} of 4 on {host}: sum 10")));
}

#[test]
fn an_example_starts_nothing_if_no_world_forms() {
    let Some(lab) = Options::nodes(1).with_names().start() else { return };
    let examples = ["torchrun/static", "torchrun/c10d", "ray/run", "openmpi/run", "deepspeed/run"];
    let start = |(job, example): (usize, &&str)| {
        let mut command = command(&lab, 0, &file(&format!("examples/{example}.sh")));
        // The other node never starts. Variables that an image has set must not be taken for a result.
        command.args([&format!("job-{job}"), "2", "train.py"]).env("MINGLE_TIMEOUT", "300ms");
        command.env("RANK", "0").env("MASTER_ADDR", "10.77.0.10").env("MASTER_PORT", "29500");
        lab.start(0, command)
    };
    for outcome in finish_all(examples.iter().enumerate().map(start).collect()) {
        // 3 is mingle's exit code for a timeout, so no launcher has replaced it.
        assert_eq!(outcome.status.code(), Some(3), "{}", outcome.render());
        assert_eq!(outcome.stdout, "", "{}", outcome.render());
    }
}

#[test]
fn training_continues_from_its_snapshot_after_a_dead_node_is_replaced() {
    let Some(_) = torch() else { return };
    let Some(lab) = Options::nodes(4).with_names().start() else { return };
    let start = |node| {
        let mut command = command(&lab, node, MINGLE);
        command.args([
            "run",
            "--job-id",
            "train",
            "--world",
            "3",
            "--max-restarts",
            "2",
            "--slots",
            "1",
            "--",
        ]);
        command.args(["torchrun", &file("examples/torchrun/train.py"), "--snapshot", "/run/snapshot.pt"]);
        lab.start(node, command)
    };
    let mut procs: Vec<Proc> = (0..3).map(start).collect();
    for proc in &procs {
        let deadline = Instant::now() + PATIENCE;
        let trains = proc.transcript.stdout.wait_until(deadline, |text| text.contains("has done step 5"));
        assert!(trains, "{}", proc.transcript.render());
    }
    procs.remove(1).kill_with_all_it_started();
    procs.push(start(3));
    for outcome in finish_all(procs) {
        assert!(outcome.status.success(), "{}", outcome.render());
        // 40 steps of 1 + 2 + 3. The snapshot has the steps before the node died.
        assert!(outcome.stdout.contains(" of 3: weight 240"), "{}", outcome.render());
        assert!(outcome.stdout.contains(" continues from step "), "{}", outcome.render());
    }
}
