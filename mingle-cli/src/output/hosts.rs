//! The blocks of mingle in a file such as /etc/hosts. A block is everything between `# mingle JOB begin` and
//! `# mingle JOB end`; its second line may be its [`Holder`].

use std::io::{self, ErrorKind};

use super::holder::Holder;

/// The block with the line of its holder.
pub(super) fn held(block: &str, holder: Option<&Holder>) -> String {
    match (block.split_once('\n'), holder) {
        (Some((first, rest)), Some(holder)) => format!("{first}\n{holder}\n{rest}"),
        _ => block.to_owned(),
    }
}

/// The bytes of a file in which `block` replaces an earlier block of its job or is appended, without the
/// blocks of jobs that are over.
pub(super) fn updated(file: &[u8], block: &str) -> io::Result<Vec<u8>> {
    Ok(without_stale(&with_block(file, block)?))
}

/// The job in a line such as `# mingle JOB begin`, where `word` is the last one.
fn job<'a>(line: &'a [u8], word: &str) -> Option<&'a [u8]> {
    line.trim_ascii_end().strip_prefix(b"# mingle ")?.strip_suffix(format!(" {word}").as_bytes())
}

/// Removes each block whose holder has ended.
fn without_stale(file: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    let (mut kept, mut at) = (Vec::with_capacity(file.len()), 0);
    while let Some(line) = lines.get(at) {
        let is_over = |job: &[u8]| {
            let holder = lines.get(at + 1).and_then(|line| Holder::parse(line.trim_ascii_end()));
            // Without its end, the block might be the rest of the file.
            let rest = lines[at + 1..].iter();
            let mut ends = rest.take_while(|line| self::job(line, "begin").is_none());
            let end = ends.position(|line| self::job(line, "end") == Some(job));
            end.filter(|_| holder.is_some_and(|holder| holder.is_over()))
        };
        if let Some(end) = job(line, "begin").and_then(is_over) {
            at += end + 2;
        } else {
            kept.extend_from_slice(line);
            at += 1;
        }
    }
    kept
}

/// The bytes of a file in which `block` replaces an earlier block, or is appended. All other lines stay, and
/// a file without a final line break gets none.
fn with_block(file: &[u8], block: &str) -> io::Result<Vec<u8>> {
    let (first, last) = (block.lines().next().unwrap_or_default(), block.lines().last().unwrap_or_default());
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    let is = |line: &[u8], marker: &str| line.trim_ascii_end() == marker.as_bytes();
    let Some(begin) = lines.iter().position(|line| is(line, first)) else {
        let has_end = file.is_empty() || file.ends_with(b"\n");
        let whole = if has_end {
            [file, block.as_bytes()].concat()
        } else {
            [file, b"\n", block.trim_end().as_bytes()].concat()
        };
        return Ok(whole);
    };
    let Some(length) = lines[begin..].iter().position(|line| is(line, last)) else {
        let what =
            format!("line {} is {first:?}, and no line {last:?} follows; remove that block", begin + 1);
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    };
    let end = begin + length;
    let block = if lines[end].ends_with(b"\n") { block } else { block.trim_end() };
    // A file that was concatenated from others may hold further blocks.
    let mut rest = lines[end + 1..].to_vec();
    while let Some(begin) = rest.iter().position(|line| is(line, first))
        && let Some(length) = rest[begin..].iter().position(|line| is(line, last))
    {
        rest.drain(begin..=begin + length);
    }
    let rest = rest.concat();
    Ok([&lines[..begin].concat()[..], block.as_bytes(), &rest].concat())
}
