//! Fuzz targets: what users, files and servers may say must lead to an answer or an error, never to a panic or to work without bounds.
//!
//! `verify/fuzz` runs them with libFuzzer, `tests/fuzz.rs` with bytes drawn from seeds and with the folder `corpus`.

mod bytes;
mod targets;

use std::path::{Path, PathBuf};

pub use bytes::Bytes;

/// One thing to feed with bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// What the bytes are taken for.
    pub what: &'static str,
    /// Feeds it. Panics if something does not hold.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 12] = [
    Target { name: "url", what: "URL of a store", run: targets::url },
    Target { name: "toml", what: "config file, ours", run: targets::toml },
    Target { name: "yaml", what: "config file, Redisson's", run: targets::yaml },
    Target { name: "redis", what: "reply of Redis", run: targets::redis },
    Target { name: "rows", what: "rows of a SQL server", run: targets::rows },
    Target { name: "record", what: "record of a name", run: targets::record },
    Target { name: "sqlite", what: "row or datagram of sqlite", run: targets::sqlite },
    Target { name: "zookeeper", what: "nodes of ZooKeeper", run: targets::zookeeper },
    Target { name: "etcd", what: "keys of etcd", run: targets::etcd },
    Target { name: "name", what: "name, owner and pattern", run: targets::name },
    Target { name: "duration", what: "duration on the command line", run: targets::duration },
    Target { name: "history", what: "history, as JSON lines", run: targets::history },
];

/// Where the corpus lies.
#[must_use]
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The committed inputs of a target.
///
/// # Errors
///
/// A message, if they cannot be read.
pub fn seeds(target: &Target) -> Result<Vec<Vec<u8>>, String> {
    let folder = corpus().join(target.name);
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(told)?
        .map(|entry| entry.map(|entry| entry.path()).map_err(told))
        .collect::<Result<_, _>>()?;
    files.sort();
    files.iter().map(|file| std::fs::read(file).map_err(told)).collect()
}
