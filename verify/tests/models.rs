//! Every state of small models: the promises hold in all, what the model is about happens in some, and a broken twin is found.
//!
//! The numbers of states are pinned: a change of the specification that changes them is a decision. `cargo xtask evidence models` looks at
//! larger ones.

use lockkeeper_verify::models::{
    Failover, FailoverFlaw, FairFlaw, FairQueue, HandOver, HandOverFlaw, MutexFlaw, RedLock, RedLockFlaw, Retries,
};
use lockkeeper_verify::{Model, explore};

/// Far more than any of these has.
const MOST: usize = 400_000;

#[track_caller]
fn holds(model: &impl Model, states: usize) {
    let report = explore(model, MOST);
    assert_eq!(report.broken, None);
    assert!(report.complete, "{} states are not all", report.states);
    assert_eq!(report.never, [""; 0], "the model does not show this");
    assert_eq!(report.states, states, "the specification or the model has changed; depth {}", report.depth);
}

#[track_caller]
fn breaks(model: &impl Model, property: &str) {
    let report = explore(model, MOST);
    let (found, path) = report.broken.unwrap_or_else(|| panic!("{} states, and nothing is found", report.states));
    println!("{found}: {}", path.join(", "));
    assert!(found.starts_with(property), "{found} is broken first: {path:?}");
}

const RETRIES: Retries =
    Retries { clients: 2, rounds: 1, horizon: 2, repeats: false, renewals: false, doubles: 1, flaw: MutexFlaw::None };

#[test]
fn a_mutex_with_doubled_and_late_messages_keeps_its_promises() {
    holds(&RETRIES, 50_400);
}

#[test]
fn a_mutex_with_repeated_requests_keeps_its_promises() {
    holds(&Retries { repeats: true, doubles: 0, ..RETRIES }, 62_970);
}

#[test]
fn a_mutex_with_renewals_keeps_its_promises() {
    holds(&Retries { renewals: true, doubles: 0, ..RETRIES }, 20_872);
}

#[test]
fn a_deadline_that_counts_from_the_answer_is_found() {
    breaks(&Retries { flaw: MutexFlaw::DeadlineFromAnswer, ..RETRIES }, "P1");
}

#[test]
fn a_server_that_carries_out_late_requests_is_found() {
    breaks(&Retries { flaw: MutexFlaw::LateIsCarriedOut, ..RETRIES }, "P5");
}

#[test]
fn a_release_that_frees_another_owner_is_found() {
    // A copy of the first release frees the second holder, and the first client is granted again.
    breaks(&Retries { rounds: 2, horizon: 0, flaw: MutexFlaw::ReleaseIgnoresOwner, ..RETRIES }, "P1");
}

const FAILOVER: Failover = Failover { clients: 2, rounds: 2, horizon: 2, failovers: 1, lag: 0, flaw: FailoverFlaw::None };

#[test]
fn a_failover_that_loses_the_last_grants_loses_no_update() {
    holds(&FAILOVER, 57_246);
}

#[test]
fn a_failover_to_a_clock_that_lags_loses_no_update() {
    holds(&Failover { lag: 1, ..FAILOVER }, 75_036);
}

#[test]
fn a_gate_that_only_looks_at_writes_is_found() {
    breaks(&Failover { flaw: FailoverFlaw::NobodyEnters, ..FAILOVER }, "P7");
}

#[test]
fn tokens_without_the_clock_are_found() {
    breaks(&Failover { flaw: FailoverFlaw::TokensWithoutClock, ..FAILOVER }, "P2");
}

const FAIR: FairQueue = FairQueue { clients: 3, rounds: 1, horizon: 5, flaw: FairFlaw::None };

#[test]
fn a_fair_queue_with_dead_waiters_serves_the_living_in_order() {
    holds(&FAIR, 33_426);
}

#[test]
fn a_mutex_without_a_queue_is_found() {
    breaks(&FairQueue { flaw: FairFlaw::NoQueue, ..FAIR }, "nobody alive");
}

#[test]
fn places_that_never_end_are_found() {
    breaks(&FairQueue { flaw: FairFlaw::PlacesNeverEnd, ..FAIR }, "P6");
}

const REDLOCK: RedLock = RedLock {
    rounds: 1,
    horizon: 2,
    restarts: 1,
    renewals: false,
    slow_withdrawals: false,
    lost_answers: false,
    snapshots: false,
    flaw: RedLockFlaw::None,
};

#[test]
fn a_majority_with_quarantine_has_one_holder_whatever_a_server_forgets() {
    holds(&REDLOCK, 28_096);
}

#[test]
fn a_majority_without_quarantine_is_found() {
    breaks(&RedLock { flaw: RedLockFlaw::NoQuarantine, ..REDLOCK }, "P1");
}

const HAND_OVER: HandOver =
    HandOver { waiters: 2, owners: 2, horizon: 2, doubles: 1, renewals: false, forced: 0, flaw: HandOverFlaw::None };

#[test]
fn a_hold_that_passes_on_inside_a_process_keeps_the_promises() {
    holds(&HAND_OVER, 299_562);
}

#[test]
fn a_hand_over_with_renewals_keeps_the_promises() {
    holds(&HandOver { horizon: 1, renewals: true, doubles: 0, ..HAND_OVER }, 36_796);
}

#[test]
fn a_hand_over_of_what_an_operator_took_away_keeps_the_promises() {
    holds(&HandOver { horizon: 1, forced: 1, doubles: 0, ..HAND_OVER }, 70_194);
}

#[test]
fn a_hold_that_is_kept_for_the_same_owner_is_found() {
    breaks(&HandOver { flaw: HandOverFlaw::SameOwner, ..HAND_OVER }, "the server holds it");
}

#[test]
fn ranges_of_tokens_that_overlap_are_found() {
    breaks(&HandOver { flaw: HandOverFlaw::RangesOverlap, ..HAND_OVER }, "P2");
}

#[test]
fn a_hold_that_nobody_takes_back_is_found() {
    let alone = HandOver { waiters: 1, owners: 1, horizon: 5, doubles: 0, renewals: true, ..HAND_OVER };
    breaks(&HandOver { flaw: HandOverFlaw::NobodyTakesBack, ..alone }, "P5");
}
