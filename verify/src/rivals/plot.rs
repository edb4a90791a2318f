//! The control group as two pictures: bars, written as SVG by hand.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Fault, Outcome};

/// A library under a fault, and what came of it.
pub type Course<'a> = (&'a str, Fault, &'a Outcome);

/// One bar: how long it is, what stands behind it, and its colour. One without a length is only the words.
struct Bar {
    value: Option<f64>,
    note: String,
    colour: &'static str,
}

const COLOURS: [&str; 3] = ["#c05a2b", "#d9a441", "#2f6f9f"];

/// Where the bars begin, how long the longest is, and the height of each.
const LEFT: f64 = 190.0;
const LENGTH: f64 = 420.0;
const HEIGHT: f64 = 13.0;

/// How long it takes until a program is told by itself that its lock is lost: the median.
#[must_use]
pub fn told(courses: &[Course<'_>]) -> String {
    let bars = |outcome: &Outcome| {
        let mut told = outcome.told.clone();
        told.sort_unstable();
        let lost = told.len() as u64 + outcome.told_at_release + outcome.never_told;
        let millis = |time: &Duration| time.as_secs_f64() * 1e3;
        let value = told.get(told.len() / 2).map(millis);
        let note = match (lost, value, told.last().map(millis)) {
            (0, ..) => "nobody lost the lock".to_owned(),
            (_, Some(middle), Some(most)) => format!("{middle:.0} ms, at most {most:.0}; {} of {lost}", told.len()),
            _ if outcome.told_at_release == 0 => format!("never told, {lost} times"),
            _ => format!("not by itself; at release {}, never {}", outcome.told_at_release, outcome.never_told),
        };
        vec![Bar { value, note, colour: COLOURS[2] }]
    };
    let title = "Time until a program is told by itself that its lock is lost (median; how many of those who lost it)";
    chart(title, &[], courses, bars)
}

/// How many updates were lost: by programs that just write, that ask first, and behind a fence.
#[must_use]
pub fn lost(courses: &[Course<'_>]) -> String {
    let bar = |colour: &'static str, lost: Option<u64>| {
        let note = lost.map_or("no token".to_owned(), |lost| lost.to_string());
        Bar { value: lost.map(|lost| lost as f64), note, colour }
    };
    let [plain, asked, fenced] = COLOURS;
    let bars = |outcome: &Outcome| {
        vec![
            bar(plain, Some(outcome.lost)),
            bar(asked, Some(outcome.lost_although_asked)),
            bar(fenced, outcome.lost_behind_fence),
        ]
    };
    let legend = [(plain, "programs that just write"), (asked, "that ask first, if they can"), (fenced, "behind a fence")];
    chart("Updates that were lost", &legend, courses, bars)
}

fn chart(title: &str, legend: &[(&str, &str)], courses: &[Course<'_>], bars: impl Fn(&Outcome) -> Vec<Bar>) -> String {
    let rows: Vec<_> = courses.iter().map(|(label, fault, outcome)| (*label, *fault, bars(outcome))).collect();
    let longest = rows.iter().flat_map(|(_, _, bars)| bars).filter_map(|bar| bar.value).fold(1.0, f64::max);
    let (mut body, mut y, mut before) = (String::new(), 26.0, None);
    let text = |body: &mut String, x: f64, y: f64, more: &str, words: &str| {
        let words = words.replace(['*', '`'], "").replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(body, "<text x=\"{x:.0}\" y=\"{y:.0}\"{more}>{words}</text>");
    };
    text(&mut body, 10.0, y, " font-weight=\"bold\"", title);
    for (index, (colour, words)) in legend.iter().enumerate() {
        let x = 10.0 + 220.0 * index as f64;
        let _ = writeln!(body, "<rect x=\"{x:.0}\" y=\"{:.0}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>", y + 12.0);
        text(&mut body, x + 18.0, y + 22.0, "", words);
    }
    y += if legend.is_empty() { 6.0 } else { 30.0 };
    for (label, fault, bars) in rows {
        if before != Some(fault) {
            y += 24.0;
            text(&mut body, 10.0, y, " font-style=\"italic\"", fault.shown());
            y += 8.0;
            before = Some(fault);
        }
        let middle = y + HEIGHT * bars.len() as f64 / 2.0 + 4.0;
        text(&mut body, LEFT - 8.0, middle, " text-anchor=\"end\"", label);
        for Bar { value, note, colour } in bars {
            let width = LENGTH * value.unwrap_or(0.0) / longest;
            let _ = writeln!(
                body,
                "<rect x=\"{LEFT}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{:.0}\" fill=\"{colour}\"/>",
                HEIGHT - 2.0
            );
            text(&mut body, LEFT + width + 6.0, y + HEIGHT - 3.0, " font-size=\"11\"", &note);
            y += HEIGHT;
        }
        y += 7.0;
    }
    let (width, height) = (LEFT + LENGTH + 230.0, y + 8.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\" role=\"img\">\n<title>{title}</title>\n\
         <rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(times: &[u64]) -> Vec<Duration> {
        times.iter().copied().map(Duration::from_millis).collect()
    }

    #[test]
    fn the_longest_bar_fills_the_picture_and_words_stand_where_there_is_none() {
        let quick = Outcome { told: millis(&[5, 50, 10]), ..Outcome::default() };
        let slow = Outcome { told: millis(&[100]), told_at_release: 1, ..Outcome::default() };
        let (blind, late) =
            (Outcome { never_told: 4, ..Outcome::default() }, Outcome { told_at_release: 2, ..Outcome::default() });
        let picture = told(&[
            ("**quick**", Fault::Pause, &quick),
            ("slow", Fault::Pause, &slow),
            ("`blind`", Fault::Pause, &blind),
            ("late", Fault::Restart, &late),
        ]);
        assert!(picture.contains("width=\"42.0\"") && picture.contains("width=\"420.0\""), "{picture}");
        assert!(
            picture.contains(">10 ms, at most 50; 3 of 3<") && picture.contains(">100 ms, at most 100; 1 of 2<"),
            "{picture}"
        );
        assert!(
            picture.contains(">never told, 4 times<") && picture.contains(">not by itself; at release 2, never 0<"),
            "{picture}"
        );
        assert!(
            picture.contains(">quick<") && picture.contains(">blind<") && picture.contains(Fault::Restart.shown()),
            "{picture}"
        );
    }

    #[test]
    fn a_library_without_tokens_has_no_bar_behind_a_fence() {
        let bare = Outcome { lost: 8, ..Outcome::default() };
        let fenced = Outcome { lost: 4, lost_behind_fence: Some(0), ..Outcome::default() };
        let picture = lost(&[("bare", Fault::Pause, &bare), ("fenced", Fault::Pause, &fenced)]);
        assert!(picture.contains("width=\"420.0\"") && picture.contains("width=\"210.0\""), "{picture}");
        assert_eq!(picture.matches(">no token<").count(), 1, "{picture}");
    }
}
