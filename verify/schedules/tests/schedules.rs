//! A short part of what `cargo xtask evidence schedules` explores: some thousand schedules of each scenario, and each flaw is found.

use std::time::SystemTime;

use lockkeeper_schedules::schedules::{Flaw, SCENARIOS, explore};

/// How many schedules of each scenario, half of them from seeds that are the same each time. With `LOCKKEEPER_FRESH_SEED=N` all of them are.
const SCHEDULES: u64 = 1_500;

#[test]
fn every_scenario_holds_in_every_schedule() {
    #[allow(clippy::disallowed_methods, reason = "a test stands outside the machines that it explores")]
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let fresh = std::env::var("LOCKKEEPER_FRESH_SEED").map_or_else(|_| now(), |seed| seed.parse().expect("a number")) * 2;
    for scenario in SCENARIOS {
        for seed in [0, 1, fresh, fresh + 1] {
            let report = explore(&scenario, Flaw::None, seed, SCHEDULES / 4);
            assert!(report.found.is_none(), "{}: {:?}", scenario.name, report.found);
            assert_eq!(report.schedules, SCHEDULES / 4, "{}", scenario.name);
        }
    }
}

/// Each on a thread of its own: a schedule that is given up leaves its threads behind.
#[test]
fn every_flaw_is_found() {
    for scenario in SCENARIOS {
        let search = move || (0..20).find_map(|seed| explore(&scenario, scenario.flaw, seed, 500).found);
        let found = std::thread::Builder::new().spawn(search).unwrap().join().unwrap();
        let found = found.unwrap_or_else(|| panic!("{}: {:?} was not found", scenario.name, scenario.flaw));
        println!("{}: {:?} is found by seed {} after {}: {}", scenario.name, scenario.flaw, found.seed, found.before, found.what);
    }
}
