//! The programs of "From `SETNX` to a lock you can trust" print what the chapter says that they print: each naive lock fails, each repair holds.

use std::path::PathBuf;

use lockkeeper_testkit::examples::printed;
use lockkeeper_testkit::server::{Flavour, Server};

const STEPS: [&str; 9] = [
    "step1_no_expiry",
    "step2_no_owner",
    "step3_not_atomic",
    "step4_not_reentrant",
    "step5_no_wake_up",
    "step6_long_work",
    "step7_failover",
    "step8_redlock",
    "step9_paused",
];

fn is_output(line: &str) -> bool {
    line.starts_with("naive: ") || line.starts_with("repaired: ")
}

#[test]
fn each_naive_lock_fails_and_each_repair_holds_as_the_chapter_says() {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip("the steps of the guide", &why);
        return;
    }
    // Most of their time is waiting, so they run side by side.
    let all: Vec<Vec<String>> = std::thread::scope(|scope| {
        let runs: Vec<_> =
            STEPS.map(|step| scope.spawn(move || printed(step).lines().map(str::to_owned).collect())).into_iter().collect();
        runs.into_iter().map(|run| run.join().expect("the step ends well")).collect()
    });
    for (step, lines) in STEPS.iter().zip(&all) {
        for version in ["naive: ", "repaired: "] {
            assert!(lines.iter().any(|line| line.starts_with(version)), "{step} has no {version:?} in {lines:?}");
        }
    }
    let chapter: Vec<&str> = include_str!("../src/from-setnx.md").lines().filter(|line| is_output(line)).collect();
    assert_eq!(chapter, all.concat(), "the outputs in src/from-setnx.md, and what the programs print");
}

#[test]
fn java_and_rust_take_turns_on_one_lock() {
    const NAME: &str = "java_and_rust";
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip(NAME, &why);
        return;
    }
    let printed = printed(NAME);
    if let Some(why) = printed.strip_prefix("skipped: ") {
        lockkeeper::conformance::skip(NAME, why);
        return;
    }
    let expected = [
        "rust holds it; java's tryLock(): false",
        "rust released it; java's lock() returned: true",
        "java holds it; rust's try_lock() was refused: true",
        "rust sees java's owner: true",
        "java unlocked it; rust holds it: true",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn every_program_is_run() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .expect("the examples")
        .map(|entry| entry.expect("an example").file_name().into_string().expect("a plain name"))
        .collect();
    found.sort();
    found.retain(|program| program != "java_and_rust.rs");
    assert_eq!(found, STEPS.map(|step| format!("{step}.rs")));
}
