//! Numbers that lockkeeper did not make: no verb changes one unless told that it is Redisson's.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::redis::store;
use crate::util::{assert_refused, end, lockkeeper, run};

fn tell(port: u16, database: &str, line: &str) -> String {
    let mut server = TcpStream::connect(("127.0.0.1", port)).expect("a server");
    write!(server, "SELECT {database}\r\n{line}\r\nQUIT\r\n").expect("a server");
    let mut answer = String::new();
    server.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_number_of_an_application_is_refused_unless_it_is_said_to_be_javas() {
    let Some((server, url)) = store("numbers of applications") else { return };
    let database = url.rsplit('/').next().expect("a database");
    tell(server.port, database, "SET visits 3");
    let verbs: [&[&str]; 7] = [
        &["latch", "down", "visits"],
        &["latch", "set", "visits", "2"],
        &["latch", "show", "visits"],
        &["latch", "wait", "-w", "1", "visits"],
        &["semaphore", "set", "visits", "5"],
        &["semaphore", "remove", "visits"],
        &["semaphore", "show", "visits"],
    ];
    for words in verbs {
        assert_refused(lockkeeper(words).args(["-S", &url]), 64, "visits");
    }
    assert_refused(&mut run(["-S", &url, "-n", "--permits", "3", "visits", "true"]), 64, "--java");
    assert!(tell(server.port, database, "GET visits").contains("\r\n3\r\n"), "it was changed");
    assert_eq!(end(&mut run(["-S", &url, "-n", "--permits", "3", "--java", "visits", "true"])).code, Some(0));
    tell(server.port, database, "SET gate 2");
    assert_eq!(end(lockkeeper(["latch", "down", "--java", "gate"]).args(["-S", &url])).stdout, "1\n");
    // From now on it is marked.
    assert_eq!(end(lockkeeper(["latch", "down", "gate"]).args(["-S", &url])).stdout, "0\n");
}

/// Java's `addPermits` adds to the number and tells nobody: with `--java` the size that is there counts.
#[test]
fn a_size_that_java_changed_is_used_where_it_is_said_to_be_javas() {
    let Some((server, url)) = store("a size that Java changed") else { return };
    let database = url.rsplit('/').next().expect("a database");
    let take = |options: &[&str]| {
        let mut words = vec!["-S", &url, "-n", "--permits", "3"];
        words.extend(options);
        run(words.into_iter().chain(["pool", "true"]))
    };
    tell(server.port, database, "SET pool 3");
    assert_eq!(end(&mut take(&["--java"])).code, Some(0));
    tell(server.port, database, "INCRBY pool 2");
    assert_eq!(end(&mut take(&["--java"])).code, Some(0));
    assert_eq!(end(&mut take(&["--java", "--take", "5"])).code, Some(0), "all that are there now");
    assert_refused(&mut take(&[]), 64, "pool");
    tell(server.port, database, "INCRBY pool -4");
    assert_eq!(end(&mut take(&["--java"])).code, Some(0));
    assert_refused(&mut take(&["--java", "--take", "2"]), 64, "acquire 1 to 1");
    assert!(tell(server.port, database, "GET pool").contains("\r\n1\r\n"), "all came back");
}

#[test]
fn a_session_of_an_application_is_not_released() {
    let Some((server, url)) = store("sessions of applications") else { return };
    let database = url.rsplit('/').next().expect("a database");
    tell(server.port, database, "HSET sess:42 user 7");
    tell(server.port, database, "EXPIRE sess:42 600");
    tell(server.port, database, "HSET app:cfg mode write path /srv");
    assert_refused(lockkeeper(["release", "--yes", "sess:42"]).args(["-S", &url]), 64, "not a lock");
    assert_refused(&mut run(["-S", &url, "-n", "-x", "app:cfg", "true"]), 64, "not a lock");
    assert_refused(&mut run(["-S", &url, "-n", "-s", "app:cfg", "true"]), 64, "not a lock");
    assert!(tell(server.port, database, "HGET sess:42 user").contains("\r\n7\r\n"));
    assert!(tell(server.port, database, "HGET app:cfg path").contains("\r\n/srv\r\n"));
    assert!(tell(server.port, database, "TTL app:cfg").contains(":-1"));
}

/// A job that runs once a month uses the same semaphore, and a latch may wait as long.
#[test]
fn a_number_of_ours_is_known_for_months() {
    let Some((server, url)) = store("numbers of ours") else { return };
    let database = url.rsplit('/').next().expect("a database");
    let days = |name: &str| {
        let said = tell(server.port, database, &format!("TTL lockkeeper:kind:{{{name}}}"));
        let seconds = said.lines().filter_map(|line| line.strip_prefix(':')?.trim().parse::<i64>().ok()).next();
        seconds.expect("how long it lasts") / 86_400
    };
    assert_eq!(end(&mut run(["-S", &url, "-n", "--permits", "3", "pool", "true"])).code, Some(0));
    assert_eq!(end(lockkeeper(["latch", "set", "gate", "2"]).args(["-S", &url])).code, Some(0));
    for name in ["pool", "gate"] {
        assert!(days(name) > 300, "the mark of {name} lasts {} days", days(name));
        // As after 300 days. Then it is used again.
        tell(server.port, database, &format!("EXPIRE lockkeeper:kind:{{{name}}} 600"));
    }
    assert_eq!(end(&mut run(["-S", &url, "-n", "--permits", "3", "pool", "true"])).code, Some(0));
    assert_eq!(end(lockkeeper(["latch", "down", "gate"]).args(["-S", &url])).stdout, "1\n");
    for name in ["pool", "gate"] {
        assert!(days(name) > 300, "the mark of {name} lasts {} days after its next use", days(name));
    }
}
