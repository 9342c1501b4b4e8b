//! A real training job: torchrun, with no argument but the script, on four nodes.

use crate::lab::torch::{finish_all, torch};
use crate::lab::{MINGLE, Options};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/allreduce.py");

#[test]
fn torchrun_without_options_reduces_across_four_nodes() {
    let Some(torch) = torch() else { return };
    let Some(lab) = Options::nodes(4).with_names().start() else { return };
    let script = r#"eval "$("$mingle" --job-id train --world 4 --timeout 60s)" &&
        exec "$python" -m torch.distributed.run "$script""#;
    let procs = (0..4).map(|node| {
        let mut command = lab.command(node, "bash");
        command.args(["-c", script]).env("mingle", MINGLE).env("python", &torch.python).env("script", SCRIPT);
        // torch 1.13 cannot parse its own default of these under Python 3.11.
        command.env("PET_REDIRECTS", "0:1").env("PET_TEE", "0:1");
        // Logs go to the lab's own /run. One thread per worker is enough to reduce one number.
        command.env("TMPDIR", "/run").env("OMP_NUM_THREADS", "1");
        lab.start(node, command)
    });
    for (rank, outcome) in finish_all(procs.collect()).into_iter().enumerate() {
        assert!(outcome.status.success(), "{}", outcome.render());
        // 1 + 2 + 3 + 4. Four separate worlds of one node would each have a sum of 1.
        let wanted = format!("rank {rank} of 4: sum 10");
        assert!(outcome.stdout.contains(&wanted), "no {wanted:?} in {}", outcome.render());
    }
}
