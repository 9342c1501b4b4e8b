//! Reads NCCL's configuration files, as NCCL would in a job of this user.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use mingle_core::env::NcclConf;
use nix::unistd::{Uid, User};

use crate::host::beginning;

/// For all of NCCL.
const SITE: &str = "/etc/nccl.conf";
/// The most bytes of a file.
const LONGEST: u64 = 1 << 20;

static CONF: LazyLock<NcclConf> = LazyLock::new(read);

/// The value that a file gives to a variable of NCCL. NCCL reads the file of NCCL_CONF_FILE, or else
/// `.nccl.conf` in HOME, and then `/etc/nccl.conf` (`initEnvFunc` in `src/misc/param.cc`).
pub(crate) fn value(name: &str) -> Option<String> {
    // The files are NCCL's: what they set for others comes too late for them.
    name.starts_with("NCCL_").then(|| CONF.value(name).map(str::to_owned)).flatten()
}

/// NCCL's variables in the files.
pub(crate) fn all() -> impl Iterator<Item = (String, String)> {
    let of_nccl = CONF.iter().filter(|(name, _)| name.starts_with("NCCL_"));
    of_nccl.map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn read() -> NcclConf {
    let given = std::env::var_os("NCCL_CONF_FILE").filter(|path| !path.is_empty());
    let user = given.map(Into::into).or_else(|| Some(home()?.join(".nccl.conf")));
    let texts: Vec<String> =
        [user.as_deref(), Some(Path::new(SITE))].into_iter().flatten().filter_map(text).collect();
    NcclConf::new(texts.iter().map(String::as_str))
}

/// NCCL before 2.30.3 asks for the home folder of the user, whatever HOME says. Images of NVIDIA say which
/// NCCL they have.
fn home() -> Option<PathBuf> {
    let version = std::env::var("NCCL_VERSION").unwrap_or_default();
    let numbers: Vec<u32> = version.split(['.', '-']).map_while(|number| number.parse().ok()).collect();
    if !numbers.is_empty() && *numbers < [2, 30, 3][..] {
        return Some(User::from_uid(Uid::current()).ok()??.dir);
    }
    std::env::var_os("HOME").map(PathBuf::from)
}

fn text(path: &Path) -> Option<String> {
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    Some(String::from_utf8_lossy(&beginning(path, LONGEST).ok()?).into_owned())
}

/// A variable of the environment, or else of NCCL's configuration files; one that is not UTF-8 counts as set
/// by the user as well.
pub(crate) fn environment(name: &str) -> Option<String> {
    environment_or_files(name).map(|value| value.to_string_lossy().into_owned())
}

/// As [`environment`], with values that are not UTF-8.
pub(crate) fn environment_or_files(name: &str) -> Option<OsString> {
    std::env::var_os(name).or_else(|| value(name).map(OsString::from))
}
