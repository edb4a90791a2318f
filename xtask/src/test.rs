//! `cargo xtask test`: everything that must hold before a change goes in, cheap things first.

use std::time::Duration;

use crate::binaries;
use crate::deny;
use crate::interop;
use crate::package;
use crate::servers::SERVERS;
use crate::setup;
use crate::steps::{Outcome, Run, find, step};

/// A step: its name, what it shows, and how.
type Step = (&'static str, &'static str, fn() -> Result<Outcome, String>);

const STEPS: [Step; 11] = [
    ("setup", "what the tests need", setup::needed),
    ("fmt", "the code is formatted", || all(&[Run::cargo(&["fmt", "--all", "--check"])])),
    ("clippy", "no lint complains", || {
        all(&[Run::cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])])
    }),
    ("doc", "the documentation builds and its links lead somewhere", || {
        all(&[Run::cargo(&["doc", "--workspace", "--no-deps", "--all-features"]).with("RUSTDOCFLAGS", "-D warnings")])
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
            Run::cargo(&[&check[..], &["--features", "config"]].concat()),
            Run::cargo(&[&check[..], &["--features", "conformance"]].concat()),
        ])
    }),
    ("dependencies", "few crates without features", dependencies),
    ("deny", "licences, sources and versions of what we depend on", deny::run),
    ("guide", "the guide is a book", guide),
    ("test", "all tests, doc tests included", tests),
    ("package", "both crates can be published, and installed from the package", package::run),
    ("readme", "the first command that a newcomer types", readme),
];

/// What the library must not depend on without features, and with all of them.
const NOT_WITHOUT_FEATURES: &[&str] =
    &["redis", "clap", "axum", "hyper", "rusqlite", "tokio-postgres", "mysql_async", "zookeeper-client", "url"];
const NEVER: &[&str] = &["clap", "axum", "hyper"];

/// What all tests may take, building them included.
const LIMIT: Duration = Duration::from_secs(36 * 60);

/// Runs the steps with these names, or all of them; stops at the first that fails.
pub(crate) fn run(names: &[String]) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|&name| STEPS.iter().all(|(known, ..)| known != name)) {
        return Err(format!("there is no step {unknown}; there are {}", self::names()));
    }
    let mut table = Vec::new();
    for (name, what, work) in STEPS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            let (outcome, took) = step(name, what, work)?;
            table.push((name, took.as_secs_f64(), outcome));
        }
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
    for (features, forbidden) in [("--no-default-features", NOT_WITHOUT_FEATURES), ("--all-features", NEVER)] {
        let tree = Run::cargo(&["tree", "-p", "lockkeeper", "-e", "normal", features, "--prefix", "none"]).capture()?;
        if let Some(found) = intruder(&tree, forbidden) {
            return Err(format!("lockkeeper with {features} depends on {found}; put it behind a feature, or leave it out"));
        }
    }
    Ok(Outcome::Done)
}

/// The first crate of the tree that is forbidden.
fn intruder<'a>(tree: &str, forbidden: &[&'a str]) -> Option<&'a str> {
    let mut crates = tree.lines().filter_map(|line| line.split_whitespace().next());
    crates.find_map(|name| forbidden.iter().find(|&&bad| bad == name).copied())
}

/// All tests, with the paths of servers that are not on the PATH and of the Redisson drivers.
fn tests() -> Result<Outcome, String> {
    let drivers = interop::find_drivers();
    let prepare = |test: Run| {
        let test = knowing_servers(test);
        match &drivers {
            Some(place) => test.with(interop::VARIABLE, place.display().to_string()),
            None => test,
        }
    };
    binaries::run(prepare, LIMIT).map(|()| Outcome::Done)
}

/// Adds the paths of servers that are not on the PATH.
pub(crate) fn knowing_servers(mut test: Run) -> Run {
    for server in &SERVERS {
        if let Some(file) = server.find() {
            test = test.with(server.variable, file.display().to_string());
        }
    }
    test
}

/// The book needs mdbook, which takes minutes to build. The tests of the guide check its pages, links and code without it.
fn guide() -> Result<Outcome, String> {
    const INSTALL: &str = "cargo install mdbook --no-default-features --locked";
    if find("mdbook").is_some() {
        return all(&[Run::new("mdbook", &["build", "docs/guide"])]);
    }
    if setup::requires(&std::env::var("LOCKKEEPER_REQUIRE").unwrap_or_default(), "mdbook") {
        return Err(format!("mdbook is not installed, and LOCKKEEPER_REQUIRE asks for it; install it: {INSTALL}"));
    }
    let why = format!("mdbook is not installed ({INSTALL}); pages, links and code of the guide are checked by the step test");
    Ok(Outcome::Skipped(why))
}

fn readme() -> Result<Outcome, String> {
    const LINE: &str = "only one of us at a time";
    let hello = Run::cargo(&["run", "--release", "--", "run", "hello", "--", "echo", LINE])
        .without("LOCKKEEPER_STORE")
        .without("LOCKKEEPER_CONFIG");
    let said = hello.capture()?;
    if said == format!("{LINE}\n") {
        Ok(Outcome::Done)
    } else {
        Err(format!("it printed {said:?} instead of one line; repeat it with: {hello}"))
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
    fn an_unknown_step_is_refused_with_those_that_exist() {
        let message = run(&["fmt".to_owned(), "polish".to_owned()]).unwrap_err();
        assert!(message.contains("no step polish") && message.contains("clippy"), "{message}");
    }
}
