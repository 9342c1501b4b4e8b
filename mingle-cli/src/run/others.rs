//! What a node that stays with its world tells people of the other nodes.

use mingle_core::proto::Over;
use mingle_core::{Change, World};

use crate::config::{LONGEST, Restarts, Settings};
use crate::{progress, stderr};

/// Warns where nodes of this world do not answer, answer again, or are too many.
pub(crate) fn warn(change: &Change, world: World, restarts: Restarts, config: &Settings) {
    let warning = match change {
        Change::Suspected(rank, peer) => {
            let limit = restarts.gone_after;
            // In a smaller world either side may be the one that is cut off.
            let after = if world.get() < 3 || limit == LONGEST {
                String::new()
            } else {
                format!("; if that lasts for {}, it is gone", progress::duration(limit))
            };
            format!("rank {rank}, {peer}, does not answer{after}")
        }
        Change::Back(rank, peer) => format!("rank {rank}, {peer}, answers again"),
        Change::CutOff => "most other nodes do not answer; this node may be cut off, and goes on".to_owned(),
        _ => return,
    };
    if !config.quiet {
        stderr::say(format_args!("warning: {warning}"));
    }
}

/// Names the node whose end was the reason for the failures of the others.
pub(crate) fn say_cause(over: &Over, refund: &str, config: &Settings) {
    if !config.quiet {
        stderr::say(format_args!("the first cause: {over}{refund}"));
    }
}
