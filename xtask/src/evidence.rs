//! `cargo xtask evidence`: larger models and more seeds than the tests take; writes docs/evidence.md.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::drivers::REDISSON;
use crate::steps::{Run, root, target};
use crate::{fuzz, mutants};

/// The parts, in the order of the page, with how their sections begin.
pub(crate) const PARTS: [(&str, &str); 7] = [
    ("models", "## Models, all states as far as the time allows"),
    ("simulation", "## Simulation"),
    ("schedules", "## Schedules"),
    ("fuzz", "## Fuzz targets"),
    ("real", "## Real servers"),
    ("control", "## Control group"),
    ("mutants", "## Mutants"),
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
  checked. The network between clients and one server of Redis, PostgreSQL and etcd is disturbed, and the clock of one Redis server is set. Networks that
  part servers from each other, clocks of other servers, ensembles of ZooKeeper and clusters of etcd are tested ([faults.md](faults.md)), but no histories
  are recorded there.
* Counting semaphores of real servers are not put in order; that their number adds up at the end is checked.
* Schedules are drawn, not enumerated, and sequentially consistent: what only weaker orders of memory show is not seen. In them a request to
  Redis is played; connections and subscriptions of the stores need sockets, and are tested with real servers.
* The fuzz targets end where a driver begins: its own parsers of protocols are not ours.
* The control group has no failovers, and nothing but mutexes.
";

/// What was asked for.
#[derive(Debug, Default)]
struct Asked<'a> {
    minutes: String,
    parts: Vec<&'a str>,
    quick: bool,
    /// One topology or scenario of the part.
    only: Option<&'a str>,
}

/// The parts that can be run for one row of their table.
const ROWS: [&str; 2] = ["real", "schedules"];

impl<'a> Asked<'a> {
    fn read(arguments: &'a [String]) -> Result<Self, String> {
        let (mut asked, mut minutes) = (Self::default(), 5_u64);
        let mut words = arguments.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--minutes" => {
                    let value = words.next().and_then(|value| value.parse().ok());
                    minutes = value.filter(|minutes| *minutes > 0).ok_or("--minutes needs a number, at least 1")?;
                }
                "--debug" => asked.quick = true,
                "--only" => asked.only = Some(words.next().ok_or("--only needs the name of a topology or of a scenario")?),
                part if PARTS.iter().any(|(known, _)| *known == part) => asked.parts.push(part),
                other => return Err(format!("there is no part {other}; there are {}", PARTS.map(|(part, _)| part).join(", "))),
            }
        }
        if asked.only.is_some() && !matches!(asked.parts[..], [part] if ROWS.contains(&part)) {
            return Err(format!("--only needs one part that it belongs to: {}", ROWS.join(" or ")));
        }
        asked.minutes = minutes.to_string();
        Ok(asked)
    }
}

/// Runs the parts named, or all of them, for so many minutes each. The page is written after each part, so that one that fails loses nothing of
/// the others; which ones failed is said at the end.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let asked = Asked::read(arguments)?;
    let mut failed = Vec::new();
    for (part, title) in PARTS.into_iter().filter(|(part, _)| asked.parts.is_empty() || asked.parts.contains(part)) {
        match section(part, title, &asked) {
            Ok((section, sound)) => {
                println!("{section}\n");
                write(part, &section, &asked)?;
                failed.extend((!sound).then(|| format!("{part}: something is broken; its section says what")));
            }
            Err(message) => {
                eprintln!("    {part}: {message}");
                failed.push(format!("{part}: {message}"));
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("parts of the evidence failed:\n{}", failed.join("\n"))) }
}

/// Puts the section of a part into the page.
fn write(part: &str, section: &str, asked: &Asked<'_>) -> Result<(), String> {
    let file = root().join("docs").join("evidence.md");
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    let setting = setting(asked.quick)?;
    let section = match asked.only {
        Some(row) => with_row(earlier(&before, part).unwrap_or_default(), section, row, &setting),
        None => format!("{section}\n\n{setting}"),
    };
    std::fs::write(&file, page(&before, &[(part, section)]))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("    written: {}", file.display());
    Ok(())
}

/// Runs a part; its section, and whether nothing was broken. What is broken is a part of the evidence, so it is on the page too.
fn section(part: &str, title: &str, asked: &Asked<'_>) -> Result<(String, bool), String> {
    let release = (!asked.quick).then_some("--release");
    // `--release` is tuned for a quick build; here speed is states and seeds.
    let tuned = |words: &[&str]| Run::cargo(words).with("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3");
    match part {
        "fuzz" => return fuzz::section(&asked.minutes),
        "mutants" => return mutants::section(&asked.minutes),
        _ => {}
    }
    // The schedules have a package of their own: there the library has other locks.
    let package = if part == "schedules" { "lockkeeper-schedules" } else { "lockkeeper-verify" };
    let mut words = vec!["run", "--quiet", "-p", package];
    words.extend(release);
    words.extend(["--", part, "--minutes", &asked.minutes]);
    let mut run = tuned(&words);
    if let Some(row) = asked.only {
        run = run.and("--only").and(row);
    }
    if part == "real" {
        let mut words = vec!["build", "--quiet", "-p", "lockkeeper-cli", "--features", "all"];
        words.extend(release);
        tuned(&words).stream()?;
        let program = target().join(if asked.quick { "debug" } else { "release" }).join("lockkeeper");
        run = run.and("--program").and(&program.display().to_string());
    }
    if ["real", "schedules", "simulation"].contains(&part) {
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
    let (said, sound) = run.capture_whole()?;
    if !said.contains(title) {
        return Err(format!("it wrote no section; repeat it with: {run}"));
    }
    Ok((said.trim_end().to_owned(), sound))
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
        let earlier = || earlier(before, part).map(str::to_owned);
        let section = now.or_else(earlier).unwrap_or_else(|| format!("{title}\n\nNot run yet."));
        page.push_str(&format!("\n{section}\n"));
    }
    format!("{page}\n{NOT_COVERED}")
}

