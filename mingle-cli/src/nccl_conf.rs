//! Reads NCCL's configuration files, as NCCL would in a job of this user. Their values count as set by the
//! user.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use nix::unistd::{Uid, User};

use crate::host::beginning;

/// For all of NCCL.
const SITE: &str = "/etc/nccl.conf";
/// The most bytes of a file.
const LONGEST: u64 = 1 << 20;

/// NCCL's variables in the files. NCCL reads the file of NCCL_CONF_FILE, or else `.nccl.conf` in HOME, and
/// then `/etc/nccl.conf` (`initEnvFunc` in `src/misc/param.cc`).
pub(crate) static CONF: LazyLock<BTreeMap<String, String>> = LazyLock::new(read);

fn read() -> BTreeMap<String, String> {
    let given = std::env::var_os("NCCL_CONF_FILE").filter(|path| !path.is_empty());
    let user = given.map(Into::into).or_else(|| Some(home()?.join(".nccl.conf")));
    variables([user.as_deref(), Some(Path::new(SITE))].into_iter().flatten().filter_map(text))
}

/// NCCL's variables in these texts (`setEnvFile` there). What they set for others comes too late for them.
/// The first value of a name counts.
fn variables(texts: impl Iterator<Item = String>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for text in texts {
        // NCCL removes no white space: neither around a name nor around a value. Since 2.30.3 it removes a
        // carriage return at the end.
        let lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        let lines = lines.filter_map(|line| line.split_once('='));
        for (name, value) in lines.filter(|(name, _)| name.starts_with("NCCL_")) {
            variables.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
    }
    variables
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
    std::env::var_os(name).or_else(|| CONF.get(name).map(OsString::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_nccl_reads_it() {
        let texts = [
            "#NCCL_A=1\n NCCL_A=2\nNCCL_B= 3 \nNCCL_C\n=4\nNCCL_D==e\nNCCL_D=f\nPATH=/",
            "NCCL_B=5\r\nNCCL_G=6\r\nNCCL_H=7\r\r\n",
        ];
        let read = variables(texts.iter().map(|&text| text.to_owned()));
        let expected = [("NCCL_B", " 3 "), ("NCCL_D", "=e"), ("NCCL_G", "6"), ("NCCL_H", "7\r")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }
}
