//! Tables, as text and in `docs/performance.md`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::sample::{Sample, figure};

/// A target for a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// The median is at most this.
    Median(f64),
    /// The median is at most this many times the floor's median.
    Ratio(f64),
}

/// A figure that was measured many times: a row of a table.
#[derive(Debug, Clone)]
pub struct Row {
    /// The name of the figure.
    pub what: String,
    unit: &'static str,
    /// The measurements.
    pub sample: Sample,
    floor: Option<f64>,
    targets: Vec<Target>,
}

impl Row {
    /// A row without a floor or a target.
    pub fn new(what: impl Into<String>, unit: &'static str, sample: Sample) -> Self {
        Self { what: what.into(), unit, sample, floor: None, targets: Vec::new() }
    }

    /// Sets the median of the floor, to compare with.
    #[must_use]
    pub fn beside(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self
    }

    /// Sets the targets.
    #[must_use]
    pub fn targets(mut self, targets: &[Target]) -> Self {
        self.targets = targets.to_vec();
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.floor.map(|floor| self.sample.median() / floor)
    }

    /// The targets, and whether they were met.
    fn verdict(&self) -> String {
        let verdicts = self.targets.iter().map(|target| {
            let (limit, is, text) = match target {
                Target::Median(limit) => (*limit, self.sample.median(), figure(*limit)),
                Target::Ratio(limit) => {
                    (*limit, self.ratio().unwrap_or(f64::NAN), format!("{}x", figure(*limit)))
                }
            };
            let verdict = if is <= limit { "met" } else { "**missed**" };
            format!("{text}: {verdict}")
        });
        verdicts.collect::<Vec<_>>().join("; ")
    }
}

/// The table of one part.
#[derive(Debug, Clone)]
pub struct Table {
    /// The part.
    pub name: &'static str,
    title: &'static str,
    /// The rows in the order of display.
    pub rows: Vec<Row>,
    notes: Vec<String>,
}

impl Table {
    /// A table without rows.
    pub fn new(name: &'static str, title: &'static str) -> Self {
        Self { name, title, rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a note for the reader of the figures.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// The table as Markdown.
    pub fn render(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let mut text = format!("### {}\n\n`{}`, {cores} cores.\n\n", self.title, self.name);
        text.push_str("| | runs | median | worst | unit | times the floor | target, at most |\n| --- | --: | --: | --: | --- | --: | --- |\n");
        for row in &self.rows {
            let [median, worst] = [row.sample.median(), row.sample.worst()].map(figure);
            let ratio = row.ratio().map(figure).unwrap_or_default();
            let (what, n, unit, verdict) = (&row.what, row.sample.len(), row.unit, row.verdict());
            let _ = writeln!(text, "| {what} | {n} | {median} | {worst} | {unit} | {ratio} | {verdict} |");
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text
    }

    /// Replaces the part's earlier figures in `docs/performance.md`.
    ///
    /// # Errors
    /// If the file has no marks for this part, or cannot be written.
    pub fn save(&self) -> io::Result<()> {
        let file = docs().join("performance.md");
        let text = fs::read_to_string(&file)?;
        let text = replaced(&text, self.name, &self.render()).ok_or_else(|| {
            io::Error::other(format!("{} has no marks for the figures of {}", file.display(), self.name))
        })?;
        fs::write(file, text)
    }
}

/// The folder of the documentation.
pub fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The text with new figures between the marks of a part.
fn replaced(text: &str, part: &str, figures: &str) -> Option<String> {
    let (before, rest) = text.split_once(&format!("<!-- begin {part} -->\n"))?;
    let (_, after) = rest.split_once(&format!("<!-- end {part} -->\n"))?;
    Some(format!("{before}<!-- begin {part} -->\n{figures}<!-- end {part} -->\n{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_which_of_its_targets_were_met() {
        let sample: Sample = [4.0, 5.0, 6.0].into_iter().collect();
        let row =
            Row::new("mingle", "ms", sample).beside(2.0).targets(&[Target::Median(10.0), Target::Ratio(2.0)]);
        assert_eq!(row.verdict(), "10: met; 2x: **missed**");
    }

    #[test]
    fn the_figures_of_a_part_replace_the_earlier_ones() {
        let text = "a\n<!-- begin scale -->\nold\n<!-- end scale -->\nb\n";
        let new = replaced(text, "scale", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- begin scale -->\nnew\n<!-- end scale -->\nb\n");
        assert_eq!(replaced(text, "loss", "new\n"), None);
    }
}