/// The section of a part as the page has it.
fn earlier<'a>(page: &'a str, part: &str) -> Option<&'a str> {
    let (_, title) = PARTS.into_iter().find(|(name, _)| *name == part)?;
    Some(page[page.find(title)?..].split("\n## ").next().unwrap_or_default().trim_end())
}

/// A section of which one row was run again: its tables have the rows that are new, and it says when that row was written. The new section as it is, if the
/// old one has other tables.
fn with_row(before: &str, now: &str, row: &str, setting: &str) -> String {
    let (told, first) = (format!("Only {row}: {}", setting.trim_end()), |line: &str| line.split('|').nth(1).map(str::to_owned));
    let tables = |section: &str| -> Vec<(usize, Vec<String>)> {
        let lines: Vec<String> = section.lines().map(str::to_owned).collect();
        let rules = lines.iter().enumerate().filter(|(_, line)| line.starts_with("|---")).map(|(at, _)| at);
        rules
            .filter(|at| *at > 0)
            .map(|at| (at - 1, lines[at - 1..].iter().take_while(|line| line.starts_with('|')).cloned().collect()))
            .collect()
    };
    let mut lines: Vec<String> =
        before.lines().filter(|line| !line.starts_with(&format!("Only {row}: "))).map(str::to_owned).collect();
    let fresh = tables(now);
    let old = tables(&lines.join("\n"));
    let same = |(_, table): &(usize, Vec<String>)| old.iter().any(|(_, other)| other[0] == table[0]);
    if !fresh.iter().all(same) {
        return format!("{now}\n\n{told}");
    }
    for (_, table) in fresh {
        for line in table.iter().skip(2) {
            let Some((at, other)) = tables(&lines.join("\n")).into_iter().find(|(_, other)| other[0] == table[0]) else {
                continue;
            };
            match other.iter().skip(2).position(|known| first(known) == first(line)) {
                Some(place) => lines[at + 2 + place] = line.clone(),
                None => lines.insert(at + other.len(), line.clone()),
            }
        }
    }
    format!("{}\n\n{told}", lines.join("\n").trim_end())
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
    Ok(format!("Written on {date}, commit {commit}, {cores} cores, built {built}. {}\n", machine()))
}

/// The processor, the memory and the kernel, as far as the system tells.
fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let value = |file: &str, key: &str| {
        let text = read(file);
        let line = text.lines().find(|line| line.starts_with(key))?.split_once(':')?.1.trim().to_owned();
        Some(line)
    };
    let memory = value("/proc/meminfo", "MemTotal").and_then(|words| words.split(' ').next()?.parse::<u64>().ok());
    let memory = memory.map(|kilobytes| format!("{:.1} GB of memory", kilobytes as f64 / 1024.0 / 1024.0));
    let kernel = Some(read("/proc/sys/kernel/osrelease").trim().to_owned()).filter(|release| !release.is_empty());
    let all = [value("/proc/cpuinfo", "model name"), memory, kernel.map(|release| format!("Linux {release}"))];
    let known: Vec<String> = all.into_iter().flatten().collect();
    if known.is_empty() {
        "What machine it is the system does not tell.".to_owned()
    } else {
        format!("Machine: {}.", known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parts_and_senseless_minutes_are_refused() {
        let run = |words: &[&str]| run(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()).unwrap_err();
        assert!(run(&["polish"]).contains("models, simulation, schedules, fuzz, real, control, mutants"));
        assert!(run(&["--only", "etcd"]).contains("real or schedules"));
        assert!(run(&["real", "--only"]).contains("the name"));
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
                && second.contains("## Real servers\n\nnew\n\n## Control group\n\nNot run yet.\n\n## Mutants\n\nNot run yet."),
            "{second}"
        );
        assert_eq!(page(&second, &[]), second);
    }

    #[test]
    fn a_row_that_is_run_again_leaves_the_others() {
        let row = |name: &str, number: u32| format!("| {name} | {number} |");
        let section = |rows: &[String], totals: &[String]| {
            let (rows, totals) = (rows.join("\n"), totals.join("\n"));
            format!(
                "## Real servers\n\ntext\n\n| servers | faults |\n|---|---|\n{rows}\n\n| servers | runs |\n|---|---|\n{totals}"
            )
        };
        let before = section(&[row("redis", 1), row("etcd", 2)], &[row("redis", 7), row("etcd", 8)]) + "\n\nWritten before.";
        let now = section(&[row("etcd", 3)], &[row("redis", 7), row("etcd", 9)]);
        let merged = with_row(&before, &now, "etcd", "Written now.\n");
        let expected = section(&[row("redis", 1), row("etcd", 3)], &[row("redis", 7), row("etcd", 9)]);
        assert_eq!(merged, expected + "\n\nWritten before.\n\nOnly etcd: Written now.");
        // Again: one note for each row. A new row comes at the end.
        let again = with_row(&merged, &section(&[row("etcd", 4), row("sqlite", 5)], &[]), "etcd", "Written again.\n");
        assert!(again.contains("| etcd | 4 |\n| sqlite | 5 |\n\n") && again.matches("Only etcd").count() == 1, "{again}");
        // Other tables than before: nothing can be kept.
        assert!(with_row("## Real servers\n\nold", &now, "etcd", "Written now.\n").starts_with(&now));
    }

    #[test]
    fn the_machine_is_named() {
        let machine = machine();
        assert!(machine.contains("GB of memory") && machine.contains("Linux "), "{machine}");
    }
}
