//! Finds the file of the command before the rendezvous, so that no other node waits or starts in vain for a
//! node that cannot execute it. Only execve(2) itself can tell for certain.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, eaccess};

/// The folders in which execvp(3) looks without PATH.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The bytes of a script's first line that the kernel reads (BINPRM_BUF_SIZE).
const FIRST_LINE: u64 = 256;
/// How many scripts may each be the interpreter of the one before (the kernel's exec_binprm). Scripts that
/// env(1) starts count here as well, or one that starts itself would be looked up for ever.
const DEPTH: u32 = 5;

/// The file of the program, found as execvp(3) finds it, if this user can execute it. The error says why not,
/// and which path was tried.
pub(super) fn program(name: &OsStr) -> io::Result<PathBuf> {
    find(name, DEPTH)
}

fn find(name: &OsStr, depth: u32) -> io::Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let missing = |error: io::Error| match error.get_ref() {
            None => io::Error::new(error.kind(), "there is no such file"),
            Some(_) => error,
        };
        let path = PathBuf::from(name);
        return executable(&path, depth).map(|()| path).map_err(missing);
    }
    if name.is_empty() {
        return Err(io::Error::new(ErrorKind::NotFound, "the command is an empty word"));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| PATH.into());
    let mut refused = None;
    for folder in env::split_paths(&path) {
        let path = folder.join(name);
        match executable(&path, depth) {
            Ok(()) => return Ok(path),
            // Also where a file is in place of a folder.
            Err(error) if error.get_ref().is_none() => {}
            // A later folder may have one that can be executed.
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let none =
        || io::Error::new(ErrorKind::NotFound, format!("no folder of PATH has it ({})", path.display()));
    Err(refused.unwrap_or_else(none))
}

/// Checks that this user can execute the file. An error without an inner one means that it does not exist.
fn executable(path: &Path, depth: u32) -> io::Result<()> {
    let refused = |kind, what: String| Err(io::Error::new(kind, format!("{} {what}", path.display())));
    let metadata = match fs::metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(ErrorKind::NotFound.into());
        }
        Err(error) => return refused(error.kind(), format!("cannot be looked at: {error}")),
        Ok(metadata) => metadata,
    };
    if metadata.is_dir() {
        return refused(ErrorKind::PermissionDenied, "is a folder".to_owned());
    }
    // Reading the first line of a pipe would wait for a writer.
    if !metadata.is_file() {
        return refused(ErrorKind::PermissionDenied, "is not a regular file".to_owned());
    }
    if let Err(error) = eaccess(path, AccessFlags::X_OK) {
        let error = io::Error::from(error);
        if error.kind() != ErrorKind::PermissionDenied {
            return refused(error.kind(), format!("cannot be executed: {error}"));
        }
        let is_noexec =
            statvfs(path).is_ok_and(|file_system| file_system.flags().contains(FsFlags::ST_NOEXEC));
        let why = if is_noexec {
            "is on a file system that is mounted noexec"
        } else {
            "is not executable for this user; see chmod +x"
        };
        return refused(ErrorKind::PermissionDenied, why.to_owned());
    }
    let Some((interpreter, argument)) = interpreter(path) else { return Ok(()) };
    let of_script = |error: io::Error| {
        let reason = error.get_ref().map_or_else(|| "which does not exist".to_owned(), ToString::to_string);
        let what = format!("{} begins with #!{}: {reason}", path.display(), interpreter.display());
        io::Error::new(error.kind(), what)
    };
    if depth == 0 {
        return refused(
            ErrorKind::PermissionDenied,
            "has an interpreter that is a script, and so on".to_owned(),
        );
    }
    executable(&interpreter, depth - 1).map_err(of_script)?;
    match program_of_env(&interpreter, &argument) {
        Some(program) => find(&program, depth - 1).map(drop).map_err(|error| {
            let what = format!("{} needs {}: {error}", path.display(), program.display());
            io::Error::new(error.kind(), what)
        }),
        None => Ok(()),
    }
}

/// The interpreter that the first line of a script names, and the rest of that line, as binfmt_script reads
/// them. None for a program, and for a file that this user may execute and not read.
fn interpreter(path: &Path) -> Option<(PathBuf, Vec<u8>)> {
    let mut first = Vec::new();
    File::open(path).ok()?.take(FIRST_LINE).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let is_blank = |byte: &u8| matches!(*byte, b' ' | b'\t');
    let begin = line.iter().position(|byte| !is_blank(byte))?;
    let line = &line[begin..];
    let end = line.iter().position(is_blank).unwrap_or(line.len());
    let path = PathBuf::from(OsString::from_vec(line[..end].to_vec()));
    Some((path, line[end..].trim_ascii().to_vec()))
}

/// The program that env(1) will look for in PATH, as in `#!/usr/bin/env python3`. None if env gets options or
/// variables, other than `-S` alone.
fn program_of_env(interpreter: &Path, argument: &[u8]) -> Option<OsString> {
    if interpreter.file_name()? != "env" {
        return None;
    }
    let mut words = argument.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let word = words.next().filter(|word| *word != b"-S").or_else(|| words.next())?;
    let is_name = !word.starts_with(b"-") && !word.iter().any(|byte| b"=$'\"\\".contains(byte));
    is_name.then(|| OsString::from_vec(word.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// An executable file with this text.
    fn script(name: &str, text: &str) -> PathBuf {
        let path = env::temp_dir().join(format!("mingle-find-{name}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn refusal(path: &Path) -> Option<(ErrorKind, String)> {
        program(path.as_os_str()).err().map(|error| (error.kind(), error.to_string()))
    }

    #[test]
    fn a_script_needs_its_interpreter_and_what_env_looks_for() {
        for (name, first, wanted) in [
            ("sh", "#!/bin/sh\n", None),
            ("blank", "#! \t/bin/sh -e\n", None),
            ("none", "echo no first line for the kernel", None),
            ("env", "#!/usr/bin/env sh\n", None),
            ("split", "#!/usr/bin/env -S sh -e\n", None),
            ("option", "#!/usr/bin/env -i no-such-program\n", None),
            ("missing", "#!/no/such/python\n", Some("begins with #!/no/such/python: which does not exist")),
            ("cr", "#!/bin/sh\r\n", Some("#!/bin/sh\r: which does not exist")),
            ("folder", "#!/tmp\n", Some("begins with #!/tmp: /tmp is a folder")),
            (
                "needs",
                "#!/usr/bin/env no-such-python\n",
                Some("needs no-such-python: no folder of PATH has it"),
            ),
        ] {
            let path = script(name, first);
            let found = refusal(&path);
            fs::remove_file(&path).unwrap();
            match (found, wanted) {
                (None, None) => {}
                (Some((_, text)), Some(wanted)) if text.contains(wanted) => {}
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_script_that_is_its_own_interpreter_or_starts_itself_by_env_is_refused() {
        for before in ["#!", "#!/usr/bin/env "] {
            let path = script("itself", "");
            fs::write(&path, format!("{before}{}\n", path.display())).unwrap();
            let found = refusal(&path);
            fs::remove_file(&path).unwrap();
            assert!(found.unwrap().1.contains("has an interpreter that is a script"), "{before}");
        }
    }

    #[test]
    fn a_pipe_is_refused_without_being_opened() {
        let path = env::temp_dir().join(format!("mingle-find-pipe-{}", std::process::id()));
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let found = refusal(&path);
        fs::remove_file(&path).unwrap();
        assert!(found.unwrap().1.ends_with("is not a regular file"));
    }
}
