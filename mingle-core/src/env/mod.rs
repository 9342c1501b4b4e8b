//! What is printed: the variables that launchers read, and the formats they are printed in.
//!
//! The way is always the same: [`Facts`] about a formed world become the [`Variables`] of a [`Format`], once
//! it is known what the user has set; these become a [`Script`] for a shell, a [`Document`] for JSON, or the text
//! of another program's file. Who starts the launcher itself takes the variables from [`Format::variables`] and
//! prints nothing.
//!
//! | variable | who reads it |
//! | --- | --- |
//! | `MASTER_ADDR`, `MASTER_PORT`, `RANK`, `WORLD_SIZE`, `NODE_RANK` | PyTorch's `env://`, Lightning and most scripts; the world counts nodes |
//! | `PET_NNODES`, `PET_NODE_RANK`, `PET_MASTER_ADDR`, `PET_MASTER_PORT` | torchrun, which does not read the classic names and without these starts one world per node |
//! | `PET_NPROC_PER_NODE` | torchrun: this node's workers, where the user has not said how many |
//! | `MINGLE_RANK_OFFSET`, `MINGLE_TOTAL_SLOTS` | whoever numbers workers: those on lower ranks, and all |
//! | `NCCL_SOCKET_IFNAME`, `GLOO_SOCKET_IFNAME` | NCCL (`=eth0`: it matches by prefix without the `=`) and Gloo (`eth0`) |
//! | `NCCL_SOCKET_FAMILY` | NCCL, in a world of IPv6 |
//! | `NCCL_IB_*`, `UCX_*`, `NVSHMEM_*`, `FI_PROVIDER` | NCCL, UCX, NVSHMEM and libfabric, for RDMA; see [`fabric`] |
//! | `MINGLE_JOB_ID` | scripts, and the next `mingle` in this shell; see [`job_to_env`] |
//! | `MINGLE_ROSTER_DIGEST` | whoever wants to compare nodes: equal on all nodes of one world |
//! | `MINGLE_SET` | the next `mingle` in this shell; see [`Variables`] |
//!
//! Some formats add those of one launcher; see [`Format`].

pub mod fabric;

mod fish;
mod format;
mod job;
mod json;
mod setting;
mod sh;

use std::borrow::Cow;

use crate::model::JobId;
use crate::proto::Formed;
use crate::rdma::is_nameable;

pub use format::{Format, InvalidFormat, Rendered, Unfit};
pub use job::{InvalidJobVariable, job_from_env, job_to_env};
pub use json::Document;
pub use setting::{InvalidSetting, Setting};
pub use sh::{Script, Shell, UnsafeStatement};

/// The variable that lists which of the user's variables `mingle` itself has set.
pub const MINGLE_SET: &str = "MINGLE_SET";

const NCCL_SOCKET_IFNAME: &str = "NCCL_SOCKET_IFNAME";
const GLOO_SOCKET_IFNAME: &str = "GLOO_SOCKET_IFNAME";
const NCCL_SOCKET_FAMILY: &str = "NCCL_SOCKET_FAMILY";

/// How many workers torchrun starts on this node.
pub const PET_NPROC_PER_NODE: &str = "PET_NPROC_PER_NODE";

/// Beginnings of all names that are ever advice, but for PET_NPROC_PER_NODE. What MINGLE_SET lists beside these
/// and a launcher's own variables is not touched.
const ADVICE: [&str; 5] = ["FI_", "GLOO_", "NCCL_", "NVSHMEM_", "UCX_"];

/// A variable's name, and its value.
pub type Variable = (Cow<'static, str>, String);

/// What is known about a formed world: all that the output depends on, beside the user's own variables.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The job.
    pub job: &'a JobId,
    /// This node's place.
    pub formed: &'a Formed,
    /// The interface that holds this node's address. None where no network took part: a world of one.
    pub interface: Option<&'a str>,
    /// What this host's fabric needs, from [`fabric::variables`].
    pub fabric: &'a [(&'static str, String)],
    /// What is to be set whatever `mingle` thinks of it.
    pub settings: &'a [Setting],
    /// Whether the user has said how many workers this node runs; else PET_NPROC_PER_NODE yields to his own.
    pub slots_given: bool,
    /// How many ranks, from 0 on, are parameter servers of TensorFlow.
    pub parameter_servers: u32,
}

