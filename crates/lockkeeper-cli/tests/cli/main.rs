//! `lockkeeper run` as a shell sees it.
#![allow(clippy::disallowed_methods, reason = "tests use the machine's clock")]

mod redis;
#[path = "../../../lockkeeper/tests/redis/server.rs"]
#[allow(dead_code, reason = "the library's tests use more of it")]
mod server;
mod util;

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
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
        (&["-n", "-w", "1", "job", "true"], "cannot be used with"),
        (&["-E", "256", "job", "true"], "256"),
        (&["--sideways", "job", "true"], "--sideways"),
        (&["job", "-v", "true"], "options go before"),
        (&["-S", "etcd://h", "job", "true"], "no store has the scheme etcd:"),
        (&["-S", "nowhere", "job", "true"], "is not a store URL"),
    ] {
        assert_refused(&mut run(words), 64, says);
    }
    assert_refused(&mut lockkeeper::<&str>([]), 64, "there is nothing to do");
    assert_refused(&mut lockkeeper(["walk"]), 64, "walk");
}

#[test]
fn help_and_version_go_to_stdout() {
    for words in [&["--help"][..], &["run", "--help"], &["help", "run"]] {
        let ended = end(&mut lockkeeper(words));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{words:?}");
        assert!(ended.stdout.contains("only one of us at a time"), "{words:?}: {}", ended.stdout);
    }
    assert_eq!(end(&mut lockkeeper(["--version"])).stdout, concat!("lockkeeper ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn help_tells_every_exit_status() {
    let help = end(&mut lockkeeper(["run", "--help"])).stdout;
    for code in ["1", "64", "69", "70", "79", "126", "127"] {
        assert!(help.lines().any(|line| line.split_whitespace().next() == Some(code)), "{code} is missing: {help}");
    }
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
    let mut command = run(["job", "true"]);
    assert_refused(command.env("LOCKKEEPER_STORE", "etcd://h"), 64, "etcd:");
    assert_eq!(end(run(["-S", "memory:", "job", "true"]).env("LOCKKEEPER_STORE", "etcd://h")).code, Some(0));
    assert_eq!(end(run(["job", "true"]).env("LOCKKEEPER_STORE", "")).code, Some(0));
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
    let ended = end(&mut run(["-v", "job", "sh", "-c", "echo $LOCKKEEPER_TOKEN"]));
    assert!(ended.stderr.starts_with("lockkeeper: took \"job\" after "), "{ended:?}");
    assert!(ended.stderr.ends_with(&format!(" s, token {}", ended.stdout)), "{ended:?}");
}

/// Starts the runner on a script, and waits until the script has said its first line. Whoever runs the tests may ignore signals (a
/// shell does that for what it starts with `&`), and the runner would heed that: so they are set back first.
fn started(script: &str) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut runner = std::process::Command::new("env")
        .args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_lockkeeper"), "run", "job", "sh", "-c", script])
        .env_remove("LOCKKEEPER_STORE")
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
    for (signal, name) in [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::HUP, "HUP")] {
        let script = format!("trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.01; done");
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
    let script = format!("trap '' HUP; exec {binary} run job sh -c 'kill -HUP $PPID; kill -HUP $$; exit 4'");
    let ended = end(std::process::Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).env_remove("LOCKKEEPER_STORE"));
    assert_eq!(ended.code, Some(4), "{ended:?}");
}
