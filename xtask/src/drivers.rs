//! Programs in Java with a peer's library in them, which tests drive and benchmarks run beside ours: built by Maven, once per version, below the
//! target directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::apt;
use crate::steps::{Run, find, root, target};

/// The drivers of one library. Its project is `interop/NAME`.
#[derive(Debug)]
pub(crate) struct Drivers {
    /// As `LOCKKEEPER_REQUIRE` calls them.
    pub(crate) name: &'static str,
    /// The versions that are tested; the tests know the same.
    versions: &'static [&'static str],
    /// The environment variable that tells the tests where they are.
    pub(crate) variable: &'static str,
}

pub(crate) const REDISSON: Drivers =
    Drivers { name: "redisson", versions: &["4.7.0", "3.52.0", "3.16.4"], variable: "LOCKKEEPER_REDISSON" };

/// Curator 5.4 is Debian's, and the tests build its driver themselves.
pub(crate) const CURATOR: Drivers = Drivers { name: "curator", versions: &["5.9.0"], variable: "LOCKKEEPER_CURATOR" };

/// What one version may take to download and build.
const BUILDING: Duration = Duration::from_secs(10 * 60);

impl Drivers {
    /// Where they are, if there is one of every version, not older than its sources.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        self.versions.iter().all(|version| self.is_fresh(version)).then(|| self.place())
    }

    /// Builds them; Maven's own cache is used, and filled.
    pub(crate) fn build(&self) -> Result<(), String> {
        self.versions.iter().try_for_each(|version| self.build_version(version))
    }

    /// The folder of the newest version, built if need be.
    pub(crate) fn newest(&self) -> Result<PathBuf, String> {
        let version = self.versions[0];
        if !self.is_fresh(version) {
            self.build_version(version)?;
        }
        Ok(self.place().join(version))
    }

    /// The command with the variable set, if they are there.
    pub(crate) fn told_to(&self, run: Run) -> Run {
        match self.find() {
            Some(place) => run.with(self.variable, place.display().to_string()),
            None => run,
        }
    }

    fn is_fresh(&self, version: &str) -> bool {
        let sources = self.sources().iter().filter_map(|place| newest(place)).max();
        find("java").is_some() && sources.is_some() && changed(&self.driver(version)) >= sources
    }

    fn build_version(&self, version: &str) -> Result<(), String> {
        for (program, package) in [("javac", "openjdk-17-jdk-headless"), ("mvn", "maven")] {
            if find(program).is_none() {
                apt::install(package)?;
            }
        }
        println!("    building the driver of {} {version} with Maven", self.name);
        let project = self.project().join("pom.xml").display().to_string();
        let to = format!("-Ddriver.directory={}", self.place().join(version).display());
        let words = ["--batch-mode", "--quiet", "--file", &project, &format!("-Dpeer.version={version}"), &to, "package"];
        Run::new("mvn", &words).within(BUILDING).stream()?;
        // Maven leaves a jar alone in which nothing changed; it is good as of now.
        let jar = std::fs::File::options().append(true).open(self.driver(version));
        jar.and_then(|jar| jar.set_modified(SystemTime::now()))
            .map_err(|error| format!("Maven left no {}: {error}", self.driver(version).display()))
    }

    fn project(&self) -> PathBuf {
        root().join("interop").join(self.name)
    }

    /// What it is built from: its own project, and what all drivers have in common.
    fn sources(&self) -> [PathBuf; 3] {
        [self.project(), root().join("interop/course"), root().join("interop/pom.xml")]
    }

    fn place(&self) -> PathBuf {
        target().join(self.name)
    }

    fn driver(&self, version: &str) -> PathBuf {
        self.place().join(version).join("driver.jar")
    }
}

fn changed(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|data| data.modified()).ok()
}

/// When a file, or the last of the files in a folder, changed.
fn newest(place: &Path) -> Option<SystemTime> {
    if !place.is_dir() {
        return changed(place);
    }
    std::fs::read_dir(place).ok()?.flatten().filter_map(|entry| newest(&entry.path())).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_know_the_same_versions() {
        for (drivers, tests) in [(REDISSON, "tests/interop/driver.rs"), (CURATOR, "tests/zookeeper/java.rs")] {
            let tests = std::fs::read_to_string(root().join("crates/lockkeeper").join(tests)).unwrap();
            for version in drivers.versions {
                assert!(tests.contains(&format!("\"{version}\"")), "{} {version} is built, but not tested", drivers.name);
            }
            let count = format!("const COUNT: usize = {};", drivers.versions.len());
            assert!(tests.contains(&count), "a version of {} is tested, but not built", drivers.name);
        }
    }

    #[test]
    fn drivers_are_kept_below_the_target_directory() {
        let driver = REDISSON.driver("4.7.0");
        assert!(driver.starts_with(target()) && driver.ends_with("redisson/4.7.0/driver.jar"), "{}", driver.display());
    }

    #[test]
    fn a_change_of_the_sources_is_seen() {
        for drivers in [REDISSON, CURATOR] {
            for place in drivers.sources() {
                assert!(newest(&place).is_some(), "{}", place.display());
            }
        }
        assert!(newest(&REDISSON.project()) >= changed(&REDISSON.project().join("pom.xml")));
        assert_eq!(newest(Path::new("/no/such/folder")), None);
    }
}
