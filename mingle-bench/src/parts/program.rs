//! The program itself: its start-up time, its size and its crates.

use std::collections::BTreeSet;
use std::process::Command;

use super::Effort;
use crate::programs::{built, clean, time};
use crate::report::{Row, Table, Target};
use crate::sample::Sample;

/// Measures start-up time, size and crates.
pub fn measure(effort: Effort) -> Table {
    let mut table = Table::new("program", "The program itself");
    let (mut floors, mut errors, mut alone) = (Sample::default(), Sample::default(), Sample::default());
    for _ in 0..effort.choose(10, 200) {
        floors.add_time(time(&mut clean(built("mingle-floor"))));
        errors.add_time(time(clean(built("mingle")).arg("--no-such-argument")));
        alone.add_time(time(clean(built("mingle")).args(["--job-id", "alone", "--world", "1"])));
    }
    let floor = floors.median();
    table.rows.push(Row::new("floor: exec to a usage error", "ms", floors).beside(floor));
    let targets = [Target::Median(3.0)];
    table.rows.push(Row::new("mingle: exec to a usage error", "ms", errors).beside(floor).targets(&targets));
    table.rows.push(Row::new("mingle: exec to the end of a world of one", "ms", alone).beside(floor));
    let targets = [Target::Median(5.0)];
    table.rows.push(Row::new("stripped size", "MB", [size()].into_iter().collect()).targets(&targets));
    table.rows.push(Row::new("crates, including its own two", "crates", [crates()].into_iter().collect()));
    table
}

/// The size of the program, in MB.
pub fn size() -> f64 {
    let bytes = built("mingle").metadata().map_or(0, |file| file.len());
    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / 1e6
}

/// The number of crates in the program.
pub fn crates() -> f64 {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    cargo.args([
        "tree",
        "--locked",
        "--offline",
        "--package",
        "mingle-cli",
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    let output = cargo.output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let names: BTreeSet<_> = text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    f64::from(u32::try_from(names.len()).unwrap_or(u32::MAX))
}
