//! Scripts for Tencent TI-ONE's MPI and Horovod jobs:
//! `mpirun -np "$MINGLE_TOTAL_SLOTS" -H "$NODE_IP_SLOT_LIST"`.
//!
//! Such scripts read the list from this variable. The format `horovod` prints the list alone.

use super::{Launcher, node_list};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "slots",
    about: "the same list as 'horovod', in NODE_IP_SLOT_LIST",
    needs_roster: true,
    owns: &[("NODE_IP_SLOT_LIST", node_list::comma_separated)],
    ..Launcher::PLAIN
};
