//! Reading many RDMA devices with full GID tables.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::Effort;
use crate::programs::{built, clean, time};
use crate::report::{Row, Table};
use crate::sample::Sample;
use std::time::Instant;

const DEVICES: u32 = 16;
/// The number of slots of a port of the usual adapters.
const GIDS: u32 = 256;

/// `mingle rdma` on a machine with 16 devices.
///
/// # Panics
/// If the folder of the machine cannot be written.
pub fn measure(effort: Effort) -> Table {
    let mut table = Table::new("rdma", "Reading 16 RDMA devices with 256 GIDs each: from exec to the end");
    let machine = Machine::new().expect("a folder for the machine");
    let (mut floors, mut reads) = (Sample::default(), Sample::default());
    for _ in 0..effort.choose(3, 30) {
        let begun = Instant::now();
        machine.read().expect("a machine that can be read");
        floors.add_time(begun.elapsed());
        let mut command = clean(built("mingle"));
        command.args(["rdma", "--format", "env", "--from"]).arg(&machine.0);
        reads.add_time(time(&mut command));
    }
    let floor = floors.median();
    table.rows.push(
        Row::new("floor: each GID, its type and its interface are read once", "ms", floors).beside(floor),
    );
    table.rows.push(Row::new("mingle rdma", "ms", reads).beside(floor));
    table
}

/// A machine as a folder in the layout of sysfs. Dropping it removes the folder.
struct Machine(PathBuf);

impl Machine {
    fn new() -> io::Result<Self> {
        let machine = Self(std::env::temp_dir().join(format!("mingle-bench-{}", std::process::id())));
        fs::create_dir_all(machine.0.join("class/infiniband"))?;
        for device in 0..DEVICES {
            machine.add(device)?;
        }
        let address = |device| format!("eth{device} inet 10.{device}.0.1/24\n");
        fs::write(machine.0.join("addrs.txt"), (0..DEVICES).map(address).collect::<String>())?;
        Ok(machine)
    }

    fn add(&self, device: u32) -> io::Result<()> {
        let pci = format!("devices/pci0000:00/0000:{device:02x}:00.0");
        let folder = self.0.join(&pci).join(format!("infiniband/mlx5_{device}"));
        let port = folder.join("ports/1");
        for folder in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
            fs::create_dir_all(port.join(folder))?;
        }
        fs::create_dir_all(self.0.join(&pci).join(format!("net/eth{device}")))?;
        symlink("../..", folder.join("device"))?;
        symlink(
            format!("../../{pci}/infiniband/mlx5_{device}"),
            self.0.join(format!("class/infiniband/mlx5_{device}")),
        )?;
        write(&folder, "node_type", "1: CA")?;
        write(&folder, "fw_ver", "28.39.1002")?;
        write(&self.0.join(&pci), "vendor", "0x15b3")?;
        write(&port, "link_layer", "Ethernet")?;
        write(&port, "state", "4: ACTIVE")?;
        write(&port, "rate", "400 Gb/sec (4X NDR)")?;
        for index in 0..GIDS {
            // Like the kernel, add each address for both versions.
            let gid = format!("0000:0000:0000:0000:0000:ffff:0a{device:02x}:00{:02x}", index / 2 + 1);
            write(&port, &format!("gids/{index}"), &gid)?;
            let version = if index % 2 == 0 { "IB/RoCE v1" } else { "RoCE v2" };
            write(&port, &format!("gid_attrs/types/{index}"), version)?;
            write(&port, &format!("gid_attrs/ndevs/{index}"), &format!("eth{device}"))?;
        }
        Ok(())
    }

    fn read(&self) -> io::Result<()> {
        for device in 0..DEVICES {
            let port = self.0.join(format!("class/infiniband/mlx5_{device}/ports/1"));
            for (index, table) in (0..GIDS)
                .flat_map(|index| ["gids", "gid_attrs/types", "gid_attrs/ndevs"].map(|table| (index, table)))
            {
                fs::read(port.join(table).join(index.to_string()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(folder: &Path, name: &str, value: &str) -> io::Result<()> {
    fs::write(folder.join(name), format!("{value}\n"))
}
