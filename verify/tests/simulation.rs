//! Histories of real clients over a network and faults drawn from seeds, judged by the referee.
//!
//! `SEED=n cargo test -p lockkeeper-verify --test simulation replays` runs one seed twice and prints its history.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::time::SystemTime;

use lockkeeper_verify::{Flaw, History, Promise, Verdict, simulate};

/// How many seeds the tests run, and how many fresh ones; `cargo xtask evidence simulation` runs more.
const SEEDS: u64 = 10_000;
const FRESH: u64 = 1_000;

#[track_caller]
fn sound(seed: u64) -> History {
    let history = simulate(seed, Flaw::None);
    assert!(history.is_sound(), "SEED={seed}: {:?} {:?}", history.trouble, history.verdict.violations);
    history
}

/// Seeds that found a defect, which was mended.
const FOUND: [u64; 1] = [3_834];

#[test]
fn every_promise_is_kept_and_checked() {
    let mut sum = Verdict::default();
    for seed in (0..SEEDS).chain(FOUND) {
        sum.merge(sound(seed).verdict);
    }
    for promise in Promise::ALL.into_iter().filter(|promise| *promise != Promise::History) {
        assert!(sum.checks_of(promise) > 0, "{promise} was not checked");
    }
}

#[test]
fn every_promise_is_kept_by_fresh_seeds() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    println!("seeds from {}", now * 1_000_000);
    for seed in 0..FRESH {
        sound(now * 1_000_000 + seed);
    }
}

#[test]
fn a_seed_replays() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        let history = simulate(seed, Flaw::None);
        history.events.iter().for_each(|event| println!("{}", serde_json::to_string(event).unwrap()));
        assert_eq!(history.digest, sound(seed).digest, "seed {seed} does not replay");
    }
    for seed in (0..SEEDS).step_by(30) {
        let (first, second) = (sound(seed), sound(seed));
        let differ = first.events.iter().zip(&second.events).find(|(one, other)| one != other);
        assert_eq!(first.digest, second.digest, "SEED={seed} does not replay: {differ:?}");
    }
}

/// The negative controls: what is wrong on purpose is found within so many seeds.
#[track_caller]
fn finds(flaw: Flaw, promises: &[Promise]) {
    let broken = (0..1_000).map(|seed| simulate(seed, flaw)).find(|history| !history.is_sound());
    let history = broken.expect("no seed of 0..1000 finds it");
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
fn tokens_that_go_back_are_found() {
    finds(Flaw::TokensGoBack, &[Promise::P2, Promise::TokenClock]);
}
