//! `cargo xtask test --fast`: the tests that take seconds and need no server, the same each time.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::binaries::run_chosen;
use crate::steps::Run;

/// What `cargo xtask test --fast` leaves out: the named tests of a program, or all of it where the list is empty. They are long, start servers
/// where these are installed, or have fresh seeds, which are another test each time.
const SLOW: [(&str, &[&str]); 7] = [
    ("guide/steps", &["each_naive_lock_fails_and_each_repair_holds_as_the_chapter_says", "java_and_rust_take_turns_on_one_lock"]),
    ("lockkeeper/outage", &["calls_fail_at_once_while_a_real_server_is_down"]),
    ("lockkeeper/sqlite", &[]),
    ("lockkeeper-cli/cli", &[]),
    (
        "lockkeeper-cli/guide",
        &[
            "messages_of_a_server_are_as_explained",
            "messages_of_postgres_are_as_explained",
            "messages_of_mysql_are_as_explained",
            "messages_of_zookeeper_are_as_explained",
            "messages_of_etcd_are_as_explained",
            "the_statement_of_the_fence_runs_in_psql",
        ],
    ),
    ("lockkeeper-cli/real", &[]),
    ("verify/simulation", &["every_promise_is_kept_by_fresh_seeds"]),
];

/// Where random tests read their seed from. (`LOCKKEEPER_FRESH_SEED` replaces the clock as the source of a seed.)
const SEEDS: [&str; 2] = ["PROPTEST_RNG_SEED", "LOCKKEEPER_FRESH_SEED"];

/// Builds the tests that need no server, and runs those that take seconds. Random tests use the same seed each time.
pub(crate) fn run(limit: Duration) -> Result<(), String> {
    let metadata = Run::cargo(&["metadata", "--format-version", "1", "--no-deps"]).capture()?;
    let metadata = serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let targets = without_servers(&metadata);
    // As the tests start them. (`cargo test --examples` would build tests of the examples.)
    Run::cargo(&["build", "--profile", "test", "--workspace", "--all-features", "--examples"]).stream()?;
    let mut words = vec!["--lib", "--bins"];
    words.extend(targets.iter().flat_map(|name| ["--test", name]));
    let prepare = |name: &str, command: Run| {
        let command = SEEDS.iter().fold(command, |command, seed| command.with(seed, "1"));
        match SLOW.iter().find(|(slow, _)| *slow == name) {
            Some((_, [])) => None,
            Some((_, skipped)) => Some(skipped.iter().fold(command, |command, test| command.and("--skip").and(test))),
            None => Some(command),
        }
    };
    run_chosen(&words, prepare, Vec::new(), limit)
}

