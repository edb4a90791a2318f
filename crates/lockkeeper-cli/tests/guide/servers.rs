//! The messages of the databases, of ZooKeeper and of etcd, on real servers: a wrong password, no rights, a server that only reads, none at all.

use std::fs;
use std::process::{Command, Stdio};

use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::mysql::{Flavour, Mysql};
use lockkeeper_testkit::postgres::Postgres;
use lockkeeper_testkit::zookeeper::ZooKeeper;

use crate::{Place, explained};

const FENCING: &str = include_str!("../../../../docs/guide/src/fencing.md");

/// Whether the test has to be left out; says so.
fn is_missing(test: &str, why: Option<String>) -> bool {
    if let Some(why) = &why {
        lockkeeper::conformance::skip(test, why);
    }
    why.is_some()
}

/// `lockkeeper run` that ends with this status and an explained message.
#[track_caller]
fn refused(place: &Place, url: &str, code: i32, parts: &[&str]) {
    explained(place, &format!("lockkeeper -S '{url}' run -w 2 a -- true"), code, parts);
}

#[test]
fn messages_of_servers_that_are_not_there_are_as_explained() {
    let place = Place::new("nobody");
    for (url, parts) in [
        ("postgres://127.0.0.1:1/d", &["cannot reach postgres://", "; is the server running there?"][..]),
        ("mysql://127.0.0.1:1/d", &["cannot reach mysql://", "; is the server running there?"]),
        (
            "zookeeper://127.0.0.1:1?session=2s",
            &["cannot open a session at zookeeper://", "no ZooKeeper server could be reached"],
        ),
        ("etcd://127.0.0.1:1", &["cannot reach etcd://", "; is etcd running there?"]),
    ] {
        refused(&place, url, 69, parts);
    }
}

#[test]
fn messages_of_postgres_are_as_explained() {
    if is_missing("messages_of_postgres_are_as_explained", Postgres::missing()) {
        return;
    }
    let (place, server) = (Place::new("postgres"), Postgres::start(&[]));
    let sql = |text: &str| {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-h", "127.0.0.1", "-U", "postgres", "-p", &server.port.to_string(), "-c", text, "postgres"]);
        assert!(psql.stdin(Stdio::null()).status().expect("psql starts").success(), "{text}");
    };
    sql("SET password_encryption = 'scram-sha-256'; CREATE ROLE poor LOGIN PASSWORD 'right'");
    sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let rules = server.directory().join("data/pg_hba.conf");
    let others = fs::read_to_string(&rules).expect("rules");
    fs::write(&rules, format!("host all poor 127.0.0.1/32 scram-sha-256\n{others}")).expect("rules");
    sql("SELECT pg_reload_conf()");
    let to = |user: &str, database: &str| {
        server.url().replace("postgres@", &format!("{user}@")).replace("/postgres?", &format!("/{database}?"))
    };
    refused(
        &place,
        &to("poor:wrong", "postgres"),
        69,
        &[" refuses this user or password: password authentication failed for user "],
    );
    refused(
        &place,
        &to("poor", "postgres"),
        69,
        &["postgres://", " wants a password and the URL has none; write it as USER:PASSWORD@"],
    );
    refused(
        &place,
        &to("poor:right", "postgres"),
        69,
        &["this user may neither use nor create the tables of lockkeeper in postgres://"],
    );
    refused(
        &place,
        &to("postgres", "none"),
        64,
        &["postgres://", ": database ", " does not exist; create it, or name another one"],
    );
    let standby = Postgres::standby_of(&server);
    refused(&place, &standby.url(), 69, &["postgres://", " is a standby, which only reads; name the primary, or all servers: "]);
}

#[test]
fn messages_of_mysql_are_as_explained() {
    if is_missing("messages_of_mysql_are_as_explained", Mysql::missing(Flavour::MariaDb)) {
        return;
    }
    let (place, server) = (Place::new("mysql"), Mysql::start(Flavour::MariaDb, &[]));
    let database = server.fresh_database();
    server.run(&format!("CREATE USER poor@'%' IDENTIFIED BY 'right'; GRANT SELECT ON {database}.* TO poor@'%'"));
    let to = |user: &str, database: &str| server.url(database).replace("root@", &format!("{user}@"));
    refused(&place, &to("poor:wrong", &database), 69, &["mysql://", " refuses this user or password: Access denied for user "]);
    refused(
        &place,
        &to("poor:right", &database),
        69,
        &["this user may neither use nor create the tables of lockkeeper in mysql://"],
    );
    refused(&place, &to("root", "none"), 64, &["mysql://", ": Unknown database ", "; create it, or name another one"]);
    server.run("SET GLOBAL read_only = ON");
    refused(
        &place,
        &to("root", &database),
        69,
        &["mysql://", " only reads (read_only=ON), a replica perhaps; name the primary, or all servers: "],
    );
}

