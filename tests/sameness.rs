//! Nodes that should be the same and are not.

use std::fs;

use crate::lab::fabric::{Node, four, start, warnings_of};
use crate::lab::machine::Machine;
use crate::lab::proc::Proc;
use crate::lab::world::{World, finish_all, line_with};
use crate::lab::{self, Lab, MINGLE, Options};

/// Forms a world, and checks that every rank has these warnings.
fn warned(lab: &Lab, job: &str, nodes: &[Node], warnings: &[&str]) {
    let outcomes = finish_all(start(lab, job, nodes));
    World::of(&outcomes).expect(lab, &(0..nodes.len()).collect::<Vec<_>>());
    for outcome in &outcomes {
        assert_eq!(warnings_of(outcome), warnings, "{}", outcome.render());
    }
}

fn write(machine: &Machine, file: &str, text: &str) {
    let path = machine.0.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn a_variable_that_differs_on_one_rank_is_named_on_every_rank_with_its_values() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let all = |name: &'static str, value: &'static str| -> Vec<Node> {
        four("none").into_iter().map(|node| node.set(name, value)).collect()
    };
    warned(&lab, "same", &all("NCCL_ALGO", "Tree"), &[]);
    let mut nodes = all("NCCL_ALGO", "Tree");
    nodes[3] = Node::of("none").set("NCCL_ALGO", "Ring");
    warned(&lab, "algo", &nodes, &["NCCL_ALGO differs: \"Ring\" on rank 3, \"Tree\" on the others"]);
    // A value that may be a path or a key does not leave its host.
    nodes = four("none");
    nodes[1] = Node::of("none").set("NCCL_NET_PLUGIN", "/secret/plugin.so");
    for outcome in finish_all(start(&lab, "plugin", &nodes)) {
        let [line] = &warnings_of(&outcome)[..] else { panic!("{}", outcome.render()) };
        assert!(line.starts_with("NCCL_NET_PLUGIN differs: a value with the hash "), "{line}");
        assert!(line.ends_with(" on rank 1, none on the others") && !line.contains("secret"), "{line}");
    }
}

#[test]
fn an_mtu_that_differs_on_one_rank_is_named_on_every_rank() {
    let Some(lab) = Options::nodes(4).start() else { return };
    lab.at(2, "ip link set eth0 mtu 1400");
    warned(&lab, "mtu", &four("none"), &["MTU differs: \"1400\" on rank 2, \"1500\" on the others"]);
}

#[test]
fn one_difference_of_a_machine_each_is_the_same_line_on_every_rank() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let gpu = |machine: &Machine| {
        let text = "Model: \t NVIDIA H100\nDevice Minor: \t 0\n";
        write(machine, "nvidia_gpus/0000:1b:00.0/information", text);
        write(machine, "dev/nvidia0", "");
    };
    let usual = Machine::like("none", "same-usual");
    let modalias = "devices/system/cpu/modalias";
    write(&usual, modalias, "cpu:type:x86,ven0000fam0006mod008F:feature:,0000,0001\n");
    write(&usual, "module/nvidia/version", "570.86.15\n");
    gpu(&usual);
    let odd = |name: &str, file: &str, text: &str| {
        let machine = Machine::like("none", name);
        for file in [modalias, "module/nvidia/version"] {
            write(&machine, file, &fs::read_to_string(usual.0.join(file)).unwrap());
        }
        gpu(&machine);
        write(&machine, file, text);
        Node::on(machine.0)
    };
    for (name, file, text, line) in [
        (
            "cpu",
            modalias,
            "cpu:type:x86,ven0002fam0019mod0011:feature:,0000\n",
            "CPU vendor differs: \"AMD\" on rank 2, \"Intel\" on the others",
        ),
        (
            "driver",
            "module/nvidia/version",
            "570.124.06\n",
            "nvidia driver differs: \"570.124.06\" on rank 2, \"570.86.15\" on the others",
        ),
        (
            "gpu",
            "nvidia_gpus/0000:1b:00.0/information",
            "Model: \t NVIDIA H200\nDevice Minor: \t 0\n",
            "GPUs differs: \"1 x NVIDIA H200\" on rank 2, \"1 x NVIDIA H100\" on the others",
        ),
    ] {
        let mut nodes = vec![Node::on(usual.0.clone()); 4];
        nodes[2] = odd(&format!("same-{name}"), file, text);
        warned(&lab, name, &nodes, &[line]);
    }
    // A GPU without a device in /dev is none of this process.
    let hidden = odd("same-hidden", "unused", "");
    fs::remove_file(hidden.root.join("dev/nvidia0")).unwrap();
    let mut nodes = vec![Node::on(usual.0.clone()); 4];
    nodes[0] = hidden;
    warned(&lab, "hidden", &nodes, &["GPUs differs: none on rank 0, \"1 x NVIDIA H100\" on the others"]);
}

