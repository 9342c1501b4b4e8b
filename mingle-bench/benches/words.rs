//! `cargo bench`: the part that needs nothing but the library.

use std::io::Write as _;

use mingle_bench::parts::{Effort, words};

fn main() {
    let _ = writeln!(std::io::stdout(), "{}", words::measure(Effort::Full).render());
}
