//! The Go program with etcd's own client in it, which tests drive: built once below the target directory.

use std::path::PathBuf;
use std::time::Duration;

use crate::steps::{Run, find, root, target};

/// The environment variable that tells the tests where it is.
pub(crate) const VARIABLE: &str = "LOCKKEEPER_ETCD_GO";

/// What downloading and building may take.
const BUILDING: Duration = Duration::from_secs(10 * 60);

const SOURCES: [&str; 3] = ["main.go", "go.mod", "go.sum"];

fn file() -> PathBuf {
    target().join("etcd-go").join("driver")
}

/// The program, if it is not older than its sources.
pub(crate) fn find_driver() -> Option<PathBuf> {
    let changed = |file: &PathBuf| file.metadata().and_then(|data| data.modified()).ok();
    let built = changed(&file())?;
    let fresh = SOURCES.iter().all(|name| changed(&root().join("interop/etcd").join(name)).is_some_and(|source| source <= built));
    fresh.then(file)
}

pub(crate) fn build() -> Result<(), String> {
    if find("go").is_none() {
        return Err("there is no go".to_owned());
    }
    let out = file().display().to_string();
    Run::new("go", &["build", "-o", &out, "."]).inside(&root().join("interop/etcd")).within(BUILDING).stream()
}
