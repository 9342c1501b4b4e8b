//! The JSON document of a formed world.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

use super::{Facts, Variable, Variables};
use crate::model::{Member, Metadata, Slots};

/// The JSON document of a formed world. Serialize it with any JSON serializer of serde.
///
/// `env` has the variables that a script would export, `unset` the names that a script would remove. `job` is
/// the job ID as the user wrote it; `env.MINGLE_JOB_ID` is percent-encoded, see
/// [`job_to_env`](super::job_to_env). `roster` is null if the rendezvous did not collect the roster.
///
/// ```json
/// {
///   "job": "my job", "rank": 0, "world": 1,
///   "master": {"address": "10.0.0.1", "port": 29503},
///   "local": "10.0.0.1", "interface": "eth0", "digest": "1f0e...",
///   "slots": {"own": 1, "before": 0, "total": 1},
///   "env": {"MASTER_ADDR": "10.0.0.1", "MINGLE_JOB_ID": "my%20job"}, "unset": [],
///   "fabric": {"transport": "RoCE v2 over IPv4", "warnings": []}, "differences": [],
///   "roster": [{"rank": 0, "id": "6d...", "host": "node-a", "address": "10.0.0.1", "port": 29503,
///     "slots": 1, "metadata": {}}]
/// }
/// ```
#[derive(Debug, Clone, Serialize)]
pub struct Document<'a> {
    job: &'a str,
    rank: u32,
    world: u32,
    master: HostPort,
    local: IpAddr,
    interface: Option<&'a str>,
    digest: String,
    slots: Slots,
    #[serde(serialize_with = "as_object")]
    env: &'a [Variable],
    unset: &'a [String],
    fabric: Fabric,
    differences: Vec<String>,
    roster: Option<Vec<RosterRow<'a>>>,
}

impl<'a> Document<'a> {
    /// The document of `facts`, with the `variables` of the JSON format.
    pub fn new(facts: Facts<'a>, variables: &'a Variables) -> Self {
        let formed = facts.formed;
        Self {
            job: facts.job.as_str(),
            rank: formed.rank.get(),
            world: formed.world.get(),
            master: HostPort { address: formed.master.ip(), port: formed.master.port() },
            local: formed.local,
            interface: facts.interface,
            digest: formed.digest.to_string(),
            slots: formed.slots,
            env: variables.set(),
            unset: variables.unset(),
            fabric: Fabric {
                transport: formed.verdict.transport.to_string(),
                warnings: formed.verdict.warnings().into_iter().map(|(text, _)| text).collect(),
            },
            differences: formed.sameness.lines(),
            roster: formed
                .roster
                .as_ref()
                .map(|roster| roster.members().iter().map(RosterRow::new).collect()),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
struct Fabric {
    transport: String,
    warnings: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
struct HostPort {
    address: IpAddr,
    port: u16,
}

#[derive(Debug, Clone, Serialize)]
struct RosterRow<'a> {
    rank: u32,
    id: String,
    host: &'a str,
    address: IpAddr,
    port: u16,
    slots: u32,
    metadata: &'a Metadata,
}

impl<'a> RosterRow<'a> {
    fn new(member: &'a Member) -> Self {
        Self {
            rank: member.rank.get(),
            // All 128 bits: NodeId's Display is a short form for people.
            id: format!("{:032x}", u128::from_be_bytes(member.id.0)),
            host: member.host.as_str(),
            address: member.address.ip(),
            port: member.address.port(),
            slots: member.slots,
            metadata: &member.metadata,
        }
    }
}

fn as_object<S: Serializer>(env: &[Variable], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(env.iter().map(|(name, value)| (name, value)))
}