/// The variables that a formed world stands for.
///
/// There are two sorts. The *result* (MASTER_ADDR, RANK and so on, and all that begin with PET_ or
/// MINGLE_) is what `mingle` was asked for, and replaces whatever was there. The *advice* (NCCL_*, GLOO_*,
/// UCX_*, NVSHMEM_*, FI_* and PET_NPROC_PER_NODE) yields: who has set such a variable knows more about the host
/// than `mingle` does. A [`Setting`] yields to nothing.
///
/// Advice that `mingle` gave earlier in the same shell is not the user's. It is told apart by
/// MINGLE_SET, which lists by name, with commas, the advice that is `mingle`'s own: such a variable is
/// replaced, or unset where it would now be wrong. The result is not listed there: it is never the
/// user's. What a format adds for its launcher is, so that a later `mingle` with another format removes it: a
/// PET_RDZV_BACKEND that stayed would turn torchrun's static world into another. To keep a value of your own,
/// set after `mingle` gave one, unset MINGLE_SET.
///
/// ```
/// use mingle_core::env::{Facts, Variables};
/// # use mingle_core::{Digest, Formed, World};
/// # let (job, world) = ("foo".parse()?, World::new(4)?);
/// # let formed = Formed { rank: world.rank(2)?, world, master: ([10, 0, 0, 1], 29503).into(),
/// #     local: [10, 0, 0, 3].into(), digest: Digest([0; 16]), roster: None, verdict: Default::default(),
/// #     slots: mingle_core::Slots { own: 8, before: 16, total: 32 } };
/// let facts = Facts { job: &job, formed: &formed, interface: Some("eth0"), fabric: &[], settings: &[],
/// #     slots_given: false, parameter_servers: 0 };
/// let variables = Variables::new(facts, |name| std::env::var(name).ok());
/// assert!(variables.set().contains(&("RANK".into(), "2".to_owned())));
/// # Ok::<(), mingle_core::InvalidId>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variables {
    set: Vec<Variable>,
    unset: Vec<String>,
    kept: Vec<Kept>,
    unnameable: bool,
}

/// A variable that the user has set, and that is therefore left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// Its name.
    pub name: &'static str,
    /// What the user has set it to.
    pub value: String,
    /// What it would have been set to.
    pub advice: String,
}

/// A library's list of devices, and its index into their tables of GIDs: right for the devices that were
/// chosen, and for no others.
const GID_INDICES: [(&str, &str); 3] = [
    ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX"),
    ("UCX_NET_DEVICES", "UCX_IB_GID_INDEX"),
    ("NVSHMEM_HCA_LIST", "NVSHMEM_IB_GID_INDEX"),
];

impl Variables {
    /// The variables for `facts`, where `environment` says what the user has set. An empty variable
    /// counts as not set, as everywhere in `mingle`.
    pub fn new(facts: Facts<'_>, environment: impl Fn(&str) -> Option<String>) -> Self {
        Self::with(facts, &[], Vec::new(), environment)
    }

    /// As [`Variables::new`], without those of the result that are `left_out`, and with what one launcher needs
    /// beside the result.
    fn with(
        facts: Facts<'_>,
        left_out: &[&str],
        launcher: Vec<Variable>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let interface = facts.interface.filter(|name| is_nameable(name));
        let ipv6 = facts.formed.master.is_ipv6();
        let given = |name: &str| facts.settings.iter().any(|setting| setting.name() == name);
        let mut first: Vec<Variable> = launcher.into_iter().filter(|(name, _)| !given(name)).collect();
        let mut advice = Vec::new();
        let slots = facts.formed.slots.own.to_string();
        if facts.slots_given {
            first.push((PET_NPROC_PER_NODE.into(), slots));
        } else {
            advice.push((PET_NPROC_PER_NODE, slots));
        }
        advice.extend(sockets(interface, ipv6));
        advice.extend(facts.fabric.iter().cloned());
        let mut variables = Self::advice(first, advice, facts.settings, environment);
        variables.unnameable = facts.interface.is_some() && interface.is_none();
        variables.set.splice(0..0, result(facts).filter(|(name, _)| !left_out.contains(&&**name)));
        variables
    }

