//! Servers that lie, freeze or fail: what reaches the terminal, how long it takes, and whether the cause is named.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper_testkit::server::{Flavour, Server};

use crate::config::Directory;
use crate::stores::fresh;
use crate::util::{assert_refused, end, lockkeeper, run};

/// A server that answers everything with this, or with nothing at all. Its port.
fn server(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("a port").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut some = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut some) {
                    // One answer for each request, which begins with a star; one at least, for what is no request.
                    let requests = some[..read].iter().filter(|byte| **byte == b'*').count().max(1);
                    if !answer.is_empty() && stream.write_all(&answer.repeat(requests)).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn escapes_and_direction_marks_of_a_server_do_not_reach_the_terminal() {
    let port = server("-ERR \u{1b}]0;owned\u{7} \u{1b}[2J \u{9b}1m \u{202e}evil\r\n".as_bytes());
    let url = format!("redis://127.0.0.1:{port}");
    for words in
        [&["run", "-S", &url, "-w", "5", "job", "true"][..], &["doctor", "-S", &url], &["doctor", "-o", "json", "-S", &url]]
    {
        let ended = end(&mut lockkeeper(words));
        assert!(ended.code.is_some_and(|code| code >= 64), "{ended:?}");
        let is_bad = |sign: char| (sign.is_control() && sign != '\n') || sign == '\u{202e}';
        let said = ended.stdout + &ended.stderr;
        assert!(!said.contains(is_bad), "{words:?}: {said:?}");
        assert!(said.contains("evil"), "the text itself is told: {said:?}");
    }
}

/// Names are others' text, too.
#[test]
fn direction_marks_in_a_name_do_not_reach_the_terminal_as_json() {
    let (url, name) = (fresh(), "a\u{202e}b");
    let ended = end(&mut run(["-S", &url, name, env!("CARGO_BIN_EXE_lockkeeper"), "list", "-S", &url, "-o", "json"]));
    assert!(ended.stdout.contains("a\\u202eb"), "{ended:?}");
    let read: serde_json::Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
    assert_eq!(read[0]["name"], name);
}

#[test]
fn a_frozen_server_costs_no_more_than_the_wait() {
    let port = server(b"");
    let began = Instant::now();
    assert_refused(
        &mut run(["-S", &format!("redis://127.0.0.1:{port}"), "-w", "1s", "job", "true"]),
        69,
        "did not answer within 1s",
    );
    assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
    let began = Instant::now();
    let url = format!("redis://127.0.0.1:{port}");
    assert_refused(&mut lockkeeper(["latch", "wait", "-S", &url, "-w", "1s", "job"]), 69, "did not answer within 1s");
    assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
}

/// The holder hears of the outage while there is still time, and of its end.
#[test]
fn a_holder_is_told_that_its_store_does_not_answer() {
    const TEST: &str = "a_holder_is_told_that_its_store_does_not_answer";
    if let Some(why) = Server::missing(Flavour::Redis) {
        return lockkeeper::conformance::skip(TEST, &why);
    }
    let server = Server::start(Flavour::Redis);
    let words = ["-S", &server.url(0), "-l", "20s", "job", "sh", "-c", "echo running; read line"];
    let mut runner = run(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(runner.stderr.take().expect("piped")).lines();
    let mut running = String::new();
    BufReader::new(runner.stdout.take().expect("piped")).read_line(&mut running).expect("a line");
    server.freeze();
    let told = lines.next().expect("a line").expect("text");
    server.thaw();
    assert!(told.contains("cannot renew \"job\"") && told.contains("does not answer; the lock is lost in "), "{told}");
    let back = lines.next().expect("a line").expect("text");
    assert!(back.contains("answers again; \"job\" is still held"), "{back}");
    drop(runner.stdin.take());
    // `read` fails at the end of its input.
    assert_eq!(runner.wait().expect("it ends").code(), Some(1));
}

#[test]
fn a_tls_failure_names_its_cause() {
    // It speaks, but no TLS.
    let port = server(b"-ERR what is this\r\n");
    let ended = end(&mut run(["-S", &format!("rediss://127.0.0.1:{port}"), "-w", "5", "job", "true"]));
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(ended.stderr.to_lowercase().contains("corrupt") || ended.stderr.to_lowercase().contains("tls"), "{ended:?}");
}

#[test]
fn a_child_that_became_another_user_is_named_when_it_cannot_be_ended() {
    const TEST: &str = "a_child_that_became_another_user_is_named_when_it_cannot_be_ended";
    if !rustix::process::geteuid().is_root() {
        return lockkeeper::conformance::skip(TEST, "only root can make a program that changes its user");
    }
    // In a directory that the user `nobody` can use.
    let directory = Directory::new(TEST);
    std::fs::set_permissions(&directory.0, std::fs::Permissions::from_mode(0o777)).expect("ours");
    let root = directory.0.join("as-root");
    std::fs::copy("/usr/bin/setpriv", &root).expect("util-linux");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o4755)).expect("ours");
    let binary = directory.0.join("lockkeeper");
    std::fs::copy(env!("CARGO_BIN_EXE_lockkeeper"), &binary).expect("a copy");
    let pid = directory.0.join("pid");
    let script = format!("echo $$ >'{}'; exec '{}' --reuid=0 sleep 20", pid.display(), root.display());
    let store = directory.0.join("store");
    std::fs::create_dir(&store).expect("a directory");
    std::os::unix::fs::chown(&store, Some(65534), Some(65534)).expect("root may");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary).args(["run", "-S"]);
    command.arg(format!("sqlite:{}/locks.db", store.display()));
    command.args(["--max-hold", "500ms", "--grace", "100ms", "job", "sh", "-c", &script]).stdin(Stdio::null());
    let ended = end(&mut command);
    let number = std::fs::read_to_string(&pid).expect("it ran").trim().to_owned();
    let _ = Command::new("kill").args(["-KILL", &number]).stderr(Stdio::null()).status();
    assert_eq!(ended.code, Some(80), "{ended:?}");
    assert!(ended.stderr.contains(&format!("cannot end sleep (pid {number}, user 0)")), "{ended:?}");
}
