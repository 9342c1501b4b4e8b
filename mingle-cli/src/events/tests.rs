use std::fs;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use mingle_core::{Warning, World};

use super::*;

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("mingle-events-{}-{name}", std::process::id()))
}

#[expect(clippy::disallowed_methods, reason = "a test of the real world's clock")]
fn journal(path: Option<&Path>) -> Journal {
    Journal::open(path, Instant::now()).unwrap()
}

fn node(host: &str) -> Peer {
    Peer { host: HostName::new(host), address: "10.0.0.1:29503".parse().unwrap() }
}

fn here(joined: u32, newest: &[&str], missing: &[(u32, u32)]) -> Event {
    Event::Progress(Progress {
        joined,
        world: "4".parse().unwrap(),
        newest: newest.iter().copied().map(HostName::new).collect(),
        missing: missing.iter().map(|&(first, last)| RankRange { first, last }).collect(),
        leader: node("a"),
    })
}

/// The lines of a text, each without its time.
fn untimed(text: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let fields = line.as_object_mut().unwrap();
        assert!(fields.remove("time").is_some_and(|time| time.as_str().unwrap().ends_with('Z')));
        assert!(fields.remove("ms").is_some_and(|ms| ms.is_u64()));
        line
    });
    lines.collect()
}

#[test]
fn every_change_is_one_line_appended_to_the_file() {
    let path = scratch("lines");
    fs::write(&path, "before\n").unwrap();
    let mut journal = journal(Some(&path));
    for event in [
        Event::Leading,
        Event::SteppedDown,
        here(1, &["a"], &[]),
        here(3, &["c", "b", "a"], &[]),
        here(3, &["c", "b", "a"], &[]),
        here(2, &["b", "a"], &[]),
        here(2, &["b", "a"], &[(1, 2)]),
        Event::Following(node("z")),
        Event::Following(node("z")),
        Event::LostLeader(node("z")),
        Event::Warning(Warning::Interfaces { error: "a \u{9b}\u{202e}b\n".to_owned() }),
        Event::Preparing { round: 2 },
    ] {
        journal.event(&event);
    }
    journal.command_ended(End::Killed(9));
    let rank = World::new(4).unwrap().rank(1).unwrap();
    journal.change(&Change::Suspected(rank, node("z")));
    journal.change(&Change::Back(rank, node("z")));
    journal.change(&Change::Over(Over { rank: None, peer: Some(node("z")), end: End::Gone }));
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let (before, text) = text.split_at("before\n".len());
    assert_eq!(before, "before\n");
    assert!(text.is_ascii(), "{text}");
    let leader = json!({ "host": "z", "address": "10.0.0.1", "port": 29503 });
    let none: [u32; 0] = [];
    assert_eq!(
        untimed(text),
        [
            json!({ "event": "leading" }),
            json!({ "event": "leading_ended" }),
            json!({ "event": "joined", "joined": 1, "world": 4, "missing": none, "new": 1, "hosts": ["a"] }),
            json!({ "event": "joined", "joined": 3, "world": 4, "missing": none, "new": 2, "hosts": ["c", "b"] }),
            json!({ "event": "left", "joined": 2, "world": 4, "missing": none, "gone": 1 }),
            json!({ "event": "missing", "joined": 2, "world": 4, "missing": [[1, 2]] }),
            json!({ "event": "leader_changed", "leader": leader }),
            json!({ "event": "leader_lost", "leader": leader }),
            json!({ "event": "warning", "message": "a \u{9b}\u{202e}b\n" }),
            json!({ "event": "preparing", "round": 2 }),
            json!({ "event": "command_ended", "signal": 9 }),
            json!({ "event": "suspected", "rank": 1, "node": leader }),
            json!({ "event": "back", "rank": 1, "node": leader }),
            json!({
                "event": "over", "rank": null, "node": leader, "how": "the node is gone", "end": "gone", "code": null,
                "message": "the job has started again on other nodes"
            }),
        ]
    );
}

#[test]
fn the_end_of_a_world_has_its_word_and_where_there_is_one_its_code() {
    for (how, word, code) in [
        (End::Exited(3), "exited", Some(3)),
        (End::Killed(9), "killed", Some(9)),
        (End::Gone, "gone", None),
        (End::Left, "left", None),
        (End::Grows, "grows", None),
        (End::Unknown, "unknown", None),
    ] {
        let over = end(&Over { rank: None, peer: None, end: how });
        assert_eq!((&over["end"], &over["code"]), (&json!(word), &json!(code)));
    }
}

#[test]
fn a_pipe_that_is_full_takes_a_line_as_a_whole_or_not_at_all() {
    let (mut reader, writer) = io::pipe().unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
    let mut journal = journal(Some(&path));
    for _ in 0..400 {
        journal.event(&Event::Warning(Warning::Interfaces { error: "a".repeat(10_000) }));
    }
    // Once there is room, the next line comes.
    let mut some = [0; 1 << 14];
    reader.read_exact(&mut some).unwrap();
    journal.event(&Event::Leading);
    drop((journal, writer));
    let mut all = String::from_utf8(some.to_vec()).unwrap();
    reader.read_to_string(&mut all).unwrap();
    let lines: Vec<&str> = all.split_inclusive('\n').collect();
    assert!(lines.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{:?}", lines.last());
    assert!(lines.last().unwrap().contains("leading"), "{:?}", lines.last());
    assert!(all.ends_with('\n') && all.len() > 40_000, "{}", all.len());
}

#[test]
fn a_long_message_is_cut_so_that_its_line_fits_a_pipe() {
    let path = scratch("long");
    let mut journal = journal(Some(&path));
    for text in ["a", "\u{e9}", "\u{1f600}"] {
        journal.event(&Event::Warning(Warning::Interfaces { error: text.repeat(5_000) }));
    }
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(text.lines().count(), 3);
    for line in text.split_inclusive('\n') {
        let message = serde_json::from_str::<Value>(line).unwrap()["message"].as_str().unwrap().to_owned();
        assert!(message.ends_with("..."), "{line}");
        assert!(line.len() <= PIPE_BUF && message.chars().count() > 300, "{} bytes of {line}", line.len());
    }
}

#[test]
fn a_file_that_cannot_be_appended_to_is_a_wrong_argument() {
    for path in ["/nonexistent/events", "/"] {
        #[expect(clippy::disallowed_methods, reason = "a test of the real world's clock")]
        let stop = Journal::open(Some(Path::new(path)), Instant::now()).unwrap_err();
        assert_eq!(stop.code().get(), 2);
        assert!(
            stop.to_string().starts_with(&format!("--events (or MINGLE_EVENTS) {path}: cannot")),
            "{stop}"
        );
    }
}
