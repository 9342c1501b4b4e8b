//! Horovod: `horovodrun -H "$(mingle --format horovod ...)"`.
//!
//! Each part of the list is letters, digits, `_`, `.` and `-`, a colon, and a number
//! (horovod/runner/common/util/hosts.py, `parse_hosts_and_slots`), so it cannot hold IPv6 addresses. In an
//! IPv6 world the list has host names; `mpirun -H`, which ends the host at the first colon, needs them as
//! well (orte/util/dash_host/dash_host.c). Horovod would overwrite the number of workers of a host that is
//! listed twice.
//!
//! The workers of all hosts get the variables of this one (horovod/runner/gloo_run.py, and `-x` in
//! horovod/runner/mpi_run.py).

use super::{Launcher, Syntax, node_list};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "horovod",
    about: "the list of hosts for horovodrun and mpirun",
    syntax: Syntax::Text(|input, _| Ok(node_list::comma_separated(input)? + "\n")),
    needs_roster: true,
    exports: true,
    ..Launcher::PLAIN
};
