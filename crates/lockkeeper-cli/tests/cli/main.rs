//! `lockkeeper` as a shell sees it: the real binary, with real commands.
#![allow(clippy::disallowed_methods, reason = "tests use the machine's clock")]

mod comforts;
mod config;
mod counter;
mod death;
mod group;
mod helps;
mod hostile;
mod init;
mod kills;
mod namespace;
mod numbers;
mod output;
mod places;
mod pty;
mod queue;
#[cfg(all(feature = "etcd", feature = "zookeeper"))]
mod queues;
mod redis;
mod shells;
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod sql;
mod stores;
mod system;
mod tables;
mod terminal;
mod torture;
mod util;
mod verbs;
mod words;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use lockkeeper_testkit::server;
use rustix::process::{Pid, Signal, kill_process};
use stores::fresh;
use util::{assert_refused, end, end_with_input, lockkeeper, run};

#[test]
fn output_passes_through_and_nothing_is_added() {
    let ended = end(&mut run(["hello", "--", "sh", "-c", "echo out; echo err >&2"]));
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "out\n", "err\n"));
}

#[test]
fn input_passes_through() {
    let ended = end_with_input(&mut run(["hello", "cat"]), "first\nsecond\n");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "first\nsecond\n"));
}

#[test]
fn the_status_of_the_command_passes_through() {
    for code in [0, 1, 3, 64, 255] {
        assert_eq!(end(&mut run(["job", "sh", "-c", &format!("exit {code}")])).code, Some(code));
    }
}

#[test]
fn a_command_that_is_killed_ends_as_in_a_shell() {
    for (signal, code) in [("TERM", 143), ("KILL", 137)] {
        assert_eq!(end(&mut run(["job", "sh", "-c", &format!("kill -{signal} $$")])).code, Some(code));
    }
}

#[test]
fn a_command_that_does_not_exist_is_127() {
    assert_refused(&mut run(["job", "no-such-command-anywhere"]), 127, "was not found");
    assert_refused(&mut run(["job", "/no/such/command"]), 127, "was not found");
}

#[test]
fn a_command_that_is_not_executable_is_126() {
    assert_refused(&mut run(["job", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]), 126, "cannot be executed");
    assert_refused(&mut run(["job", "/"]), 126, "cannot be executed");
}

#[test]
fn a_wrong_command_line_is_64_and_one_line() {
    let long = "x".repeat(600);
    for (words, says) in [
        (&[][..], "there is no name"),
        (&["job"], "there is no command"),
        (&["job", "--"], "there is no command"),
        (&["", "true"], "must not be empty"),
        (&[&long, "true"], "at most 512"),
        (&["-w", "soon", "job", "true"], "is not a duration"),
        (&["-w", "-1", "job", "true"], "is negative"),
        (&["-l", "99999999999999999999h", "job", "true"], "is too long"),
        (&["-l", "0", "job", "true"], "lease"),
        (&["-l", "10ms", "job", "true"], "use 100ms or more"),
        (&["--max-hold", "18446744073709551615", "job", "true"], "is too long"),
        (&["--at-least", "18446744073709551615", "job", "true"], "is too long"),
        (&["--grace", "18446744073709551615", "job", "true"], "is too long"),
        (&["--max-hold", "1", "--at-least", "2", "job", "true"], "is shorter than --at-least"),
        (&["-n", "-w", "1", "job", "true"], "cannot be used with"),
        (&["-s", "-x", "job", "true"], "cannot be used with"),
        (&["--permits", "2", "--take", "3", "job", "true"], "cannot take 3 permits"),
        (&["-c", "true", "job", "true"], "there are two commands"),
        (&["-E", "256", "job", "true"], "256"),
        (&["--sideways", "job", "true"], "--sideways"),
        (&["job", "-v", "true"], "options go before"),
        (&["-S", "mongo://h", "job", "true"], "no store has the scheme mongo:"),
        (&["-S", "nowhere", "job", "true"], "is not a store URL"),
    ] {
        assert_refused(&mut run(words), 64, says);
    }
    assert_refused(&mut lockkeeper::<&str>([]), 64, "there is nothing to do");
    assert_refused(&mut lockkeeper(["walk"]), 64, "walk");
}

