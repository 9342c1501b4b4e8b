//! torchrun with its c10d rendezvous: `eval "$(mingle --format c10d ...)" && torchrun train.py`.
//!
//! torchrun reads each option from the variable `PET_` and the option's name
//! (torch/distributed/argparse_util.py). `is_host` says which node opens the store; without it each node
//! compares the endpoint with its own names and addresses, which needs a working name service
//! (torch/distributed/elastic/rendezvous: c10d_rendezvous_backend.py, utils.py). `PET_LOCAL_ADDR` is the
//! address that torchrun gives to the other nodes instead of the host's name. torchrun splits the endpoint at
//! its last colon and removes brackets (utils.py, `parse_rendezvous_endpoint`).

use super::Launcher;
use crate::env::job_to_env;

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "c10d",
    about: "torchrun with its c10d rendezvous",
    // Only torchrun's static rendezvous reads these.
    left_out: &["PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"],
    owns: &[
        ("PET_RDZV_BACKEND", |_| Ok("c10d".to_owned())),
        ("PET_RDZV_ENDPOINT", |input| Ok(input.master())),
        ("PET_RDZV_ID", |input| Ok(job_to_env(input.facts.job))),
        ("PET_RDZV_CONF", |input| Ok(format!("is_host={}", u8::from(input.facts.formed.rank.get() == 0)))),
        ("PET_LOCAL_ADDR", |input| Ok(input.facts.formed.local.to_string())),
    ],
    ..Launcher::PLAIN
};
