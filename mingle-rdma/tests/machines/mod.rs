//! The saved machines (`tests/fixtures/rdma.tar.gz`).

pub(crate) mod cables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

/// The folder that holds the unpacked machines: one for each state of the archive, which later runs find.
pub(crate) fn machines() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/rdma.tar.gz");
        let state = archive.metadata().expect("the archive is there");
        let age = state.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let name = format!("machines-{}-{}", state.len(), age.unwrap_or_default().as_nanos());
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if !target.exists() {
            let unpacking = target.with_extension(std::process::id().to_string());
            fs::create_dir_all(&unpacking).expect("a folder can be made");
            let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&unpacking).status();
            assert!(unpacked.is_ok_and(|status| status.success()), "tar cannot unpack {}", archive.display());
            // Another process, which runs another of these tests, may have been quicker.
            if fs::rename(&unpacking, &target).is_err() {
                fs::remove_dir_all(&unpacking).expect("a folder can be removed");
            }
        }
        target.join("rdma")
    });
    &FOLDER
}
