//! The output of a formed world: the variables that launchers read, and the formats that hold them.
//!
//! [`Facts`] about a formed world and the user's environment give the [`Variables`] of a [`Format`]. The
//! variables become a script for a [`Shell`], or the text of another program's file.
//! A program that starts the launcher itself takes the variables from [`Format::variables`] and prints
//! nothing.
//!
//! | variable | reader |
//! | --- | --- |
//! | `MASTER_ADDR`, `MASTER_PORT`, `RANK`, `WORLD_SIZE`, `NODE_RANK` | PyTorch's `env://`, Lightning and most scripts; the world size counts nodes |
//! | `PET_NNODES`, `PET_NODE_RANK`, `PET_MASTER_ADDR`, `PET_MASTER_PORT` | torchrun, which ignores the names above and without these variables starts a world on each node |
//! | `PET_NPROC_PER_NODE` | torchrun: the number of workers on this node, unless the user has set it |
//! | `MINGLE_RANK_OFFSET`, `MINGLE_TOTAL_SLOTS` | scripts that number workers: the number of workers on lower ranks, and on all |
//! | `NCCL_SOCKET_IFNAME`, `GLOO_SOCKET_IFNAME` | NCCL (`=eth0`: without the `=` it matches by prefix) and Gloo (`eth0`) |
//! | `NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME`, `TORCHCOMM_GLOO_INTERFACE`, `TP_SOCKET_IFNAME` | the same for NVSHMEM, torchcomms and TensorPipe |
//! | `NCCL_SOCKET_FAMILY`, `NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY` | NCCL and NVSHMEM, in an IPv6 world |
//! | `NCCL_RAS_ADDR` | NCCL's RAS, whose clients would otherwise reach any job of this host |
//! | `NCCL_IB_*`, `UCX_*`, `NVSHMEM_*`, `FI_PROVIDER` | NCCL, UCX, NVSHMEM and libfabric, for RDMA; see [`beside`](crate::rdma::beside) |
//! | `MINGLE_JOB_ID` | scripts, and the next `mingle` in this shell; see [`job_to_env`] |
//! | `MINGLE_ROSTER_DIGEST` | scripts that compare nodes: it is equal on all nodes of one world |
//! | `MINGLE_SET` | the next `mingle` in this shell; see [`Variables`] |
//!
//! Some formats add the variables of a launcher; see [`Format`]. A [`Template`] fills in a user's own text.

pub mod alike;

mod facts;
mod job;
mod launcher;
mod shell;
mod template;
mod users;
mod variables;

pub use facts::Facts;
pub use job::{InvalidJobVariable, job_from_env, job_to_env};
pub use launcher::{Format, InvalidFormat, Unfit};
pub use shell::{Shell, UnsafeStatement};
pub use template::{InvalidTemplate, Template};
pub use users::{job_interfaces, users_value};
pub use variables::{Kept, MINGLE_SET, PET_NPROC_PER_NODE, Variable, Variables, is_own};

#[cfg(test)]
mod tests {
    //! The world that the tests of this folder share.

    use std::net::SocketAddr;

    use super::{Facts, Variables};
    use crate::model::{Digest, JobId, Sameness, Slots, World};
    use crate::proto::Formed;
    use mingle_rdma::Verdict;

    /// Rank 2 of 4.
    pub(super) fn formed(master: &str) -> Formed {
        let world = World::new(4).unwrap();
        let master: SocketAddr = master.parse().unwrap();
        Formed {
            rank: world.rank(2).unwrap(),
            world,
            asked: world.into(),
            master,
            local: "10.0.0.3".parse().unwrap(),
            digest: Digest([0xab; 16]),
            roster: None,
            verdict: Verdict::default(),
            sameness: Sameness::default(),
            slots: Slots { own: 8, before: 16, total: 32 },
            left_over: 0,
            broken: Vec::new(),
        }
    }

    /// The variables of rank 2 of 4 where the user has set `environment`.
    pub(super) fn variables(job: &str, interface: Option<&str>, environment: &[(&str, &str)]) -> Variables {
        let formed = formed("10.0.0.1:29503");
        let job: JobId = job.parse().unwrap();
        let lookup = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Variables::new(Facts { interface, ..Facts::new(&job, &formed) }, lookup)
    }
}
