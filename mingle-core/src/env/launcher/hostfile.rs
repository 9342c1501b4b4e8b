//! Open MPI: `mpirun --hostfile FILE`.
//!
//! A line is a host and `slots=N`. Open MPI 4.1 reads IPv6 addresses there
//! (orte/util/hostfile/hostfile_lex.l) and then refuses them as names of nodes ("illegal character in the
//! following node name"), so in an IPv6 world the lines have host names, which Open MPI 5 accepts as well. If
//! two lines have the same host and both count slots, mpirun fails ("multiple definitions of the slot
//! count"), so nodes that share an address share a line.

use super::{Launcher, Syntax, node_list};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "hostfile",
    about: "a hostfile of Open MPI",
    syntax: Syntax::Text(|input, _| node_list::lines_by_address_or_name(input)),
    needs_roster: true,
    own_ports: false,
    arguments: None,
    left_out: &[],
    owns: &[],
};
