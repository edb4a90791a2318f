//! The stores that processes share: what holds of `lockkeeper run` holds on each.

use crate::config::Directory;
use crate::redis::store;

/// Runs a test on a fresh sqlite store, and on a fresh database of a Redis server.
pub(crate) fn on_each_store(test: &str, run: impl Fn(&str)) {
    on_sqlite(test, &run);
    if let Some((_server, url)) = store(test) {
        run(&url);
    }
}

/// Runs a test on a fresh sqlite store.
pub(crate) fn on_sqlite(test: &str, run: impl Fn(&str)) {
    let directory = Directory::new(test);
    run(&format!("sqlite:{}/locks.db", directory.0.display()));
}
