//! The page of a store lists which cases of conformance are skipped there: by what they need and the store lacks.

use std::collections::BTreeSet;

use lockkeeper::backend::Capabilities;
use lockkeeper::conformance::{CASES, Need};

const HEADING: &str = "## What conformance skips here";

/// What the cases need that a store with these capabilities skips.
fn lacking(capabilities: &Capabilities) -> BTreeSet<String> {
    let needs = CASES.iter().flat_map(|case| case.needs);
    needs.filter(|need| !need.is_met(capabilities)).map(|need| format!("{need:?}")).collect()
}

/// The needs in the table of a page: what stands between backticks in the first column. Each row has a reason.
fn listed(page: &str) -> BTreeSet<String> {
    let (_, section) = page.split_once(HEADING).unwrap_or_else(|| panic!("the page has no {HEADING:?}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let mut listed = BTreeSet::new();
    for row in rows {
        let columns: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(columns.len() == 2 && columns[1].len() > 10, "no reason: {row}");
        for need in columns[0].split('`').skip(1).step_by(2) {
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
}