#[test]
fn fewer_ports_a_lower_rate_and_a_missing_module_of_one_host_are_named_on_every_rank() {
    let Some(lab) = Options::nodes(4).start() else { return };
    let rails = |name: &str, change: &dyn Fn(&Machine)| {
        let machine = Machine::like("rail8-same", name);
        write(&machine, "module/nvidia_peermem/refcnt", "0\n");
        change(&machine);
        Node::on(machine.0)
    };
    let usual = rails("rails-usual", &|_| ());
    let (ports, others) = ("RDMA ports differs: ", " on rank 2, \"8 x 400 Gb/s RoCE\" on the others");
    for (name, change, line) in [
        (
            "few",
            &(|machine: &Machine| {
                machine.remove_device("mlx5_3");
            }) as &dyn Fn(&Machine),
            format!("{ports}\"7 x 400 Gb/s RoCE\"{others}"),
        ),
        (
            "slow",
            &|machine| {
                for n in 0..8 {
                    let rate = format!("class/infiniband/mlx5_{n}/ports/1/rate");
                    write(machine, &rate, "200 Gb/sec (4X HDR)\n");
                }
            },
            format!("{ports}\"8 x 200 Gb/s RoCE\"{others}"),
        ),
        (
            "module",
            &|machine| fs::remove_dir_all(machine.0.join("module/nvidia_peermem")).unwrap(),
            "GPUDirect module differs: none on rank 2, \"nvidia_peermem\" on the others".to_owned(),
        ),
    ] {
        let mut nodes = vec![usual.clone(); 4];
        nodes[2] = rails(&format!("rails-{name}"), change);
        warned(&lab, name, &nodes, &[&line]);
    }
}

#[test]
fn with_require_same_on_one_node_a_difference_ends_all_with_code_4() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let line = "--same image differs: \"v8\" on rank 2, \"v7\" on the others";
    let args = ["--same image=v7 --require-same", "--same image=v7", "--same image=v8"];
    for process in lab::world::start_all(&lab, "required", &args) {
        process.finish().failed(4, &["all nodes must be the same", line, "without --require-same"]);
    }
    let same = ["--same image=v7 --require-same"; 3];
    lab::world::form(&lab, "required and met", &same).expect(&lab, &[0, 1, 2]);
}

#[test]
fn under_mingle_run_commands_start_with_a_warning_and_with_require_same_none_starts() {
    let Some(lab) = Options::nodes(3).start() else { return };
    let line = "--same image differs: \"v8\" on rank 1, \"v7\" on the others";
    let run = |job: &str, restarts: &str, required: &str| -> Vec<Proc> {
        let start = |node: usize| {
            let image = if node == 1 { "v8" } else { "v7" };
            // One node that requires it is enough.
            let required = if node == 2 { required } else { "" };
            let more = format!(
                "run --job-id {job} --world 3 --timeout 30s --same image={image} {restarts} {required}"
            );
            let mut args: Vec<&str> = more.split_whitespace().collect();
            args.extend(["--", "sh", "-c", "echo started"]);
            lab.spawn(node, &args)
        };
        (0..3).map(start).collect()
    };
    for (job, restarts) in [("once", ""), ("restarts", "--max-restarts 1")] {
        for outcome in finish_all(run(job, restarts, "")) {
            assert_eq!(outcome.status.code(), Some(0), "{}", outcome.render());
            assert_eq!(outcome.stdout, "started\n", "{}", outcome.render());
            assert_eq!(warnings_of(&outcome), [line], "{}", outcome.render());
        }
        for outcome in finish_all(run(&format!("required-{job}"), restarts, "--require-same")) {
            assert_eq!(outcome.status.code(), Some(4), "{}", outcome.render());
            assert_eq!(outcome.stdout, "", "{}", outcome.render());
            assert!(outcome.stderr.contains(line), "{}", outcome.render());
        }
    }
}

#[test]
fn bad_pairs_are_refused_with_what_to_do() {
    let Some(lab) = Options::nodes(1).start() else { return };
    for (more, fact) in [
        ("--same image", "write KEY=VALUE, such as image=v7"),
        ("--same =1", "write KEY=VALUE, such as image=v7"),
        ("--same a=1 --same a=2", "a is \"1\" already; give each key once"),
    ] {
        lab.spawn(0, &line_with("bad", 1, more)).finish().failed(2, &[fact]);
    }
    let many: Vec<String> =
        (0..40).map(|n| format!("--same {}{n}={}", "k".repeat(60), "v".repeat(300))).collect();
    let fits = format!("{} --same a=1 --same a=1", many.join(" "));
    assert_eq!(lab.spawn(0, &line_with("good", 1, &fits)).finish().status.code(), Some(0));
    let mut command = lab.command(0, MINGLE);
    command.args(line_with("variable", 1, "")).env("MINGLE_SAME", "a=1,a=2");
    lab.start(0, command).finish().failed(2, &["MINGLE_SAME=a=1,a=2: a is \"1\" already"]);
}

#[test]
fn the_message_at_the_deadline_names_the_seeds_that_are_absent() {
    let Some(lab) = Options::nodes(2).start() else { return };
    // All hosts of the lab have one name, so they are known by their addresses.
    let line = |i: usize, timeout: &str| {
        let args = line_with("absent", 4, &format!("--seed 10.77.0.[10-11],gpu[08-09] --timeout {timeout}"));
        lab.spawn(i, &args)
    };
    let [first, last] = [line(0, "3s"), line(1, "6s")];
    for outcome in [first.finish(), last.finish()] {
        outcome.failed(3, &["2 of 4 nodes were here", "; missing gpu08, gpu09"]);
    }
}
