//! Plots the cost per node for growing worlds: `docs/performance.svg`.

use std::error::Error;
use std::ops::Range;

use plotters::prelude::*;

use crate::report::{Table, docs};

const SIZE: (u32, u32) = (800, 480);

/// One line of the plot: its name, its colour, and the milliseconds for each size.
type Line = (&'static str, RGBColor, Points);
type Points = Vec<(f64, f64)>;

/// Plots the figures of the part `loopback`.
///
/// # Errors
/// If the file cannot be written.
pub fn save(table: &Table) -> Result<(), Box<dyn Error>> {
    let of = |floor: bool| {
        let rows =
            table.rows.iter().filter(|row| row.what.ends_with("floor") == floor && !row.sample.is_empty());
        rows.filter_map(|row| row.size.map(|size| (f64::from(size), row.sample.median() / f64::from(size))))
            .collect()
    };
    let (mingle, floor): (Points, Points) = (of(false), of(true));
    // From 64 nodes on, the start of the process no longer matters.
    let Some(&(base, cost)) = mingle.iter().find(|(size, _)| *size >= 64.0) else { return Ok(()) };
    let bound = mingle.iter().map(|&(size, _)| (size, cost * size.ln() / base.ln())).collect();
    let lines: [Line; 3] = [
        ("mingle", BLUE, mingle),
        ("floor", BLACK, floor),
        ("n log n, through mingle's 64 nodes", RED, bound),
    ];

    let file = docs().join("performance.svg");
    let area = SVGBackend::new(&file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("A world in one process: milliseconds for each node", ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(
            span(&lines, |point| point.0).log_scale(),
            span(&lines, |point| point.1).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("nodes")
        .y_desc("ms for each")
        .x_label_formatter(&|nodes| format!("{nodes:.0}"))
        .y_label_formatter(&|time| format!("{time:.3}"))
        .draw()?;
    for (name, colour, points) in lines {
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

/// The range of all lines, with a margin.
fn span(lines: &[Line], of: fn(&(f64, f64)) -> f64) -> Range<f64> {
    let all = || lines.iter().flat_map(|(_, _, points)| points).map(of);
    all().fold(f64::MAX, f64::min) / 1.3..all().fold(0.0, f64::max) * 1.3
}
