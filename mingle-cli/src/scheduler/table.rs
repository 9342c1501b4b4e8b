//! The schedulers, one entry each: its variables for the rank, the size of the world, the job and the hosts.

/// The variables that a scheduler passes to a node.
pub(super) struct SchedulerVariables {
    /// The variables count only where this one is set: their names are not the scheduler's alone.
    pub(super) needs: Option<&'static str>,
    pub(super) rank: Option<Number>,
    pub(super) world: Option<Number>,
    pub(super) job: Option<JobParts>,
    /// The addresses of other nodes, which are seeds.
    pub(super) hosts: Option<Hosts>,
}

/// The source of a number.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Variable(&'static str),
    /// The place of the host that this variable names among the scheduler's hosts.
    PlaceOf(&'static str),
    /// How many hosts there are.
    CountOfHosts,
    /// The pods of the job's one task.
    OfTask,
}

/// The source of a list of hosts.
#[derive(Clone, Copy)]
pub(super) enum Hosts {
    Address(&'static str),
    Json(&'static str),
    File(&'static str),
    /// A list as Slurm or SkyPilot writes it, of a part of the job with processes of its own or else of
    /// the job.
    List {
        job: &'static str,
        step: Option<&'static str>,
    },
    /// The hosts of all tasks.
    OfTasks,
}

/// The parts of a job's ID.
pub(super) struct JobParts {
    pub(super) prefix: &'static str,
    pub(super) variable: &'static str,
    /// A part of the job with processes of its own.
    pub(super) step: Option<&'static str>,
}

/// Volcano's variables of a task: `VC_`, the task in capitals, and one of these two ends.
pub(super) const OF_TASKS: &str = "VC_";
pub(super) const NUMBER: &str = "_NUM";
pub(super) const HOSTS: &str = "_HOSTS";

const NONE: SchedulerVariables =
    SchedulerVariables { needs: None, rank: None, world: None, job: None, hosts: None };

/// All schedulers. Where several provide a job or hosts, the first one is named.
pub(super) const SOURCES: [SchedulerVariables; 13] = [
    // srun(1), "output environment variables".
    SchedulerVariables {
        rank: Some(Number::Variable("SLURM_NODEID")),
        world: Some(Number::Variable("SLURM_NNODES")),
        job: Some(JobParts { prefix: "slurm-", variable: "SLURM_JOB_ID", step: Some("SLURM_STEP_ID") }),
        hosts: Some(Hosts::List { job: "SLURM_JOB_NODELIST", step: Some("SLURM_STEP_NODELIST") }),
        ..NONE
    },
    // lws/pkg/utils/pod/pod_utils.go.
    SchedulerVariables {
        rank: Some(Number::Variable("LWS_WORKER_INDEX")),
        world: Some(Number::Variable("LWS_GROUP_SIZE")),
        hosts: Some(Hosts::Address("LWS_LEADER_ADDRESS")),
        ..NONE
    },
    // kubernetes/pkg/controller/job/indexed_job_utils.go. Also JobSet with one replica: each counts for
    // itself.
    SchedulerVariables { rank: Some(Number::Variable("JOB_COMPLETION_INDEX")), ..NONE },
    // volcano/pkg/controllers/job/plugins: env/env.go has the index of a pod within its task; svc/svc.go has
    // the size and the hosts of every task. The index is the rank where the job has one task.
    SchedulerVariables {
        rank: Some(Number::Variable("VC_TASK_INDEX")),
        world: Some(Number::OfTask),
        hosts: Some(Hosts::OfTasks),
        ..NONE
    },
    // skypilot/sky/skylet/constants.py.
    SchedulerVariables {
        rank: Some(Number::Variable("SKYPILOT_NODE_RANK")),
        world: Some(Number::Variable("SKYPILOT_NUM_NODES")),
        job: Some(JobParts { prefix: "", variable: "SKYPILOT_TASK_ID", step: None }),
        hosts: Some(Hosts::List { job: "SKYPILOT_NODE_IPS", step: None }),
        ..NONE
    },
    // AWS Batch User Guide, "Multi-node parallel jobs: Environment variables". The main node is not told its
    // address.
    SchedulerVariables {
        rank: Some(Number::Variable("AWS_BATCH_JOB_NODE_INDEX")),
        world: Some(Number::Variable("AWS_BATCH_JOB_NUM_NODES")),
        hosts: Some(Hosts::Address("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS")),
        ..NONE
    },
    // sagemaker-training-toolkit/ENVIRONMENT_VARIABLES.md.
    SchedulerVariables {
        rank: Some(Number::PlaceOf("SM_CURRENT_HOST")),
        world: Some(Number::CountOfHosts),
        hosts: Some(Hosts::Json("SM_HOSTS")),
        ..NONE
    },
    // Runpod's documentation, "Instant Clusters: configuration". Its WORLD_SIZE counts GPUs. NODE_RANK is a
    // name that others use as well, mingle among them.
    SchedulerVariables {
        needs: Some("PRIMARY_ADDR"),
        rank: Some(Number::Variable("NODE_RANK")),
        world: Some(Number::Variable("NUM_NODES")),
        hosts: Some(Hosts::Address("PRIMARY_ADDR")),
        ..NONE
    },
    // flux-core/doc/man7/flux-environment.rst. The rank counts tasks: one on each node is a node's.
    SchedulerVariables {
        rank: Some(Number::Variable("FLUX_TASK_RANK")),
        world: Some(Number::Variable("FLUX_JOB_NNODES")),
        job: Some(JobParts { prefix: "flux-", variable: "FLUX_JOB_ID", step: None }),
        ..NONE
    },
    // OpenPBS Reference Guide, "PBS environment variables": the file has a host once for each of its slots,
    // as Open MPI reads it (orte/mca/ras/tm/ras_tm_module.c).
    SchedulerVariables {
        world: Some(Number::CountOfHosts),
        job: Some(JobParts { prefix: "pbs-", variable: "PBS_JOBID", step: None }),
        hosts: Some(Hosts::File("PBS_NODEFILE")),
        ..NONE
    },
    // Using Platform LSF HPC, "Automatic generation of the job host file": a line for each slot.
    SchedulerVariables {
        world: Some(Number::CountOfHosts),
        job: Some(JobParts { prefix: "lsf-", variable: "LSB_JOBID", step: None }),
        hosts: Some(Hosts::File("LSB_DJOB_HOSTFILE")),
        ..NONE
    },
    // ompi/docs/tuning-apps/environment-var.rst. It counts processes: one on each node is a node's.
    SchedulerVariables {
        rank: Some(Number::Variable("OMPI_COMM_WORLD_RANK")),
        world: Some(Number::Variable("OMPI_COMM_WORLD_SIZE")),
        ..NONE
    },
    // mpich/doc/wiki/developer_guide: PMI-1, as Hydra and others set it. It counts processes as well.
    SchedulerVariables {
        rank: Some(Number::Variable("PMI_RANK")),
        world: Some(Number::Variable("PMI_SIZE")),
        ..NONE
    },
];
