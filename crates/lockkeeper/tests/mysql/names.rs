//! Names are bytes: no collation folds case, accents or trailing spaces, and nothing in a name ends a statement.

use std::time::Duration;

use lockkeeper::Client;

use super::bench::Bench;

#[tokio::test]
async fn names_that_a_collation_would_fold_are_different_locks() {
    let Some(bench) = Bench::open("names").await else { return };
    let client = Client::builder().lease(Duration::from_secs(60)).connect(&bench.url).await.unwrap();
    let long = "ü".repeat(256);
    let names = [
        "m",
        "M",
        "m ",
        "é",
        "e\u{301}",
        "e",
        "ß",
        "ss",
        "'",
        "\"",
        "\\",
        "`; DROP TABLE lockkeeper_head; --",
        "%",
        "_",
        "🔒",
        "a\u{1}b",
        "\\0",
        "x'41'",
        "A",
        &long,
    ];
    let mut guards = Vec::new();
    for name in names {
        let guard = client.mutex(name).try_lock().await.unwrap_or_else(|error| panic!("{name:?}: {error}"));
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} is another name than those before")));
    }
    // The control: the same column as text takes some of them for one.
    let plain = bench.plain().await;
    plain.run("CREATE TABLE folded (name VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci PRIMARY KEY)").await;
    plain.run("INSERT INTO folded VALUES ('m')").await;
    assert!(plain.try_run("INSERT INTO folded VALUES ('M')").await.is_err(), "a collation folds case");
    let listed: Vec<String> = client.list("*").await.unwrap().iter().map(|seen| seen.name.to_string()).collect();
    let mut expected: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    expected.sort();
    assert_eq!(listed, expected);
    for guard in guards {
        guard.release().await.unwrap();
    }
    let error = client.mutex("x".repeat(513)).lock().await.unwrap_err();
    assert_eq!(error.kind(), lockkeeper::ErrorKind::InvalidName, "{error}");
}
