//! The matrix as text for people and as JSON for programs.

use serde_json::{Value, json};

use super::matrix::Board;
use super::notice::Way;
use crate::columns::align;

/// The ways between all hosts, and the rates of the transfers if there were any.
pub(super) fn text(board: &Board) -> String {
    let mut text = "multicast, UDP, TCP and paths (- lost, ? not known):\n".to_owned();
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
    let ids = board.ids();
    let mut rows = vec![vec!["from \\ to".to_owned()]];
    rows[0].extend(ids.iter().map(|id| board.name(*id)));
    for from in &ids {
        let mut row = vec![board.name(*from)];
        row.extend(ids.iter().map(|to| if from == to { ".".to_owned() } else { cell(*from, *to) }));
        rows.push(row);
    }
    align(&rows, "  ")
}

fn ways(board: &Board, from: u32, to: u32) -> String {
    let one = |(name, way): (&str, Way)| match board.cell(way, from, to) {
        Some(true) => format!("{name} ok"),
        Some(false) => format!("{name} -"),
        None => format!("{name} ?"),
    };
    [("m", Way::Multicast), ("u", Way::Udp), ("t", Way::Tcp), ("p", Way::Path)].map(one).join("  ")
}

/// The ways from each host to each other, for programs.
pub(super) fn document(board: &Board) -> Value {
    let pair = |(from, to)| {
        let cell = |way| json!({ "works": board.cell(way, from, to) });
        json!({
            "from": board.name(from),
            "to": board.name(to),
            "multicast": cell(Way::Multicast),
            "udp": cell(Way::Udp),
            "tcp": cell(Way::Tcp),
            "path": cell(Way::Path),
            "mbit_per_s": board.rate(from, to).map(|rate| f64::from(rate) / 1000.0),
        })
    };
    board.pairs().map(pair).collect()
}
