//! `cargo xtask test`: everything that must hold before a change goes in, cheap things first.

use std::time::Duration;

use crate::binaries;
use crate::deny;
use crate::drivers::{CURATOR, REDISSON};
use crate::etcd;
use crate::fast;
use crate::go_driver;
use crate::mysql;
use crate::package;
use crate::readme;
use crate::servers::SERVERS;
use crate::setup;
use crate::steps::{Outcome, Run, step, target};
use crate::systems;
use crate::times::Times;
use crate::tools;

/// A step: its name, what it shows, and how.
type Step = (&'static str, &'static str, fn() -> Result<Outcome, String>);

const STEPS: [Step; 12] = [
    ("setup", "what the tests need", setup::needed),
    ("fmt", "the code is formatted", || all(&[Run::cargo(&["fmt", "--all", "--check"])])),
    ("clippy", "no lint complains", || {
        all(&[Run::cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])])
    }),
    ("doc", "the documentation builds and its links lead somewhere", || {
        let doc = |words: &[&str]| Run::cargo(&[&["doc", "--no-deps", "--all-features"], words].concat());
        let as_published = doc(&["-p", "lockkeeper"])
            .with("RUSTDOCFLAGS", "-D warnings --cfg docsrs")
            .with("RUSTDOC", with_unstable_features("rustdoc")?);
        // The second is what is left to be read.
        all(&[as_published, doc(&["--workspace"]).with("RUSTDOCFLAGS", "-D warnings")])
    }),
    ("features", "each feature compiles alone", || {
        let check = ["check", "-p", "lockkeeper"];
        all(&[
            Run::cargo(&check),
            Run::cargo(&[&check[..], &["--no-default-features"]].concat()),
            Run::cargo(&[&check[..], &["--features", "testing"]].concat()),
            Run::cargo(&[&check[..], &["--features", "redlock"]].concat()),
            Run::cargo(&[&check[..], &["--features", "redis-single"]].concat()),
            Run::cargo(&[&check[..], &["--features", "redis-sentinel"]].concat()),
            Run::cargo(&[&check[..], &["--features", "redis-cluster,redis-tls"]].concat()),
            Run::cargo(&[&check[..], &["--features", "sqlite"]].concat()),
            Run::cargo(&[&check[..], &["--features", "postgres"]].concat()),
            Run::cargo(&[&check[..], &["--features", "mysql"]].concat()),
            Run::cargo(&[&check[..], &["--features", "zookeeper"]].concat()),
            Run::cargo(&[&check[..], &["--features", "zookeeper-tls"]].concat()),
            Run::cargo(&[&check[..], &["--features", "etcd"]].concat()),
            Run::cargo(&[&check[..], &["--features", "config"]].concat()),
            Run::cargo(&[&check[..], &["--features", "conformance"]].concat()),
        ])
    }),
    ("systems", "the library compiles for macOS and Windows, without sqlite and TLS", systems::check),
    ("dependencies", "few crates without features", dependencies),
    ("deny", "licences, sources and versions of what we depend on", deny::run),
    ("guide", "the guide is a book", guide),
    ("test", "all tests, doc tests included", tests),
    ("package", "both crates can be published, and installed from the package", package::run),
    ("readme", "the first command that a newcomer types, and the program that it builds", readme::run),
];

/// A program that runs the stable `rustdoc` with what docs.rs has of a nightly one: it shows the feature of each item. The variable would have
/// all dependencies built anew if cargo itself saw it.
fn with_unstable_features(program: &str) -> Result<String, String> {
    use std::os::unix::fs::PermissionsExt as _;
    let file = target().join(format!("{program}-as-published"));
    let written = std::fs::write(&file, format!("#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec {program} \"$@\"\n"))
        .and_then(|()| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)));
    written.map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file.display().to_string())
}

/// What the library must not depend on without features, and with all of them.
const NOT_WITHOUT_FEATURES: &[&str] =
    &["redis", "clap", "axum", "hyper", "rusqlite", "tokio-postgres", "mysql_async", "zookeeper-client", "tonic", "url"];
