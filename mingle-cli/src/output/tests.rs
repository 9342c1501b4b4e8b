use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::file::is_refused;
use super::hosts::updated;
use super::*;

/// An empty folder, gone when it goes out of scope.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mingle-output-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn output(&self, format: &str, name: &str) -> OutputFile {
        OutputFile::parse(&format!("{format}={}", self.0.join(name).display())).unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_output_is_a_format_and_a_file() {
    let output = OutputFile::parse("hosts=/etc/a=b").unwrap();
    assert_eq!((output.format, output.path), (Format::HOSTS, PathBuf::from("/etc/a=b")));
    let template = OutputFile::parse("template=/dev/null=/tmp/a=b").unwrap();
    assert_eq!((template.format, template.path), (Format::TEMPLATE, PathBuf::from("/tmp/a=b")));
    assert!(template.template.is_some());
    for (wrong, reason) in [
        ("hosts", "write FORMAT=FILE"),
        ("hosts=", "write FORMAT=FILE"),
        ("", "write FORMAT=FILE"),
        ("xml=/tmp/x", "\"xml\": the formats are sh, "),
        ("template=/tmp/x", "write FORMAT=FILE, such as hostfile=/tmp/hostfile, or template=TEMPLATE=FILE"),
        ("template=/no/such=/tmp/x", "\"template=/no/such\": /no/such: No such file"),
    ] {
        assert!(OutputFile::parse(wrong).unwrap_err().starts_with(reason), "{wrong}");
    }
}

#[test]
fn a_reader_never_sees_half_of_a_file() {
    let folder = Folder::new("atomic");
    let output = folder.output("hostfile", "hosts");
    let texts = ["a".repeat(1 << 16), "b".repeat(1 << 17)];
    output.write(&texts[0]).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let seen = fs::read_to_string(&output.path).unwrap();
                assert!(texts.contains(&seen), "{} bytes", seen.len());
            }
        });
        for round in 1..40 {
            output.write(&texts[round % 2]).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(folder.names(), ["hosts"], "nothing else is left");
}

