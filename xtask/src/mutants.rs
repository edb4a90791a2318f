//! Mutants, for `cargo xtask evidence mutants`: cargo-mutants changes one thing in the code at a time, and a test has to fail.
//!
//! What changes nothing that could be seen is listed in `.cargo/mutants.toml`, each with the reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::steps::{Run, target};
use crate::tools::MUTANTS;

/// Files whose mutants are tested together, and the test programs that have to find them.
struct Group {
    what: &'static str,
    files: &'static [&'static str],
    tests: &'static [&'static str],
}

const GROUPS: [Group; 2] = [
    Group {
        what: "model, acquisition, store/kit",
        files: &["model/**/*.rs", "session/acquisition.rs", "store/kit/**/*.rs"],
        tests: &["--lib", "--test", "memory"],
    },
    Group { what: "layer/quorum", files: &["layer/quorum/**/*.rs"], tests: &["--lib", "--test", "memory", "--test", "quorum"] },
];

/// More than this are not tested in one run: a sample is drawn.
const MOST: usize = 500;

/// What the build and the tests of one mutant take on a machine with two cores, in seconds: so many are drawn as fit into the minutes.
const EACH: usize = 30;

/// A test program that takes longer has found the mutant: something waits for ever. In seconds.
const TIMEOUT: &str = "60";

/// What came of the mutants of a group.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    caught: usize,
    timed_out: usize,
    missed: Vec<String>,
    /// Those that do not compile say nothing of the tests.
    unviable: usize,
}

impl Found {
    const fn viable(&self) -> usize {
        self.caught + self.timed_out + self.missed.len()
    }

    /// Reads the lists that cargo-mutants leaves, one mutant per line.
    fn read(folder: &Path) -> Result<Self, String> {
        let lines = |name: &str| {
            let file = folder.join(name);
            let text = fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            Ok::<_, String>(text.lines().map(str::to_owned).collect::<Vec<_>>())
        };
        Ok(Self {
            caught: lines("caught.txt")?.len(),
            timed_out: lines("timeout.txt")?.len(),
            missed: lines("missed.txt")?,
            unviable: lines("unviable.txt")?.len(),
        })
    }
}

/// Tests so many mutants as fit into the minutes; the section, and whether enough were caught.
pub(crate) fn section(minutes: &str) -> Result<(String, bool), String> {
    let minutes: usize = minutes.parse().map_err(|_| "--minutes needs a number")?;
    let program = match MUTANTS.find() {
        Some(program) => program,
        None => {
            MUTANTS.build()?;
            MUTANTS.find().ok_or("cargo-mutants was built, but is not found")?
        }
    };
    let lists: Vec<usize> = GROUPS.iter().map(|group| count(&program, group)).collect::<Result<_, _>>()?;
    let all: usize = lists.iter().sum();
    let wanted = (60 * minutes / EACH).clamp(1, MOST);
    // Every n-th mutant, so the files take part by their size.
    let of = all.div_ceil(wanted).max(1);
    let seed = seed()?;
    let shard = seed % u64::try_from(of).unwrap_or(1);
    println!("    {all} mutants; every {of}th from number {shard} on (LOCKKEEPER_FRESH_SEED={seed})");
    let mut sums = Vec::new();
    for group in &GROUPS {
        sums.push(test(&program, group, &format!("{shard}/{of}"))?);
    }
    let text = shown(&lists, &sums, &format!("every {of}th from number {shard} on, of {all}"));
    let (viable, missed) = sums.iter().fold((0, 0), |(viable, missed), one| (viable + one.viable(), missed + one.missed.len()));
    Ok((text, (viable - missed) * 100 >= 95 * viable))
}

/// What draws the sample: the time, unless it is told.
fn seed() -> Result<u64, String> {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    std::env::var("LOCKKEEPER_FRESH_SEED")
        .map_or_else(|_| Ok(now()), |seed| seed.parse().map_err(|_| "LOCKKEEPER_FRESH_SEED needs a number".to_owned()))
}

/// cargo-mutants on the files of a group, with its own name as the first word, as cargo calls it.
fn run(program: &Path, group: &Group) -> Run {
    let mut run = Run::new(&program.display().to_string(), &["mutants", "--package", "lockkeeper"]);
    for files in group.files {
        run = run.and("--file").and(&format!("crates/lockkeeper/src/{files}"));
    }
    run
}

