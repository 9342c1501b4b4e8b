//! The matrix as text for people and as JSON for programs.

use serde_json::{Value, json};

use super::board::Board;
use crate::columns::align;

/// The ways between all hosts, and the rates of the transfers if there were any.
pub(super) fn text(board: &Board) -> String {
    let mut text = "multicast and paths (- lost, ? not known):\n".to_owned();
    text += &table(board, |from, to| ways(board, from, to));
    if board.pairs().any(|(from, to)| board.rate(from, to).is_some()) {
        text += "\ntransfers in Mbit/s (? not tried):\n";
        text += &table(board, |from, to| board.rate(from, to).map_or_else(|| "?".to_owned(), mbit));
    }
    text
}

/// A rate in kbit/s as text in Mbit/s.
pub(super) fn mbit(rate: u32) -> String {
    if rate < 10_000 { format!("{:.1}", f64::from(rate) / 1000.0) } else { (rate / 1000).to_string() }
}

fn table(board: &Board, cell: impl Fn(u32, u32) -> String) -> String {
    let mut rows = vec![vec!["from \\ to".to_owned()]];
    rows[0].extend(board.ranks().map(|rank| board.name(rank)));
    for from in board.ranks() {
        let mut row = vec![board.name(from)];
        row.extend(board.ranks().map(|to| if from == to { ".".to_owned() } else { cell(from, to) }));
        rows.push(row);
    }
    align(&rows, "  ")
}

fn ways(board: &Board, from: u32, to: u32) -> String {
    let cell = |name, works| match works {
        Some(true) => format!("{name} ok"),
        Some(false) => format!("{name} -"),
        None => format!("{name} ?"),
    };
    let (multicast, path) = (board.multicast(from, to), board.path(from, to));
    format!("{}  {}", cell("m", multicast), cell("p", path))
}

/// The ways from each host to each other, for programs.
pub(super) fn document(board: &Board) -> Value {
    let pair = |(from, to)| {
        json!({
            "from": board.name(from),
            "to": board.name(to),
            "multicast": { "works": board.multicast(from, to) },
            "path": { "works": board.path(from, to) },
            "mbit_per_s": board.rate(from, to).map(|rate| f64::from(rate) / 1000.0),
        })
    };
    board.pairs().map(pair).collect()
}
