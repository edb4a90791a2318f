//! The fuzz targets with libFuzzer, for `cargo xtask evidence fuzz`: builds `verify/fuzz` with its instructions and runs each target.

use std::fs;

use crate::steps::{Run, root, target};

/// What libFuzzer needs in the code: counters for edges, and calls at comparisons. cargo-fuzz passes the same to a nightly compiler; these are
/// options of LLVM, which the stable one passes on.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// An input that takes longer, in seconds, counts as work without bounds; so does one that takes more memory, in MB.
const SLOWEST: &str = "-timeout=10";
const LARGEST: &str = "-rss_limit_mb=1024";

/// What libFuzzer tells of a target.
struct Row {
    runs: u64,
    edges: u64,
    found: bool,
}

/// Builds the targets and runs each for its share of the time; the section, and whether nothing was found.
pub(crate) fn section(minutes: &str) -> Result<(String, bool), String> {
    let program = build()?;
    let corpus = root().join("verify/corpus");
    let mut targets: Vec<String> = fs::read_dir(&corpus)
        .map_err(|error| format!("{}: {error}", corpus.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    targets.sort();
    let minutes: usize = minutes.parse().map_err(|_| "--minutes needs a number")?;
    let seconds = (60 * minutes / targets.len()).max(1);
    let mut section = "## Fuzz targets\n\nlibFuzzer, without sanitizers: there is no unsafe code of ours. Overflows and failed assertions count as panics. An \
                       input that takes\nten seconds, or a gigabyte, counts too.\n\n| target | inputs | edges reached | found |\n|---|---|---|---|\n"
        .to_owned();
    let (mut all, mut found) = (0, Vec::new());
    for name in &targets {
        let row = run(&program, name, seconds)?;
        let what = if row.found { "a panic" } else { "nothing" };
        section.push_str(&format!("| {name} | {} | {} | {what} |\n", row.runs, row.edges));
        all += row.runs;
        found.extend(row.found.then_some(name.as_str()));
    }
    if !found.is_empty() {
        eprintln!("found by: {}; the inputs are in {}", found.join(", "), inputs().display());
    }
    Ok((format!("{section}\n{all} inputs, {seconds} s for each target."), found.is_empty()))
}

/// Inputs that reached something new, and those that failed.
fn inputs() -> std::path::PathBuf {
    target().join("fuzz/inputs")
}

fn build() -> Result<String, String> {
    let machine = Run::new("rustc", &["-vV"]).capture()?;
    let host = machine.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc does not name its host")?;
    let place = target().join("fuzz");
    // With `--target`, build scripts and macros are built without these flags.
    let words = ["build", "--quiet", "--release", "--locked", "--manifest-path", "verify/fuzz/Cargo.toml", "--target", host];
    let build = Run::cargo(&words).with("RUSTFLAGS", FLAGS.split_whitespace().collect::<Vec<_>>().join(" "));
    build.with("CARGO_TARGET_DIR", place.display().to_string()).stream()?;
    Ok(place.join(host).join("release/target").display().to_string())
}

fn run(program: &str, name: &str, seconds: usize) -> Result<Row, String> {
    let (ours, log) = (inputs().join(name), inputs().join(format!("{name}.log")));
    fs::create_dir_all(&ours).map_err(|error| format!("{}: {error}", ours.display()))?;
    let (time, prefix) =
        (format!("-max_total_time={seconds}"), format!("-artifact_prefix={}/failed-{name}-", inputs().display()));
    let known = root().join("verify/corpus").join(name).display().to_string();
    let ours = ours.display().to_string();
    let words = [time.as_str(), SLOWEST, LARGEST, "-max_len=4096", "-print_final_stats=1", prefix.as_str(), &ours, &known];
    println!("    {name}: {seconds} s");
    let file = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut child = Run::new(program, &words).with("LOCKKEEPER_FUZZ_TARGET", name).spawn_into(file)?;
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    let told = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    Ok(Row { found: !status.success(), ..read(&told) })
}

/// The figures at the end of what libFuzzer prints.
fn read(told: &str) -> Row {
    let number = |text: &str| text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let runs = told.lines().rev().find_map(|line| line.strip_prefix("stat::number_of_executed_units:")).map_or(0, number);
    let edges = told.rsplit_once(" cov: ").map_or(0, |(_, rest)| number(rest));
    Row { runs, edges, found: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_libfuzzer_are_read() {
        let row =
            read("#2 INITED cov: 5 ft: 6\n#1048 DONE   cov: 1234 ft: 2000 corp: 9/1kb\nstat::number_of_executed_units: 1048\n");
        assert_eq!((row.runs, row.edges), (1048, 1234));
        assert_eq!(read("nothing").runs, 0);
    }
}