fn count(program: &Path, group: &Group) -> Result<usize, String> {
    Ok(run(program, group).and("--list").capture()?.lines().count())
}

fn folder(group: &Group) -> PathBuf {
    target().join("mutants").join(group.what.replace([' ', ',', '/'], "-"))
}

/// Tests the mutants of a group that belong to the shard.
fn test(program: &Path, group: &Group, shard: &str) -> Result<Found, String> {
    let place = folder(group);
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let words = ["--shard", shard, "--sharding", "round-robin", "--timeout", TIMEOUT, "--build-timeout", "900", "--no-shuffle"];
    let mut run = words.iter().fold(run(program, group), |run, word| run.and(word));
    run = run.and("--all-features").and("--output").and(&place.display().to_string()).and("--");
    run = group.tests.iter().fold(run, |run, word| run.and(word));
    // The copy that is changed shares what was built of the dependencies.
    let build = target().join("mutants/build").display().to_string();
    let (said, sound) = run.with("CARGO_TARGET_DIR", build).with("CARGO_INCREMENTAL", "1").capture_whole()?;
    println!("{said}");
    let found = Found::read(&place.join("mutants.out"))?;
    // Mutants that were missed make it fail; so does code whose tests fail as it is, and then nothing is known.
    if !sound && found.viable() == 0 {
        return Err(format!("no mutant was tested; what failed stands in {}", place.join("mutants.out/log").display()));
    }
    Ok(found)
}

fn shown(lists: &[usize], sums: &[Found], sample: &str) -> String {
    let mut text = format!(
        "## Mutants\n\n[cargo-mutants](https://mutants.rs) {} changes one thing in the code at a time. A test program that fails, or takes longer than \
         {TIMEOUT} s, has caught it.\nThe sample: {sample}. What changes nothing that a test could see is left out, each with the reason: \
         [mutants.toml](../.cargo/mutants.toml).\n\n| files | tests | mutants | in the sample | caught | took too long | not caught | do not compile \
         |\n|---|---|---|---|---|---|---|---|\n",
        MUTANTS.version()
    );
    for ((group, all), found) in GROUPS.iter().zip(lists).zip(sums) {
        let (tests, sample) = (group.tests.join(" ").replace("--test ", "").replace("--", ""), found.viable() + found.unviable);
        let Found { caught, timed_out, missed, unviable } = found;
        text.push_str(&format!(
            "| {} | {tests} | {all} | {sample} | {caught} | {timed_out} | {} | {unviable} |\n",
            group.what,
            missed.len()
        ));
    }
    let missed: Vec<&String> = sums.iter().flat_map(|found| &found.missed).collect();
    let viable: usize = sums.iter().map(Found::viable).sum();
    text.push_str(&format!("\nCaught: {} of {viable}.\n", viable - missed.len()));
    if !missed.is_empty() {
        text.push_str("\nNot caught:\n\n");
        missed.iter().for_each(|name| text.push_str(&format!("* `{name}`\n")));
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use crate::steps::root;

    use super::*;

    #[test]
    fn every_file_that_is_changed_exists() {
        let sources = root().join("crates/lockkeeper/src");
        for files in GROUPS.iter().flat_map(|group| group.files) {
            let path = sources.join(files.trim_end_matches("/**/*.rs"));
            assert!(path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn what_is_not_caught_is_listed_and_counted() {
        let place = std::env::temp_dir().join(format!("xtask-mutants-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        for (name, text) in
            [("caught.txt", "a\nb\n"), ("timeout.txt", "c\n"), ("missed.txt", "d: replace x\n"), ("unviable.txt", "e\n")]
        {
            fs::write(place.join(name), text).unwrap();
        }
        let found = Found::read(&place).unwrap();
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(found, Found { caught: 2, timed_out: 1, missed: vec!["d: replace x".to_owned()], unviable: 1 });
        let text = shown(&[40, 9], &[found, Found::default()], "every 8th from number 3 on, of 49");
        assert!(text.contains("| model, acquisition, store/kit | lib memory | 40 | 5 | 2 | 1 | 1 | 1 |"), "{text}");
        assert!(text.contains("Caught: 3 of 4.") && text.ends_with("* `d: replace x`"), "{text}");
    }
}