/// `hyper` comes with etcd's gRPC, as a client, and with nothing else: see docs/decisions/0019-etcd.md.
const NEVER: &[&str] = &["clap", "axum"];
const ONLY_WITH_ETCD: &[&str] = &["hyper", "tonic"];
/// What the program must not depend on: tables of Unicode for names of hosts, which no URL of a store has. `Cargo.lock` pins `idna_adapter`
/// to a version without them; see docs/decisions/0002-dependencies.md.
const NOT_IN_THE_PROGRAM: &[&str] = &["icu_normalizer", "unicode-normalization"];
const ALL_BUT_ETCD: &str =
    "--features=blocking,testing,redis,redis-tls,sqlite,postgres,mysql,zookeeper,zookeeper-tls,config,conformance";

/// What all tests may take once they are built.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// The steps of `--fast`. They install nothing.
const FAST: [&str; 5] = ["fmt", "clippy", "dependencies", "deny", "test"];

/// What the tests of `--fast` may take once they are built.
const FAST_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Runs the steps with these names, or all of them; stops at the first that fails. With `--fast`, only those of them that are quick.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let (flags, names): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.starts_with('-'));
    if let Some(unknown) = flags.iter().find(|&&flag| flag != "--fast") {
        return Err(format!("there is no option {unknown}; there is --fast"));
    }
    let fast = !flags.is_empty();
    if let Some(unknown) = names.iter().find(|&&name| STEPS.iter().all(|(known, ..)| known != name)) {
        return Err(format!("there is no step {unknown}; there are {}", self::names()));
    }
    let wanted = |name: &str| (names.is_empty() || names.iter().any(|&wanted| wanted == name)) && (!fast || FAST.contains(&name));
    let chosen: Vec<Step> = STEPS.into_iter().filter(|(name, ..)| wanted(name)).collect();
    if chosen.is_empty() {
        return Err(format!("none of these steps is quick; --fast has {}", FAST.join(", ")));
    }
    let mut table = Vec::new();
    for (index, &(name, what, work)) in chosen.iter().enumerate() {
        let (key, work) = match (fast, name) {
            (true, "test") => ("step test --fast".to_owned(), fast_tests as fn() -> Result<Outcome, String>),
            _ => (format!("step {name}"), work),
        };
        let last = Times::load().get(&key).map_or_else(String::new, |last| format!(", {:.0} s last time", last.as_secs_f64()));
        let (outcome, took) = step(name, &format!("{what} (step {} of {}{last})", index + 1, chosen.len()), work)?;
        if matches!(outcome, Outcome::Done) {
            // Loaded again: the step itself may have written times.
            let mut times = Times::load();
            times.set(&key, took);
            times.save();
        }
        table.push((name, took.as_secs_f64(), outcome));
    }
    println!("\n{:<14}seconds", "step");
    for (name, seconds, outcome) in &table {
        match outcome {
            Outcome::Done => println!("{name:<14}{seconds:>7.1}"),
            Outcome::Skipped(why) => println!("{name:<14}skipped: {why}"),
        }
    }
    println!("{:<14}{:>7.1}", "all", table.iter().map(|(_, seconds, _)| seconds).sum::<f64>());
    Ok(())
}

/// The names of all steps.
pub(crate) fn names() -> String {
    STEPS.map(|(name, ..)| name).join(", ")
}

fn all(commands: &[Run]) -> Result<Outcome, String> {
    commands.iter().try_for_each(Run::stream)?;
    Ok(Outcome::Done)
}