#[test]
fn messages_of_zookeeper_are_as_explained() {
    if is_missing("messages_of_zookeeper_are_as_explained", ZooKeeper::missing()) {
        return;
    }
    let (place, mut servers) = (Place::new("zookeeper"), ZooKeeper::ensemble());
    let at =
        |user: &str, folder: &str, options: &str| format!("zookeeper://{user}{}{folder}?session=4s{options}", servers.hosts());
    refused(&place, &at("", "/none", ""), 64, &["there is no node /", " in zookeeper://", "; create it (zkCli.sh: create "]);
    // Nodes that one user made for itself are closed to another.
    let made = place.sh(&format!("lockkeeper -S '{}' run a -- true", at("us:secret@", "", "&acl=creator")));
    assert!(made.status.success(), "{made:?}");
    refused(&place, &at("them:secret@", "", ""), 69, &["ZooKeeper refuses this user: the ACL of the node does not allow it"]);
    let url = at("", "", "");
    servers.kill(0);
    servers.kill(1);
    refused(&place, &url, 69, &["cannot open a session at zookeeper://", "no ZooKeeper server could be reached"]);
}

#[test]
fn messages_of_etcd_are_as_explained() {
    if is_missing("messages_of_etcd_are_as_explained", Etcd::missing()) {
        return;
    }
    let (place, cluster) = (Place::new("etcd"), Etcd::start(1, &[]));
    let at = |user: &str| format!("etcd://{user}{}?session=2s", cluster.hosts());
    explained(
        &place,
        &format!("lockkeeper -S '{}' run a/b -- true", at("")),
        64,
        &[" contains a /: on etcd a lock ", "; choose another name, or add ?slashes=allow to the URL"],
    );
    for arguments in [
        &["user", "add", "root:r"][..],
        &["user", "add", "ann:a"],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "readwrite", "job", "--prefix"],
        &["role", "grant-permission", "locks", "readwrite", "__lockkeeper/", "--prefix"],
        &["user", "grant-role", "ann", "locks"],
        &["auth", "enable"],
    ] {
        let done = cluster.ctl(arguments);
        // The role root exists in newer servers already.
        assert!(done.status.success() || arguments[0] == "role", "{arguments:?}: {done:?}");
    }
    refused(
        &place,
        &at("ann:wrong@"),
        69,
        &["etcd://", " refuses this user or password: ", "; write USER:PASSWORD@ before the host"],
    );
    refused(
        &place,
        &at("ann:a@"),
        69,
        &["etcd refuses this user: ", "; its role needs readwrite on the prefix of each lock and on __lockkeeper/"],
    );
}

/// The line of "Fencing" runs as it is printed there. A statement of an earlier hold makes psql undo the whole file.
#[test]
fn the_statement_of_the_fence_runs_in_psql() {
    if is_missing("the_statement_of_the_fence_runs_in_psql", Postgres::missing()) {
        return;
    }
    let (place, server) = (Place::new("fence"), Postgres::start(&[]));
    let line = FENCING.lines().find(|line| line.contains("LOCKKEEPER_FENCE_SQL") && line.contains("psql")).expect("a line");
    let url = server.url();
    let run = |script: &str| place.command("sh").args(["-c", script]).env("URL", &url).env("DB", &url).output().expect("a shell");
    let rows = || {
        let done = run("psql -X -At -c 'SELECT count(*) FROM report' \"$DB\"");
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    };
    fs::write(place.0.join("report.sql"), "INSERT INTO report VALUES (1);\n").expect("a file");
    let made = run("psql -X -q -c 'CREATE TABLE report (line int)' \"$DB\"");
    assert!(made.status.success(), "{made:?}");
    let first = run("lockkeeper run -S \"$URL\" report -- sh -c 'echo \"$LOCKKEEPER_FENCE_SQL\"'");
    let late = String::from_utf8_lossy(&first.stdout).trim().to_owned();
    assert!(!late.is_empty(), "{first:?}");

    let done = run(line);
    assert!(done.status.success() && rows() == "1", "{done:?}");

    // As if the first holder had been paused until now: same line, its own statement.
    let mut paused = place.command("sh");
    let command = line.split_once("sh -c '").and_then(|(_, rest)| rest.strip_suffix('\'')).expect("psql in a shell");
    let refused = paused.args(["-c", command]).env("LOCKKEEPER_FENCE_SQL", &late).env("DB", &url).output().expect("a shell");
    assert!(!refused.status.success(), "a late holder is refused: {refused:?}");
    assert_eq!(rows(), "1", "its transaction was undone: {refused:?}");
}
