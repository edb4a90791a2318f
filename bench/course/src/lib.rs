//! What every contestant of the benchmarks that is written in Rust does alike, so that only the locks differ.
//!
//! A contestant is a program: `PROGRAM WORKLOAD key=value...`. It connects, warms up, prints a line, and then runs one heat for each line
//! that it reads; a heat's [`Report`] is one line of JSON. It ends with its input. CPU, memory and requests are measured from outside,
//! alike for all languages. The contestants in other languages keep to the same.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the machine's clock, and is no part of the library")]

mod order;
mod till;
mod work;

use std::collections::BTreeMap;
use std::io::Write as _;

use serde::Serialize;

pub use order::Order;
pub use till::Till;
pub use work::{Lock, contend, cycle, now, readers};

/// What came of a heat.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// How long it took.
    pub seconds: f64,
    /// Operations of each task.
    pub counts: Vec<u64>,
    /// How long single operations took.
    pub nanos: Vec<u64>,
    /// Task, asked, granted, release begun: on the machine's monotonic clock, which processes share.
    pub turns: Vec<[u64; 4]>,
    /// Whatever else a workload has to tell.
    pub facts: BTreeMap<&'static str, f64>,
}

impl Report {
    /// A report of one task that only counted.
    #[must_use]
    pub fn counted(seconds: f64, operations: u64) -> Self {
        Self { seconds, counts: vec![operations], ..Self::default() }
    }

    /// The same with a fact.
    #[must_use]
    pub fn with(mut self, what: &'static str, value: f64) -> Self {
        self.facts.insert(what, value);
        self
    }
}

/// Runs a contestant: on one thread if it has one task, else on as many as there are cores, as `#[tokio::main]` does.
pub fn race(contestant: impl AsyncFnOnce(Order)) {
    let order = Order::from_arguments();
    let mut builder = match order.number("tasks") {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build().expect("an executor").block_on(contestant(order));
}

/// Warms up, then runs a heat whenever told to.
pub async fn heats(order: &Order, mut heat: impl AsyncFnMut(f64) -> Report) {
    if order.fraction("warm") > 0.0 {
        heat(order.fraction("warm")).await;
    }
    say("\"ready\"");
    while told().await {
        let report = heat(order.fraction("seconds")).await;
        say(&serde_json::to_string(&thinned(report)).expect("plain data"));
    }
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).expect("somebody listens");
}

/// Whether there is another heat. The executor goes on meanwhile.
async fn told() -> bool {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    read.await.is_ok_and(|read| read.is_ok_and(|bytes| bytes > 0))
}

/// Enough times for a percentile are enough.
fn thinned(mut report: Report) -> Report {
    let step = report.nanos.len() / 20_000 + 1;
    report.nanos = report.nanos.into_iter().step_by(step).collect();
    report
}