fn dependencies() -> Result<Outcome, String> {
    for (features, forbidden) in
        [("--no-default-features", NOT_WITHOUT_FEATURES), ("--all-features", NEVER), (ALL_BUT_ETCD, ONLY_WITH_ETCD)]
    {
        let tree = Run::cargo(&["tree", "-p", "lockkeeper", "-e", "normal", features, "--prefix", "none"]).capture()?;
        if let Some(found) = intruder(&tree, forbidden) {
            return Err(format!("lockkeeper with {features} depends on {found}; put it behind a feature, or leave it out"));
        }
    }
    let tree = Run::cargo(&["tree", "-p", "lockkeeper-cli", "-e", "normal", "--prefix", "none"]).capture()?;
    if let Some(found) = intruder(&tree, NOT_IN_THE_PROGRAM) {
        return Err(format!(
            "lockkeeper-cli depends on {found}; `cargo update -p idna_adapter --precise 1.0.0` takes it out of the first build"
        ));
    }
    Ok(Outcome::Done)
}

/// The first crate of the tree that is forbidden.
fn intruder<'a>(tree: &str, forbidden: &[&'a str]) -> Option<&'a str> {
    let mut crates = tree.lines().filter_map(|line| line.split_whitespace().next());
    crates.find_map(|name| forbidden.iter().find(|&&bad| bad == name).copied())
}

/// All tests, with the paths of servers that are not on the PATH and of the drivers.
fn tests() -> Result<Outcome, String> {
    let prepare = |test: Run| {
        let mut test = CURATOR.told_to(REDISSON.told_to(knowing_servers(test)));
        if let Some(file) = go_driver::find_driver() {
            test = test.with(go_driver::VARIABLE, file.display().to_string());
        }
        test
    };
    binaries::run(prepare, LIMIT).map(|()| Outcome::Done)
}

/// The tests that need no server to be installed, with the same seeds each time.
fn fast_tests() -> Result<Outcome, String> {
    fast::run(FAST_LIMIT).map(|()| Outcome::Done)
}

/// Adds the paths of servers that are not on the PATH.
pub(crate) fn knowing_servers(mut test: Run) -> Run {
    for server in &SERVERS {
        if let Some(file) = server.find() {
            test = test.with(server.variable, file.display().to_string());
        }
    }
    for (variable, place) in [(mysql::VARIABLE, mysql::find()), (etcd::VARIABLE, etcd::find())] {
        if let Some(place) = place {
            test = test.with(variable, place.display().to_string());
        }
    }
    test
}

/// Builds the book into `target/guide`. The step `test` checks its pages, links and code without mdbook.
fn guide() -> Result<Outcome, String> {
    match tools::MDBOOK.find() {
        Some(program) => all(&[Run::new(&program.display().to_string(), &["build", "docs/guide"])]),
        None if setup::requires(&std::env::var("LOCKKEEPER_REQUIRE").unwrap_or_default(), tools::MDBOOK.name) => {
            Err("mdbook is missing, and LOCKKEEPER_REQUIRE asks for it; `cargo xtask setup` builds it".to_owned())
        }
        None => Ok(Outcome::Skipped("mdbook is missing; `cargo xtask setup` builds it".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intruder_is_found_by_its_whole_name() {
        let tree = "lockkeeper v0.1.0 (/x)\nurlencoding v2.1.3\ntokio v1.47.0\nserde v1.0.0 (*)\n";
        assert_eq!(intruder(tree, NOT_WITHOUT_FEATURES), None);
        assert_eq!(intruder(&format!("{tree}url v2.5.4\n"), NOT_WITHOUT_FEATURES), Some("url"));
    }

    #[test]
    fn fast_has_steps_that_exist_and_no_other_option_does() {
        assert!(FAST.iter().all(|fast| STEPS.iter().any(|(name, ..)| name == fast)));
        let run = |words: &[&str]| run(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()).unwrap_err();
        assert!(run(&["--quick"]).contains("no option --quick"));
        assert!(run(&["--fast", "systems"]).contains("none of these steps is quick"));
    }

    #[test]
    fn an_unknown_step_is_refused_with_those_that_exist() {
        let message = run(&["fmt".to_owned(), "polish".to_owned()]).unwrap_err();
        assert!(message.contains("no step polish") && message.contains("clippy"), "{message}");
    }
}
