//! The stores that processes share: what holds of `lockkeeper run` holds on each.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// The URL of a sqlite store that nobody has used yet. Its file goes with the thread, which is the test's.
pub(crate) fn fresh() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = || NUMBER.fetch_add(1, Ordering::Relaxed);
    thread_local!(static FILES: OnceCell<Directory> = const { OnceCell::new() });
    FILES.with(|files| {
        let files = files.get_or_init(|| Directory::new(&format!("fresh-{}", number())));
        format!("sqlite:{}/{}.db", files.0.display(), number())
    })
}
