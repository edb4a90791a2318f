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
fn an_http_service_refuses_a_late_writer_by_its_etag() {
    let printed = printed("http_etag");
    let chapter: Vec<&str> = include_str!("../src/fencing.md").lines().filter(|line| is_output(line)).collect();
    assert_eq!(chapter, printed.lines().collect::<Vec<_>>(), "the outputs in src/fencing.md, and what the program prints");
    assert!(printed.contains(": 412; 100 + 10 = 110"), "{printed}");
}

#[test]
fn stores_without_a_server_are_measured() {
    let printed = printed("measure_stores");
    let rows: Vec<&str> = printed.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() == 2 && rows[0].starts_with("| `memory:` |") && rows[1].starts_with("| `sqlite:` |"), "{printed}");
}

/// Each program is run above, or has a test of its own, says how to run it, and is short.
#[test]
fn every_program_is_run() {
    let tests = [include_str!("steps.rs"), include_str!("service.rs")].concat();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples");
    for entry in std::fs::read_dir(folder).expect("the examples") {
        let path = entry.expect("an example").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a plain name").to_owned();
        let text = std::fs::read_to_string(path).expect("an example");
        assert!(tests.contains(&format!("\"{name}\"")), "{name} is not run by a test");
        let says_how =
            text.lines().any(|line| line.starts_with("//! Run with `cargo run ") && line.contains(&format!("--example {name}")));
        assert!(says_how, "{name} does not say how to run it");
        assert!(text.lines().count() <= 120, "{name} has more than 120 lines");
    }
}
