//! `lockkeeper init`, and a store that is not built in.

use crate::stores::on_sqlite;
use crate::util::{end, lockkeeper};

#[test]
fn a_store_without_tables_is_ready_at_once() {
    on_sqlite("init", |url| {
        let ready = end(&mut lockkeeper(["init", "-S", url]));
        assert_eq!((ready.code, ready.stdout.ends_with(" is ready\n")), (Some(0), true), "{}", ready.stdout);
        let printed = end(&mut lockkeeper(["init", "-S", url, "--print"]));
        assert_eq!((printed.code, printed.stdout.starts_with("-- ")), (Some(0), true), "{}", printed.stdout);
    });
}

#[cfg(feature = "postgres")]
#[test]
fn the_sql_is_printed_without_a_connection_and_without_the_password() {
    let url = "postgres://me:secret@127.0.0.1:1/db?schema=locks";
    let printed = end(&mut lockkeeper(["init", "-S", url, "--print"]));
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    for says in ["CREATE SCHEMA IF NOT EXISTS \"locks\"", "CREATE TABLE IF NOT EXISTS \"locks\".lockkeeper_head", "TO \"me\";"] {
        assert!(printed.stdout.contains(says), "{says}: {}", printed.stdout);
    }
    assert!(!printed.stdout.contains("secret"));
    let unreachable = end(&mut lockkeeper(["init", "-S", url]));
    assert!(unreachable.code == Some(69) && !unreachable.stderr.contains("secret"), "{}", unreachable.stderr);
}

#[cfg(not(feature = "postgres"))]
#[test]
fn a_store_that_is_not_built_in_names_its_feature() {
    let refused = end(&mut lockkeeper(["list", "-S", "postgres://me@127.0.0.1/db"]));
    assert!(refused.code == Some(64) && refused.stderr.contains("feature `postgres`"), "{}", refused.stderr);
}

#[cfg(feature = "mysql")]
#[test]
fn the_sql_for_mysql_is_printed_without_a_connection_and_without_the_password() {
    let url = "mysql://me:secret@127.0.0.1:1/db?table=locks&connect-timeout=1";
    let printed = end(&mut lockkeeper(["init", "-S", url, "--print"]));
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    for says in
        ["CREATE TABLE IF NOT EXISTS `locks_head`", "GRANT SELECT, INSERT, UPDATE, DELETE ON `db`.`locks_fence` TO 'me'@'%';"]
    {
        assert!(printed.stdout.contains(says), "{says}: {}", printed.stdout);
    }
    assert!(!printed.stdout.contains("secret"));
    let unreachable = end(&mut lockkeeper(["init", "-S", url]));
    assert!(unreachable.code == Some(69) && !unreachable.stderr.contains("secret"), "{}", unreachable.stderr);
}

#[cfg(not(feature = "mysql"))]
#[test]
fn a_mysql_store_that_is_not_built_in_names_its_feature() {
    let refused = end(&mut lockkeeper(["list", "-S", "mysql://me@127.0.0.1/db"]));
    assert!(refused.code == Some(64) && refused.stderr.contains("feature `mysql`"), "{}", refused.stderr);
}
