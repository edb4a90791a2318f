//! `cargo xtask bench`: the benchmarks of the library, and of `lockkeeper run`.

use crate::steps::Run;

/// Runs them; `arguments` are those of the library's.
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
    Run::cargo(&words).stream()?;
    Run::cargo(&["bench", "-p", "lockkeeper-cli", "--bench", "run"]).stream()
}
