//! Options of other launchers, and what mingle calls them.

/// The option of mingle for one that torchrun, srun, mpirun, accelerate or DeepSpeed have, with `-` or `_`.
pub(crate) fn of_other_launchers(word: &str) -> Option<&'static str> {
    let word = word.split('=').next().unwrap_or(word).replace('_', "-");
    Some(match word.as_str() {
        "--nnodes" | "--num-nodes" | "--num-machines" | "--nodes" | "--world-size" | "--np" | "-np"
        | "-n" | "-N" => "--world",
        "--nproc-per-node" | "--ntasks-per-node" | "--num-gpus" | "--gpus-per-node" => "--slots",
        "--node-rank" | "--machine-rank" | "--nodeid" => "--rank",
        "--rdzv-id" | "--job-name" => "--job-id",
        "--rdzv-endpoint" | "--master-addr" | "--main-process-ip" => "--seed",
        "--main-process-port" => "--master-port",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_launchers_have_an_option_whether_or_not_with_a_value() {
        for (word, option) in [
            ("--nnodes", "--world"),
            ("--nnodes=2:4", "--world"),
            ("--nproc_per_node", "--slots"),
            ("--node-rank=1", "--rank"),
            ("-n", "--world"),
        ] {
            assert_eq!(of_other_launchers(word), Some(option), "{word}");
        }
        assert_eq!(of_other_launchers("--unheard-of"), None);
    }
}