    /// The advice for a host that is in no world: of its fabric alone.
    pub fn of_fabric(
        fabric: &[(&'static str, String)],
        settings: &[Setting],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        Self::advice(Vec::new(), fabric.to_vec(), settings, environment)
    }

    /// What `first` sets in any case, and of the `advice` what the user has not set.
    fn advice(
        first: Vec<Variable>,
        advice: Vec<(&'static str, String)>,
        settings: &[Setting],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let mut variables = Self { set: first, unset: Vec::new(), kept: Vec::new(), unnameable: false };
        let is_set = |name: &str| environment(name).is_some_and(|value| !value.is_empty());
        let listed = environment(MINGLE_SET).unwrap_or_default();
        let listed: Vec<&str> = listed.split(',').collect();
        let given = |name: &str| settings.iter().any(|setting| setting.name() == name);

        let users = |name: &str| {
            let setting = settings.iter().find(|setting| setting.name() == name);
            let variable = || environment(name).filter(|value| !value.is_empty() && !listed.contains(&name));
            setting.map(|setting| setting.value().to_owned()).or_else(variable)
        };
        let is_for_others = |name: &str| {
            let pair = GID_INDICES.iter().find(|(_, index)| *index == name);
            let devices = pair.and_then(|(devices, _)| advice.iter().find(|(name, _)| name == devices));
            devices
                .is_some_and(|(name, ours)| users(name).is_some_and(|theirs| !is_among(name, &theirs, ours)))
        };
        for (name, value) in advice.iter().filter(|(name, _)| !given(name) && !is_for_others(name)) {
            if let Some(own) = users(name) {
                variables.kept.push(Kept { name, value: own, advice: value.clone() });
            } else {
                variables.set.push(((*name).into(), value.clone()));
            }
        }
        let settings =
            settings.iter().map(|setting| (setting.name().to_owned().into(), setting.value().to_owned()));
        variables.set.extend(settings);

        let own: Vec<&str> = variables.set.iter().map(|(name, _)| &**name).collect();
        let is_advice =
            |name: &str| ADVICE.iter().any(|prefix| name.starts_with(prefix)) && sh::is_name(name);
        let is_own = |name: &str| is_advice(name) || name == PET_NPROC_PER_NODE || format::is_launchers(name);
        let stale = listed.iter().filter(|name| is_own(name) && is_set(name) && !own.contains(name));
        variables.unset = stale.map(|name| (*name).to_owned()).collect();
        let own = own.join(",");
        variables.set.push((MINGLE_SET.into(), own));
        variables
    }

    /// What is to be set, in the order in which it is printed.
    pub fn set(&self) -> &[Variable] {
        &self.set
    }

    /// What an earlier `mingle` has set and this one has no value for: to be removed.
    pub fn unset(&self) -> &[String] {
        &self.unset
    }

    /// What the user has set, and that is therefore left as it is.
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Whether the interface has a name that NCCL's list syntax or the safe alphabet cannot hold. Its
    /// variables are then left away, which is better than a world without this node.
    pub fn interface_is_unnameable(&self) -> bool {
        self.unnameable
    }
}

/// The advice for sockets: which interface, and which family.
fn sockets(interface: Option<&str>, ipv6: bool) -> impl Iterator<Item = (&'static str, String)> {
    let names = [(NCCL_SOCKET_IFNAME, "="), (GLOO_SOCKET_IFNAME, "")];
    let names = names
        .into_iter()
        .filter_map(move |(name, prefix)| interface.map(|interface| (name, format!("{prefix}{interface}"))));
    // On an interface with both families NCCL takes IPv4 by itself, and a host with IPv6 alone cannot.
    names.chain(ipv6.then(|| (NCCL_SOCKET_FAMILY, "AF_INET6".to_owned())))
}

/// Whether a user's list of devices and ports holds none that `ours` lacks, in the variable `name`. NCCL compares
/// beginnings, unless the list begins with `=`; the others compare names.
fn is_among(name: &str, theirs: &str, ours: &str) -> bool {
    let ours: Vec<&str> = ours.trim_start_matches('=').split(',').collect();
    let exact = if name == "NCCL_IB_HCA" { theirs.strip_prefix('=') } else { Some(theirs) };
    exact.is_some_and(|theirs| theirs.split(',').all(|port| ours.contains(&port)))
}

/// What `mingle` was asked for, in the order in which it is printed.
const RESULT: [&str; 13] = [
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "NODE_RANK",
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "MINGLE_JOB_ID",
    "MINGLE_ROSTER_DIGEST",
    "MINGLE_RANK_OFFSET",
    "MINGLE_TOTAL_SLOTS",
];

fn result(facts: Facts<'_>) -> impl Iterator<Item = Variable> {
    let formed = facts.formed;
    let (address, port) = (formed.master.ip().to_string(), formed.master.port().to_string());
    let (rank, world) = (formed.rank.to_string(), formed.world.to_string());
    let values = [
        address.clone(),
        port.clone(),
        rank.clone(),
        world.clone(),
        rank.clone(),
        world,
        rank,
        address,
        port,
        job_to_env(facts.job),
        formed.digest.to_string(),
        formed.slots.before.to_string(),
        formed.slots.total.to_string(),
    ];
    RESULT.into_iter().zip(values).map(|(name, value)| (name.into(), value))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::model::World;
    use crate::model::{Digest, Slots};
    use crate::rdma::Verdict;

    /// Rank 2 of 4, as all tests of this module see it.
    pub(super) fn formed(master: &str) -> Formed {
        let world = World::new(4).unwrap();
        let master: SocketAddr = master.parse().unwrap();
        Formed {
            rank: world.rank(2).unwrap(),
            world,
            master,
            local: "10.0.0.3".parse().unwrap(),
            digest: Digest([0xab; 16]),
            roster: None,
            verdict: Verdict::default(),
            slots: Slots { own: 8, before: 16, total: 32 },
        }
    }

    pub(super) fn variables(job: &str, interface: Option<&str>, environment: &[(&str, &str)]) -> Variables {
        let formed = formed("10.0.0.1:29503");
        let job: JobId = job.parse().unwrap();
        let lookup = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Variables::new(Facts { interface, ..facts(&job, &formed) }, lookup)
    }

    pub(super) fn facts<'a>(job: &'a JobId, formed: &'a Formed) -> Facts<'a> {
        Facts {
            job,
            formed,
            interface: None,
            fabric: &[],
            settings: &[],
            slots_given: false,
            parameter_servers: 0,
        }
    }

    fn value<'a>(variables: &'a Variables, name: &str) -> Option<&'a str> {
        variables.set().iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
    }

    #[test]
    fn every_variable_is_set_where_the_user_has_set_none() {
        let all = variables("foo", Some("eth0"), &[]);
        let names: Vec<_> = all.set.iter().map(|(name, _)| &**name).collect();
        assert_eq!(
            names,
            [
                "MASTER_ADDR",
                "MASTER_PORT",
                "RANK",
                "WORLD_SIZE",
                "NODE_RANK",
                "PET_NNODES",
                "PET_NODE_RANK",
                "PET_MASTER_ADDR",
                "PET_MASTER_PORT",
                "MINGLE_JOB_ID",
                "MINGLE_ROSTER_DIGEST",
                "MINGLE_RANK_OFFSET",
                "MINGLE_TOTAL_SLOTS",
                "PET_NPROC_PER_NODE",
                "NCCL_SOCKET_IFNAME",
                "GLOO_SOCKET_IFNAME",
                "MINGLE_SET",
            ]
        );
    }

    #[test]
    fn what_the_user_has_set_is_left_alone_and_not_listed() {
        let variables = variables("foo", Some("eth0"), &[("NCCL_SOCKET_IFNAME", "ib"), ("RANK", "7")]);
        assert_eq!(value(&variables, "NCCL_SOCKET_IFNAME"), None);
        assert_eq!(value(&variables, "GLOO_SOCKET_IFNAME"), Some("eth0"));
        assert_eq!(value(&variables, "MINGLE_SET"), Some("PET_NPROC_PER_NODE,GLOO_SOCKET_IFNAME"));
        assert_eq!(value(&variables, "RANK"), Some("2"), "the result replaces a stale value");
        let kept: Vec<_> =
            variables.kept().iter().map(|kept| (kept.name, &*kept.value, &*kept.advice)).collect();
        assert_eq!(kept, [("NCCL_SOCKET_IFNAME", "ib", "=eth0")]);
    }

    #[test]
    fn an_index_is_not_told_for_devices_that_the_user_has_chosen() {
        let fabric: Vec<(&str, String)> = [
            ("NCCL_IB_HCA", "=a:1,b:1"),
            ("UCX_NET_DEVICES", "a:1,b:1"),
            ("NCCL_IB_GID_INDEX", "3"),
            ("UCX_IB_GID_INDEX", "3"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .to_vec();
        let told = |environment: &[(&str, &str)], settings: &[&str]| {
            let lookup =
                |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
            let variables = Variables::of_fabric(&fabric, &settings, lookup);
            (
                value(&variables, "NCCL_IB_GID_INDEX").is_some(),
                value(&variables, "UCX_IB_GID_INDEX").is_some(),
            )
        };
        assert_eq!(told(&[], &[]), (true, true));
        assert_eq!(told(&[("NCCL_IB_HCA", "c")], &[]), (false, true));
        assert_eq!(told(&[("NCCL_IB_HCA", "=b:1")], &[]), (true, true), "some of those that were chosen");
        assert_eq!(told(&[("NCCL_IB_HCA", "b:1")], &[]), (false, true), "and all whose names begin with b");
        assert_eq!(told(&[("UCX_NET_DEVICES", "b:1")], &[]), (true, true));
        assert_eq!(told(&[("NCCL_IB_HCA", "^a")], &[]), (false, true));
        assert_eq!(told(&[], &["UCX_NET_DEVICES=c:1"]), (true, false));
        assert_eq!(told(&[("NCCL_IB_HCA", "c"), ("MINGLE_SET", "NCCL_IB_HCA")], &[]), (true, true));
    }

    #[test]
    fn an_empty_variable_is_not_the_users() {
        let variables = variables("foo", Some("eth0"), &[("NCCL_SOCKET_IFNAME", ""), ("MINGLE_SET", "")]);
        assert_eq!(value(&variables, "NCCL_SOCKET_IFNAME"), Some("=eth0"));
        assert!(variables.kept().is_empty());
    }

    #[test]
    fn a_second_eval_replaces_what_the_first_has_set() {
        let first = variables("foo", Some("eth0"), &[("GLOO_SOCKET_IFNAME", "mine")]);
        let mut shell: Vec<(&str, &str)> = vec![("GLOO_SOCKET_IFNAME", "mine")];
        shell.extend(first.set().iter().map(|(name, value)| (&**name, value.as_str())));
        let second = variables("foo", Some("eth1"), &shell);
        assert_eq!(value(&second, "NCCL_SOCKET_IFNAME"), Some("=eth1"));
        assert_eq!(second.kept()[0].name, "GLOO_SOCKET_IFNAME", "what is the user's stays so");
        assert_eq!(value(&second, "MINGLE_SET"), Some("PET_NPROC_PER_NODE,NCCL_SOCKET_IFNAME"));
    }

    #[test]
    fn how_many_workers_there_are_is_the_users_to_say() {
        let (job, formed) = ("foo".parse().unwrap(), formed("10.0.0.1:29503"));
        let told = |slots_given, environment: &[(&str, &str)]| {
            let lookup =
                |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            let variables = Variables::new(Facts { slots_given, ..facts(&job, &formed) }, lookup);
            let listed = value(&variables, "MINGLE_SET").unwrap().split(',').any(|n| n == PET_NPROC_PER_NODE);
            (value(&variables, PET_NPROC_PER_NODE).map(str::to_owned), listed)
        };
        let ours = (Some("8".to_owned()), true);
        assert_eq!(told(false, &[]), ours);
        assert_eq!(told(false, &[(PET_NPROC_PER_NODE, "gpu")]), (None, false));
        assert_eq!(told(false, &[(PET_NPROC_PER_NODE, "4"), (MINGLE_SET, PET_NPROC_PER_NODE)]), ours);
        assert_eq!(told(true, &[(PET_NPROC_PER_NODE, "gpu")]), ours);
    }

    #[test]
    fn stale_advice_is_removed_but_never_a_variable_of_the_user() {
        let shell = [
            ("NCCL_SOCKET_IFNAME", "=eth0"),
            ("GLOO_SOCKET_IFNAME", "mine"),
            ("MINGLE_SET", "NCCL_SOCKET_IFNAME,PATH,$(reboot)"),
            ("PATH", "/bin"),
        ];
        let variables = variables("foo", None, &shell);
        assert_eq!(
            variables.unset(),
            ["NCCL_SOCKET_IFNAME"],
            "only names that mingle knows, whoever lists them"
        );
        assert_eq!(value(&variables, "MINGLE_SET"), Some("PET_NPROC_PER_NODE"));
    }

    #[test]
    fn an_interface_that_nccl_cannot_be_told_is_left_away() {
        for name in ["eth'0", "a,b", "eth0:1", "=x", "$(reboot)", "ünet", ""] {
            let variables = variables("foo", Some(name), &[]);
            assert!(variables.interface_is_unnameable(), "{name}");
            assert_eq!(value(&variables, "NCCL_SOCKET_IFNAME"), None, "{name}");
            assert_eq!(value(&variables, "GLOO_SOCKET_IFNAME"), None, "{name}");
        }
        for name in ["eth0", "enp1s0f0np0", "bond0.100", "veth1@if2", "br-lan"] {
            assert!(!variables("foo", Some(name), &[]).interface_is_unnameable(), "{name}");
        }
    }
}
