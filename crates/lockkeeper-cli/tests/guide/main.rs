//! The guide's shell recipes run with the real binary, and the error messages that it explains are those that there are.
#![allow(clippy::disallowed_methods, reason = "tests use the machine's clock")]

mod blocks;
#[cfg(all(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod servers;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use lockkeeper_testkit::server::{Flavour, Server};

const SHELL: &str = include_str!("../../../../docs/guide/src/shell.md");
const TROUBLESHOOTING: &str = include_str!("../../../../docs/guide/src/troubleshooting.md");

/// A folder with a store of its own, and `lockkeeper` on the PATH.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lockkeeper-guide-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).expect("a folder");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_lockkeeper"), folder.join("bin/lockkeeper")).expect("a link");
        Self(folder)
    }

    /// The program in this folder, without anything that a user may have set.
    fn command(&self, program: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.current_dir(&self.0).stdin(Stdio::null()).env("PATH", format!("{}:{path}", self.0.join("bin").display()));
        command.env("LOCKKEEPER_STORE", format!("sqlite:{}", self.0.join("locks.db").display()));
        for variable in ["LOCKKEEPER_NAME", "LOCKKEEPER_TOKEN", "LOCKKEEPER_OWNER", "LOCKKEEPER_AROUND", "LOCKKEEPER_CONFIG"] {
            command.env_remove(variable);
        }
        command
    }

    fn sh(&self, script: &str) -> Output {
        self.command("sh").args(["-c", script]).output().expect("a shell")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_recipes_run() {
    let place = Place::new("recipes");
    let expected = [
        "this runs alone\n",
        "backing up, and nobody else is\n",
        "testing against staging, token 1",
        "part 4\n",
        "held: {\"name\":\"deploy\"",
        "all shards are loaded\n",
    ];
    let mut printed = Vec::new();
    for (number, block) in SHELL.split("```sh\n").skip(1).enumerate() {
        let code = block.split("```").next().unwrap_or_default();
        let script = place.0.join(format!("recipe-{number}"));
        // A recipe may call itself by its name.
        fs::write(&script, format!("#!/bin/sh\n{code}")).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
        let ended = place.command("sh").arg("-c").arg(&script).output().expect("a shell");
        let (out, err) = (String::from_utf8_lossy(&ended.stdout).into_owned(), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "{}:\n{code}\n{out}{err}", ended.status);
        printed.push(out);
    }
    assert_eq!(printed.len(), expected.len(), "{printed:?}");
    for (printed, expected) in printed.iter().zip(expected) {
        assert!(printed.contains(expected), "{expected:?} is not in {printed:?}");
    }
    let held = place.sh("lockkeeper list -o json");
    assert_eq!(String::from_utf8_lossy(&held.stdout).trim(), "[]", "the recipes leave nothing held");
}

/// The script ends with this status and a message with these parts, and the page has a message with the same parts.
#[track_caller]
fn explained(place: &Place, script: &str, code: i32, parts: &[&str]) {
    let ended = place.sh(script);
    let err = String::from_utf8_lossy(&ended.stderr);
    let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
    assert_eq!(ended.status.code(), Some(code), "{script}: {err}");
    assert!(err.lines().any(has_all), "{parts:?} is not what {script:?} says: {err}");
    assert!(TROUBLESHOOTING.lines().any(has_all), "docs/guide/src/troubleshooting.md has no line with {parts:?}");
}

#[test]
fn messages_that_need_no_server_are_as_explained() {
    let place = Place::new("messages");
    let inside = |script: &str| format!("lockkeeper run a -- sh -c '{script}'");
    let url = "-S redis://127.0.0.1:1";
    // A holder writes its host and process in the background: until then its owner id is shown.
    let known = "n=0; while [ $n -lt 300 ] && ! lockkeeper show a -o json | grep -q pid.:[0-9]; do n=$((n+1)); sleep 0.1; done";
    let busy = inside(&format!("{known}; LOCKKEEPER_AROUND= lockkeeper run -n a -- true"));
    for (script, code, parts) in [
        (busy.as_str(), 1, &["is held by ", " pid ", "; wait longer, or try again later"][..]),
        (
            &inside("lockkeeper run a -- true"),
            64,
            &["a command around this one holds ", ", so this one would wait for itself; use --reenter"],
        ),
        ("lockkeeper run --max-hold 0.3 a -- sleep 60", 80, &["was held for as long as --max-hold allows; ending the command"]),
        (
            &format!("lockkeeper {url} run -w 1 a -- true"),
            69,
            &["cannot reach redis://", "is the server running there?: Connection refused"],
        ),
        (
            "lockkeeper -S memory: run a -- true",
            64,
            &["memory: lives inside one process", "use sqlite: on one machine, or redis://HOST across machines"],
        ),
        (
            "lockkeeper -S localhost:6379 run a -- true",
            64,
            &["no store has the scheme localhost:; did you mean redis://localhost:6379?"],
        ),
        (
            "lockkeeper -S redis://:pa/ss@h run a -- true",
            64,
            &[
                "the redis URL is not understood; a user name or a password with / ? # or % in it is written with %2F %3F %23 or %25",
            ],
        ),
        ("lockkeeper run '' -- true", 64, &["a name must not be empty"]),
        ("lockkeeper show a", 1, &["there is nothing named ", "; see lockkeeper list"]),
        (
            "lockkeeper run --permits 2 s -- lockkeeper run --permits 3 s -- true",
            64,
            &["the semaphore ", " has 2 permits, not 3; use --permits 2, or lockkeeper semaphore set ", " 3"],
        ),
        ("lockkeeper run a -- ./none", 127, &[" was not found; check its name and $PATH"]),
        (
            "lockkeeper run a -- /etc/passwd",
            126,
            &[" cannot be executed: Permission denied (os error 13); check its mode and its first line"],
        ),
        ("lockkeeper run a", 64, &["there is no command; use lockkeeper run NAME -- COMMAND"]),
        ("lockkeeper run -l 10ms a -- true", 64, &["a lease of 10ms would be lost before it can be renewed; use 100ms or more"]),
        (
            "lockkeeper -S redlock:redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3 run -w 1 a -- true",
            69,
            &["no majority: ", " of 3 servers cannot be reached"],
        ),
    ] {
        explained(&place, script, code, parts);
    }
}

#[test]
fn messages_of_a_server_are_as_explained() {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip("messages_of_a_server_are_as_explained", &why);
        return;
    }
    let place = Place::new("server");
    let (plain, evicting) =
        (Server::start(Flavour::Redis), Server::start_with(Flavour::Redis, &["--maxmemory-policy", "allkeys-lru"]));
    let closed = Server::start_with(Flavour::Redis, &["--requirepass", "secret"]);
    let lost = "lockkeeper -S URL run -l 6s a -- sh -c 'lockkeeper -S URL release --yes a; exec sleep 60'";
    let set = |key: &str, value: &str| {
        use std::io::{Read as _, Write as _};
        let mut redis = std::net::TcpStream::connect(("127.0.0.1", plain.port)).expect("the server");
        redis.write_all(format!("SET {key} {value}\r\n").as_bytes()).expect("it listens");
        let mut answer = [0; 5];
        redis.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"+OK\r\n");
    };
    set("text", "hello");
    set("number", "5");
    for (server, script, code, parts) in [
        (&plain, lost, 79, &["the lock ", " is lost: the store no longer knows this hold; ending the command"][..]),
        (
            &plain,
            "lockkeeper -S URL run text -- true",
            64,
            &["the key ", " is a string, not a lock; choose another name or remove the key"],
        ),
        (
            &plain,
            "lockkeeper -S URL run --permits 5 number -- true",
            64,
            &[" is a number that lockkeeper did not make", "say --java if Redisson made it as a semaphore"],
        ),
        (
            &plain,
            "lockkeeper -S URL9999 run a -- true",
            64,
            &["the server has no such database (DB index is out of range); write one that it has, or none"],
        ),
        (
            &evicting,
            "lockkeeper -S URL run a -- true",
            64,
            &[
                "the server evicts keys when memory is short (maxmemory-policy allkeys-lru)",
                "set noeviction, or accept it with ?eviction=accept",
            ],
        ),
        (&evicting, "lockkeeper -S URL doctor", 69, &["locks are not safe in this store; see the lines marked BAD"]),
        (
            &closed,
            "lockkeeper -S URL run a -- true",
            69,
            &[" wants a password and the URL has none; write it as :PASSWORD@ before the host"],
        ),
        (
            &closed,
            "lockkeeper -S redis://:wrong@127.0.0.1:PORT run a -- true",
            69,
            &[" refuses this user name or password: WRONGPASS"],
        ),
    ] {
        let script = script.replace("URL", &server.url(0)).replace("PORT", &server.port.to_string());
        explained(&place, &script, code, parts);
    }
}
