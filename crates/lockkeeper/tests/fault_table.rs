//! `docs/faults.md` tells which test shows what: every fault has one, every one that is named exists, and every negative control is named.

use std::path::{Path, PathBuf};

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
        Some(("session" | "store", _)) => root.join(format!("src/{}.rs", file.replace("::", "/"))),
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
}

/// The negative controls in the text of one file: the lines of `notices!` and `controls!`, every test of a file that has nothing else, and the tests that
/// say so in the first words of a line of their documentation.
fn controls(text: &str) -> Vec<&str> {
    let only_controls = text.starts_with("//! Negative controls");
    let (mut in_macro, mut said, mut is_test, mut found) = (false, false, false, Vec::new());
    for line in text.lines() {
        let code = line.trim();
        if ["notices! {", "controls! {"].contains(&line) {
            in_macro = true;
        } else if line == "}" {
            in_macro = false;
        } else if in_macro {
            let control = match code.split_once(" in ") {
                Some((_, rest)) => rest.split_once(" by "),
                None => {
                    code.split_once(": ").filter(|(control, _)| control.chars().all(|one| one == '_' || one.is_alphanumeric()))
                }
            };
            found.extend(control.map(|(control, _)| control));
        }
        if let Some(says) = code.strip_prefix("///") {
            said |= [" The control", " The negative control", " Negative control"].iter().any(|words| says.starts_with(words));
        } else if code.starts_with("#[") {
            is_test |= code.starts_with("#[test]") || code.starts_with("#[tokio::test");
        } else {
            let name = code.split_once("fn ").and_then(|(_, rest)| rest.split_once('(')).map(|(name, _)| name);
            found.extend(name.filter(|_| is_test && (said || only_controls)));
            (said, is_test) = (false, false);
        }
    }
    found
}

/// All Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .collect()
}

/// Every negative control, as the page names it.
fn all_controls() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for (folder, prefix) in
        [("tests", ""), ("src/session", "session::"), ("src/store", "store::"), ("../lockkeeper-cli/tests", "")]
    {
        for file in files(&root.join(folder)) {
            let module = file.strip_prefix(root.join(folder)).unwrap().with_extension("").to_str().unwrap().replace('/', "::");
            let text = std::fs::read_to_string(&file).unwrap();
            all.extend(controls(&text).into_iter().map(|control| format!("{prefix}{module}::{control}")));
        }
    }
    all
}

/// What is not named in the second column of a row of the page.
fn not_named<'a>(page: &str, controls: &'a [String]) -> Vec<&'a String> {
    let named: Vec<_> = page.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").nth(1)).flat_map(tests).collect();
    controls.iter().filter(|control| !named.contains(&control.as_str())).collect()
}

#[test]
fn every_negative_control_has_a_row() {
    let all = all_controls();
    for (group, least) in [
        ("negative::", 25),
        ("session_store::", 11),
        ("model::negative::", 11),
        ("redis::controls::", 8),
        ("redis::model::broken::", 9),
    ] {
        let found = all.iter().filter(|control| control.starts_with(group)).count();
        assert!(found >= least, "only {found} controls were found in {group}");
    }
    for file in [
        "quorum::tokens::",
        "quorum::attacks::",
        "sqlite::processes::",
        "sql::model::",
        "cli::kills::",
        "session::local_queue::",
        "store::kit::",
    ] {
        assert!(all.iter().any(|control| control.starts_with(file)), "no control was found in {file}");
    }
    let missing = not_named(PAGE, &all);
    assert!(missing.is_empty(), "docs/faults.md, section Negative controls, does not name {missing:#?}");
    for removed in [
        "negative::a_missing_queue",
        "model::negative::a_missing_wake_is_caught",
        "sqlite::processes::without_a_lock_updates_are_lost",
    ] {
        let page = PAGE.replace(&format!("`{removed}`"), "");
        assert_eq!(not_named(&page, &all), [removed], "a page without it must be found");
    }
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
