//! vLLM on several nodes: `vllm serve MODEL` with the arguments below.
//!
//! `--nnodes`, `--node-rank`, `--master-addr` and `--master-port` are arguments of `vllm serve`
//! (vllm/engine/arg_utils.py), which has no variables for them. All nodes but the first have no server for
//! requests: `--headless` (vllm/entrypoints/cli/serve.py, `run_headless`). VLLM_HOST_IP is the address that a
//! node tells the others (vllm/utils/network_utils.py, `get_ip`); without it vLLM takes the address by which
//! it would reach the Internet.

use super::{Launcher, Shell, Syntax};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "vllm",
    about: "vLLM, with VLLM_HOST_IP and {args}",
    syntax: Syntax::Script(Shell::Posix),
    needs_roster: false,
    own_ports: false,
    arguments: Some(|input| {
        let formed = input.facts.formed;
        let mut words = vec!["--nnodes".to_owned(), formed.world.to_string()];
        words.extend(["--node-rank".to_owned(), formed.rank.to_string()]);
        words.extend(["--master-addr".to_owned(), formed.master.ip().to_string()]);
        words.extend(["--master-port".to_owned(), formed.master.port().to_string()]);
        if formed.rank.get() > 0 {
            words.push("--headless".to_owned());
        }
        words
    }),
    left_out: &[],
    owns: &[("VLLM_HOST_IP", |input| Ok(input.local()))],
};
