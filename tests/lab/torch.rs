//! The Python whose torch the tests use.

use std::path::Path;
use std::time::Duration;

use super::proc::{Outcome, Proc};
use super::world::finish_all_within;
use super::{plain, skip};

/// How long a job may take. On a busy machine torch takes most of a minute to be imported and to end.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The Python that the tests are to use for torch, if the caller says.
const GIVEN: &str = "MINGLE_TEST_PYTHON";

/// A Python whose torch can open a store as torchrun does. That of Debian 13 cannot: it has no libuv.
pub struct Torch {
    pub python: String,
    /// The major version of torch.
    pub major: u32,
}

/// The Python that `MINGLE_TEST_PYTHON` names. Otherwise that of Debian, which installs torch for
/// /usr/bin/python3, or the first in PATH. Without any: None, after a note that the test is skipped.
pub fn torch() -> Option<Torch> {
    let given = std::env::var(GIVEN).ok();
    let candidates = match &given {
        Some(given) => vec![given.as_str()],
        None => vec!["/usr/bin/python3", "python3"],
    };
    let found = candidates.into_iter().find_map(|python| {
        let script = "import torch, torch.distributed as d
d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)
print(torch.__version__.split('.')[0])";
        let output = plain(python).args(["-c", script]).output().ok()?;
        let major = String::from_utf8_lossy(&output.stdout).trim().parse().ok()?;
        Some(Torch { python: python.to_owned(), major })
    });
    if found.is_none() {
        skip("no python3 here has a torch that torchrun can use");
    }
    found
}

/// Waits until all processes of a job have ended.
pub fn finish_all(procs: Vec<Proc>) -> Vec<Outcome> {
    finish_all_within(procs, PATIENCE)
}

/// The folders of PATH in which torchrun is looked for: that of the given Python first.
pub fn folders() -> String {
    let given = std::env::var(GIVEN).ok();
    let folder = given.as_deref().and_then(|python| Path::new(python).parent());
    let folder = folder.map(|folder| format!("{}:", folder.display())).unwrap_or_default();
    format!("{folder}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
}
