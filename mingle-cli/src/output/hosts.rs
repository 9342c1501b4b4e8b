//! The blocks of mingle in a file such as /etc/hosts. A block is everything between `# mingle JOB begin` and
//! `# mingle JOB end`.

use std::io::{self, ErrorKind};

/// The bytes of a file in which `block` replaces an earlier block of its job or is appended. All other lines
/// stay. A file that was concatenated from others may hold several blocks of this job, of which one is left.
pub(super) fn updated(file: &[u8], block: &str) -> io::Result<Vec<u8>> {
    let (first, last) = (block.lines().next(), block.lines().next_back());
    let is = |wanted: Option<&str>, line: &[u8]| Some(line.trim_ascii_end()) == wanted.map(str::as_bytes);
    let mut lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    let mut place = lines.len();
    while let Some(begin) = lines.iter().rposition(|line| is(first, line)) {
        let Some(end) = lines[begin..].iter().position(|line| is(last, line)) else {
            // It might be the rest of the file.
            let first = first.unwrap_or_default();
            let what =
                format!("line {} is {first:?}, and its end does not follow; remove that block", begin + 1);
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        };
        lines.drain(begin..=begin + end);
        place = begin;
    }
    let mut before = lines[..place].concat();
    if !before.is_empty() && !before.ends_with(b"\n") {
        before.push(b'\n');
    }
    Ok([&before, block.as_bytes(), &lines[place..].concat()].concat())
}
