//! Histories of real clients over a network and faults drawn from seeds, judged by the referee.
//!
//! `SEED=n cargo test -p lockkeeper-verify --test simulation replays` runs one seed twice and prints its history. A seed that fails is shrunk, and
//! what is left of it is printed.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::time::SystemTime;

use std::ops::Range;

use lockkeeper_verify::{Flaw, History, Promise, Setting, Verdict, WIDER, WIDEST, shrink, simulate, simulate_without};

/// The seeds that the tests run, and how many fresh ones; `cargo xtask evidence simulation` runs more.
const FIRST: Range<u64> = 0..5_000;
const WIDE: Range<u64> = WIDER..WIDER + 7_000;
const WIDEST_OF_ALL: Range<u64> = WIDEST..WIDEST + 8_000;
const FRESH: u64 = 10_000;

#[track_caller]
fn sound(seed: u64) -> History {
    let history = simulate(seed, Flaw::None);
    if let Some(what) = history.summary() {
        let (without, smallest) = shrink(seed, Flaw::None);
        panic!("SEED={seed}: {what}\n\nwithout {without:?}:\n{}", smallest.timeline());
    }
    history
}

/// Seeds that found a defect of the library or of the referee, which was mended.
const FOUND: [u64; 15] = [
    3_834,
    5_002_257,
    5_010_304,
    1_794_917_105_003_425,
    1_794_919_168_006_021,
    1_794_922_793_210_107,
    1_794_923_747_053_172,
    1_794_923_747_127_100,
    1_794_923_747_210_551,
    10_000_000_000_000_999,
    10_000_000_000_001_709,
    10_000_000_000_030_391,
    10_000_000_001_074_247,
    10_000_000_001_082_847,
    11_795_126_647_000_108,
];

#[test]
fn every_promise_is_kept_and_checked() {
    let mut sum = Verdict::default();
    for seed in FIRST.chain(WIDE).chain(WIDEST_OF_ALL).chain(FOUND) {
        sum.merge(sound(seed).verdict);
    }
    for promise in Promise::ALL.into_iter().filter(|promise| *promise != Promise::History) {
        assert!(sum.checks_of(promise) > 0, "{promise} was not checked");
    }
}

#[test]
fn every_setting_has_seeds() {
    for first in [WIDER, WIDEST] {
        let drawn: std::collections::BTreeSet<Setting> = (first..first + 10).map(Setting::of).collect();
        assert_eq!(drawn, Setting::ALL.into_iter().collect());
    }
}

/// Faults and steps are dropped as long as the same promise stays broken; the rest replays.
#[test]
fn a_failure_shrinks() {
    for flaw in [Flaw::RenewalsAlwaysKept, Flaw::NoQuarantine] {
        let found = (0..1_000).map(|seed| simulate(seed, flaw)).find(|history| !history.is_sound()).unwrap();
        let (without, smallest) = shrink(found.seed, flaw);
        assert_eq!(smallest.broken(), found.broken(), "{flaw:?}");
        assert!(smallest.events.len() < found.events.len(), "{flaw:?}: {without:?}");
        assert_eq!(simulate_without(found.seed, flaw, &without).digest, smallest.digest, "{flaw:?}");
        println!("{flaw:?}, {} events without {without:?}:\n{}", found.events.len(), smallest.timeline());
    }
}

#[test]
fn every_promise_is_kept_by_fresh_seeds() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let first = WIDEST + now * 1_000_000;
    println!("seeds from {first}");
    for seed in first..first + FRESH {
        sound(seed);
    }
}

#[test]
fn a_seed_replays() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        let history = simulate(seed, Flaw::None);
        history.events.iter().for_each(|event| println!("{}", serde_json::to_string(event).unwrap()));
        assert_eq!(history.digest, sound(seed).digest, "seed {seed} does not replay");
    }
    // Not a multiple of ten, so that each setting has its turn.
    for seed in FIRST.step_by(99).chain(WIDE.step_by(99)).chain(WIDEST_OF_ALL.step_by(99)) {
        let (first, second) = (sound(seed), sound(seed));
        let differ = first.events.iter().zip(&second.events).find(|(one, other)| one != other);
        assert_eq!(first.digest, second.digest, "SEED={seed} does not replay: {differ:?}");
    }
}

