//! `lockkeeper-verify models`: larger models than the tests look at, as a section of the page.

use std::time::{Duration, Instant};

use lockkeeper_verify::models::{
    Failover, FailoverFlaw, FairFlaw, FairQueue, HandOver, HandOverFlaw, MutexFlaw, RedLock, RedLockFlaw, Retries,
};
use lockkeeper_verify::{Model, Report, explore_while};

/// So many states of each model are looked at. A bound by time would make other counts on each machine.
const MOST_STATES: usize = 10_000_000;

/// Looks at each of the larger models, for `time` at most; whether all promises hold, and each shows what it is about.
pub(crate) fn run(time: Duration) -> bool {
    println!("## Models, all states as far as the time allows\n");
    println!(
        "All states, or the first {MOST_STATES} in the order of their distance from the start. These are the same in every run.\n"
    );
    println!("| model | states | transitions | depth | all of them | seconds | broken, or never shown |");
    println!("|---|---|---|---|---|---|---|");
    let (mutex, redlock) = (MutexFlaw::None, RedLockFlaw::None);
    let failover = Failover { clients: 3, rounds: 2, horizon: 3, failovers: 2, lag: 1, flaw: FailoverFlaw::None };
    let fair = FairQueue { clients: 4, rounds: 2, horizon: 6, flaw: FairFlaw::None };
    let majority = RedLock {
        rounds: 2,
        horizon: 4,
        restarts: 2,
        renewals: true,
        slow_withdrawals: true,
        lost_answers: true,
        snapshots: true,
        flaw: redlock,
    };
    let hand_over =
        HandOver { waiters: 2, owners: 3, horizon: 3, doubles: 2, renewals: true, forced: 1, flaw: HandOverFlaw::None };
    let found = [
        row(
            "mutex, 2 clients",
            &Retries { clients: 2, rounds: 2, horizon: 4, repeats: true, renewals: true, doubles: 2, flaw: mutex },
            time,
        ),
        row(
            "mutex, 3 clients",
            &Retries { clients: 3, rounds: 1, horizon: 4, repeats: true, renewals: true, doubles: 1, flaw: mutex },
            time,
        ),
        row("failover", &failover, time),
        row("fair queue", &fair, time),
        row("RedLock", &majority, time),
        row("hand-over inside a process", &hand_over, time),
    ];
    println!();
    found.into_iter().all(|sound| sound)
}

fn row(name: &str, model: &impl Model, time: Duration) -> bool {
    eprintln!("{name} …");
    let began = Instant::now();
    let report = explore_while(model, MOST_STATES, || began.elapsed() < time);
    println!("{}", shown(name, &report, began.elapsed()));
    is_sound(&report)
}

/// A model that never shows what it is about proves nothing.
fn is_sound(report: &Report) -> bool {
    report.broken.is_none() && report.never.is_empty()
}

fn shown(name: &str, report: &Report, took: Duration) -> String {
    let all = match (report.complete, report.at_bound) {
        (true, _) => "yes",
        (_, true) => "at the bound",
        _ if report.broken.is_some() => "no",
        _ => "no, the time was over",
    };
    let broken = report.broken.as_ref().map(|(what, path)| format!("{what}: {}", path.join(", ")));
    let never = (!report.never.is_empty()).then(|| format!("never: {}", report.never.join(", ")));
    let wrong: Vec<String> = broken.into_iter().chain(never).collect();
    let wrong = if wrong.is_empty() { "nothing".to_owned() } else { wrong.join("; ") };
    let (states, transitions, depth) = (report.states, report.transitions, report.depth);
    format!("| {name} | {states} | {transitions} | {depth} | {all} | {:.1} | {wrong} |", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Report =
        Report { states: 9, transitions: 12, depth: 4, complete: true, at_bound: false, broken: None, never: Vec::new() };

    #[test]
    fn a_model_that_never_shows_what_it_is_about_fails() {
        assert!(is_sound(&WHOLE));
        let blind = Report { never: vec!["a hand-over"], ..WHOLE };
        assert!(!is_sound(&blind) && shown("x", &blind, Duration::ZERO).contains("never: a hand-over"));
        let broken = Report { broken: Some(("P1", vec!["Tick".to_owned()])), complete: false, ..WHOLE };
        assert!(!is_sound(&broken) && shown("x", &broken, Duration::ZERO).contains("P1: Tick"));
    }

    #[test]
    fn a_row_says_why_the_search_ended() {
        let says =
            |report: &Report, why: &str| assert!(shown("x", report, Duration::ZERO).contains(&format!("| {why} |")), "{why}");
        says(&WHOLE, "yes");
        says(&Report { complete: false, at_bound: true, ..WHOLE }, "at the bound");
        says(&Report { complete: false, ..WHOLE }, "no, the time was over");
    }
}
