//! The blocks of mingle in a file such as /etc/hosts. A block is everything between `# mingle JOB begin` and
//! `# mingle JOB end`.

use std::io::{self, ErrorKind};

/// The bytes of a file in which `block` replaces an earlier block of its job or is appended. All other lines
/// stay, and a file without a final line break gets none.
pub(super) fn updated(file: &[u8], block: &str) -> io::Result<Vec<u8>> {
    let first = block.lines().next().unwrap_or_default();
    let own = job(first.as_bytes(), "begin");
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    let (mut kept, mut at, mut is_written) = (Vec::with_capacity(file.len() + block.len()), 0, false);
    while let Some(line) = lines.get(at) {
        let begun = job(line, "begin");
        let length = begun.and_then(|job| length(&lines[at..], job));
        let is_own = begun.is_some() && begun == own;
        if is_own && length.is_none() && !is_written {
            let what =
                format!("line {} is {first:?}, and its end does not follow; remove that block", at + 1);
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        if let Some(length) = length.filter(|_| is_own) {
            // A file that was concatenated from others may hold several blocks of this job.
            if !std::mem::replace(&mut is_written, true) {
                kept.extend_from_slice(block.as_bytes());
            }
            at += length;
        } else {
            kept.extend_from_slice(line);
            at += 1;
        }
    }
    let has_end = |text: &[u8]| text.is_empty() || text.ends_with(b"\n");
    if !is_written {
        if !has_end(&kept) {
            kept.push(b'\n');
        }
        kept.extend_from_slice(block.as_bytes());
    }
    if !has_end(file) && has_end(&kept) {
        kept.pop();
    }
    Ok(kept)
}

/// The job in a line such as `# mingle JOB begin`, where `word` is the last one.
fn job<'a>(line: &'a [u8], word: &str) -> Option<&'a [u8]> {
    line.trim_ascii_end().strip_prefix(b"# mingle ")?.strip_suffix(format!(" {word}").as_bytes())
}

/// How many of the lines are the block of this job. Without its end, it might be the rest of the file.
fn length(lines: &[&[u8]], job: &[u8]) -> Option<usize> {
    let mut rest = lines[1..].iter().take_while(|line| self::job(line, "begin").is_none());
    rest.position(|line| self::job(line, "end") == Some(job)).map(|at| at + 2)
}
