//! `cargo bench`: the part that needs only the library.

use std::io::Write as _;

use mingle_bench::parts::{Effort, messages};

fn main() {
    let _ = writeln!(std::io::stdout(), "{}", messages::measure(Effort::Full).render());
}
