//! An older lockkeeper beside this one, by turns: did a change make anything slower?

use std::fmt::Write as _;

use crate::contestants;
use crate::courses::{Course, Shows};
use crate::goals::plain;
use crate::results::{Figure, Heat, Results};

/// Leaves our own contestants that the older program has too, each beside its older self.
pub(crate) fn only_ours(courses: &mut Vec<Course>) {
    for course in courses.iter_mut() {
        course.who = course.who.iter().filter_map(|&id| Some([id, contestants::before(id)?])).flatten().collect();
    }
    courses.retain(|course| !course.who.is_empty());
}

/// This one's figures over the older one's: the median of the ratios of heats of the same round.
pub(crate) fn table(courses: &[Course], results: &Results) -> String {
    let mut text =
        String::from("| workload | contestant | figure | before | now | now / before |\n|---|---|---|---:|---:|---:|\n");
    for course in courses {
        for pair in course.who.chunks(2) {
            let [now, before] = *pair else { continue };
            for (what, figure) in figures(course.shows) {
                let median = |who| results.median(course.id, who, figure).map_or_else(|| "none".to_owned(), plain);
                let ratio = results.ratio((course.id, now), (course.id, before), figure);
                let ratio = ratio.map_or_else(|| "none".to_owned(), |ratio| format!("{ratio:.3}"));
                let _ = writeln!(text, "| ({}) | {now} | {what} | {} | {} | {ratio} |", course.id, median(before), median(now));
            }
        }
    }
    text
}

fn figures(shows: Shows) -> Vec<(&'static str, Figure)> {
    let rate: (&str, Figure) = ("operations/s", Heat::rate);
    let half: (&str, Figure) = ("p50, µs", |heat| heat.half);
    let client: (&str, Figure) = ("client CPU, µs each", Heat::client_micros);
    let server: (&str, Figure) = ("server CPU, µs each", Heat::server_micros);
    match shows {
        Shows::Latency | Shows::Statements => vec![half],
        Shows::Contention | Shows::Queue => vec![rate, ("hand-over p50, µs", |heat| heat.handed_half), client, server],
        Shows::Crowd => vec![
            rate,
            ("requests each", Heat::requests_each),
            ("bytes per waiter", |heat| heat.fact("bytes per waiter")),
            client,
            server,
        ],
        Shows::Throughput | Shows::Keeping | Shows::Rate | Shows::Readers | Shows::Sales => vec![rate, client, server],
    }
}
