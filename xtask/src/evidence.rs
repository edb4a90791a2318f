//! `cargo xtask evidence`: larger models and more seeds than the tests take; writes docs/evidence.md.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::drivers::REDISSON;
use crate::fuzz;
use crate::steps::{Run, root, target};

/// The parts, in the order of the page, with how their sections begin.
pub(crate) const PARTS: [(&str, &str); 6] = [
    ("models", "## Models, all states as far as the time allows"),
    ("simulation", "## Simulation"),
    ("schedules", "## Schedules"),
    ("fuzz", "## Fuzz targets"),
    ("real", "## Real servers"),
    ("control", "## Control group"),
];

const HEAD: &str = "\
# Evidence

Written by `cargo xtask evidence`; do not edit. What the parts are, how to replay a seed, and which bugs they found:
[verify/README.md](../verify/README.md). To repeat it: `cargo xtask evidence --minutes N`; N minutes for each part
(for each model, at most). Each section says when it was written.
";

const NOT_COVERED: &str = "\
## What is not covered

* The simulated store with sessions is one server: no followers that lag behind, no leader that is deposed. Semaphores keep their size there,
  and no permits are adopted.
* The simulation runs the client over the memory store and a simulated session store. Scripts, SQL and wire formats of real servers are tested
  against the same model, but not in it.
* For RedLock the referee does not judge P5 and P6; that nothing is left and that every task ends is checked.
* The clients of the models are written for the models; only the server is the library's specification.
* Histories of real servers have no events of the store, so the referee does not judge P5 and P6 there; that nothing is left at the end is
  checked. Parted networks, stepped clocks, ensembles of ZooKeeper and clusters of etcd are tested ([faults.md](faults.md)), but no histories are
  recorded there.
* Schedules are drawn, not enumerated, and sequentially consistent: what only weaker orders of memory show is not seen. In them a request to
  Redis is played; connections and subscriptions of the stores need sockets, and are tested with real servers.
* The fuzz targets end where a driver begins: its own parsers of protocols are not ours.
* The control group has no failovers, and nothing but mutexes.
";

/// Runs the parts named, or all of them, for so many minutes each, and writes the page.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (mut minutes, mut parts, mut quick) = (5_u64, Vec::new(), false);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--minutes" => {
                let value = words.next().and_then(|value| value.parse().ok());
                minutes = value.filter(|minutes| *minutes > 0).ok_or("--minutes needs a number, at least 1")?;
            }
            "--debug" => quick = true,
            part if PARTS.iter().any(|(known, _)| *known == part) => parts.push(part),
            other => return Err(format!("there is no part {other}; there are {}", PARTS.map(|(part, _)| part).join(", "))),
        }
    }
    let minutes = minutes.to_string();
    let mut written = Vec::new();
    for (part, _) in PARTS.into_iter().filter(|(part, _)| parts.is_empty() || parts.contains(part)) {
        let section = section(part, &minutes, quick)?;
        println!("{section}\n");
        written.push((part, format!("{section}\n\n{}", setting(quick)?)));
    }
    let file = root().join("docs").join("evidence.md");
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    std::fs::write(&file, page(&before, &written)).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("    written: {}", file.display());
    Ok(())
}

/// Runs a part, and returns its section.
fn section(part: &str, minutes: &str, quick: bool) -> Result<String, String> {
    let release = (!quick).then_some("--release");
    // `--release` is tuned for a quick build; here speed is states and seeds.
    let tuned = |words: &[&str]| Run::cargo(words).with("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3");
    if part == "fuzz" {
        return fuzz::section(minutes);
    }
    // The schedules have a package of their own: there the library has other locks.
    let package = if part == "schedules" { "lockkeeper-schedules" } else { "lockkeeper-verify" };
    let mut words = vec!["run", "--quiet", "-p", package];
    words.extend(release);
    words.extend(["--", part, "--minutes", minutes]);
    let mut run = tuned(&words);
    if part == "real" {
        let mut words = vec!["build", "--quiet", "-p", "lockkeeper-cli", "--features", "all"];
        words.extend(release);
        tuned(&words).stream()?;
        let program = target().join(if quick { "debug" } else { "release" }).join("lockkeeper");
        run = run.and("--program").and(&program.display().to_string());
    }
    if ["real", "simulation"].contains(&part) {
        // A line per run, so that runs can be added up.
        let log = root().join(format!("docs/evidence/{part}.tsv")).display().to_string();
        run = run.and("--log").and(&log).and("--date").and(&today()?).and("--commit").and(&commit()?);
    }
    if part == "control" {
        run = run.and("--plots").and(&root().join("docs/evidence").display().to_string());
        for (option, command) in rivals() {
            match command {
                Ok(command) => run = run.and(option).and(&command.join("|")),
                // One that cannot be built does not keep the others from it.
                Err(why) => println!("    {option} does not take part: {why}"),
            }
        }
    }
    Ok(run.capture()?.trim_end().to_owned())
}

