//! Cases of the contract, a whole group in one test.

use lockkeeper::conformance::{CASES, Harness, run as run_case};

/// Runs the cases of a group, one after the other, each on a harness of its own.
pub(crate) fn run<H: Harness>(group: &str, harness: impl Fn() -> H) {
    let cases: Vec<_> = CASES.iter().filter(|case| case.group == group).collect();
    assert!(!cases.is_empty(), "there is no group {group}");
    for case in cases {
        let name = format!("{group}::{}", case.name);
        println!("{name}");
        run_case(harness(), &name, case.needs, case.run);
    }
}
