//! How long steps and test programs took when they last passed: a hint for the order and for the reader, so losing it is no error.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::binaries::LONG;
use crate::steps::target;

/// Seconds by name.
#[derive(Debug, Default)]
pub(crate) struct Times(BTreeMap<String, Duration>);

impl Times {
    fn file() -> PathBuf {
        target().join("xtask").join("times.txt")
    }

    pub(crate) fn load() -> Self {
        let mut times = Self(LONG.into_iter().map(|(name, seconds)| (name.to_owned(), Duration::from_secs(seconds))).collect());
        times.0.extend(Self::read(&std::fs::read_to_string(Self::file()).unwrap_or_default()).0);
        times
    }

    fn read(text: &str) -> Self {
        let pair = |line: &str| {
            let (seconds, name) = line.split_once(' ')?;
            Some((name.to_owned(), Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?))
        };
        Self(text.lines().filter_map(pair).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<Duration> {
        self.0.get(name).copied()
    }

    pub(crate) fn set(&mut self, name: &str, took: Duration) {
        self.0.insert(name.to_owned(), took);
    }

    pub(crate) fn save(&self) {
        let text: String = self.0.iter().map(|(name, took)| format!("{:.1} {name}\n", took.as_secs_f64())).collect();
        // The folder may be missing on a first run; it is only a hint.
        let _ = std::fs::create_dir_all(target().join("xtask")).and_then(|()| std::fs::write(Self::file(), text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_a_round_and_nonsense_is_ignored() {
        let times = Times::read("12.5 a/redis\nnonsense\n-1 b\n3 doc tests\n");
        assert_eq!(times.get("a/redis"), Some(Duration::from_millis(12_500)));
        assert_eq!(times.get("doc tests"), Some(Duration::from_secs(3)));
        assert_eq!(times.0.len(), 2);
    }
}
