//! SGLang on several nodes: `sglang serve --model-path MODEL` with the arguments below.
//!
//! `--dist-init-addr`, `--nnodes` and `--node-rank` are arguments of the server
//! (python/sglang/srt/arg_groups/fields/parallel.py); an IPv6 address is in brackets. SGLANG_HOST_IP is the
//! address that a node tells the others (python/sglang/srt/utils/network.py, `get_local_ip_auto`).

use super::Launcher;

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "sglang",
    about: "SGLang, with SGLANG_HOST_IP and {args}",
    arguments: Some(|input, _| {
        let formed = input.facts.formed;
        let mut words = vec!["--dist-init-addr".to_owned(), input.master()];
        words.extend(["--nnodes".to_owned(), formed.world.to_string()]);
        words.extend(["--node-rank".to_owned(), formed.rank.to_string()]);
        words
    }),
    owns: &[("SGLANG_HOST_IP", |input| Ok(input.facts.formed.local.to_string()))],
    ..Launcher::PLAIN
};
