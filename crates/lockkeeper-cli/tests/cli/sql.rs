//! The CLI on SQL databases: real PostgreSQL and MariaDB servers, and their own clients inside `lockkeeper run`.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use lockkeeper_testkit::mysql::{Flavour, Mysql};
use lockkeeper_testkit::postgres::Postgres;

use crate::util::{Ended, assert_refused, end, end_with_input, lockkeeper, run, until};

/// A server, and a place on it that no other test uses.
enum Site {
    /// The server, and a schema.
    Postgres(Arc<Postgres>, String),
    /// The server, and a database.
    MariaDb(Arc<Mysql>, String),
}

impl Site {
    fn url(&self) -> String {
        match self {
            Self::Postgres(server, schema) => format!("{}&schema={schema}", server.url()),
            Self::MariaDb(server, database) => server.url(database),
        }
    }

    /// A shell command of the server's own client that runs what it reads, and stops at the first error.
    fn client(&self) -> String {
        match self {
            Self::Postgres(server, schema) => format!(
                "PGOPTIONS='-c search_path={schema}' psql -X -q -t -A -v ON_ERROR_STOP=1 -h 127.0.0.1 -p {} -U postgres postgres",
                server.port
            ),
            Self::MariaDb(server, database) => {
                format!(
                    "mariadb --no-defaults --batch --skip-column-names -uroot --socket '{}' {database}",
                    server.socket().display()
                )
            }
        }
    }

    /// Runs statements, and gives what they say.
    #[track_caller]
    fn sql(&self, text: &str) -> Ended {
        end_with_input(Command::new("sh").arg("-c").arg(self.client()), text)
    }

    /// A script for `run`: a transaction that is fenced, and adds to the balance; then it says so.
    fn fenced_addition(&self, before: &str) -> String {
        let client = self.client();
        format!(
            "{before} (printf '%s\\n' \"BEGIN; $LOCKKEEPER_FENCE_SQL;\"; echo 'UPDATE account SET balance = balance + 1; COMMIT;') | {client} > /dev/null && echo added"
        )
    }
}

/// Runs a test on both, or says why not.
fn on_both(test: &str, run: impl Fn(&Site, &str)) {
    match Postgres::missing() {
        Some(why) => lockkeeper::conformance::skip(test, &why),
        None => {
            let server = Postgres::shared();
            let schema = server.fresh_url().split("schema=").nth(1).expect("a schema").to_owned();
            let site = Site::Postgres(server, schema);
            run(&site, &site.url());
        }
    }
    match Mysql::missing(Flavour::MariaDb) {
        Some(why) => lockkeeper::conformance::skip(test, &why),
        None => {
            let server = Mysql::shared(Flavour::MariaDb);
            let database = server.fresh_database();
            let site = Site::MariaDb(server, database);
            run(&site, &site.url());
        }
    }
}

fn told(words: &[&str]) -> Ended {
    end(&mut lockkeeper(words))
}

/// A runner whose command has said that it runs, and goes on until its input ends.
fn running(url: &str, name: &str, script: &str) -> Child {
    let mut command = run(["-S", url, name, "sh", "-c", &format!("echo running; {script}")]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "running\n");
    child
}

#[test]
fn what_init_prints_creates_what_init_would() {
    on_both("what_init_prints_creates_what_init_would", |site, url| {
        let printed = told(&["init", "-S", url, "--print"]);
        assert_eq!(printed.code, Some(0), "{printed:?}");
        // The grants after the comment are for another user; the tables are what counts.
        let (tables, _) = printed.stdout.split_once("-- For a user").expect("tables, then grants");
        let created = site.sql(tables);
        assert_eq!(created.code, Some(0), "{created:?}");
        let count = "SELECT count(*) FROM lockkeeper_store";
        assert_eq!(site.sql(count).stdout, "1\n");
        // The tables are accepted as they are, once and again.
        for _ in 0..2 {
            let ready = told(&["init", "-S", url]);
            assert!(ready.code == Some(0) && ready.stdout.ends_with(" is ready\n"), "{ready:?}");
        }
        assert_eq!(site.sql(count).stdout, "1\n");
    });
    // The same without the printed SQL.
    on_both("init", |site, url| {
        assert_ne!(site.sql("SELECT count(*) FROM lockkeeper_store").code, Some(0), "there are no tables yet");
        let ready = told(&["init", "-S", url]);
        assert!(ready.code == Some(0) && ready.stdout.ends_with(" is ready\n"), "{ready:?}");
        assert_eq!(site.sql("SELECT count(*) FROM lockkeeper_store").stdout, "1\n");
    });
}

