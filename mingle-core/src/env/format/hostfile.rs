//! Open MPI: `mpirun --hostfile FILE`.
//!
//! A line is a host and `slots=N`. Open MPI 4.1 reads addresses of IPv6 there (orte/util/hostfile/hostfile_lex.l) and
//! then refuses them as names of nodes ("illegal character in the following node name"), so in a world of IPv6 hosts go
//! by name, which Open MPI 5 takes as well. Where a host comes in two lines that both count slots, mpirun ends
//! ("multiple definitions of the slot count"), so nodes that share an address share a line.

use super::{Format, Unfit, nodes};
use crate::model::Roster;

pub(super) fn text(roster: &Roster) -> Result<String, Unfit> {
    nodes::by_address_or_name(Format::Hostfile, roster)
}
