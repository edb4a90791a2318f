//! The page of a store lists which cases of conformance are skipped there: by what they need and the store lacks, and by name.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper::backend::Capabilities;
use lockkeeper::conformance::{CASES, Case, Need};

const HEADING: &str = "## What conformance skips here";

/// What the cases need that a store with these capabilities skips.
fn lacking(capabilities: &Capabilities) -> BTreeSet<String> {
    let needs = CASES.iter().flat_map(|case| case.needs);
    needs.filter(|need| !need.is_met(capabilities)).map(|need| format!("{need:?}")).collect()
}

/// The cases that a store with these capabilities skips, each with what it lacks.
fn skipped(capabilities: &Capabilities) -> BTreeMap<String, BTreeSet<String>> {
    let lacking = |case: &Case| -> BTreeSet<String> {
        case.needs.iter().filter(|need| !need.is_met(capabilities)).map(|need| format!("{need:?}")).collect()
    };
    let cases = CASES.iter().map(|case| (format!("{}::{}", case.group, case.name), lacking(case)));
    cases.filter(|(_, lacking)| !lacking.is_empty()).collect()
}

/// What stands between backticks in a cell.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The table of cases in a page, and the number in its heading.
fn named(page: &str) -> (usize, BTreeMap<String, BTreeSet<String>>) {
    let (_, list) = page.split_once("<summary>The ").expect("the page names the cases");
    let count = list.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    let list = list.split("</details>").next().unwrap_or_default();
    let rows = list.lines().filter(|line| line.starts_with("| `")).map(|row| {
        let (case, lacking) = row.trim_matches('|').split_once('|').expect("two columns");
        (quoted(case).collect(), quoted(lacking).map(str::to_owned).collect())
    });
    (count, rows.collect())
}

/// The needs in the table of a page: what stands between backticks in the first column. Each row has a reason.
fn listed(page: &str) -> BTreeSet<String> {
    let (_, section) = page.split_once(HEADING).unwrap_or_else(|| panic!("the page has no {HEADING:?}"));
    let section = section.split("<details>").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let mut listed = BTreeSet::new();
    for row in rows {
        let columns: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(columns.len() == 2 && columns[1].len() > 10, "no reason: {row}");
        for need in quoted(columns[0]) {
            assert!(Need::ALL.iter().any(|known| format!("{known:?}") == need), "conformance knows no need {need:?}");
            assert!(listed.insert(need.to_owned()), "{need} is listed twice");
        }
    }
    listed
}

/// Compares a page in `docs/backends` with a store.
pub(crate) fn compare(page: &str, capabilities: &Capabilities) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/backends");
    let text = std::fs::read_to_string(folder.join(page)).unwrap();
    assert_eq!(listed(&text), lacking(capabilities), "{page}, {HEADING:?}: listed, and skipped");
    let (count, named) = named(&text);
    assert_eq!(named, skipped(capabilities), "{page}, cases by name: listed, and skipped");
    assert_eq!(count, named.len(), "{page}: the number in the summary");
}
