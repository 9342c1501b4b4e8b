//! `mingle-floor RANK WORLD`: a node of the floor, the least that a program must do for a world.

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map_while(|arg| arg.parse().ok());
    let (Some(rank), Some(world)) = (numbers.next(), numbers.next()) else { return ExitCode::from(2) };
    match mingle_bench::floor::take_part(rank, world) {
        Ok(()) if writeln!(std::io::stdout(), "export RANK='{rank}';").is_ok() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
