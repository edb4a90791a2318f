//! What the project has set itself, each as a figure of one run.

use crate::results::{Figure, Heat, Results};

/// A goal, and what was measured; nothing if that was not run.
#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) workload: &'static str,
    pub(crate) what: &'static str,
    bound: Bound,
    pub(crate) measured: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    pub(crate) fn is_met(&self) -> Option<bool> {
        // As exact as it is shown.
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        self.measured.map(|value| match self.bound {
            Bound::AtMost(most) if most >= 1.0 => rounded(value) <= most,
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
        })
    }

    /// As a reader takes it.
    pub(crate) fn wanted(&self) -> String {
        match self.bound {
            Bound::AtMost(most) => format!("≤ {}", plain(most)),
            Bound::AtLeast(least) => format!("≥ {}", plain(least)),
        }
    }
}

/// Few digits, but enough to tell.
pub(crate) fn plain(value: f64) -> String {
    if value.is_nan() {
        return "none".to_owned();
    }
    let digits = match value.abs() {
        0.0 => 0,
        v if v < 0.1 => 4,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { grouped(&text) }
}

fn grouped(digits: &str) -> String {
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

/// All of them.
pub(crate) fn all(results: &Results) -> Vec<Goal> {
    use Bound::{AtLeast, AtMost};
    let rate: Figure = Heat::rate;
    let half: Figure = |heat| heat.half;
    let handed: Figure = |heat| heat.handed_half;
    let beside = |course, ours, theirs, figure| results.ratio((course, ours), (course, theirs), figure);
    let frozen = |well, frozen, who| results.ratio((frozen, who), (well, who), half);
    let share = |who: fn(&Heat) -> f64| results.of("e", "mutex").first().map(|heat| 100.0 * who(heat) / heat.seconds);
    let goal = |workload, what, bound, measured| Goal { workload, what, bound, measured };
    let mut all = vec![
        goal("a", "a cycle over two PINGs on the same transport and executor", AtMost(1.3), beside("a", "mutex", "pings", half)),
        goal("b", "64 tasks: cycles/s over the floor's", AtLeast(1.1), beside("b64", "mutex", "floor", rate)),
        goal("b", "64 tasks: cycles/s over Redisson's", AtLeast(2.0), beside("b64", "mutex", "redisson", rate)),
        goal(
            "b",
            "64 tasks: client CPU per cycle over Redisson's",
            AtMost(0.25),
            beside("b64", "mutex", "redisson", Heat::client_micros),
        ),
        goal(
            "b",
            "64 tasks: server CPU per cycle over Redisson's",
            AtMost(0.5),
            beside("b64", "mutex", "redisson", Heat::server_micros),
        ),
        goal("b", "512 tasks: cycles/s over the floor's", AtLeast(1.25), beside("b512", "mutex", "floor", rate)),
        goal("b", "16 tasks: cycles/s over rslock's", AtLeast(0.8), beside("b16", "mutex", "rslock", rate)),
        goal("b", "64 tasks: the same", AtLeast(1.0), beside("b64", "mutex", "rslock", rate)),
        goal("b", "512 tasks: the same", AtLeast(1.5), beside("b512", "mutex", "rslock", rate)),
        goal(
            "c",
            "8 processes that rest between turns: hand-over p50 over Redisson's",
            AtMost(0.5),
            beside("c8r", "mutex", "redisson", handed),
        ),
        goal(
            "c",
            "8 processes that rest between turns: hand-over p50 over rslock's",
            AtMost(0.02),
            beside("c8r", "mutex", "rslock", handed),
        ),
        goal(
            "c",
            "8 processes that rest between turns: hand-over p50 over rlock's",
            AtMost(0.02),
            beside("c8r", "mutex", "rlock", handed),
        ),
        goal(
            "c",
            "8 processes that ask again at once: the same over Redisson's",
            AtMost(0.5),
            beside("c8p", "mutex", "redisson", handed),
        ),
        goal(
            "c",
            "8 processes that ask again at once: the same over rslock's",
            AtMost(0.02),
            beside("c8p", "mutex", "rslock", handed),
        ),
        goal(
            "c",
            "8 processes that ask again at once: the same over rlock's",
            AtMost(0.02),
            beside("c8p", "mutex", "rlock", handed),
        ),
        goal(
            "c",
            "64 tasks of one process: acquisitions/s over Redisson's",
            AtLeast(30.0),
            beside("c64", "mutex", "redisson", rate),
        ),
        goal("c", "8 processes that ask again at once: hand-over p50 over a bare PING", AtMost(3.5), {
            let ping = results.median("a", "pings", half).map(|two| two / 2.0);
            results.median("c8p", "mutex", handed).zip(ping).map(|(handed, ping)| handed / ping)
        }),
        goal("c", "64 processes: acquisitions/s over those of 2", AtLeast(0.8), {
            let two = results.median("c2p", "mutex", rate);
            results.median("c64p", "mutex", rate).zip(two).map(|(many, two)| many / two)
        }),
        goal("c", "64 processes: slowest contender over fastest", AtLeast(0.5), results.evenness("c64p", "mutex", None)),
        goal(
            "c",
            "`FairMutex`, 8 processes: slowest contender over fastest",
            AtLeast(0.9),
            results.evenness("c8p", "fair", None),
        ),
        goal("c", "`FairMutex`, 64 tasks: slowest contender over fastest", AtLeast(0.9), results.evenness("c64", "fair", None)),
        goal("d", "`Mutex`: requests per hand-over", AtMost(2.0), results.median("d", "mutex", Heat::requests_each)),
        goal(
            "d",
            "`Mutex`: bytes per waiter",
            AtMost(2048.0),
            results.median("d", "mutex", |heat| heat.fact("bytes per waiter")),
        ),
        goal(
            "d",
            "`FairMutex`, 1,000 waiters: requests per hand-over",
            AtMost(2.0),
            results.median("d-fair", "fair", Heat::requests_each),
        ),
        goal("d", "`FairMutex`, 10,000 waiters: the same", AtMost(2.0), results.median("d-fair10k", "fair", Heat::requests_each)),
        goal("d", "`FairMutex`, 10,000 waiters: server CPU per hand-over over that of 100", AtMost(3.0), {
            let few = results.median("d-fair100", "fair", Heat::server_micros);
            results.median("d-fair10k", "fair", Heat::server_micros).zip(few).map(|(many, few)| many / few)
        }),
        goal("e", "server CPU over Redisson's", AtMost(1.0), beside("e", "mutex", "redisson", |heat| heat.server_cpu)),
        goal("e", "client: % of a core", AtMost(5.0), share(|heat| heat.client_cpu)),
        goal("e", "server: % of a core", AtMost(5.0), share(|heat| heat.server_cpu)),
        goal("e", "requests per renewal round of 10 s, 100,000 held", AtMost(100.0), results.median("e", "mutex", rounds)),
        goal("f", "re-entries/s over Redisson's", AtLeast(1000.0), beside("f", "owner", "redisson", rate)),
        goal(
            "g",
            "a writer that does not rest: reads/s over rlock's",
            AtLeast(2.0),
            beside("g", "rwlock", "rlock-rw", Heat::reads),
        ),
        goal("g", "a writer that rests: reads/s over rlock's", AtLeast(5.0), beside("g2", "rwlock", "rlock-rw", Heat::reads)),
        goal("h", "64 tasks: operations/s over Redisson's", AtLeast(5.0), beside("h", "permit", "redisson-permit", rate)),
        goal("j", "`lockkeeper run` over `true`, µs", AtMost(5_000.0), {
            let bare = results.median("j-run", "true", half);
            results.median("j-run", "run", half).zip(bare).map(|(run, bare)| run - bare)
        }),
        goal("k", "sales/s over Redisson's", AtLeast(4.0), beside("k", "mutex", "redisson", rate)),
        goal("k", "sales lost, all heats together", AtMost(0.0), results.of("k", "mutex").last().map(Heat::lost)),
        goal("i", "one of three frozen, over all well", AtMost(1.5), frozen("i3", "i3-frozen", "redlock")),
        goal("i", "two of five frozen, over all well", AtMost(1.5), frozen("i5", "i5-frozen", "redlock")),
        goal("i", "rslock, one of three frozen, over all well", AtLeast(100.0), frozen("i3", "i3-frozen", "rslock")),
        goal("i", "rslock, two of five frozen, over all well", AtLeast(100.0), frozen("i5", "i5-frozen", "rslock")),
        goal("m", "ZooKeeper without fsync: cycles/s over Curator's", AtLeast(1.5), beside("m-zk", "mutex", "curator", rate)),
        goal("m", "ZooKeeper with fsync: cycles/s over Curator's", AtLeast(1.0), beside("m-zk-fsync", "mutex", "curator", rate)),
        goal("m", "ZooKeeper, 8 tasks: hand-over p50 over Curator's", AtMost(1.0), beside("m-zk8", "mutex", "curator", handed)),
        goal("m", "etcd: cycles/s over Go's `concurrency.Mutex`", AtLeast(1.0), beside("m-etcd", "mutex", "etcd-go", rate)),
        goal(
            "m",
            "etcd, 8 tasks: hand-over p50 over the Lock RPC's",
            AtMost(0.8),
            beside("m-etcd8", "mutex", "etcd-rpc", handed),
        ),
        goal(
            "m",
            "etcd, 8 tasks: acquisitions/s over the Lock RPC's",
            AtLeast(5.0),
            beside("m-etcd8", "mutex", "etcd-rpc", rate),
        ),
    ];
    all.extend(databases(results));
    all
}

/// Those of databases.
fn databases(results: &Results) -> Vec<Goal> {
    use Bound::AtMost;
    let handed: Figure = |heat| heat.handed_half;
    let beside = |course, ours, theirs| results.ratio((course, ours), (course, theirs), handed);
    let each = |course, who| results.median(course, who, Heat::requests_each);
    let written = |many, few| results.ratio((many, "fair"), (few, "fair"), Heat::written_each);
    let goal = |what, most, measured| Goal { workload: "l", what, bound: AtMost(most), measured };
    vec![
        goal("PostgreSQL: statements per cycle", 2.1, each("l-pg", "mutex")),
        goal("PostgreSQL, a new name each time: statements per cycle", 2.1, each("l-pg", "fresh")),
        goal("MariaDB: transactions per cycle", 2.1, each("l-maria", "mutex")),
        goal("MariaDB, a new name each time: transactions per cycle", 2.1, each("l-maria", "fresh")),
        goal("PostgreSQL, 8 processes: hand-over p50 over `FOR UPDATE`'s", 1.2, beside("l8-pg", "mutex", "for-update")),
        goal("synchronous_commit=off: the same over `pg_advisory_lock`'s", 2.5, beside("l8-pg-off", "mutex", "advisory")),
        goal("MariaDB, 8 processes: hand-over p50 over `FOR UPDATE`'s", 1.2, beside("l8-maria", "mutex", "for-update")),
        goal("flush=2, with the hint: the same over `GET_LOCK`'s", 5.0, beside("l8-maria-2", "mutex", "get-lock")),
        goal("flush=2, without the hint: the same in µs", 10_000.0, results.median("l8-maria-2", "no-hint", handed)),
        goal("PostgreSQL, 1,000 fair waiters: statements per hand-over", 2.0, each("l1000-pg", "fair")),
        goal("PostgreSQL, bytes written per hand-over: 1,000 waiters over 10", 2.0, written("l1000-pg", "l10-pg")),
        goal("MariaDB, 1,000 fair waiters: transactions per hand-over", 2.0, each("l1000-maria", "fair")),
        goal("MariaDB, bytes written per hand-over: 1,000 waiters over 10", 2.0, written("l1000-maria", "l10-maria")),
        goal("PostgreSQL, 10,000 held: statements per renewal round", 20.0, results.median("lk-pg", "mutex", rounds)),
        goal("MariaDB, 10,000 held: transactions per renewal round", 20.0, results.median("lk-maria", "mutex", rounds)),
    ]
}

/// Requests for each time that all locks are renewed, which is every ten seconds.
pub(crate) fn rounds(heat: &Heat) -> f64 {
    heat.requests / (heat.seconds / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, text) in [
            (f64::NAN, "none"),
            (0.0, "0"),
            (0.0204, "0.0204"),
            (1.3, "1.3"),
            (12.34, "12.3"),
            (1_234_567.0, "1,234,567"),
            (100.0, "100"),
        ] {
            assert_eq!(plain(value), text);
        }
    }

    #[test]
    fn what_was_not_run_is_neither_met_nor_missed() {
        let goals = all(&Results::default());
        assert!(goals.iter().all(|goal| goal.is_met().is_none()));
    }
}
