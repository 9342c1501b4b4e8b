//! Scripts written for TI-ONE's MPI and Horovod jobs: `mpirun -np "$MINGLE_TOTAL_SLOTS" -H "$NODE_IP_SLOT_LIST"`.
//!
//! They use the variable as it is, so it is exported; who wants the list alone takes the format `horovod`.

use super::{Format, Unfit, Variable, horovod};
use crate::model::Roster;

pub(super) fn variables(roster: &Roster) -> Result<Vec<Variable>, Unfit> {
    Ok(vec![("NODE_IP_SLOT_LIST".into(), horovod::list(Format::Slots, roster)?)])
}
