//! Which mutant is on. This file becomes a module of the copy of mingle-core.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// More than any number of a mutant.
const LIMIT: usize = 1 << 14;
/// Nothing is known yet.
const UNREAD: usize = LIMIT;
/// No mutant is on, and a file records which are asked for.
const RECORDED: usize = LIMIT + 1;
/// No mutant is on.
const NONE: usize = LIMIT + 2;

static CHOSEN: AtomicUsize = AtomicUsize::new(UNREAD);
static FILE: OnceLock<String> = OnceLock::new();
static SEEN: [AtomicBool; LIMIT] = [const { AtomicBool::new(false) }; LIMIT];

/// Whether this mutant is on.
#[inline]
pub fn is(number: usize) -> bool {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen < LIMIT { chosen == number } else { chosen != NONE && ask(number) }
}

#[cold]
fn ask(number: usize) -> bool {
    if CHOSEN.load(Ordering::Relaxed) == UNREAD {
        let variable = |name: &str| std::env::var(name).ok();
        if let Some(file) = variable("MINGLE_MUTANTS_SEEN") {
            FILE.get_or_init(|| file);
            CHOSEN.store(RECORDED, Ordering::Relaxed);
        } else {
            let chosen = variable("MINGLE_MUTANT").and_then(|number| number.parse().ok());
            CHOSEN.store(chosen.unwrap_or(NONE), Ordering::Relaxed);
            return is(number);
        }
    }
    if !SEEN[number].swap(true, Ordering::Relaxed) {
        let file = OpenOptions::new().create(true).append(true).open(FILE.get().expect("a file"));
        // One write for each line: tests run in threads.
        file.and_then(|mut file| file.write_all(format!("{number}\n").as_bytes())).expect("the file is written");
    }
    false
}