/// The negative controls: what is wrong on purpose is found within so many seeds.
#[track_caller]
fn finds(flaw: Flaw, promises: &[Promise]) {
    finds_from(0, flaw, promises);
}

#[track_caller]
fn finds_from(first: u64, flaw: Flaw, promises: &[Promise]) {
    // A history can also end with trouble, before the referee sees anything.
    let broken = (first..first + 1_000).map(|seed| simulate(seed, flaw)).find(|history| history.broken().is_some());
    let history = broken.expect("no seed of a thousand finds it");
    println!("{flaw:?} is found by SEED={}", history.seed);
    let found = history.verdict.violations.first().map(|violation| violation.promise);
    assert!(found.is_some_and(|found| promises.contains(&found)), "seed {}: {:?}", history.seed, history.verdict.violations);
}

#[test]
fn a_keeper_that_hears_of_no_loss_is_found() {
    finds(Flaw::RenewalsAlwaysKept, &[Promise::P1, Promise::P4]);
}

#[test]
fn a_release_that_frees_another_owner_is_found() {
    finds(Flaw::ReleaseIgnoresOwner, &[Promise::P1, Promise::P4]);
}

#[test]
fn a_grant_that_counts_twice_is_found() {
    finds(Flaw::GrantsAreCounted, &[Promise::P5]);
}

#[test]
fn a_quorum_without_quarantine_is_found() {
    finds(Flaw::NoQuarantine, &[Promise::P1]);
}

#[test]
fn floors_of_tokens_that_feed_on_themselves_are_found() {
    finds(Flaw::FloorsFeedOnThemselves, &[Promise::TokenClock]);
}

#[test]
fn tokens_that_go_back_are_found() {
    finds(Flaw::TokensGoBack, &[Promise::P2, Promise::TokenClock]);
}

#[test]
fn a_downgrade_that_releases_first_is_found() {
    finds_from(WIDER, Flaw::DowngradeReleasesFirst, &[Promise::P1]);
}

#[test]
fn an_inner_guard_that_frees_the_hold_is_found() {
    finds_from(WIDER, Flaw::InnerGuardFrees, &[Promise::P1, Promise::P4]);
}

#[test]
fn a_count_that_is_carried_out_twice_is_found() {
    finds_from(WIDER, Flaw::CopiesCount, &[Promise::Numbers]);
}

#[test]
fn a_client_that_believes_in_its_session_for_too_long_is_found() {
    finds_from(WIDER, Flaw::SessionsAreTakenForLonger, &[Promise::P1, Promise::P3, Promise::P4]);
}

#[test]
fn a_waiter_that_leaves_its_place_in_the_queue_is_found() {
    finds_from(WIDER, Flaw::PlacesAreLeft, &[Promise::P5, Promise::P6]);
}

/// After a grant that counts twice the name is never free again.
#[test]
fn a_waiter_that_is_not_served_when_all_is_well_is_found() {
    let unserved = |seed: &u64| {
        let trouble = simulate(*seed, Flaw::GrantsAreCounted).trouble;
        trouble.is_some_and(|trouble| trouble.contains("was not served"))
    };
    assert!((0..1_000).any(|seed| unserved(&seed)), "no seed of a thousand finds it");
}

#[test]
fn a_client_that_closes_and_leaves_its_holds_is_found() {
    finds_from(WIDEST, Flaw::CloseLeavesHolds, &[Promise::P5]);
}

/// What is left in a table of a client or of a store when nobody holds or waits any more.
#[track_caller]
fn finds_left(flaw: Flaw, words: &str) {
    let left = |seed: &u64| simulate(*seed, flaw).trouble.is_some_and(|trouble| trouble.contains(words));
    assert!((WIDEST..WIDEST + 1_000).any(|seed| left(&seed)), "no seed of a thousand finds it");
}

#[test]
fn a_hold_that_stays_with_the_keeper_is_found() {
    finds_left(Flaw::HoldsAreKept, "holds with the keeper");
}

#[test]
fn a_subscription_that_stays_at_the_store_is_found() {
    finds_left(Flaw::ListenersAreLeft, "are still listened to");
}