/// The test programs of the workspace that need no server: those whose features are the stores of one machine, or none. The tests of a store with
/// a server name its feature in `required-features`.
fn without_servers(metadata: &serde_json::Value) -> BTreeSet<String> {
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let alone = |target: &serde_json::Value| {
        list(&target["required-features"]).iter().all(|feature| feature == "sqlite" || feature == "fuzz")
    };
    let targets = list(&metadata["packages"]).into_iter().flat_map(|package| list(&package["targets"]));
    let tests = targets.filter(|target| target["kind"][0] == "test" && alone(target));
    tests.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::steps::root;

    #[test]
    fn tests_of_stores_with_a_server_are_known_by_their_features() {
        let test =
            |name: &str, features: &[&str]| serde_json::json!({"name": name, "kind": ["test"], "required-features": features});
        let example = serde_json::json!({"name": "blocking", "kind": ["example"]});
        let bare = serde_json::json!({"name": "memory", "kind": ["test"]});
        let targets = [test("redis", &["redis"]), test("both", &["sqlite", "redis"]), test("file", &["sqlite"]), bare, example];
        let metadata = serde_json::json!({"packages": [{"targets": targets}]});
        assert_eq!(without_servers(&metadata).into_iter().collect::<Vec<_>>(), ["file", "memory"]);
    }

    /// The sources of a test program of the crate in this folder.
    fn sources(krate: &Path, target: &str) -> Vec<String> {
        let folder = krate.join("tests").join(target);
        let mut places = vec![folder.with_extension("rs"), folder];
        let mut texts = Vec::new();
        while let Some(place) = places.pop() {
            if let Ok(entries) = std::fs::read_dir(&place) {
                places.extend(entries.map(|entry| entry.unwrap().path()));
            } else if place.is_file() {
                texts.push(std::fs::read_to_string(&place).unwrap());
            }
        }
        texts
    }

    /// The name of a program is that of its folder and its target, not that of its package.
    #[test]
    fn what_fast_leaves_out_exists() {
        for (name, tests) in SLOW {
            let (krate, target) = name.split_once('/').unwrap();
            let folders = ["", "crates", "docs"].map(|above| root().join(above).join(krate));
            let sources: Vec<String> = folders.iter().flat_map(|folder| sources(folder, target)).collect();
            assert!(!sources.is_empty(), "there is no test program {name}");
            let missing = |test: &&&str| !sources.iter().any(|text| text.contains(&format!("fn {test}(")));
            let missing: Vec<_> = tests.iter().filter(missing).collect();
            assert!(missing.is_empty(), "{name} has no tests {missing:?}");
        }
    }

    /// The tests of a file that are left out where a server is missing, so those that start one where it is not.
    fn tests_with_servers(text: &str) -> Vec<&str> {
        let function = |part: &'_ str| part.split("\n}").next().is_some_and(|body| body.contains("::missing("));
        let functions = text.split("test]\n").skip(1).filter(|part| function(part));
        functions.filter_map(|part| part.split("fn ").nth(1)?.split('(').next()).collect()
    }

    /// `--fast` promises to start no servers, also where they are installed: they take minutes.
    #[test]
    fn no_test_of_fast_starts_a_server() {
        let metadata = Run::cargo(&["metadata", "--format-version", "1", "--no-deps"]).capture().unwrap();
        let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
        let fast = without_servers(&metadata);
        let (mut seen, mut bad) = (0, Vec::new());
        for package in metadata["packages"].as_array().unwrap() {
            let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
            for target in package["targets"].as_array().unwrap() {
                let test = target["name"].as_str().unwrap();
                if target["kind"][0] != "test" || !fast.contains(test) {
                    continue;
                }
                let name = format!("{}/{test}", folder.file_name().unwrap().to_str().unwrap());
                let left_out = SLOW.iter().find(|(slow, _)| *slow == name).map(|(_, tests)| *tests);
                if left_out == Some(&[]) {
                    continue;
                }
                for text in sources(folder, test) {
                    let tests = tests_with_servers(&text);
                    seen += tests.len();
                    let kept = tests.iter().filter(|test| !left_out.unwrap_or_default().contains(test));
                    bad.extend(kept.map(|test| format!("{name}: {test}")));
                }
            }
        }
        assert!(seen >= 8, "only {seen} such tests were found: are they still looked for?");
        assert!(bad.is_empty(), "they start servers, and are not in SLOW: {bad:?}");
    }

    #[test]
    fn a_test_with_a_server_is_found_in_its_file() {
        let text = "#[test]\nfn alone() {\n    1;\n}\n\n#[tokio::test]\nasync fn with() {\n    if Etcd::missing() {}\n}\n";
        assert_eq!(tests_with_servers(text), ["with"]);
    }

    /// A test that takes its seed from the clock also takes it from a variable that `--fast` sets, or is left out there.
    #[test]
    fn no_test_of_fast_draws_its_seed_from_the_clock() {
        let mut folders = vec![root().join("verify"), root().join("crates"), root().join("docs/guide")];
        let (mut seen, mut bad) = (0, Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let is_test = path.components().any(|part| part.as_os_str() == "tests");
                let Ok(text) = std::fs::read_to_string(&path) else { continue };
                if !is_test || !text.contains("SystemTime::now()") || !text.to_lowercase().contains("seed") {
                    continue;
                }
                seen += 1;
                let left_out = SLOW.iter().any(|(name, tests)| {
                    let (krate, target) = name.split_once('/').unwrap();
                    path.ends_with(format!("{krate}/tests/{target}.rs"))
                        && tests.iter().any(|test| text.contains(&format!("fn {test}(")))
                });
                if !left_out && !SEEDS.iter().any(|seed| text.contains(seed)) {
                    bad.push(path);
                }
            }
        }
        assert!(seen >= 3, "only {seen} such tests were found: are they still looked for?");
        assert!(bad.is_empty(), "another seed each time: {bad:?}");
    }
}