#[test]
fn the_options_of_the_command_are_not_eaten() {
    assert_eq!(end(&mut run(["job", "sh", "-c", "exit 3"])).code, Some(3));
    assert_eq!(end(&mut run(["job", "echo", "-n", "--fair", "--", "-v"])).stdout, "--fair -- -v");
    assert_eq!(end(&mut run(["job", "--", "printf", "%s.", "--help", "-S"])).stdout, "--help.-S.");
}

#[test]
fn the_command_learns_name_token_and_owner() {
    let script = "echo $LOCKKEEPER_NAME; echo $LOCKKEEPER_TOKEN; echo $LOCKKEEPER_OWNER; echo $INHERITED";
    let mut command = run(["orders 42", "sh", "-c", script]);
    // Those of a lock around this one must not shine through.
    command
        .env("LOCKKEEPER_NAME", "outer")
        .env("LOCKKEEPER_TOKEN", "outer")
        .env("LOCKKEEPER_OWNER", "outer")
        .env("INHERITED", "kept");
    let ended = end(&mut command);
    let lines: Vec<_> = ended.stdout.lines().collect();
    let [name, token, owner, inherited] = lines[..] else { panic!("{ended:?}") };
    assert_eq!((name, inherited), ("orders 42", "kept"));
    assert!(token.parse::<u64>().is_ok_and(|token| token > 0), "{token}");
    assert!(owner.parse::<lockkeeper::owner::WireOwner>().is_ok(), "{owner}");
}

#[test]
fn the_store_comes_from_the_option_then_from_the_environment() {
    assert_refused(run(["job", "true"]).env("LOCKKEEPER_STORE", "mongo://h"), 64, "mongo:");
    assert_eq!(end(run(["-S", &fresh(), "job", "true"]).env("LOCKKEEPER_STORE", "mongo://h")).code, Some(0));
    assert_eq!(end(run(["-S", &fresh(), "job", "true"]).env("LOCKKEEPER_STORE", "")).code, Some(0));
}

#[test]
fn every_way_of_waiting_takes_a_free_lock() {
    for options in [&["-n"][..], &["-w", "1.5"], &["-w0"], &["--fair"], &["--fair", "-n"], &["-l", "5s"], &["-E", "9"]] {
        let ended = end(&mut run(options.iter().chain(&["job", "true"])));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{options:?}");
    }
}

#[test]
fn verbose_tells_time_and_token_on_stderr() {
    let store = fresh();
    let ended = end(&mut run(["-S", &store, "-v", "job", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]));
    assert!(ended.stderr.starts_with(&format!("lockkeeper: acquired \"job\" from {store} after ")), "{ended:?}");
    assert!(ended.stderr.ends_with(&format!(" s, token {}", ended.stdout)), "{ended:?}");
}

/// Starts the runner on a script, and waits until the script has said its first line. Whoever runs the tests may ignore signals (a
/// shell does that for what it starts with `&`), and the runner would heed that: so they are set back first.
fn started(script: &str) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut runner = std::process::Command::new("env")
        .args(["--default-signal", env!("CARGO_BIN_EXE_lockkeeper"), "run", "-S", &fresh(), "job", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdout = BufReader::new(runner.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("the script speaks");
    (runner, stdout, line)
}

fn send(runner: &Child, signal: Signal) {
    kill_process(Pid::from_child(runner), signal).expect("the runner is there");
}

#[test]
fn signals_to_the_runner_reach_the_command() {
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::CONT, "CONT"),
        (Signal::TSTP, "TSTP"),
    ] {
        // No grandchild: one that does not heed a stop as its shell does would keep the shell waiting.
        let script = format!("trap 'echo got {name}; exit 7' {name}; echo ready; while :; do :; done");
        let (mut runner, mut stdout, ready) = started(&script);
        assert_eq!(ready, "ready\n");
        send(&runner, signal);
        let mut heard = String::new();
        stdout.read_line(&mut heard).expect("the script speaks");
        assert_eq!((heard, runner.wait().expect("it ends").code()), (format!("got {name}\n"), Some(7)));
    }
}

