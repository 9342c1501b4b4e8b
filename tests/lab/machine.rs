//! Machines with RDMA as folders: those of `tests/fixtures/rdma.tar.gz`, and others made from them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Where this test program keeps its machines.
fn folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        // Each process unpacks a copy of its own, since several may run at once, and removes those of earlier
        // ones.
        let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rdma");
        let copies = fs::read_dir(&all).into_iter().flatten().flatten().map(|copy| copy.path());
        for copy in copies.filter(|copy| !Path::new("/proc").join(copy.file_name().unwrap()).exists()) {
            // Another process may remove it, too.
            drop(fs::remove_dir_all(copy));
        }
        let folder = all.join(std::process::id().to_string());
        fs::create_dir_all(folder.join("made")).unwrap();
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/rdma.tar.gz");
        let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&folder).status();
        assert!(unpacked.is_ok_and(|status| status.success()), "tar cannot unpack {}", archive.display());
        folder
    });
    &FOLDER
}

/// A fresh path for a file or folder of this test's own; no other test may use the name.
pub fn scratch(name: &str) -> PathBuf {
    folder().join("made").join(name)
}

/// The names of all fixtures, in order.
pub fn fixtures() -> Vec<String> {
    let entries = fs::read_dir(folder().join("rdma")).unwrap().map(|entry| entry.unwrap().path());
    let machines = entries.filter(|path| path.join("expected.env").is_file());
    let mut names: Vec<_> =
        machines.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// An unchanged fixture.
pub fn fixture(name: &str) -> PathBuf {
    let path = folder().join("rdma").join(name);
    assert!(path.is_dir(), "there is no machine {name}");
    path
}

/// The lines of a fixture's `expected.env` that must be printed, in order.
pub fn expected(name: &str) -> Vec<String> {
    let text = fs::read_to_string(fixture(name).join("expected.env")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut lines: Vec<_> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A copy of a fixture, which may be changed.
#[derive(Debug, Clone)]
pub struct Machine(pub PathBuf);

impl Machine {
    /// `name` must be no other machine's.
    pub fn like(original: &str, name: &str) -> Self {
        let copy = scratch(name);
        assert!(!copy.exists(), "there is a machine {name} already");
        let copied = Command::new("cp").arg("-a").arg(fixture(original)).arg(&copy).status();
        assert!(copied.is_ok_and(|status| status.success()), "cannot copy {original}");
        Self(copy)
    }

    fn port(&self, device: &str) -> PathBuf {
        self.0.join("class/infiniband").join(device).join("ports/1")
    }

    /// Writes one entry of the GID table.
    pub fn set_gid(&self, device: &str, index: u32, [gid, version, interface]: [&str; 3]) -> &Self {
        for (folder, value) in [("gids", gid), ("gid_attrs/types", version), ("gid_attrs/ndevs", interface)] {
            fs::write(self.port(device).join(folder).join(index.to_string()), format!("{value}\n")).unwrap();
        }
        self
    }

    /// Empties one entry: its GID is zero, and its attributes cannot be read.
    pub fn clear_gid(&self, device: &str, index: u32) -> &Self {
        let zero = ["0000"; 8].join(":");
        fs::write(self.port(device).join("gids").join(index.to_string()), zero + "\n").unwrap();
        for folder in ["types", "ndevs"] {
            fs::remove_file(self.port(device).join("gid_attrs").join(folder).join(index.to_string()))
                .unwrap();
        }
        self
    }

    /// Moves one entry, as the order in which addresses come and go does.
    pub fn move_gid(&self, device: &str, from: u32, to: u32) -> &Self {
        let entry = ["gids", "gid_attrs/types", "gid_attrs/ndevs"]
            .map(|folder| fs::read_to_string(self.port(device).join(folder).join(from.to_string())).unwrap());
        self.set_gid(device, to, [entry[0].trim(), entry[1].trim(), entry[2].trim()]);
        self.clear_gid(device, from)
    }

    /// One more address of this host, such as `eth0 inet 10.1.2.3/24`.
    pub fn add_address(&self, line: &str) -> &Self {
        let file = self.0.join("addrs.txt");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text + line + "\n").unwrap();
        self
    }

    pub fn remove_device(&self, device: &str) -> &Self {
        let path = self.0.join("class/infiniband").join(device);
        // A link in what was saved of a host, and a folder in a machine that was made.
        if path.is_symlink() { fs::remove_file(path) } else { fs::remove_dir_all(path) }.unwrap();
        self
    }

    /// Gives a device another name.
    pub fn rename_device(&self, from: &str, to: &str) -> &Self {
        let class = self.0.join("class/infiniband");
        let target = fs::read_link(class.join(from)).unwrap();
        fs::remove_file(class.join(from)).unwrap();
        symlink(target, class.join(to)).unwrap();
        // The device node has the name of the device.
        for entry in fs::read_dir(self.0.join("class/infiniband_verbs")).unwrap() {
            let file = entry.unwrap().path().join("ibdev");
            if fs::read_to_string(&file).is_ok_and(|name| name.trim() == from) {
                fs::write(file, format!("{to}\n")).unwrap();
            }
        }
        self
    }
}
