//! The two pictures: cycles by number of tasks, and hand-over between processes.

use std::path::Path;

use plotters::prelude::*;

use crate::contestants;
use crate::courses::Course;
use crate::results::{Heat, Results};

const SIZE: (u32, u32) = (860, 460);

/// Draws what was measured into this folder.
pub(crate) fn draw(folder: &Path, courses: &[Course], results: &Results) -> Result<(), String> {
    throughput(&folder.join("throughput.svg"), courses, results).map_err(|error| format!("throughput.svg: {error}"))?;
    hand_over(&folder.join("hand-over.svg"), courses, results).map_err(|error| format!("hand-over.svg: {error}"))
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Cycles per second over tasks, a line per contestant.
fn throughput(file: &Path, courses: &[Course], results: &Results) -> Drawn {
    const AT: [(&str, f64); 4] = [("a", 1.0), ("b16", 16.0), ("b64", 64.0), ("b512", 512.0)];
    let Some(course) = courses.iter().find(|course| course.id == "b64") else { return Ok(()) };
    let line = |who| -> Vec<(f64, f64)> {
        AT.iter().filter_map(|&(course, tasks)| Some((tasks, results.median(course, who, Heat::rate)?))).collect()
    };
    let lines: Vec<_> = course.who.iter().map(|&who| (who, line(who))).filter(|(_, line)| !line.is_empty()).collect();
    let values = || lines.iter().flat_map(|(_, line)| line.iter().map(|point| point.1));
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("Own locks: cycles per second by number of tasks", ("sans-serif", 20))
        .margin(12)
        .margin_right(24)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((1.0..600.0).log_scale(), (low * 0.7..high * 1.4).log_scale())?;
    chart.configure_mesh().x_desc("tasks").y_desc("cycles/s").light_line_style(WHITE).draw()?;
    for (index, (who, line)) in lines.into_iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let width = if who == "mutex" { 4 } else { 2 };
        chart
            .draw_series(LineSeries::new(line.clone(), colour.stroke_width(width)))?
            .label(name(who))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(width)));
        chart.draw_series(line.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

/// A bar from the median to the 99th percentile, per contestant.
fn hand_over(file: &Path, courses: &[Course], results: &Results) -> Drawn {
    let Some(course) = courses.iter().find(|course| course.id == "c8r") else { return Ok(()) };
    let of = |who, figure| results.median(course.id, who, figure);
    let bars: Vec<(&str, f64, f64)> = course
        .who
        .iter()
        .filter_map(|&who| Some((who, of(who, |heat| heat.handed_half)?, of(who, |heat| heat.handed_most)?)))
        .filter(|bar| bar.1.is_finite() && bar.2.is_finite())
        .collect();
    let high = bars.iter().map(|bar| bar.2).fold(10.0, f64::max);
    let low = bars.iter().map(|bar| bar.1).fold(high, f64::min);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let count = bars.len();
    let mut chart = ChartBuilder::on(&area)
        .caption("Hand-over between 8 processes: from p50 to p99", ("sans-serif", 20))
        .margin(12)
        .margin_right(24)
        .x_label_area_size(40)
        .y_label_area_size(170)
        .build_cartesian_2d((low * 0.6..high * 1.3).log_scale(), 0.0..count as f64)?;
    let names: Vec<String> = bars.iter().rev().map(|bar| name(bar.0)).collect();
    chart.configure_mesh().x_desc("microseconds").disable_y_mesh().disable_y_axis().y_labels(0).light_line_style(WHITE).draw()?;
    for (row, (who, half, most)) in bars.iter().rev().enumerate() {
        let row = row as f64;
        let colour =
            if who.starts_with("redis") || who.starts_with('r') { RGBColor(130, 130, 140) } else { RGBColor(30, 110, 190) };
        chart.draw_series([Rectangle::new([(*half, row + 0.25), (most.max(half * 1.02), row + 0.75)], colour.filled())])?;
        let at = chart.backend_coord(&(*half, row + 0.5));
        area.draw(&Text::new(names[row as usize].clone(), (14, at.1 - 7), ("sans-serif", 14)))?;
    }
    area.present()?;
    Ok(())
}

/// A label without the marks that only the page understands.
fn name(who: &str) -> String {
    contestants::find(who).label.replace(['*', '`'], "")
}
