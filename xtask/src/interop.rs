//! `cargo xtask interop`: the tests beside the real Redisson, and the driver that they need, built once per version below the target
//! directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::apt;
use crate::setup;
use crate::steps::{Outcome, Run, find, root, step, target};

/// The versions that are tested; `crates/lockkeeper/tests/interop/driver.rs` knows the same.
const VERSIONS: [&str; 3] = ["4.7.0", "3.52.0", "3.16.4"];

/// The environment variable that tells the tests where the drivers are.
pub(crate) const VARIABLE: &str = "LOCKKEEPER_REDISSON";

/// What the tests may take, building them included.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// What one version may take to download and build.
const BUILDING: Duration = Duration::from_secs(10 * 60);

/// Provides what is missing and runs the tests of all versions; `arguments` are the tests'.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    // Nothing is skipped: this command was given to run exactly these tests.
    let required = "redis,redisson";
    step("setup", "a server, a JDK, Maven, and a driver per version", || setup::needed_for(required, &["redis", "redisson"]))?;
    step("interop", "Rust and Java on the same locks", || {
        let mut words = vec!["test", "-p", "lockkeeper", "--features", "redis", "--test", "interop", "--"];
        words.extend(arguments.iter().map(String::as_str));
        let drivers = find_drivers().ok_or("the drivers were built, but are not found")?;
        let test = Run::cargo(&words).with(VARIABLE, drivers.display().to_string()).with("LOCKKEEPER_REQUIRE", required);
        test.within(LIMIT).stream().map(|()| Outcome::Done)
    })
    .map(drop)
}

/// Where the drivers are, if there is one of every version, not older than its sources.
pub(crate) fn find_drivers() -> Option<PathBuf> {
    VERSIONS.into_iter().all(is_fresh).then(place)
}

/// Builds them; Maven's own cache is used, and filled.
pub(crate) fn build() -> Result<(), String> {
    VERSIONS.into_iter().try_for_each(build_version)
}

/// The folder of the driver of one version, built if need be.
pub(crate) fn driver_of(version: &str) -> Result<PathBuf, String> {
    if !is_fresh(version) {
        build_version(version)?;
    }
    Ok(place().join(version))
}

fn is_fresh(version: &str) -> bool {
    let sources = newest(&project());
    find("java").is_some() && sources.is_some() && changed(&driver(version)) >= sources
}

fn build_version(version: &str) -> Result<(), String> {
    for (program, package) in [("javac", "openjdk-17-jdk-headless"), ("mvn", "maven")] {
        if find(program).is_none() {
            apt::install(package)?;
        }
    }
    let project = project().join("pom.xml").display().to_string();
    println!("    building the driver of Redisson {version} with Maven");
    let to = format!("-Ddriver.directory={}", place().join(version).display());
    let words = ["--batch-mode", "--quiet", "--file", &project, &format!("-Dredisson.version={version}"), &to, "package"];
    Run::new("mvn", &words).within(BUILDING).stream()?;
    // Maven leaves a jar alone in which nothing changed; it is good as of now.
    let jar = std::fs::File::options().append(true).open(driver(version));
    jar.and_then(|jar| jar.set_modified(SystemTime::now()))
        .map_err(|error| format!("Maven left no {}: {error}", driver(version).display()))
}

fn project() -> PathBuf {
    root().join("interop/redisson")
}

fn place() -> PathBuf {
    target().join("redisson")
}

fn driver(version: &str) -> PathBuf {
    place().join(version).join("driver.jar")
}

fn changed(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|data| data.modified()).ok()
}

/// When the last of the files in a folder changed.
fn newest(folder: &Path) -> Option<SystemTime> {
    let times = std::fs::read_dir(folder).ok()?.flatten().filter_map(|entry| {
        let path = entry.path();
        if path.is_dir() { newest(&path) } else { changed(&path) }
    });
    times.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_know_the_same_versions() {
        let tests = std::fs::read_to_string(root().join("crates/lockkeeper/tests/interop/driver.rs")).unwrap();
        for version in VERSIONS {
            assert!(tests.contains(&format!("\"{version}\"")), "{version} is built, but not tested");
        }
        assert!(tests.contains(&format!("const COUNT: usize = {};", VERSIONS.len())), "a version is tested, but not built");
    }

    #[test]
    fn drivers_are_kept_below_the_target_directory() {
        let driver = driver("4.7.0");
        assert!(driver.starts_with(target()) && driver.ends_with("redisson/4.7.0/driver.jar"), "{}", driver.display());
    }

    #[test]
    fn a_change_of_the_sources_is_seen() {
        assert!(newest(&project()) >= changed(&project().join("pom.xml")));
        assert_eq!(newest(Path::new("/no/such/folder")), None);
    }
}