/// How the programs of the control group are started, by their options; what is missing is built.
fn rivals() -> [(&'static str, Result<Vec<String>, String>); 3] {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let peers = target().join("peers");
    let rslock = || {
        let place = root().join("bench/peers/rslock");
        let build = Run::cargo(&["build", "--quiet", "--release", "--locked", "--bin", "held"]).inside(&place);
        build.with("CARGO_TARGET_DIR", peers.display().to_string()).stream()?;
        Ok(vec![peers.join("release/held").display().to_string()])
    };
    let python = || {
        let (place, sources) = (peers.join("redis-py").display().to_string(), root().join("bench/peers/redis-py"));
        let python = format!("{place}/bin/python");
        if !Path::new(&python).exists() {
            Run::new("python3", &["-m", "venv", &place]).stream()?;
        }
        let needs = sources.join("requirements.txt").display().to_string();
        Run::new(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", &needs]).stream()?;
        Ok(words(&[&python, &sources.join("held.py").display().to_string()]))
    };
    let redisson = || {
        let place = REDISSON.newest()?;
        let classes = format!("{}:{}", place.join("driver.jar").display(), place.join("lib/*").display());
        Ok(words(&["java", "-cp", &classes, "lockkeeper.interop.Driver"]))
    };
    [("--rslock", rslock()), ("--python", python()), ("--redisson", redisson())]
}

/// The page: what was written now, else what was written before.
fn page(before: &str, written: &[(&str, String)]) -> String {
    let mut page = HEAD.to_owned();
    for (part, title) in PARTS {
        let now = written.iter().find(|(name, _)| *name == part).map(|(_, section)| section.trim_end().to_owned());
        let earlier =
            || before.find(title).map(|at| before[at..].split("\n## ").next().unwrap_or_default().trim_end().to_owned());
        let section = now.or_else(earlier).unwrap_or_else(|| format!("{title}\n\nNot run yet."));
        page.push_str(&format!("\n{section}\n"));
    }
    format!("{page}\n{NOT_COVERED}")
}

/// The commit; marked if there are changes that it does not have. What is in `docs` changes with each run, and is not part of what runs.
fn commit() -> Result<String, String> {
    let commit = Run::new("git", &["rev-parse", "--short=12", "HEAD"]).capture()?;
    let changed = Run::new("git", &["status", "--porcelain", "--", ".", ":!docs"]).capture()?;
    let mark = if changed.trim().is_empty() { "" } else { "+changes" };
    Ok(format!("{}{mark}", commit.trim()))
}

fn today() -> Result<String, String> {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let date = Run::new("date", &["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%d"]).capture()?;
    Ok(date.trim().to_owned())
}

/// When, of what and on what.
fn setting(quick: bool) -> Result<String, String> {
    let (date, commit) = (today()?, commit()?);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let built = if quick { "without optimisation" } else { "with `--release`" };
    Ok(format!("Written on {date}, commit {commit}, {cores} cores, built {built}.\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parts_and_senseless_minutes_are_refused() {
        let run = |words: &[&str]| run(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()).unwrap_err();
        assert!(run(&["polish"]).contains("models, simulation, schedules, fuzz, real, control"));
        assert!(run(&["--minutes", "0"]).contains("at least 1"));
        assert!(run(&["--minutes"]).contains("a number"));
    }

    #[test]
    fn a_part_that_did_not_run_keeps_its_section() {
        let first = page("", &[("simulation", "## Simulation\n\nold".to_owned())]);
        assert!(first.contains("## Real servers\n\nNot run yet.") && first.contains("## Simulation\n\nold"), "{first}");
        let second = page(&first, &[("real", "## Real servers\n\nnew".to_owned())]);
        assert!(
            second.contains("## Simulation\n\nold\n\n## Schedules\n\nNot run yet.\n\n## Fuzz targets")
                && second.contains("## Real servers\n\nnew\n\n## Control group\n\nNot run yet."),
            "{second}"
        );
        assert_eq!(page(&second, &[]), second);
    }
}
