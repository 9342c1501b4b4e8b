//! Tables for people.

/// The rows, each after `lead`. The first has the headings. Columns are as wide as their widest cell. Those
/// that have only a heading are left out.
pub(crate) fn align(rows: &[Vec<String>], lead: &str) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let filled = |column: &usize| rows.iter().skip(1).any(|row| !row[*column].is_empty());
    let columns = 0..rows.first().map_or(0, Vec::len);
    let columns: Vec<_> = columns.filter(filled).map(|column| (column, width(column))).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> =
            columns.iter().map(|&(column, width)| format!("{:width$}", row[column])).collect();
        text.push_str(lead);
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
