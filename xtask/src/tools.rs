//! Tools that are built from source, once per version, below the target directory.

use std::path::PathBuf;
use std::time::Duration;

use crate::steps::{Run, find, target};

/// A program on the registry.
#[derive(Debug)]
pub(crate) struct Tool {
    /// The crate, the program, and what `LOCKKEEPER_REQUIRE` calls it.
    pub(crate) name: &'static str,
    /// The version that is built here.
    version: &'static str,
    /// Versions of this line on the PATH will do.
    line: &'static str,
    /// What makes it say its version.
    asks: &'static [&'static str],
}

/// Makes a book of `docs/guide`.
pub(crate) const MDBOOK: Tool = Tool { name: "mdbook", version: "0.5.4", line: "0.5.", asks: &["--version"] };

/// Changes the code to see whether a test fails.
pub(crate) const MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0", line: "27.", asks: &["mutants", "--version"] };

/// What to do where it cannot be built.
pub(crate) const HOW: &str = "see that cargo can download, or put an mdbook of the same line on the PATH";

/// What a build may take on a busy machine.
const BUILDING: Duration = Duration::from_secs(15 * 60);

impl Tool {
    /// The one that was built here, or else one on the PATH of the same line of versions.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        let ours = self.place().join("bin").join(self.name);
        if ours.is_file() {
            return Some(ours);
        }
        find(self.name).filter(|program| {
            let said = Run::new(&program.display().to_string(), self.asks).capture().unwrap_or_default();
            self.is_of_our_line(&said)
        })
    }

    /// Builds it without optimization, which takes a third of the time: it has little to do itself.
    pub(crate) fn build(&self) -> Result<(), String> {
        println!("    building {} {} into {}, once", self.name, self.version, self.place().display());
        let (place, work) = (self.place().display().to_string(), self.place().join("build").display().to_string());
        let words = ["install", self.name, "--version", self.version, "--locked", "--no-default-features", "--debug", "--quiet"];
        let words = [&words[..], &["--root", &place, "--target-dir", &work]].concat();
        let done = Run::cargo(&words).within(BUILDING).stream();
        // Some hundred MB that nobody needs again.
        let _ = std::fs::remove_dir_all(work);
        done
    }

    /// The version that is built here; on the PATH may be another one of the same line.
    pub(crate) const fn version(&self) -> &'static str {
        self.version
    }

    fn place(&self) -> PathBuf {
        target().join("tools").join(format!("{}-{}", self.name, self.version))
    }

    fn is_of_our_line(&self, said: &str) -> bool {
        said.split_whitespace().nth(1).is_some_and(|version| version.trim_start_matches('v').starts_with(self.line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_a_place_of_its_own_below_the_target_directory() {
        let place = MDBOOK.place();
        assert!(
            place.starts_with(target()) && place.ends_with(format!("tools/mdbook-{}", MDBOOK.version)),
            "{}",
            place.display()
        );
        assert!(MDBOOK.version.starts_with(MDBOOK.line));
    }

    #[test]
    fn one_on_the_path_has_to_be_of_the_same_line() {
        assert!(MUTANTS.is_of_our_line(&format!("cargo-mutants {}\n", MUTANTS.version)));
        assert!(MDBOOK.is_of_our_line(&format!("mdbook v{}\n", MDBOOK.version)));
        assert!(!MDBOOK.is_of_our_line("mdbook v0.3.7\n") && !MDBOOK.is_of_our_line(""));
    }
}
