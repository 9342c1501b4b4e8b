//! What a node does before it waits for others.

use mingle_core::rdma;

use crate::config::Settings;
use crate::exit::Stop;
use crate::fabric::Found;
use crate::{same, stderr};

/// Prints warnings, looks at this host for what the others learn of it, and checks that its files can be
/// written, before this node waits for others.
pub(crate) fn prepare(config: &mut Settings) -> Result<Found, Stop> {
    stderr::warn(&config.warnings);
    if let Some(provenance) = &config.provenance {
        stderr::say(format_args!("{provenance}"));
    }
    for output in &config.outputs {
        output.check().map_err(|error| {
            Stop::Other("output", format!("{} of --output cannot be written: {error}", output.path.display()))
        })?;
    }
    let found = config.fabric.find(&config.rendezvous.network.interfaces)?;
    config.rendezvous.attributes.fabric = found.summary;
    if config.rendezvous.world.max().get() > 1 {
        config.rendezvous.traits = same::traits(config, found.machine.as_ref());
    }
    stderr::warn(found.machine.as_ref().and_then(rdma::unusable));
    Ok(found)
}
