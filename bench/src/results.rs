//! What was measured, by course and contestant, and the ratios between contestants.

use std::collections::BTreeMap;

use crate::figures::{Turn, hand_overs, median, quantile};
use crate::team::Report;

/// One heat of one contestant.
#[derive(Debug)]
pub(crate) struct Heat {
    pub(crate) seconds: f64,
    pub(crate) counts: Vec<u64>,
    /// Microseconds of one operation.
    pub(crate) half: f64,
    pub(crate) most: f64,
    /// Microseconds of a hand-over.
    pub(crate) handed_half: f64,
    pub(crate) handed_most: f64,
    /// Seconds of CPU of all its processes, and of the server.
    pub(crate) client_cpu: f64,
    pub(crate) server_cpu: f64,
    /// What clients asked of the server.
    pub(crate) requests: f64,
    /// Keys on the server when it ended.
    pub(crate) keys: f64,
    /// Bytes of the log that a database wrote.
    pub(crate) written: f64,
    pub(crate) facts: BTreeMap<String, f64>,
}

/// What the server says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerSays {
    pub(crate) cpu: f64,
    pub(crate) requests: f64,
    pub(crate) keys: f64,
    pub(crate) written: f64,
}

impl Heat {
    /// Puts together what the processes of a team tell.
    pub(crate) fn new(reports: Vec<Report>, client_cpu: f64, before: ServerSays, after: ServerSays) -> Self {
        let seconds = reports.iter().map(|report| report.seconds).fold(0.0, f64::max);
        let (mut counts, mut micros, mut turns, mut facts) = (Vec::new(), Vec::new(), Vec::<Turn>::new(), BTreeMap::new());
        for (process, report) in (0..).zip(reports) {
            counts.extend(report.counts);
            micros.extend(report.nanos.iter().map(|&nanos| nanos as f64 / 1e3));
            turns.extend(
                report
                    .turns
                    .iter()
                    .map(|&[task, asked, granted, released]| [process * 1_000_000 + task, asked, granted, released]),
            );
            report.facts.into_iter().for_each(|(what, value)| *facts.entry(what).or_default() += value);
        }
        let handed = hand_overs(turns);
        Self {
            seconds,
            counts,
            half: median(micros.clone()),
            most: quantile(micros, 0.99),
            handed_half: median(handed.clone()),
            handed_most: quantile(handed, 0.99),
            client_cpu,
            server_cpu: after.cpu - before.cpu,
            requests: after.requests - before.requests,
            keys: after.keys,
            written: after.written - before.written,
            facts,
        }
    }

    pub(crate) fn operations(&self) -> f64 {
        self.counts.iter().sum::<u64>() as f64
    }

    pub(crate) fn rate(&self) -> f64 {
        self.operations() / self.seconds
    }

    /// Microseconds of the contestant's CPU per operation.
    pub(crate) fn client_micros(&self) -> f64 {
        self.client_cpu * 1e6 / self.operations().max(1.0)
    }

    pub(crate) fn server_micros(&self) -> f64 {
        self.server_cpu * 1e6 / self.operations().max(1.0)
    }

    pub(crate) fn requests_each(&self) -> f64 {
        self.requests / self.operations().max(1.0)
    }

    pub(crate) fn written_each(&self) -> f64 {
        self.written / self.operations().max(1.0)
    }

    /// Turns in which not the last one to write was the last one to read: two were inside.
    pub(crate) fn lost(&self) -> f64 {
        self.fact("sold") - self.fact("counted")
    }

    pub(crate) fn reads(&self) -> f64 {
        (self.operations() - self.written_turns()) / self.seconds
    }

    pub(crate) fn writes(&self) -> f64 {
        self.written_turns() / self.seconds
    }

    fn written_turns(&self) -> f64 {
        self.counts.last().map_or(0.0, |&writes| writes as f64)
    }

    pub(crate) fn fact(&self, what: &str) -> f64 {
        self.facts.get(what).copied().unwrap_or(0.0)
    }
}

/// A figure of a heat.
pub(crate) type Figure = fn(&Heat) -> f64;

/// All heats, and what went wrong.
#[derive(Debug, Default)]
pub(crate) struct Results {
    heats: BTreeMap<(&'static str, &'static str), Vec<Heat>>,
    pub(crate) trouble: BTreeMap<(&'static str, &'static str), String>,
    /// Name and version of a course's server, where the page does not say it for all.
    pub(crate) servers: BTreeMap<&'static str, String>,
}

impl Results {
    pub(crate) fn add(&mut self, course: &'static str, who: &'static str, heat: Heat) {
        self.heats.entry((course, who)).or_default().push(heat);
    }

    pub(crate) fn of(&self, course: &'static str, who: &'static str) -> &[Heat] {
        self.heats.get(&(course, who)).map_or(&[], Vec::as_slice)
    }

    /// A figure's median, lowest and highest.
    pub(crate) fn spread(&self, course: &'static str, who: &'static str, figure: Figure) -> Option<(f64, f64, f64)> {
        let values: Vec<f64> = self.of(course, who).iter().map(figure).collect();
        if values.is_empty() {
            return None;
        }
        Some((median(values.clone()), quantile(values.clone(), 0.0), quantile(values, 1.0)))
    }

    pub(crate) fn median(&self, course: &'static str, who: &'static str, figure: Figure) -> Option<f64> {
        self.spread(course, who, figure).map(|(half, ..)| half)
    }

    /// The median of the ratios of heats that ran one after the other.
    pub(crate) fn ratio(
        &self,
        (course, who): (&'static str, &'static str),
        (beside, whom): (&'static str, &'static str),
        figure: Figure,
    ) -> Option<f64> {
        let pairs = self.of(course, who).iter().zip(self.of(beside, whom));
        let ratios: Vec<f64> =
            pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)).filter(|ratio| ratio.is_finite()).collect();
        (!ratios.is_empty()).then(|| median(ratios))
    }

    /// The slowest contender's turns over the fastest's, all heats together. A contender is a task, or all tasks of one of so many processes.
    pub(crate) fn evenness(&self, course: &'static str, who: &'static str, processes: Option<usize>) -> Option<f64> {
        let heats = self.of(course, who);
        let tasks = heats.first()?.counts.len();
        let mut sums = vec![0; processes.unwrap_or(tasks)];
        for heat in heats {
            for (task, count) in heat.counts.iter().enumerate() {
                let index = task * sums.len() / tasks.max(1);
                sums[index] += count;
            }
        }
        let (least, most) = (*sums.iter().min()?, *sums.iter().max()?);
        Some(least as f64 / most.max(1) as f64)
    }
}