#[test]
fn a_replaced_file_keeps_its_mode_and_the_link_to_it() {
    let folder = Folder::new("kept");
    let output = folder.output("hostfile", "link");
    let file = folder.0.join("file");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    symlink("file", &output.path).unwrap();
    output.write("new").unwrap();
    assert!(fs::symlink_metadata(&output.path).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_file_that_root_replaces_stays_its_owners() {
    let folder = Folder::new("owner");
    let output = folder.output("hostfile", "file");
    fs::write(&output.path, "old").unwrap();
    if chown(&output.path, Some(4321), Some(4322)).is_err() {
        println!("skipped: only root gives files away");
        return;
    }
    output.write("new").unwrap();
    let now = fs::metadata(&output.path).unwrap();
    assert_eq!((now.uid(), now.gid()), (4321, 4322));
}

#[test]
fn a_link_to_a_file_that_does_not_exist_stays_a_link() {
    let folder = Folder::new("dangling");
    fs::create_dir(folder.0.join("inner")).unwrap();
    symlink("inner/second", folder.0.join("link")).unwrap();
    symlink("file", folder.0.join("inner/second")).unwrap();
    for format in ["hostfile", "hosts"] {
        let output = folder.output(format, "link");
        output.check().unwrap();
        output.write(BLOCK).unwrap();
        assert!(fs::symlink_metadata(&output.path).unwrap().is_symlink(), "{format}");
        assert_eq!(folder.read("inner/file"), BLOCK, "{format}");
        fs::remove_file(folder.0.join("inner/file")).unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let folder = Folder::new("refused");
    let missing = folder.output("hostfile", "none/hosts").write("x").unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let itself =
        OutputFile { format: Format::HOSTS, template: None, path: folder.0.clone() }.write("x").unwrap_err();
    assert_eq!(itself.kind(), io::ErrorKind::IsADirectory);
}

#[test]
fn only_a_mount_point_or_an_unwritable_folder_makes_a_file_be_written_in_place() {
    // EBUSY and EXDEV come from a mount point, EACCES and EROFS from the folder.
    for number in [16, 18, 13, 30] {
        assert!(is_refused(&io::Error::from_raw_os_error(number)), "{number}");
    }
    // After ENOSPC or EIO, writing in place would lose the old text as well.
    for number in [28, 5] {
        assert!(!is_refused(&io::Error::from_raw_os_error(number)), "{number}");
    }
}

const BLOCK: &str = "# mingle foo begin\n10.0.0.1 a\n# mingle foo end\n";

#[test]
fn a_block_is_replaced_in_its_place_and_every_other_line_is_kept() {
    let old = "# mingle foo begin\n10.0.0.9 a\n10.0.0.8 b\n# mingle foo end\n";
    let other = "# mingle bar begin\n10.0.0.7 c\n# mingle bar end\n";
    for (before, after) in [
        ("", ""),
        ("127.0.0.1 localhost\n", ""),
        ("127.0.0.1\tlocalhost\r\n\r\n", "::1 x\r\n"),
        ("a \n\n", " # mingle foo beginning\nno end"),
        (other, other),
        ("\u{feff}a\n", "\u{e9}\n\0\n"),
    ] {
        let whole = updated(format!("{before}{old}{after}").as_bytes(), BLOCK).unwrap();
        assert_eq!(String::from_utf8(whole.clone()).unwrap(), format!("{before}{BLOCK}{after}"));
        assert_eq!(updated(&whole, BLOCK).unwrap(), whole, "twice is once");
    }
    let latin = [b"\xe9 x\n", old.as_bytes(), b"\xff"].concat();
    assert_eq!(updated(&latin, BLOCK).unwrap(), [b"\xe9 x\n", BLOCK.as_bytes(), b"\xff"].concat());
}

#[test]
fn a_new_block_is_appended_on_lines_of_its_own() {
    for (file, expected) in [
        ("", BLOCK.to_owned()),
        ("a\n", format!("a\n{BLOCK}")),
        ("a\r\n", format!("a\r\n{BLOCK}")),
        ("a", format!("a\n{BLOCK}")),
    ] {
        let whole = updated(file.as_bytes(), BLOCK).unwrap();
        assert_eq!(String::from_utf8(whole.clone()).unwrap(), expected);
        assert_eq!(updated(&whole, BLOCK).unwrap(), whole, "twice is once");
    }
}

#[test]
fn a_block_without_an_end_is_left_alone_and_named() {
    let error = updated(b"a\n# mingle foo begin\n10.0.0.1 a\n", BLOCK).unwrap_err().to_string();
    assert!(error.starts_with("line 2 is \"# mingle foo begin\""), "{error}");
    let both = format!("a\n# mingle foo begin\n10.0.0.1 a\n{BLOCK}");
    let error = updated(both.as_bytes(), BLOCK).unwrap_err().to_string();
    assert!(error.starts_with("line 2 is \"# mingle foo begin\""), "{error}");
}

#[test]
fn a_hosts_file_is_changed_and_not_replaced() {
    let folder = Folder::new("hosts");
    let output = folder.output("hosts", "hosts");
    output.write(BLOCK).unwrap();
    assert_eq!(fs::read_to_string(&output.path).unwrap(), BLOCK);
    fs::write(&output.path, "127.0.0.1 localhost\n").unwrap();
    output.write(BLOCK).unwrap();
    assert_eq!(fs::read_to_string(&output.path).unwrap(), format!("127.0.0.1 localhost\n{BLOCK}"));
}

#[test]
fn of_several_blocks_one_is_left() {
    let block = "# mingle a begin\n1.1.1.1 new\n# mingle a end\n";
    let old = "x\n# mingle a begin\n2.2.2.2 b\n# mingle a end\ny\n";
    let twice = [old, old].concat();
    assert_eq!(updated(twice.as_bytes(), block).unwrap(), format!("x\n{block}y\nx\ny\n").as_bytes());
}

#[test]
fn of_many_jobs_at_once_no_block_is_lost() {
    let folder = Folder::new("many");
    for (name, begins) in [("new", false), ("old", true)] {
        let output = folder.output("hosts", name);
        if begins {
            fs::write(&output.path, "127.0.0.1 localhost\n").unwrap();
        }
        thread::scope(|scope| {
            for job in 0..8 {
                let output = &output;
                scope.spawn(move || {
                    let block = format!("# mingle {job} begin\n10.0.0.1 a\n# mingle {job} end\n");
                    output.write(&block).unwrap();
                });
            }
        });
        let whole = folder.read(name);
        assert_eq!(whole.lines().count(), 8 * 3 + usize::from(begins), "{whole}");
    }
}

#[test]
fn a_lock_that_is_held_for_ever_delays_a_block_and_does_not_prevent_it() {
    let folder = Folder::new("locked");
    let hosts = folder.output("hosts", "hosts");
    fs::write(&hosts.path, "a\n").unwrap();
    let _lock = Flock::lock(File::open(&hosts.path).unwrap(), FlockArg::LockExclusive).unwrap();
    write_block(&hosts.path, BLOCK, 1).unwrap();
    assert_eq!(folder.read("hosts"), format!("a\n{BLOCK}"));
}

#[test]
fn what_can_be_written_is_known_before_the_world_has_formed() {
    let folder = Folder::new("check");
    fs::write(folder.0.join("file"), "x").unwrap();
    for (name, wanted) in [
        ("new", None),
        ("file", None),
        ("none/new", Some("/none: No such file or directory")),
        ("file/new", Some("/file: Not a directory")),
        (".", Some("is a directory")),
    ] {
        let checked = folder.output("hostfile", name).check().err().map(|error| error.to_string());
        match (&checked, wanted) {
            (None, None) => {}
            (Some(error), Some(wanted)) if error.contains(wanted) => {}
            _ => panic!("{name}: {checked:?}"),
        }
    }
    assert!(OutputFile { format: Format::JSON, template: None, path: "/dev/null".into() }.check().is_ok());
    let pipe = folder.output("json", "pipe");
    nix::unistd::mkfifo(&pipe.path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(pipe.check().unwrap_err().to_string().contains("it is a pipe"));
    assert!(pipe.write("x").is_err(), "without a reader it does not wait");
}
