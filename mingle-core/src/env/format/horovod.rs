//! Horovod: `horovodrun -H "$(mingle --format horovod ...)"`.
//!
//! Each part must be letters, digits, `_`, `.` and `-`, a colon, and a number (horovod/runner/common/util/hosts.py,
//! `parse_hosts_and_slots`), so addresses of IPv6 cannot be written: there hosts go by name, as they must for
//! `mpirun -H`, which ends the host at the first colon (orte/util/dash_host/dash_host.c). A host that comes twice would
//! have its number of workers overwritten.

use super::{Format, Unfit, nodes};
use crate::model::Roster;

pub(super) fn list(format: Format, roster: &Roster) -> Result<String, Unfit> {
    Ok(nodes::counted(format, roster)?.join(","))
}
