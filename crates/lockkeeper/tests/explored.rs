//! The code whose schedules `verify/schedules` explores takes its locks, atomics and wake-ups from `runtime::sync`: one of `std` would be invisible to the
//! scheduler. Checked on the source text.

use std::fs;
use std::path::{Path, PathBuf};

/// Files and folders below `src`.
const EXPLORED: [&str; 5] =
    ["session", "backend/notify.rs", "store/kit/listeners.rs", "store/memory/mod.rs", "store/redis/batch.rs"];

/// What a scheduler has to see. An `Arc` and a `OnceLock` that is set once are not among it.
const SEEN: [&str; 5] = ["Mutex", "MutexGuard", "RwLock", "Condvar", "atomic"];

fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| files(&entry.unwrap().path(), found));
    } else if !path.to_string_lossy().ends_with("tests.rs") {
        found.push(path.to_owned());
    }
}

/// The imports of a file that the scheduler would not see.
fn unseen(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let words = |import: &str| import.split(|letter: char| !letter.is_alphanumeric()).map(str::to_owned).collect::<Vec<_>>();
    let imports = text.split("use ").skip(1).filter_map(|rest| rest.split(';').next());
    let from = |import: &str, path: &str| import.starts_with(path);
    imports
        .filter(|import| {
            from(import, "std::sync") && words(import).iter().any(|word| SEEN.contains(&word.as_str()))
                || from(import, "tokio::sync") && words(import).iter().any(|word| word == "Notify")
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_is_explored_has_no_locks_that_the_scheduler_does_not_see() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    EXPLORED.iter().for_each(|path| files(&root.join(path), &mut found));
    assert!(found.len() > 30, "only {} files were found", found.len());
    for file in found {
        let text = fs::read_to_string(&file).unwrap();
        let imports = unseen(&text);
        assert!(imports.is_empty(), "{}: {imports:?}; import it from crate::runtime::sync", file.display());
        assert!(!text.contains("std::sync::atomic::Atomic"), "{}: import it from crate::runtime::sync", file.display());
    }
}

#[test]
fn a_lock_of_std_is_found_however_it_is_imported() {
    for code in
        ["use std::sync::Mutex;", "use std::sync::{\n    Arc, atomic::AtomicU64,\n};", "use tokio::sync::{Notify, oneshot};"]
    {
        assert_eq!(unseen(code).len(), 1, "{code}");
    }
    for code in ["use std::sync::{Arc, OnceLock};", "use tokio::sync::oneshot;", "#[cfg(test)]\nuse std::sync::Mutex;"] {
        assert_eq!(unseen(code).len(), 0, "{code}");
    }
}
