//! What the output of a formed world depends on.

use super::{Format, Template};
use crate::model::{JobId, Secret};
use crate::proto::Formed;

/// The facts about a formed world. The output depends on these facts and on the user's own variables, and on
/// nothing else.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Facts<'a> {
    /// The job.
    pub job: &'a JobId,
    /// The world as this node sees it: this node's rank, the master, and so on.
    pub formed: &'a Formed,
    /// The interface that holds this node's address, by its name in Linux, or the label of that address. None
    /// if the node used no network, as in a world of one node.
    pub interface: Option<&'a str>,
    /// The variables for this host's RDMA devices, from [`beside`](crate::rdma::beside).
    pub fabric: &'a [(&'static str, String)],
    /// Whether the user has given the number of workers on this node. If not, mingle keeps a
    /// PET_NPROC_PER_NODE of the environment.
    pub slots_given: bool,
    /// The ports that this host holds for the job's own use.
    pub ports: &'a [u16],
    /// The job's secret. A format may print what is derived from the secret, but never the secret itself.
    pub secret: Option<&'a Secret>,
    /// The formats of the files that are written beside the result. The result also has the variables that
    /// the launchers of these formats need.
    pub beside: &'a [Format],
    /// Whether the result stays on this host, as a file does, even if a launcher would give a command's
    /// variables to all hosts.
    pub stays_here: bool,
    /// The text for [`Format::TEMPLATE`].
    pub template: Option<&'a Template>,
}

impl<'a> Facts<'a> {
    /// A world without an interface and without RDMA.
    pub fn new(job: &'a JobId, formed: &'a Formed) -> Self {
        Self {
            job,
            formed,
            interface: None,
            fabric: &[],
            slots_given: false,
            ports: &[],
            secret: None,
            beside: &[],
            stays_here: false,
            template: None,
        }
    }
}
