//! vLLM on several nodes: `vllm serve MODEL` with the arguments below.
//!
//! `--nnodes`, `--node-rank`, `--master-addr` and `--master-port` are arguments of `vllm serve`
//! (vllm/engine/arg_utils.py), which has no variables for them. All nodes but the first have no server for
//! requests: `--headless` (vllm/entrypoints/cli/serve.py, `run_headless`). VLLM_HOST_IP is the address that a
//! node tells the others (vllm/utils/network_utils.py, `get_ip`); without it vLLM takes the address by which
//! it would reach the Internet.
//!
//! In some modes of data parallelism every node has a server behind a load balancer, and `--headless` would
//! take it away (vllm/entrypoints/cli/serve.py, `cmd`).

use std::ffi::OsString;

use super::Launcher;

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "vllm",
    about: "vLLM, with VLLM_HOST_IP and {args}",
    arguments: Some(|input, command| {
        let formed = input.facts.formed;
        let mut words = vec!["--nnodes".to_owned(), formed.world.to_string()];
        words.extend(["--node-rank".to_owned(), formed.rank.to_string()]);
        words.extend(["--master-addr".to_owned(), formed.master.ip().to_string()]);
        words.extend(["--master-port".to_owned(), formed.master.port().to_string()]);
        if formed.rank.get() > 0 && !every_node_has_a_server(command) {
            words.push("--headless".to_owned());
        }
        words
    }),
    owns: &[("VLLM_HOST_IP", |input| Ok(input.facts.formed.local.to_string()))],
    ..Launcher::PLAIN
};

/// The arguments by which vLLM has a server on every node.
const SERVERS: &str = "\
    --data-parallel-external-lb -dpe --data-parallel-hybrid-lb -dph \
    --data-parallel-multi-port-external-lb -dpm --data-parallel-rank -dpn";

fn every_node_has_a_server(command: &[OsString]) -> bool {
    command.iter().any(|word| {
        // vLLM accepts `_` for `-`, and a value behind `=`.
        let word = word.to_string_lossy().replace('_', "-");
        SERVERS.split(' ').any(|server| word.split('=').next() == Some(server))
    })
}
