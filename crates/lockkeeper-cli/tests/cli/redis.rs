//! The runner against a real server: processes exclude each other, waiting ends in good order, a lost lock ends the command.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::blocking::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Flavour, Server};
use crate::stores::on_each_store;
use crate::util::{assert_refused, end, lockkeeper, run};

/// A server and the URL of a fresh database there. `None`: skipped, and said so.
pub(crate) fn store(test: &str) -> Option<(Arc<Server>, String)> {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let server = Server::shared(Flavour::Redis);
    let url = server.fresh_url();
    Some((server, url))
}

/// A runner whose command has said that it runs.
fn running(url: &str, options: &[&str], script: &str) -> Child {
    let mut words = vec!["-S", url];
    words.extend(options);
    words.extend(["job", "sh", "-c", script]);
    let mut child =
        run(words).stdout(Stdio::piped()).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "running\n");
    child
}

/// Whether the server has a listener on `channel`: somebody waits.
fn someone_listens(port: u16, channel: &str) -> bool {
    let mut server = TcpStream::connect(("127.0.0.1", port)).expect("a server");
    write!(server, "PUBSUB NUMSUB {channel}\r\nQUIT\r\n").expect("a server");
    let mut answer = String::new();
    server.read_to_string(&mut answer).expect("an answer");
    answer.contains("\r\n:1\r\n")
}

/// What locks need is named, with what to do about it: not the bare words of the server.
#[test]
fn a_server_without_a_command_is_69_with_a_remedy() {
    if let Some(why) = Server::missing(Flavour::Redis) {
        return lockkeeper::conformance::skip("a server without a command", &why);
    }
    for (command, remedy) in [("HELLO", "?push=off"), ("SUBSCRIBE", "?push=off"), ("TIME", "Redis 6.2")] {
        let server = Server::start_with(Flavour::Redis, &["--rename-command", command, ""]);
        let refused = end(&mut run(["-S", &server.url(0), "job", "true"]));
        assert_eq!(refused.code, Some(69), "{command}: {refused:?}");
        assert!(refused.stderr.contains(command) && refused.stderr.contains(remedy), "{command}: {refused:?}");
        if remedy == "?push=off" {
            let served = end(&mut run(["-S", &format!("{}?push=off", server.url(0)), "job", "true"]));
            assert_eq!(served.code, Some(0), "{command}: {served:?}");
        }
    }
    // Locks do without these.
    for command in ["INFO", "EVALSHA"] {
        let server = Server::start_with(Flavour::Redis, &["--rename-command", command, ""]);
        let served = end(&mut run(["-S", &server.url(0), "job", "echo", "mine"]));
        assert!(served.code == Some(0) && served.stdout == "mine\n" && served.stderr.is_empty(), "{command}: {served:?}");
    }
}

#[test]
fn an_unreachable_store_is_69() {
    let began = Instant::now();
    assert_refused(
        &mut run(["-S", "redis://me:secret@127.0.0.1:1", "-w", "1", "job", "true"]),
        69,
        "cannot reach redis://me@127.0.0.1:1/0",
    );
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_database_that_the_server_has_not_is_a_wrong_url() {
    let Some((server, _)) = store("a_database_that_the_server_has_not_is_a_wrong_url") else { return };
    let url = server.url(4_000_000);
    assert_refused(&mut run(["-S", &url, "job", "true"]), 64, &format!("{url}: the server has no such database"));
    let told = end(&mut lockkeeper(["doctor", "-S", &url]));
    assert!(told.code == Some(69) && told.stdout.contains("has no such database"), "{told:?}");
}

#[test]
fn processes_exclude_each_other() {
    on_each_store("processes_exclude_each_other", |url| {
        // Runs until its input ends.
        let mut holder = running(url, &[], "echo running; cat");
        assert_refused(&mut run(["-S", url, "-n", "job", "true"]), 1, "is held by ");
        assert_refused(&mut run(["-S", url, "-w", "0.2", "-E", "42", "job", "true"]), 42, "is held by ");
        drop(holder.stdin.take());
        assert_eq!(holder.wait().expect("it ends").code(), Some(0));
        assert_eq!(end(&mut run(["-S", url, "-n", "job", "echo", "mine"])).stdout, "mine\n");
    });
}

#[test]
fn a_signal_ends_the_waiting_and_leaves_nothing() {
    let Some((server, url)) = store("a_signal_ends_the_waiting_and_leaves_nothing") else { return };
    let url = url.as_str();
    let client = Client::connect(url).expect("a server");
    let guard = client.mutex("job").lock().expect("free");
    let mut waiter = run(["-S", url, "job", "true"]).spawn().expect("the binary starts");
    let pid = Pid::from_raw(i32::try_from(waiter.id()).expect("a pid")).expect("a pid");
    while !someone_listens(server.port, "redisson_lock__channel:{job}") {
        std::thread::yield_now();
    }
    kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(waiter.wait().expect("it ends").code(), Some(143));
    guard.release().expect("held");
    assert!(client.mutex("job").try_lock().expect("a server").is_some());
}

#[test]
fn a_lost_lock_ends_the_command_with_79() {
    on_each_store("a_lost_lock_ends_the_command_with_79", |url| {
        let holder = running(url, &["-l", "6s"], "echo running; exec sleep 60");
        let began = Instant::now();
        let client = Client::connect(url).expect("a server");
        assert_eq!(client.force_release("job").expect("a server").from.len(), 1);
        let output = holder.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(79));
        assert!(String::from_utf8_lossy(&output.stderr).contains("is lost"), "{output:?}");
        // A third of the lease, the grace, and what a loaded machine takes.
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    });
}
