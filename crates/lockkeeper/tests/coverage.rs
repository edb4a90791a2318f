//! That nothing is forgotten: every case is in the catalogue, every need has a case, every store runs the suite, and every primitive
//! is covered in every respect.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use lockkeeper::conformance::{CASES, Need};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// All cases as they stand in the source: `group::name`, and the text of the function.
fn cases_in_source() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(here("src/conformance")).unwrap() {
        let path = entry.unwrap().path();
        let group = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        // From one top-level function to the next.
        for function in text.split("\npub async fn ").skip(1) {
            let Some((name, body)) = function.split_once("(world: &World)") else { continue };
            let body = body.split("\n}\n").next().unwrap();
            found.insert(format!("{group}::{name}"), body.to_owned());
        }
    }
    found
}

fn cases_in_catalogue() -> BTreeSet<String> {
    CASES.iter().map(|case| format!("{}::{}", case.group, case.name)).collect()
}

#[test]
fn every_case_is_in_the_catalogue_once() {
    let written: BTreeSet<_> = cases_in_source().into_keys().collect();
    let listed = cases_in_catalogue();
    assert_eq!(written.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new(), "written and never run");
    assert_eq!(listed.difference(&written).collect::<Vec<_>>(), Vec::<&String>::new(), "listed and not found");
    assert_eq!(listed.len(), CASES.len(), "a case is listed twice");
    assert!(CASES.len() >= 90, "only {} cases: was the source read at all?", CASES.len());
}

#[test]
fn every_case_says_why() {
    for entry in fs::read_dir(here("src/conformance")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("pub async fn ")) {
            assert!(lines[number - 1].starts_with("/// "), "{}: {line} has no reason", path.display());
        }
    }
}

#[test]
fn every_need_has_a_case() {
    for need in Need::ALL {
        assert!(CASES.iter().any(|case| case.needs.contains(&need)), "no case needs {need:?}");
    }
}

#[test]
fn every_store_runs_the_suite() {
    for entry in fs::read_dir(here("src/store")).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            continue;
        }
        let store = path.file_name().unwrap().to_str().unwrap().to_owned();
        // What stores share is no store.
        if ["kit", "queue", "sql"].contains(&store.as_str()) {
            continue;
        }
        let mut tests = vec![here(&format!("tests/{store}.rs"))];
        tests.extend(fs::read_dir(here(&format!("tests/{store}"))).into_iter().flatten().map(|file| file.unwrap().path()));
        let text: String = tests.iter().filter_map(|test| fs::read_to_string(test).ok()).collect();
        assert!(
            text.contains("conformance!("),
            "the {store} store is not held to the contract: no tests/{store}.rs that runs conformance!"
        );
    }
}

/// In what respect a case covers a primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Aspect {
    Limits,
    Wakes,
    Lasts,
    Cancel,
    Fault,
    BadInput,
}

use Aspect::{BadInput, Cancel, Fault, Lasts, Limits, Wakes};

const ASPECTS: [Aspect; 6] = [Limits, Wakes, Lasts, Cancel, Fault, BadInput];

/// A primitive, the words by which a case speaks of it, and its cases.
type Coverage = (Need, &'static [&'static str], &'static [(Aspect, &'static str)]);

