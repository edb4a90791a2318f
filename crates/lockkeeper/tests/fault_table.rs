//! `docs/faults.md` tells which test shows what: every fault has one, and every one that is named exists.

use std::path::Path;

const PAGE: &str = include_str!("../../../docs/faults.md");

/// The tests that a line names.
fn tests(line: &str) -> Vec<&str> {
    line.split('`').filter(|word| word.contains("::") && word.ends_with(|last: char| last.is_ascii_alphanumeric())).collect()
}

fn rows() -> impl Iterator<Item = &'static str> {
    PAGE.lines().filter(|line| line.starts_with("| ") && !tests(line).is_empty())
}

/// Whether a source has a function of this name, or has one made by a macro.
fn exists(test: &str) -> bool {
    let (file, name) = test.rsplit_once("::").expect("a file and a name");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = match file.split_once("::") {
        Some(("conformance", group)) => root.join(format!("src/conformance/{group}.rs")),
        Some(("session", file)) => root.join(format!("src/session/{}.rs", file.replace("::", "/"))),
        Some(("cli", group)) => root.join(format!("../lockkeeper-cli/tests/cli/{group}.rs")),
        _ => root.join(format!("tests/{}.rs", file.replace("::", "/"))),
    };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let forms = [format!("fn {name}("), format!("    {name}: "), format!(" in {name} by ")];
    forms.iter().any(|form| text.contains(form))
}

#[test]
fn every_test_that_the_page_names_exists() {
    let missing: Vec<_> = rows().flat_map(tests).filter(|test| !exists(test)).collect();
    assert!(missing.is_empty(), "gone, or renamed: {missing:#?}");
    assert!(!exists("redis::faults::a_test_that_was_never_written"));
}

#[test]
fn every_fault_and_every_control_has_a_row_with_a_test() {
    for fault in (1..=15).chain(19..=25).chain(27..=39) {
        assert!(rows().any(|row| row.starts_with(&format!("| {fault} |"))), "no test for fault {fault}");
    }
    let controls = rows().filter(|row| tests(row).iter().any(|test| test.starts_with("redis::controls::"))).count();
    assert!(controls >= 8, "{controls} controls");
}

/// The numbers of these lines, where the first cell is one.
fn numbers(lines: &[&str]) -> Vec<u32> {
    lines.iter().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok()).collect()
}

/// Whether each number is larger than the one before it, so that none is there twice.
fn ascend(numbers: &[u32]) -> bool {
    numbers.is_sorted_by(|one, next| one < next)
}

#[test]
fn the_number_of_a_fault_is_there_once() {
    let faults = numbers(&PAGE.lines().collect::<Vec<_>>());
    assert!(faults.len() > 100, "{} faults", faults.len());
    let wrong: Vec<_> = faults.windows(2).filter(|pair| !ascend(pair)).collect();
    assert!(wrong.is_empty(), "twice, or out of order: {wrong:?}");
    assert!(
        !ascend(&numbers(&["| 107 | one |", "| 107 | another |"])) && !ascend(&numbers(&["| 108 | one |", "| 107 | another |"]))
    );
}