#[test]
fn a_held_lock_excludes_is_shown_and_can_be_released() {
    on_both("a_held_lock_excludes_is_shown_and_can_be_released", |_, url| {
        let mut holder = running(url, "job", "cat");
        assert_refused(&mut run(["-S", url, "-n", "job", "true"]), 1, "is held by ");
        let pid = holder.id().to_string();
        for words in [&["list", "-S", url][..], &["show", "-S", url, "job"]] {
            until("the holder is shown with its process", || {
                let seen = told(words);
                seen.code == Some(0) && seen.stdout.contains("job") && seen.stdout.contains(&pid)
            });
        }
        drop(holder.stdin.take());
        assert_eq!(holder.wait().expect("it ends").code(), Some(0));
        assert_eq!(told(&["list", "-S", url]).stdout, "");
        let forced = running(url, "job", "exec sleep 600");
        let released = told(&["release", "-S", url, "--yes", "job"]);
        assert_eq!(released.code, Some(0), "{released:?}");
        let ended = forced.wait_with_output().expect("it ends");
        assert!(ended.status.code() == Some(79) && String::from_utf8_lossy(&ended.stderr).contains("is lost"), "{ended:?}");
        assert_eq!(end(&mut run(["-S", url, "-n", "job", "echo", "mine"])).stdout, "mine\n");
    });
}

#[test]
fn watch_tells_when_a_lock_comes_and_goes() {
    on_both("watch_tells_when_a_lock_comes_and_goes", |_, url| {
        let mut holder = running(url, "job", "cat");
        let mut watcher = lockkeeper(["watch", "-S", url, "-o", "json", "--every", "50ms"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(watcher.stdout.take().expect("piped")).lines().map(|line| line.expect("a line"));
        let first = lines.next().expect("a line");
        assert!(first.starts_with("{\"change\":\"new\",\"name\":\"job\",\"kind\":\"mutex\""), "{first}");
        drop(holder.stdin.take());
        assert!(holder.wait().expect("it ends").success());
        assert!(lines.any(|line| line.starts_with("{\"change\":\"gone\",\"name\":\"job\"")), "the lock went without a word");
        watcher.kill().expect("it runs");
        watcher.wait().expect("it is killed");
    });
}

#[test]
fn doctor_tells_of_a_database_that_is_well_and_of_one_that_is_not_there() {
    on_both("doctor_tells_of_a_database_that_is_well_and_of_one_that_is_not_there", |site, url| {
        let well = told(&["doctor", "-S", url]);
        assert_eq!((well.code, well.stderr.as_str()), (Some(0), ""), "{well:?}");
        for about in ["version", "rights", "clock", "isolation", "notifications"] {
            assert!(well.stdout.contains(&format!("ok    {about}")), "{about}: {well:?}");
        }
        // There is no replica, which is worth knowing.
        assert!(well.stdout.contains("note  failover"), "{well:?}");
        let port = match site {
            Site::Postgres(server, _) => server.port,
            Site::MariaDb(server, _) => server.port,
        };
        let absent = url.replace(&format!(":{port}/"), ":1/");
        let ill = told(&["doctor", "-S", &absent]);
        assert!(ill.code == Some(69) && ill.stdout.contains("BAD") && ill.stdout.contains("127.0.0.1:1"), "{ill:?}");
    });
}

/// The database's own client runs the fence in a transaction. After a forced release and a later holder it is refused; the control, the same
/// transaction without the fence, is carried out.
#[test]
fn the_fence_of_a_script_lets_the_holder_pass_and_refuses_a_late_one() {
    on_both("the_fence_of_a_script_lets_the_holder_pass_and_refuses_a_late_one", |site, url| {
        assert_eq!(told(&["init", "-S", url]).code, Some(0));
        let setup = site.sql("CREATE TABLE account (balance int NOT NULL); INSERT INTO account VALUES (0);");
        assert_eq!(setup.code, Some(0), "{setup:?}");
        let balance = || site.sql("SELECT balance FROM account").stdout.trim().to_owned();
        let added = end(&mut run(["-S", url, "job", "sh", "-c", &site.fenced_addition("")]));
        assert_eq!((added.code, added.stdout.as_str()), (Some(0), "added\n"), "{added:?}");
        assert_eq!(balance(), "1");
        // A later holder has the lock before the script goes on.
        let binary = env!("CARGO_BIN_EXE_lockkeeper");
        let later = format!(
            "trap '' TERM; '{binary}' release -S '{url}' --yes job >&2; \
             env -u LOCKKEEPER_AROUND '{binary}' run -S '{url}' job true >&2;"
        );
        let late = end(&mut run(["-S", url, "--grace", "60", "job", "sh", "-c", &site.fenced_addition(&later)]));
        assert!(late.code != Some(0) && !late.stdout.contains("added"), "{late:?}");
        assert!(late.stderr.contains("the lock was lost") || late.stderr.contains("more than 1 row"), "{late:?}");
        assert_eq!(balance(), "1", "the late transaction was undone");
        let unfenced = site.fenced_addition(&format!("{later} LOCKKEEPER_FENCE_SQL='SELECT 1';"));
        let control = end(&mut run(["-S", url, "--grace", "60", "job", "sh", "-c", &unfenced]));
        assert!(control.stdout.contains("added") && balance() == "2", "without the fence it passes: {control:?}");
    });
}
