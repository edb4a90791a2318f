//! What a script learns when the output cannot be written, and what others learn of a command that holds a lock.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use lockkeeper::blocking::Client;

use crate::stores::{fresh, on_each_store, on_sqlite};
use crate::util::{end, lockkeeper, run, until};

/// Every verb that prints something. `job` is held and `ready` is a latch.
const VERBS: [&[&str]; 9] = [
    &["list"],
    &["list", "-o", "json"],
    &["show", "job"],
    &["show", "job", "-o", "json"],
    &["doctor"],
    &["latch", "show", "ready"],
    &["help", "exit-codes"],
    &["man"],
    &["--help"],
];

/// Runs a test for each verb, on a store where there is something to print.
fn for_each_verb(test: &str, run: impl Fn(Command, &[&str])) {
    on_sqlite(test, |url| {
        let client = Client::connect(url).expect("a store");
        let guard = client.mutex("job").lock().expect("free");
        for words in VERBS {
            let mut command = lockkeeper(words);
            command.env("LOCKKEEPER_STORE", url).stderr(Stdio::piped());
            run(command, words);
        }
        guard.release().expect("held");
    });
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_said() {
    for_each_verb("output_that_cannot_be_written_is_a_failure_and_said", |mut command, words| {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full");
        let ended = end(command.stdout(full));
        assert_eq!(ended.code, Some(70), "{words:?}: {ended:?}");
        assert!(
            ended.stderr.contains("cannot write to stdout") && ended.stderr.contains("No space left"),
            "{words:?}: {ended:?}"
        );
    });
}

#[test]
fn a_reader_that_is_gone_ends_a_verb_quietly_as_the_signal_would() {
    for_each_verb("a_reader_that_is_gone_ends_a_verb_quietly_as_the_signal_would", |mut command, words| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = end(command.stdout(writer));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(141), ""), "{words:?}");
    });
}

#[test]
fn watch_ends_when_its_reader_is_gone() {
    on_sqlite("watch_ends_when_its_reader_is_gone", |url| {
        let client = Client::connect(url).expect("a store");
        let mut watcher =
            lockkeeper(["watch", "-S", url, "-o", "json", "--every", "20ms"]).stdout(Stdio::piped()).spawn().expect("it starts");
        let guard = client.mutex("job").lock().expect("free");
        let mut line = String::new();
        BufReader::new(watcher.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        // The reader is gone; the next change cannot be written.
        guard.release().expect("held");
        assert_eq!(watcher.wait().expect("it ends").code(), Some(141));
    });
}

#[test]
fn the_command_and_its_user_are_shown_and_its_arguments_are_not() {
    on_each_store("the_command_and_its_user_are_shown_and_its_arguments_are_not", |url| {
        let mut holder = run(["-S", url, "job", "/bin/sh", "-c", "cat", "--password=secret"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("it starts");
        let shown = |words: &[&str]| end(lockkeeper(words).args(["-S", url])).stdout;
        until("the holder is known", || shown(&["show", "job", "-o", "json"]).contains("\"program\":\"/bin/sh\""));
        let user = String::from_utf8(Command::new("id").arg("-un").output().expect("id runs").stdout).expect("UTF-8");
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let process = format!("{}@{host} {}", user.trim(), holder.id());
        for words in [&["show", "job"][..], &["list"]] {
            let shown = shown(words);
            assert!(shown.contains(&process) && shown.contains("/bin/sh") && !shown.contains("secret"), "{words:?}: {shown}");
        }
        let json: serde_json::Value = serde_json::from_str(&shown(&["show", "job", "-o", "json"])).expect("JSON");
        assert_eq!(json["holders"][0]["user"], user.trim(), "{json}");
        drop(holder.stdin.take());
        holder.wait().expect("it ends");
    });
}

#[test]
fn an_owner_is_shown_once() {
    on_each_store("an_owner_is_shown_once", |url| {
        let client = Client::connect(url).expect("a store");
        let mutex = client.mutex("job").lock().expect("free");
        let permits = client.semaphore("pool", 3).acquire_many(2).expect("free");
        let shown = end(&mut lockkeeper(["show", "-S", url, "job"])).stdout;
        assert_eq!(shown.matches(&mutex.owner().to_string()).count(), 1, "{shown}");
        // On Redis permits have ids of their own, as Redisson's; several permits of one call are one row.
        let shown = end(&mut lockkeeper(["show", "-S", url, "pool"])).stdout;
        assert_eq!(shown.matches("2 of 3 ").count(), 1, "{shown}");
        assert_eq!(shown.lines().count(), 5, "{shown}");
        mutex.release().expect("held");
        permits.release().expect("held");
    });
}

#[test]
fn the_command_does_not_inherit_the_password_of_the_store() {
    let url = fresh();
    let told = |options: &[&str]| {
        let mut command = run(["-S", &url].iter().chain(options).chain(&["job", "sh", "-c", "env"]));
        end(command.env("LOCKKEEPER_STORE", "redis://me:secret@h:1/0?sentinel_password=other&replicas=1")).stdout
    };
    for options in [&[][..], &["--pass-password"]] {
        let told = told(options);
        assert!(!told.contains("secret") && told.contains(&format!("LOCKKEEPER_STORE={url}\n")), "{options:?}: {told}");
    }
}

/// A nested lockkeeper uses the same store, also after a change of the directory: another one would exclude nobody.
#[test]
fn a_nested_lockkeeper_finds_the_store_of_the_option() {
    let directory = crate::config::Directory::new("nested-store");
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    let mut command = run(["-S", "sqlite:here.db", "outer", "sh", "-c", &format!("cd / && '{binary}' list -o json")]);
    let ended = end(command.current_dir(&directory.0));
    assert!(ended.stdout.contains("\"name\":\"outer\""), "{ended:?}");
}
