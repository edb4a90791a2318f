//! Sixteen processes count in a file that nothing but the lock protects.

use std::fs;
use std::path::Path;

use crate::config::Directory;
use crate::redis::store;
use crate::stores::on_sqlite;
use crate::util::{end, run};

const RUNNERS: usize = 16;
const TURNS: usize = 200;

/// Reads, and writes one more: without a lock another may have written in between.
const SCRIPT: &str = r#"read -r n < "$0"; echo $((n + 1)) > "$0""#;

/// What the file says after everybody has counted; each runner takes a lock of this name, made from its number.
fn counted(test: &str, url: &str, turns: usize, name: impl Fn(usize) -> String + Sync) -> usize {
    let directory = Directory::new(&format!("{test}-file"));
    let file = directory.0.join("count");
    fs::write(&file, "0\n").expect("a file to count in");
    std::thread::scope(|scope| {
        for runner in 0..RUNNERS {
            let (file, name): (&Path, _) = (&file, name(runner));
            scope.spawn(move || {
                for _ in 0..turns {
                    let ended = end(run(["-S", url, &name, "sh", "-c", SCRIPT]).arg(file));
                    assert_eq!(ended.code, Some(0), "{ended:?}");
                }
            });
        }
    });
    fs::read_to_string(&file).expect("the file").trim().parse().unwrap_or(0)
}

#[test]
fn no_increment_is_lost_on_sqlite() {
    on_sqlite("no_increment_is_lost_on_sqlite", |url| {
        assert_eq!(counted("no_increment_is_lost_on_sqlite", url, TURNS, |_| "count".to_owned()), RUNNERS * TURNS);
    });
}

#[test]
fn no_increment_is_lost_on_redis() {
    let Some((_server, url)) = store("no_increment_is_lost_on_redis") else { return };
    assert_eq!(counted("no_increment_is_lost_on_redis", &url, TURNS, |_| "count".to_owned()), RUNNERS * TURNS);
}

/// The negative control: with a lock each, this machine does lose some.
#[test]
fn with_a_lock_each_increments_are_lost() {
    on_sqlite("with_a_lock_each_increments_are_lost", |url| {
        let lost = (0..20).any(|round| {
            let name = |runner| format!("count-{round}-{runner}");
            counted("with_a_lock_each_increments_are_lost", url, 5, name) < RUNNERS * 5
        });
        assert!(lost, "nothing was lost without a lock: the test above shows nothing");
    });
}
