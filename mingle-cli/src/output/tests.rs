use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// An empty folder, gone when it goes out of scope.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mingle-output-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn output(&self, format: &str, name: &str) -> Output {
        Output::parse(&format!("{format}={}", self.0.join(name).display())).unwrap()
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
    let output = Output::parse("hosts=/etc/a=b").unwrap();
    assert_eq!((output.format, output.path), (Format::HOSTS, PathBuf::from("/etc/a=b")));
    for (wrong, reason) in [
        ("hosts", "write FORMAT=FILE"),
        ("hosts=", "write FORMAT=FILE"),
        ("", "write FORMAT=FILE"),
        ("xml=/tmp/x", "\"xml\": the formats are sh, "),
    ] {
        assert!(Output::parse(wrong).unwrap_err().starts_with(reason), "{wrong}");
    }
}

#[test]
fn a_reader_never_sees_half_of_a_file() {
    let folder = Folder::new("atomic");
    let output = folder.output("hostfile", "hosts");
    let texts = ["a".repeat(1 << 16), "b".repeat(1 << 17)];
    output.write(&texts[0]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
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
    // A leftover of a killed process with the same ID.
    fs::write(folder.0.join(format!(".file.mingle-{}-0", std::process::id())), "").unwrap();
    output.write("new").unwrap();
    assert!(fs::symlink_metadata(&output.path).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let folder = Folder::new("refused");
    let missing = folder.output("hostfile", "none/hosts").write("x").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let itself = Output { format: Format::HOSTS, path: folder.0.clone() }.write("x").unwrap_err();
    assert_eq!(itself.kind(), ErrorKind::IsADirectory);
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
        let whole = with_block(format!("{before}{old}{after}").as_bytes(), BLOCK).unwrap();
        assert_eq!(String::from_utf8(whole.clone()).unwrap(), format!("{before}{BLOCK}{after}"));
        assert_eq!(with_block(&whole, BLOCK).unwrap(), whole, "twice is once");
    }
    let latin = [b"\xe9 x\n", old.as_bytes(), b"\xff"].concat();
    assert_eq!(with_block(&latin, BLOCK).unwrap(), [b"\xe9 x\n", BLOCK.as_bytes(), b"\xff"].concat());
}

#[test]
fn a_new_block_is_appended_and_a_missing_last_line_break_stays_missing() {
    for (file, expected) in [
        ("", BLOCK.to_owned()),
        ("a\n", format!("a\n{BLOCK}")),
        ("a\r\n", format!("a\r\n{BLOCK}")),
        ("a", format!("a\n{}", BLOCK.trim_end())),
    ] {
        let whole = with_block(file.as_bytes(), BLOCK).unwrap();
        assert_eq!(String::from_utf8(whole.clone()).unwrap(), expected);
        assert_eq!(with_block(&whole, BLOCK).unwrap(), whole, "twice is once");
    }
}

#[test]
fn a_block_without_an_end_is_left_alone_and_named() {
    let error = with_block(b"a\n# mingle foo begin\n10.0.0.1 a\n", BLOCK).unwrap_err().to_string();
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
fn of_several_blocks_one_is_left_and_a_block_without_an_end_stays() {
    let block = "# mingle a begin\n1.1.1.1 new\n# mingle a end\n";
    let old = "x\n# mingle a begin\n2.2.2.2 b\n# mingle a end\ny\n";
    let twice = [old, old].concat();
    assert_eq!(with_block(twice.as_bytes(), block).unwrap(), format!("x\n{block}y\nx\ny\n").as_bytes());
    let open = format!("{old}# mingle a begin\nz\n");
    let expected = format!("x\n{block}y\n# mingle a begin\nz\n");
    assert_eq!(with_block(open.as_bytes(), block).unwrap(), expected.as_bytes());
}
