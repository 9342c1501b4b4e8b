//! Each scheduler by its own variables, and what is refused.

use clap::CommandFactory as _;
use mingle_core::env::Variables;

use super::table::{JobParts, SchedulerVariables};
use super::*;
use crate::args::LowArgs;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn scheduler(environment: Pairs<'_>) -> Scheduler<'_> {
    // It lives as long as a test.
    let variable = Box::leak(Box::new(|name: &str| {
        environment.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
    }));
    let of_tasks = environment.iter().map(|(name, _)| (*name).to_owned());
    Scheduler { variable, of_tasks: of_tasks.filter(|name| name.starts_with(table::OF_TASKS)).collect() }
}

/// World, rank in it, and job, each with its variable.
fn provided(environment: Pairs<'_>) -> [Option<String>; 3] {
    let scheduler = scheduler(environment);
    let world = scheduler.world().unwrap();
    let rank = world.as_ref().map_or("8".parse().unwrap(), |world| world.value);
    [
        world.map(|provided| provided.to_string()),
        scheduler.rank(rank).unwrap().map(|provided| provided.to_string()),
        scheduler.job().unwrap().map(|provided| provided.to_string()),
    ]
}

fn refused<T: fmt::Debug>(result: Result<T, Stop>) -> String {
    let stop = result.unwrap_err();
    assert_eq!(stop.document()["kind"], "usage");
    stop.to_string()
}

#[test]
fn each_scheduler_is_read_by_its_own_names() {
    let slurm =
        [("SLURM_NODEID", "2"), ("SLURM_NNODES", "4"), ("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "0")];
    let sky = [
        ("SKYPILOT_NODE_RANK", "1"),
        ("SKYPILOT_NUM_NODES", "2"),
        ("SKYPILOT_TASK_ID", "sky-2026-01-02-03-04-05-678901_train_1"),
    ];
    let cases: [(Pairs<'_>, [&str; 3]); 9] = [
        (&[], ["", "", ""]),
        (&slurm, ["4 from SLURM_NNODES", "2 from SLURM_NODEID", "slurm-12.0 from SLURM_JOB_ID"]),
        (&slurm[..3], ["4 from SLURM_NNODES", "2 from SLURM_NODEID", "slurm-12 from SLURM_JOB_ID"]),
        (&[("JOB_COMPLETION_INDEX", "7")], ["", "7 from JOB_COMPLETION_INDEX", ""]),
        (
            &[("LWS_WORKER_INDEX", "1"), ("LWS_GROUP_SIZE", "3")],
            ["3 from LWS_GROUP_SIZE", "1 from LWS_WORKER_INDEX", ""],
        ),
        (
            &sky,
            [
                "2 from SKYPILOT_NUM_NODES",
                "1 from SKYPILOT_NODE_RANK",
                "sky-2026-01-02-03-04-05-678901_train_1 from SKYPILOT_TASK_ID",
            ],
        ),
        (
            &[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")],
            ["2 from OMPI_COMM_WORLD_SIZE", "1 from OMPI_COMM_WORLD_RANK", ""],
        ),
        (&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], ["2 from PMI_SIZE", "0 from PMI_RANK", ""]),
        (&[("RANK", "1"), ("WORLD_SIZE", "2"), ("SLURM_NODEID", "")], ["", "", ""]),
    ];
    for (environment, expected) in cases {
        let expected = expected.map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()));
        assert_eq!(provided(environment), expected, "{environment:?}");
    }
}

#[test]
fn schedulers_that_disagree_are_an_error_that_names_both() {
    let both = [("SLURM_NODEID", "1"), ("SLURM_NNODES", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
    assert_eq!(provided(&both)[1].as_deref(), Some("1 from SLURM_NODEID"));

    let sizes = [("SLURM_NNODES", "2"), ("OMPI_COMM_WORLD_SIZE", "16")];
    let error = refused(scheduler(&sizes).world());
    assert_eq!(
        error,
        "SLURM_NNODES=2 and OMPI_COMM_WORLD_SIZE=16 disagree on the number of nodes; give --world N (or \
         MINGLE_WORLD)"
    );
    let ranks = [("SLURM_NODEID", "1"), ("SLURM_NNODES", "4"), ("PMI_RANK", "0"), ("PMI_SIZE", "4")];
    let error = refused(scheduler(&ranks).rank("4".parse().unwrap()));
    assert!(error.starts_with("SLURM_NODEID=1 and PMI_RANK=0 disagree on the rank; give --rank"), "{error}");
    let jobs = [("SLURM_JOB_ID", "1"), ("SKYPILOT_TASK_ID", "a")];
    let error = refused(scheduler(&jobs).job());
    assert!(error.starts_with("SLURM_JOB_ID=slurm-1 and SKYPILOT_TASK_ID=a disagree"), "{error}");
}

#[test]
fn a_variable_that_is_not_a_number_is_named() {
    let four: WorldSize = "4".parse().unwrap();
    for value in ["x", "-1", "1.5", "99999999999", "1 "] {
        let environment = [("SLURM_NODEID", value), ("SLURM_NNODES", "4")];
        let error = refused(scheduler(&environment).rank(four));
        assert!(error.starts_with(&format!("SLURM_NODEID={value}: not a number")), "{error}");
    }
    let error = refused(scheduler(&[("PMI_SIZE", "0")]).world());
    assert!(error.starts_with("PMI_SIZE=0: ") && error.ends_with("give --world N"), "{error}");
    let error = refused(scheduler(&[("JOB_COMPLETION_INDEX", "4")]).rank(four));
    assert!(error.starts_with("JOB_COMPLETION_INDEX=4: ") && error.contains("0 to 3"), "{error}");
    let error = refused(scheduler(&[("SKYPILOT_TASK_ID", "a\u{1b}b")]).job());
    assert!(error.starts_with("SKYPILOT_TASK_ID=a\\u{1b}b: "), "{error}");
}

#[test]
fn a_rank_counts_only_in_a_world_of_the_schedulers_size() {
    for other in [&[("SLURM_NODEID", "0"), ("SLURM_NNODES", "1")][..], &[("SLURM_NODEID", "0")]] {
        assert_eq!(scheduler(other).rank("4".parse().unwrap()).unwrap(), None, "{other:?}");
    }
}

#[test]
fn variables_that_mingle_has_printed_do_not_count_as_a_schedulers() {
    let own = [("SKYPILOT_NODE_RANK", "1"), ("SKYPILOT_NUM_NODES", "2")];
    let advice = own.map(|(name, value)| (name, value.to_owned()));
    let printed = Variables::of_fabric(&advice, |_| None);
    let (_, list) = printed.set().iter().find(|(name, _)| *name == MINGLE_SET).unwrap();
    let listed = [&own[..], &[(MINGLE_SET, list)]].concat();
    assert!(provided(&own)[0].is_some());
    assert_eq!(provided(&listed), [None, None, None]);
    let other = [("SKYPILOT_NODE_RANK", "3"), own[1], (MINGLE_SET, list)];
    assert!(scheduler(&other).text("SKYPILOT_NODE_RANK").unwrap().is_some(), "the next task's");
}

#[test]
fn a_batch_script_is_distinguished_from_a_step_and_from_mpirun() {
    let batch = [("SLURM_NNODES", "2"), ("SLURM_JOB_ID", "7")];
    let with = |more: Pairs<'_>| {
        let all = [&batch[..], more].concat();
        let scheduler = scheduler(&all);
        (scheduler.is_batch_shell().unwrap(), scheduler.job().unwrap().unwrap().value.to_string())
    };
    assert_eq!(with(&[]), (true, "slurm-7".to_owned()));
    assert_eq!(with(&[("SLURM_STEP_ID", "3")]), (false, "slurm-7.3".to_owned()));
    let mpirun = ("OMPI_COMM_WORLD_RANK", "1");
    assert_eq!(with(&[mpirun, ("SLURM_STEP_ID", "3")]), (false, "slurm-7".to_owned()));
    assert_eq!(with(&[mpirun]), (false, "slurm-7".to_owned()));
    assert!(!scheduler(&[("SLURM_NNODES", "1")]).is_batch_shell().unwrap());
}

#[test]
fn the_leader_of_a_group_is_a_seed() {
    let leader = [("LWS_LEADER_ADDRESS", "train-0.train.default")];
    let provided = scheduler(&leader).seeds().unwrap().unwrap();
    assert_eq!(provided.to_string(), "train-0.train.default from LWS_LEADER_ADDRESS");
    assert!(
        refused(scheduler(&[("LWS_LEADER_ADDRESS", "a b")]).seeds()).starts_with("LWS_LEADER_ADDRESS=a b: ")
    );
}

#[test]
fn a_pods_ordinal_follows_the_last_dash_of_its_name() {
    for (host, number) in [("trainer-3", 3), ("a-b-12", 12), ("web-0.web.default.svc", 0)] {
        assert_eq!(ordinal(host), Ok(number), "{host}");
    }
    for host in ["trainer", "trainer-", "trainer-x", "trainer-3a", "trainer-+3", "3", "", "a-99999999999"] {
        assert!(ordinal(host).unwrap_err().contains("trainer-3"), "{host}");
    }
}

/// The first host and how many more.
fn seeds(environment: Pairs<'_>) -> Option<String> {
    scheduler(environment).seeds().unwrap().map(|provided| provided.to_string())
}

#[test]
fn the_hosts_of_slurms_step_or_else_job_and_of_skypilots_task_are_seeds() {
    let text = |text: &str| Some(text.to_owned());
    let slurm = [("SLURM_JOB_NODELIST", "r[1-2]n[08-09],login"), ("SLURM_STEP_NODELIST", "r1n[08-09]")];
    assert_eq!(seeds(&slurm), text("r1n08 and 1 more from SLURM_STEP_NODELIST"));
    assert_eq!(seeds(&slurm[..1]), text("r1n08 and 4 more from SLURM_JOB_NODELIST"));
    // mpirun starts the processes of its own host outside of the step.
    let mpirun = [slurm[0], slurm[1], ("OMPI_COMM_WORLD_RANK", "1")];
    assert_eq!(seeds(&mpirun), text("r1n08 and 4 more from SLURM_JOB_NODELIST"));
    let sky = [("SKYPILOT_NODE_IPS", "10.0.0.1\n10.0.0.2\n10.0.0.3")];
    assert_eq!(seeds(&sky), text("10.0.0.1 and 2 more from SKYPILOT_NODE_IPS"));
    // Several jobs of one node each are one world, of which a job's list has one node.
    assert_eq!(seeds(&[("SLURM_JOB_NODELIST", "gpu7")]), None);
    // The nodes of a large world do not all look up all names.
    let large = seeds(&[("SLURM_JOB_NODELIST", "frontier[00001-09408]")]);
    assert_eq!(large, text("frontier00001 and 63 more from SLURM_JOB_NODELIST"));
    let error = refused(scheduler(&[("SLURM_JOB_NODELIST", "gpu[1-")]).seeds());
    assert!(error.starts_with("SLURM_JOB_NODELIST=gpu[1-: ") && error.ends_with("or give --seed"), "{error}");
}

#[test]
fn volcanos_index_is_a_rank_where_the_job_has_one_task() {
    let one = [
        ("VC_TASK_INDEX", "2"),
        ("VC_WORKER_NUM", "4"),
        ("VC_WORKER_HOSTS", "a-worker-0.a,a-worker-1.a,a-worker-2.a,a-worker-3.a"),
    ];
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(provided(&one), [text("4 from VC_WORKER_NUM"), text("2 from VC_TASK_INDEX"), None]);
    assert_eq!(seeds(&one), text("a-worker-0.a and 3 more from VC_WORKER_HOSTS"));
    let two = [&one[..], &[("VC_MASTER_NUM", "1"), ("VC_MASTER_HOSTS", "a-master-0.a")]].concat();
    assert_eq!(provided(&two), [None, None, None]);
    assert_eq!(seeds(&two), text("a-master-0.a and 4 more from VC_MASTER_HOSTS"));
    // Without the plugin svc the number of pods is not known, nor how many tasks there are.
    assert_eq!(provided(&one[..1]), [None, None, None]);
    let error = refused(scheduler(&[("VC_WORKER_NUM", "four")]).world());
    assert!(error.starts_with("VC_WORKER_NUM=four: not a number"), "{error}");
    let error = refused(scheduler(&[("VC_WORKER_NUM", "1"), ("VC_WORKER_HOSTS", ",")]).seeds());
    assert!(error.starts_with("VC_WORKER_HOSTS=: lists no host"), "{error}");
}

#[test]
fn aws_batch_names_its_main_node_to_all_others() {
    let child = [
        ("AWS_BATCH_JOB_NODE_INDEX", "1"),
        ("AWS_BATCH_JOB_NUM_NODES", "2"),
        ("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.0.7"),
    ];
    let expected = ["2 from AWS_BATCH_JOB_NUM_NODES", "1 from AWS_BATCH_JOB_NODE_INDEX"];
    assert_eq!(provided(&child)[..2], expected.map(|text| Some(text.to_owned())));
    let seed = "10.0.0.7 from AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS";
    assert_eq!(seeds(&child).as_deref(), Some(seed));
    assert_eq!(seeds(&child[..2]), None, "the main node");
    let wrong = [("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "0.0.0.0")];
    let error = refused(scheduler(&wrong).seeds());
    assert!(error.starts_with("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=0.0.0.0: "), "{error}");
}

#[test]
fn sagemaker_numbers_its_hosts_by_their_place_in_the_list() {
    let list = ("SM_HOSTS", r#"["algo-1","algo-10","algo-2"]"#);
    let own = [list, ("SM_CURRENT_HOST", "algo-10")];
    let expected = ["3 from SM_HOSTS", "1 from SM_CURRENT_HOST"];
    assert_eq!(provided(&own)[..2], expected.map(|text| Some(text.to_owned())));
    assert_eq!(seeds(&own).as_deref(), Some("algo-1 and 2 more from SM_HOSTS"));
    let error = refused(scheduler(&[list, ("SM_CURRENT_HOST", "algo-4")]).rank("3".parse().unwrap()));
    assert!(error.starts_with("SM_CURRENT_HOST=algo-4: not in SM_HOSTS"), "{error}");
    for (wrong, reason) in [
        ("algo-1", "not a JSON list"),
        ("[1]", "not a JSON list"),
        ("[]", "lists no host"),
        ("[\"a b\"]", "no host"),
    ] {
        let error = refused(scheduler(&[("SM_HOSTS", wrong)]).seeds());
        assert!(error.starts_with("SM_HOSTS=") && error.contains(reason), "{wrong}: {error}");
    }
}

#[test]
fn runpods_common_names_count_only_beside_its_own() {
    let all = [("PRIMARY_ADDR", "10.65.0.2"), ("NUM_NODES", "2"), ("NODE_RANK", "1"), ("WORLD_SIZE", "16")];
    let expected = ["2 from NUM_NODES", "1 from NODE_RANK"];
    assert_eq!(provided(&all)[..2], expected.map(|text| Some(text.to_owned())));
    assert_eq!(seeds(&all).as_deref(), Some("10.65.0.2 from PRIMARY_ADDR"));
    assert_eq!(provided(&all[1..]), [None, None, None]);
    let error = refused(scheduler(&[all[0], ("NUM_NODES", "two")]).world());
    assert!(error.starts_with("NUM_NODES=two: not a number"), "{error}");
}

#[test]
fn flux_has_a_rank_for_each_task_and_an_id_that_all_nodes_write_alike() {
    let task = |rank, id| [("FLUX_TASK_RANK", rank), ("FLUX_JOB_NNODES", "2"), ("FLUX_JOB_ID", id)];
    let text = |text: &str| Some(text.to_owned());
    let expected = ["2 from FLUX_JOB_NNODES", "1 from FLUX_TASK_RANK", "flux-fD2e73NP from FLUX_JOB_ID"];
    assert_eq!(provided(&task("1", "\u{192}D2e73NP")), expected.map(text));
    assert_eq!(provided(&task("1", "fD2e73NP")), expected.map(text));
    let error = refused(scheduler(&task("2", "f1")).rank("2".parse().unwrap()));
    assert!(error.starts_with("FLUX_TASK_RANK=2: ") && error.contains("0 to 1"), "{error}");
}

#[test]
fn the_hosts_of_a_batch_job_count_once_each_and_where_nothing_else_says_how_many() {
    let path = std::env::temp_dir().join(format!("mingle-hosts-{}", std::process::id()));
    std::fs::write(&path, "gpu1\ngpu1\ngpu2\n\n").unwrap();
    let file = path.to_str().unwrap();
    let text = |text: &str| Some(text.to_owned());
    for (variable, id, job) in
        [("PBS_NODEFILE", "PBS_JOBID", "pbs-12.head"), ("LSB_DJOB_HOSTFILE", "LSB_JOBID", "lsf-12.head")]
    {
        let batch = [(variable, file), (id, "12.head")];
        let expected = [Some(format!("2 from {variable}")), None, Some(format!("{job} from {id}"))];
        assert_eq!(provided(&batch), expected);
        assert_eq!(seeds(&batch), Some(format!("gpu1 and 1 more from {variable}")));
        let mpi = [&batch[..], &[("OMPI_COMM_WORLD_SIZE", "16"), ("OMPI_COMM_WORLD_RANK", "3")]].concat();
        assert_eq!(
            provided(&mpi)[..2],
            [text("16 from OMPI_COMM_WORLD_SIZE"), text("3 from OMPI_COMM_WORLD_RANK")]
        );
        let error = refused(scheduler(&[(variable, "/no/such/file")]).world());
        assert!(error.starts_with(&format!("{variable}=/no/such/file: ")), "{error}");
    }
    std::fs::write(&path, "").unwrap();
    let error = refused(scheduler(&[("PBS_NODEFILE", file)]).world());
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains("lists no host"), "{error}");
}

/// The names of the sources, as in documents and in the help.
const NAMES: [&str; SOURCES.len()] = [
    "Slurm",
    "LeaderWorkerSet",
    "Indexed Job",
    "Volcano",
    "SkyPilot",
    "AWS Batch",
    "SageMaker",
    "RunPod",
    "Flux",
    "PBS",
    "LSF",
    "Open MPI",
    "PMI",
];

/// The row of a scheduler in docs/reference.md.
fn row((name, source): (&str, &SchedulerVariables)) -> String {
    let hosts = |hosts: Hosts| match hosts {
        Hosts::Address(name) | Hosts::Json(name) | Hosts::File(name) => format!("`{name}`"),
        Hosts::List { job, step } => {
            step.map_or_else(String::new, |step| format!("`{step}`, or ")) + &format!("`{job}`")
        }
        Hosts::OfTasks => format!("`{}<TASK>{}` of each task", table::OF_TASKS, table::HOSTS),
    };
    let number = |number: Option<Number>| match number {
        None => String::new(),
        Some(Number::Variable(name)) => format!("`{name}`"),
        Some(Number::PlaceOf(own)) => format!("the place of `{own}` in {}", source.hosts.map(hosts).unwrap()),
        Some(Number::CountOfHosts) => match source.hosts.unwrap() {
            Hosts::File(file) => format!("the hosts in the file `{file}`"),
            list => format!("the hosts of {}", hosts(list)),
        },
        Some(Number::OfTask) => format!("`{}<TASK>{}`", table::OF_TASKS, table::NUMBER),
    };
    let job = |JobParts { prefix, variable, step }: &JobParts| {
        let prefix = if prefix.is_empty() { String::new() } else { format!("`{prefix}` with ") };
        let step = step.map_or_else(String::new, |step| format!(" and `{step}`"));
        format!("{prefix}`{variable}`{step}")
    };
    let needs = source.needs.map_or_else(String::new, |needed| format!(", where `{needed}` is set"));
    let cells = [
        format!("{name}{needs}"),
        number(source.rank),
        number(source.world),
        source.job.as_ref().map_or_else(String::new, job),
        source.hosts.map_or_else(String::new, hosts),
    ];
    cells
        .iter()
        .fold("|".to_owned(), |row, cell| if cell.is_empty() { row + " |" } else { row + " " + cell + " |" })
        + "\n"
}

#[test]
fn the_reference_has_a_row_for_every_scheduler_and_the_help_its_name() {
    let head = "| scheduler | rank | world | job | seeds |\n| --- | --- | --- | --- | --- |\n";
    let table = head.to_owned() + &NAMES.into_iter().zip(&SOURCES).map(row).collect::<String>();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference.md");
    let text = std::fs::read_to_string(path).unwrap();
    let begin = text.find("| scheduler | rank |").unwrap();
    let length = text[begin..].find("\n\n").unwrap() + 1;
    if std::env::var_os("MINGLE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(path, [&text[..begin], &table, &text[begin + length..]].concat()).unwrap();
    } else {
        assert_eq!(&text[begin..begin + length], table, "MINGLE_BLESS=1 writes it");
    }
    let help = LowArgs::command().render_long_help().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for name in NAMES {
        assert!(help.contains(name), "{name}");
    }
}
