//! `cargo xtask bench`: the benchmarks of the library.

use crate::steps::Run;

/// Runs them; `arguments` are theirs.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut words = vec![
        "bench",
        "-p",
        "lockkeeper",
        "--features",
        "redis,sqlite",
        "--bench",
        "core",
        "--bench",
        "redis",
        "--bench",
        "sqlite",
        "--",
    ];
    words.extend(arguments.iter().map(String::as_str));
    Run::cargo(&words).stream()
}