/// One case, or more, for every aspect of every primitive. The words must stand in the case itself, or the case must go through
/// all claims; helpers that a case calls are named by the word they are called with.
const COVERED: &[Coverage] = &[
    (
        Need::Mutex,
        &["Mutex::new(", "Claim::Mutex"],
        &[
            (Limits, "mutex::excludes_a_second_owner"),
            (Limits, "mutex::loses_no_update_of_what_it_protects"),
            (Wakes, "mutex::wakes_a_waiter_when_released"),
            (Lasts, "mutex::a_dead_holder_is_gone_with_its_lease"),
            (Cancel, "cancel::a_free_mutex_is_left_wherever_it_is_dropped"),
            (Cancel, "cancel::a_held_mutex_is_left_wherever_it_is_dropped"),
            (Fault, "faults::a_storm_of_faults_loses_no_update"),
            (BadInput, "lease::a_lease_out_of_range_is_refused"),
        ],
    ),
    (
        Need::Fair,
        &["FairMutex::new(", "Claim::Fair"],
        &[
            (Limits, "fairness::excludes_a_plain_mutex_of_the_same_name"),
            (Limits, "fairness::serves_in_order_across_clients"),
            (Wakes, "fairness::wakes_the_head_when_released"),
            (Lasts, "fairness::an_expired_hold_goes_to_the_head"),
            (Cancel, "cancel::a_free_fair_mutex_is_left_wherever_it_is_dropped"),
            (Cancel, "cancel::a_held_fair_mutex_is_left_wherever_it_is_dropped"),
            (Fault, "fairness::a_lost_wake_up_costs_at_most_a_second"),
            (BadInput, "names::a_bad_name_is_refused_by_every_handle"),
        ],
    ),
    (
        Need::RwLock,
        &["RwLock::new(", "Claim::Read", "Claim::Write"],
        &[
            (Limits, "rwlock::a_writer_excludes_readers_and_writers"),
            (Wakes, "rwlock::wakes_a_writer_and_then_all_readers"),
            (Lasts, "rwlock::a_dead_reader_is_gone_with_its_lease"),
            (Cancel, "cancel::a_held_read_is_left_wherever_it_is_dropped"),
            (Cancel, "cancel::a_held_write_is_left_wherever_it_is_dropped"),
            (Fault, "rwlock::a_lost_wake_up_costs_at_most_a_second"),
            (BadInput, "rwlock::a_downgrade_needs_the_guard_of_this_lock"),
        ],
    ),
    (
        Need::Semaphore,
        &["Semaphore::new(", "Claim::Permits", "PERMIT"],
        &[
            (Limits, "semaphore::never_are_more_inside"),
            (Wakes, "semaphore::wakes_a_waiter_when_a_permit_comes_back"),
            (Lasts, "semaphore::a_crash_gives_its_permits_back"),
            (Lasts, "semaphore::keeps_its_size_when_all_permits_are_back"),
            (Cancel, "cancel::a_held_permit_is_left_wherever_it_is_dropped"),
            (Fault, "semaphore::a_lost_wake_up_costs_at_most_a_second"),
            (BadInput, "semaphore::zero_and_too_many_are_refused"),
        ],
    ),
    (
        Need::CountingSemaphore,
        &["CountingSemaphore::new("],
        &[
            (Limits, "counting::gives_out_exactly_what_is_there"),
            (Wakes, "counting::wakes_a_waiter_when_enough_is_there"),
            (Lasts, "counting::nothing_comes_back_by_itself"),
            (Cancel, "cancel::a_dropped_wait_for_a_number_takes_nothing"),
            (Fault, "counting::a_lost_answer_counts_once"),
            (BadInput, "counting::giving_none_is_refused"),
        ],
    ),
    (
        Need::Latch,
        &["CountDownLatch::new("],
        &[
            (Limits, "latch::opens_when_all_events_have_happened"),
            (Wakes, "latch::wakes_all_who_wait"),
            (Lasts, "latch::stays_closed_without_a_lease"),
            (Cancel, "cancel::a_dropped_wait_for_a_latch_changes_nothing"),
            (Fault, "latch::a_lost_answer_counts_once"),
            (BadInput, "latch::a_latch_of_none_is_refused"),
        ],
    ),
];

/// Cases that hold for every kind of hold, and in what respect.
const FOR_ALL_CLAIMS: &[(Aspect, &str)] = &[
    (Lasts, "lease::a_kept_hold_outlives_many_leases"),
    (Lasts, "lease::an_explicit_lease_ends_by_itself"),
    (Cancel, "cancel::a_dropped_release_still_releases"),
    (Fault, "faults::a_release_without_an_answer_is_success"),
    (Fault, "faults::an_unreachable_store_is_told_within_the_wait"),
    (BadInput, "lease::a_lease_out_of_range_is_refused"),
];

#[test]
fn every_primitive_is_covered_in_every_respect() {
    let source = cases_in_source();
    for (primitive, words, cases) in COVERED {
        for aspect in ASPECTS {
            assert!(cases.iter().any(|(covered, _)| *covered == aspect), "{primitive:?} has no case for {aspect:?}");
        }
        for (aspect, case) in *cases {
            let body =
                source.get(*case).unwrap_or_else(|| panic!("{case} is gone: find another for {aspect:?} of {primitive:?}"));
            let speaks_of_it = words.iter().any(|word| body.contains(word)) || body.contains("world.claims()");
            assert!(speaks_of_it, "{case} does not speak of {primitive:?}");
            let (group, name) = case.split_once("::").unwrap();
            let needs = CASES.iter().find(|case| case.group == group && case.name == name).unwrap().needs;
            // A case that needs nothing adapts itself to the store; any other would be skipped without its need.
            assert!(
                needs.is_empty() || needs.contains(primitive) || body.contains("world.claims()"),
                "{case} runs also where there is no {primitive:?}: it needs {needs:?}"
            );
        }
    }
    for (aspect, case) in FOR_ALL_CLAIMS {
        let body = source.get(*case).unwrap_or_else(|| panic!("{case} is gone: find another for {aspect:?}"));
        assert!(body.contains("world.claims()"), "{case} is not about all claims");
    }
}

/// The suite knows no store. Its simulated session store uses what stores share, and that is all.
#[test]
fn the_suite_imports_of_the_stores_only_what_they_share() {
    for entry in fs::read_dir(here("src/conformance")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for (at, found) in text.match_indices("store::") {
            let (before, import) = (&text[..at], &text[at + found.len()..]);
            // The simulated store's own module is called `session_store`.
            let allowed = before.ends_with("session_") || import.starts_with("kit::");
            assert!(allowed, "{} imports store::{}", path.display(), import.lines().next().unwrap_or_default());
        }
    }
}
