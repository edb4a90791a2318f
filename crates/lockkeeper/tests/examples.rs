//! Every example runs on the store that needs nothing, ends well, and prints what it is there to show. Cargo builds examples with the tests.

use std::path::PathBuf;

use lockkeeper_testkit::examples::printed;

#[track_caller]
fn shows(example: &str, lines: &[&str]) {
    let printed = printed(example);
    for line in lines {
        assert!(printed.lines().any(|printed| printed == *line), "{line:?} is not in:\n{printed}");
    }
}

#[test]
fn quickstart_takes_turns() {
    let printed = printed("quickstart");
    assert!(printed.starts_with("one holds the lock") && printed.contains("\ntwo holds the lock"), "{printed}");
}

#[test]
fn a_double_click_buys_once() {
    shows("one_order_per_user", &["ann, later: Before", "2 orders of 2 users"]);
}

#[test]
fn a_scheduled_job_runs_once() {
    shows("cron_once", &["web-1: ran it", "web-2: skipped it", "web-3: skipped it", "ran 1 times"]);
}

#[test]
fn nobody_reads_a_half_written_file() {
    shows("read_mostly_cache", &["200 reads beside 10 writes, none half-written; version 10"]);
}

#[test]
fn threads_lock_re_enter_and_share_permits() {
    shows("blocking", &["100 visits", "held by this thread: true", "a third mailer: not now"]);
}

#[test]
fn transfers_neither_deadlock_nor_lose_money() {
    let printed = printed("multi_lock_transfer");
    assert!(printed.starts_with("160 transfers, ") && printed.ends_with("in all 400\n"), "{printed}");
}

#[test]
fn a_file_refuses_a_writer_that_lost_its_lock() {
    shows("fenced_file", &["the first writer, with the earlier token: refused", "the file says: by the second writer"]);
}

/// It sells too much without a lock, so that the other half means something.
#[test]
#[cfg(feature = "sqlite")]
fn a_flash_sale_oversells_only_without_the_lock() {
    let printed = printed("flash_sale");
    let oversold = |what: &str| -> u32 {
        let line = printed.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("{what} is not in:\n{printed}"));
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number in {line:?}"))
    };
    assert!(oversold("without a lock") > 0, "{printed}");
    assert_eq!(oversold("with a lock"), 0, "{printed}");
    assert!(printed.contains("sold  20   oversold   0"), "{printed}");
}

/// Each file in the folder is run above, or has a test of its own, says how to run it, and is short.
#[test]
fn every_example_is_run() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples");
    let tests = [include_str!("examples.rs"), include_str!("fencing.rs"), include_str!("postgres/fence.rs")].concat();
    for entry in std::fs::read_dir(&folder).expect("the examples") {
        let name = entry.expect("an example").file_name().into_string().expect("plain names");
        let example = name.trim_end_matches(".rs");
        let run = tests.contains(&format!("\"{example}\"")) || tests.contains(&format!("examples/{example}.rs"));
        assert!(run, "{example} is not run by a test");
        let text = std::fs::read_to_string(folder.join(&name)).expect("an example");
        assert!(text.contains("//! Run with `cargo run -p lockkeeper "), "{example} does not say how to run it");
        assert!(text.lines().count() <= 120, "{example} has more than 120 lines");
    }
}
