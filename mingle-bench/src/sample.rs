//! Measurements and how they are shown.

use std::fmt::Write as _;
use std::time::Duration;

/// The measurements of one figure, in ascending order.
#[derive(Debug, Clone, Default)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Adds a measurement.
    pub fn add(&mut self, figure: f64) {
        let place = self.0.partition_point(|&other| other <= figure);
        self.0.insert(place, figure);
    }

    /// Adds a time, in milliseconds.
    pub fn add_time(&mut self, time: Duration) {
        self.add(time.as_secs_f64() * 1e3);
    }

    /// The number of measurements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no measurements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The middle measurement, or the upper of the two in the middle.
    pub fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The largest measurement.
    pub fn worst(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Self {
        let mut sample = Self::default();
        figures.into_iter().for_each(|figure| sample.add(figure));
        sample
    }
}

/// A figure with three significant digits, and commas between thousands.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let decimals = match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 && digit.is_ascii_digit() && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        let _ = write!(grouped, ".{fraction}");
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_a_median_and_a_worst_measurement() {
        let sample: Sample = [3.0, 1.0, 2.0, 9.0].into_iter().collect();
        assert_eq!((sample.len(), sample.median(), sample.worst()), (4, 3.0, 9.0));
        assert!(Sample::default().median().is_nan());
    }

    #[test]
    fn a_figure_has_three_significant_digits() {
        let shown = [0.0, 0.1234, 1.234, 12.34, 123.4, 1234.0, 1_234_567.0].map(figure);
        assert_eq!(shown, ["0", "0.123", "1.23", "12.3", "123", "1,234", "1,234,567"]);
        assert_eq!(figure(f64::NAN), "–");
    }
}
