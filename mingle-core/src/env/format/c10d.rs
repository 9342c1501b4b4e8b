//! torchrun with the rendezvous c10d: `eval "$(mingle --format c10d ...)" && torchrun train.py`.
//!
//! torchrun reads each of its options from `PET_` and the option's name (torch/distributed/argparse_util.py).
//! `is_host` says which node opens the store; without it each compares the endpoint with its own names and
//! addresses, which takes a working name service (torch/distributed/elastic/rendezvous/
//! c10d_rendezvous_backend.py, utils.py). `PET_LOCAL_ADDR` is the address that torchruns tell each other instead of
//! a host's name. The endpoint is split at its last colon, and brackets are taken off (utils.py,
//! `parse_rendezvous_endpoint`).

use super::{Facts, Variable, endpoint};
use crate::env::job_to_env;

/// What only torchrun's static rendezvous reads.
pub(super) const LEFT_OUT: [&str; 3] = ["PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"];

pub(super) fn variables(facts: Facts<'_>) -> Vec<Variable> {
    let formed = facts.formed;
    let is_host = if formed.rank.get() == 0 { "is_host=1" } else { "is_host=0" };
    vec![
        ("PET_RDZV_BACKEND".into(), "c10d".to_owned()),
        ("PET_RDZV_ENDPOINT".into(), endpoint(formed.master)),
        ("PET_RDZV_ID".into(), job_to_env(facts.job)),
        ("PET_RDZV_CONF".into(), is_host.to_owned()),
        ("PET_LOCAL_ADDR".into(), formed.local.to_string()),
    ]
}