#[test]
fn a_signal_that_kills_the_command_becomes_the_status() {
    let (mut runner, _stdout, _) = started("echo ready; exec sleep 60");
    send(&runner, Signal::TERM);
    let status = runner.wait().expect("it ends");
    assert_eq!((status.code(), status.signal()), (Some(143), None));
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    let script = format!("trap '' HUP; exec {binary} run -S {} job sh -c 'kill -HUP $PPID; kill -HUP $$; exit 4'", fresh());
    let ended = end(std::process::Command::new("sh").args(["-c", &script]).stdin(Stdio::null()));
    assert_eq!(ended.code, Some(4), "{ended:?}");
}

#[test]
fn term_ends_a_shell_and_its_grandchild() {
    let (mut runner, mut stdout, grandchild) = started("sleep 300 & echo $!; wait; echo unreachable");
    let grandchild = Pid::from_raw(grandchild.trim().parse().expect("a pid")).expect("a pid");
    send(&runner, Signal::TERM);
    assert_eq!(runner.wait().expect("it ends").code(), Some(143));
    // Both had stdout open.
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("stdout ends");
    assert_eq!(rest, "");
    util::until("the grandchild is gone", || !util::is_running(grandchild));
}

#[test]
fn a_string_is_run_by_a_shell() {
    let ended = end(run(["-c", "echo $LOCKKEEPER_NAME; exit 5", "job"]).env("SHELL", "/bin/sh"));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(5), "job\n"));
}

#[test]
fn permits_have_no_token() {
    let mut command = run(["--permits", "2", "--take", "2", "job", "sh", "-c", "echo ${LOCKKEEPER_TOKEN-none}"]);
    assert_eq!(end(command.env("LOCKKEEPER_TOKEN", "7")).stdout, "none\n");
}

#[test]
fn max_hold_ends_the_command_with_80() {
    let began = Instant::now();
    assert_refused(&mut run(["--max-hold", "100ms", "job", "sh", "-c", "sleep 300 & wait"]), 80, "--max-hold");
    assert!(began.elapsed() >= Duration::from_millis(100));
}

#[test]
fn what_does_not_heed_term_is_killed_after_the_grace() {
    let script =
        "trap '' TERM; sh -c \"trap '' TERM; echo \\$\\$; while :; do sleep 0.01; done\" & wait; while :; do sleep 0.01; done";
    let began = Instant::now();
    let ended = end(&mut run(["--max-hold", "500ms", "--grace", "300ms", "job", "sh", "-c", script]));
    assert_eq!(ended.code, Some(80), "{ended:?}");
    assert!(began.elapsed() >= Duration::from_millis(800), "{:?}", began.elapsed());
    let grandchild = Pid::from_raw(ended.stdout.trim().parse().expect("a pid")).expect("a pid");
    util::until("the grandchild is gone", || !util::is_running(grandchild));
}

#[test]
fn at_least_keeps_the_lock_after_a_quick_command() {
    let began = Instant::now();
    assert_eq!(end(&mut run(["--at-least", "300ms", "job", "sh", "-c", "exit 3"])).code, Some(3));
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_place_that_cannot_be_written_is_refused_in_one_line() {
    assert_refused(&mut run(["-S", "sqlite:/sys/locks.db", "job", "true"]), 69, "/sys");
    assert_refused(&mut run(["-S", "sqlite:/no/such/directory/locks.db", "job", "true"]), 64, "/no/such/directory");
    let mut command = run(["job", "true"]);
    command.env_remove("LOCKKEEPER_STORE").env("XDG_STATE_HOME", "/sys/state").env("XDG_CONFIG_HOME", "/nowhere");
    assert_refused(command.env_remove("LOCKKEEPER_CONFIG"), 69, "/sys/state");
}

#[test]
fn without_a_word_the_locks_are_in_the_users_state_directory() {
    let directory = config::Directory::new("state");
    let mut command = run(["-v", "job", "echo", "mine"]);
    command.env_remove("LOCKKEEPER_STORE").env_remove("LOCKKEEPER_CONFIG");
    command.env("XDG_STATE_HOME", &directory.0).env("XDG_CONFIG_HOME", directory.0.join("none"));
    let ended = end(&mut command);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "mine\n"), "{ended:?}");
    let file = directory.0.join("lockkeeper/locks.db");
    assert!(file.is_file() && ended.stderr.contains(&format!("from sqlite:{}", file.display())), "{ended:?}");
}
